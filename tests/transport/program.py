"""A program that uses one session in three event loops, and in a fourth that forks.

Run it with the address of a service and, for TLS, the file of the trusted authority. Each call has its own amount,
so that the service can tell the calls apart.
"""

import asyncio
import os
import ssl
import sys

from payasync import Credentials, Profile, RetryPolicy, Session

url, *authority = sys.argv[1:]
tls = ssl.create_default_context(cafile=authority[0]) if authority else None
if tls:
    tls.minimum_version = ssl.TLSVersion.TLSv1_2  # not the default of each system's Python
pay = Session(
    url, credentials=Credentials("M1", secret_key="sk_test"), profile=Profile(), retry=RetryPolicy(attempts=1), tls=tls
)


async def create(amount: int) -> None:
    """Make one payment."""
    await pay.payments.create(amount=amount, currency="USD")


async def around_a_fork() -> None:
    """Pay in the parent, in a forked child, and in the parent again."""
    await create(4)
    child = os.fork()
    if not child:
        asyncio.run(create(5))
        sys.exit()  # runs all finalisers: what the child inherited must not reach the parent's peer
    _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - nothing else is to happen meanwhile
    if status:
        sys.exit("the child failed")
    await create(6)
    await create(7)


for number in (1, 2, 3):
    asyncio.run(create(number))
asyncio.run(around_a_fork())
