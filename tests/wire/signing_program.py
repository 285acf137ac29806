"""A program that signs with RSA, forks, and signs again in parent and child.

Run it with the address of a service and the file of a private key. Each query has its own number.
"""

import asyncio
import os
import sys
import warnings
from pathlib import Path

from payasync import Credentials, Profile, RetryPolicy, Session, SortedPairs

url, key = sys.argv[1:]
pay = Session(
    url,
    credentials=Credentials("M1", signing_key=Path(key).read_text(encoding="utf-8")),
    profile=Profile(signature=SortedPairs(algorithm="rsa-sha256", encoding="base64")),
    retry=RetryPolicy(attempts=1),
)


async def query(number: str) -> None:
    """Query one order; a signature that never comes ends with a timeout."""
    await pay.orders.query(number, timeout=30)


asyncio.run(query("before"))
# Python 3.12 and later warn of any thread at a fork: that the one that signs stays behind is what this is about.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
child = os.fork()
if not child:
    asyncio.run(query("child"))
    sys.exit()  # runs all finalisers: the parent's signing thread does not keep the child
_, status = os.waitpid(child, 0)
if status:
    sys.exit("the child failed")
asyncio.run(query("after"))
