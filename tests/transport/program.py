"""A program that uses one session in three event loops, and in a fourth around two forks.

Run it with the address of a service and, for TLS, the file of the trusted authority. Each call has its own amount,
so that the service can tell the calls apart.
"""

import asyncio
import gc
import os
import ssl
import sys

from payasync import Credentials, Profile, RetryPolicy, Session
from payasync.transport import pools

pools.__dict__["WRITE_IDLE"] = 60.0  # the child of a slow machine may take long
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
    """Pay in the parent, in a child that is forked while the loop runs, and in the parent again."""
    await create(6)
    child = os.fork()
    if not child:
        asyncio.run(create(7))
        gc.collect()
        os._exit(0)  # from Python 3.14 on, a child cannot return to a loop that its parent runs
    wait_for(child)
    await create(8)


def wait_for(child: int) -> None:
    """Wait until a child has ended, and check that it did not fail."""
    if os.waitpid(child, 0)[1]:
        sys.exit("the child failed")


for number in (1, 2, 3):
    asyncio.run(create(number))
with asyncio.Runner() as runner:
    runner.run(create(4))
    if not (child := os.fork()):
        asyncio.run(create(5))
        sys.exit()  # runs all finalisers: what the child inherited must not reach the parent's peer
    wait_for(child)
    runner.run(around_a_fork())
