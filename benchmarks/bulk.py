"""A row about `Session.bulk`: what many requests of a generator leave in memory."""

import asyncio
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

from multidict import CIMultiDict

from benchmarks.clients import CREDENTIALS, PROFILE
from benchmarks.rows import Figure, Run
from benchmarks.server import ANSWER
from payasync import Call, CreatePayment, CreateRefund, Reply, Request, Send, Session


async def _succeed(call: Call, send: Send) -> Reply:
    del call, send
    return Reply(200, CIMultiDict(), ANSWER)


def bulk(run: Run) -> Iterator[Figure]:
    """The memory of `bulk` with 100,000 requests of a generator."""

    async def peak(requests: Iterable[Request[Any]]) -> int:
        async with Session(
            "http://localhost:1", credentials=CREDENTIALS, profile=PROFILE, middleware=[_succeed]
        ) as pay:
            tracemalloc.start()
            async for _ in pay.bulk(requests):
                pass
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return most

    count = run.times(100_000)
    _, few, many = (  # the first only fills what is cached
        asyncio.run(peak(CreatePayment(amount=1, currency="CAD") for _ in range(each))) for each in (1000, 1000, count)
    )
    refunds = (
        CreateRefund(out_trade_no="T1", out_refund_no=f"R{number:08d}", total_amt=2, refund_amt=1)
        for number in range(count)
    )
    numbered = asyncio.run(peak(refunds))
    yield Figure("bulk of 100,000, peak memory to 1,000", many / few, most=1.2, measured="allocations")
    yield Figure("bulk, memory of each number", (numbered - many) / count, "B", most=200, measured="allocations")
