"""A program with one session for all: three event loops, and a forked child in the midst of a fourth.

Run with the address of a service and, for TLS, the file of the authority that it trusts. Each call has an amount
of its own, so that the service can tell them apart.
"""

import asyncio
import os
import ssl
import sys

from payasync import Credentials, Profile, RetryPolicy, Session

url, *authority = sys.argv[1:]
pay = Session(
    url,
    credentials=Credentials("M1", secret_key="sk_test"),
    profile=Profile(),
    retry=RetryPolicy(attempts=1),
    tls=ssl.create_default_context(cafile=authority[0]) if authority else None,
)


async def create(amount: int) -> None:
    """Make one payment."""
    await pay.payments.create(amount=amount, currency="USD")


async def around_a_fork() -> None:
    """Pay, let a child pay, and pay on."""
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
