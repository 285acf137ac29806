"""Makes the calls of one client in a process of its own.

Its arguments: the client, how many calls, the base URL, the event loop, the file of a trusted authority, and numbers of
concurrent calls. It prints the CPU time of a call in µs for each of these numbers. It calls
`getpgid` before and after each of these measurements, where callgrind divides its counts.
"""

import asyncio
import gc
import os
import ssl
import sys
import time
from collections.abc import Callable, Coroutine
from importlib import import_module

from benchmarks.clients import CLIENTS, REFUNDS, Call, Service


async def cpu_time(call: Call, calls: int, concurrent: int) -> float:
    """Return the CPU time of one of several concurrent calls in µs."""
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await call()

    gc.collect()
    os.getpgid(0)
    started = time.process_time()
    await asyncio.gather(*(worker() for _ in range(concurrent)))
    took = time.process_time() - started
    os.getpgid(0)
    return took / calls * 1e6


async def main(name: str, calls: int, service: Service, concurrencies: list[int]) -> None:
    """Measure each concurrency in turn, after as many calls that only warm up."""
    async with (CLIENTS | REFUNDS)[name](service) as call:
        for concurrent in concurrencies:
            await cpu_time(call, concurrent * 2, concurrent)
            print(await cpu_time(call, max(calls, concurrent * 2), concurrent))


if __name__ == "__main__":
    run: Callable[[Coroutine[None, None, None]], None] = asyncio.run
    if sys.argv[4] == "uvloop":
        # Without types, so that they can be checked where it is missing.
        run = import_module("uvloop").run
    tls = ssl.create_default_context(cafile=sys.argv[5]) if sys.argv[5] else None
    if tls:
        tls.minimum_version = ssl.TLSVersion.TLSv1_2  # not the default of each system's Python
    run(main(sys.argv[1], int(sys.argv[2]), Service(sys.argv[3], tls), [int(each) for each in sys.argv[6:]]))
