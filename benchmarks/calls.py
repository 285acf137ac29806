"""Rows about calls: their cost beside other clients, memory, the event loop's lag, and many calls at once."""

import asyncio
import gc
import logging
import resource
import statistics
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmarks.clients import CLIENTS, Call, Service, payasync
from benchmarks.counting import MEASURED, call_costs, call_times
from benchmarks.rows import Figure, Run
from benchmarks.server import static_server
from payasync import AnswerShape, Credentials, Profile, Secret, SortedPairs, Timeouts

CONCURRENCIES: Final = (1, 16, 64, 1024)
TO_HAND: Final = 0.90
TO_TUNED: Final = 1.05
IN_FLIGHT: Final = 1000
CLOCK: Final = 0.002
"""Seconds by which two readings of the loop's clock may differ."""
P99: Final = 98
"""Among the 99 cut points of `quantiles(n=100)`."""


def call(run: Run) -> Iterator[Figure]:
    """A signed call, beside hand-written and tuned aiohttp."""
    concurrencies = CONCURRENCIES[:-1] if run.quick else CONCURRENCIES
    with static_server() as base:
        costs = call_costs(("hand-written", "tuned", "payasync"), concurrencies, base)
    for index, concurrent in enumerate(concurrencies):
        yield from _against_aiohttp(costs, index, f", {concurrent:,} at a time")


def uvloop(_: Run) -> Iterator[Figure]:
    """The same with uvloop."""
    with static_server() as base:
        costs = call_costs(("hand-written", "tuned", "payasync"), (64,), base, loop="uvloop")
    yield from _against_aiohttp(costs, 0, ", uvloop")


def _against_aiohttp(costs: dict[str, list[float]], index: int, how: str) -> Iterator[Figure]:
    ours = costs["payasync"][index]
    to_hand, to_tuned = ours / costs["hand-written"][index], ours / costs["tuned"][index]
    yield Figure(f"call to hand-written aiohttp{how}", to_hand, most=TO_HAND, measured=MEASURED)
    yield Figure(f"call to tuned aiohttp{how}", to_tuned, most=TO_TUNED, measured=MEASURED)


def clients(_: Run) -> Iterator[Figure]:
    """A call of each client at 64 concurrent: its CPU time, and its cost to hand-written aiohttp."""
    with static_server() as base:
        costs = call_costs(tuple(CLIENTS), (64,), base)
        times = call_times(tuple(CLIENTS), (base, "asyncio", "", "64"), 2000)
    for name, (cost,) in costs.items():
        yield Figure(f"{name}, CPU", times[name][0], "µs", measured="CPU time")
        yield Figure(f"{name} to hand-written aiohttp", cost / costs["hand-written"][0], measured=MEASURED)
    yield Figure("payasync to stripe", costs["payasync"][0] / costs["stripe"][0], most=0.40, measured=MEASURED)


def tls(run: Run) -> Iterator[Figure]:
    """A call over TLS, on connections that are open."""
    authority, file, trusted = trustme.CA(), run.folder / "server.pem", run.folder / "authority.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(file)
    authority.cert_pem.write_to_path(trusted)
    with static_server(certificate=str(file)) as base:
        # No instructions: callgrind makes handshakes so slow that idle connections expire between calls.
        times = call_times(("hand-written", "payasync"), (base, "asyncio", str(trusted), "64"), run.times(4000))
    ratio = times["payasync"][0] / times["hand-written"][0]
    yield Figure("call to hand-written aiohttp, TLS", ratio, measured="CPU time")


def memory(_: Run) -> Iterator[Figure]:
    """The memory of a call in flight."""
    with static_server(delay=3) as base:
        service = Service(base, connections=IN_FLIGHT)
        ours, theirs = (asyncio.run(_memory_in_flight(name, service)) for name in ("payasync", "hand-written"))
    yield Figure(f"payasync, {IN_FLIGHT:,} calls in flight, each", ours / 1024, "KiB", measured="allocations")
    yield Figure("memory in flight to hand-written aiohttp", ours / theirs, most=1.06, measured="allocations")


async def _memory_in_flight(name: str, service: Service) -> float:
    async with CLIENTS[name](service) as call:
        await asyncio.gather(*(call() for _ in range(10)))
        gc.collect()
        tracemalloc.start()
        tasks = [asyncio.ensure_future(call()) for _ in range(IN_FLIGHT)]
        await asyncio.sleep(2.5)  # all are sent, and none is answered
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await asyncio.gather(*tasks)
        return used / IN_FLIGHT


def lag(run: Run) -> Iterator[Figure]:
    """The event loop's lag under 1,024 concurrent calls."""
    with static_server() as base:
        lags = asyncio.run(_lags(("hand-written", "payasync"), base, run))
    ours, theirs = (statistics.quantiles(lags[name], n=100)[P99] for name in ("payasync", "hand-written"))
    yield Figure("loop lag p99, 1,024 at a time", ours * 1e3, "ms")
    yield Figure("loop lag p99 to hand-written aiohttp", ours / theirs, most=1.0)


async def _lags(names: Sequence[str], base: str, run: Run) -> dict[str, list[float]]:
    lags: dict[str, list[float]] = {name: [] for name in names}
    async with AsyncExitStack() as stack:
        calls = {name: await stack.enter_async_context(CLIENTS[name](Service(base))) for name in names}
        for number in range(run.times(12) + 1):
            for name, call in calls.items():
                found = await _lags_beside(_slice(call, 5000, 1024))
                if number:
                    lags[name] += found
    return lags


async def _slice(call: Call, calls: int, concurrent: int) -> None:
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await call()

    await asyncio.gather(*(worker() for _ in range(concurrent)))


async def _lags_beside(work: Awaitable[None]) -> list[float]:
    """Return by how many seconds a short timer was late, each time, while work was done."""
    loop, lags = asyncio.get_running_loop(), list[float]()
    task = asyncio.ensure_future(work)
    while not task.done():
        due = loop.time() + 0.001
        await asyncio.sleep(0.001)
        lags.append(loop.time() - due)
    await task
    return lags


def rsa_lag(run: Run) -> Iterator[Figure]:
    """The event loop's lag while 64 concurrent calls sign with RSA."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    profile = Profile(
        signature=SortedPairs(algorithm="rsa-sha256", encoding="base64"),
        answer=AnswerShape(code="code", ok=("OK",), redirect_url="redirectUrl"),
    )

    async def measure(base: str) -> list[float]:
        credentials = Credentials("M1", signing_key=Secret(pem))
        async with payasync(Service(base), credentials=credentials, profile=profile) as call:
            await _slice(call, 64, 64)
            return await _lags_beside(_slice(call, run.times(6000), 64))

    with static_server() as base:
        lags = asyncio.run(measure(base))
    yield Figure("RSA-2048, 64 at a time, loop lag p99", statistics.quantiles(lags, n=100)[P99] * 1e3, "ms", most=5.0)


def flood(_: Run) -> Iterator[Figure]:
    """1,500 calls at once with the default settings, to a service that takes 2 seconds; 1,000 that time out."""
    total = Timeouts().total

    async def measure(base: str) -> list[tuple[str, float]]:
        async with payasync(Service(base)) as call:
            return await asyncio.gather(*(_timed(call) for _ in range(1500)))

    with static_server(delay=2) as base:
        ended = asyncio.run(measure(base))
    early = [how for how, seconds in ended if how != "done" and seconds < total - 0.5]
    answered = sum(how == "done" for how, _ in ended)
    yield Figure("1,500 calls at once, answered", answered, "calls", least=1500, measured="count")
    yield Figure("1,500 calls at once, failed before `total`", len(early), "calls", most=0, measured="count")
    yield from _time_out(IN_FLIGHT, IN_FLIGHT, 2.0)


def _time_out(calls: int, connections: int, total: float) -> Iterator[Figure]:
    """Return how late and how early calls end that all time out, because the service hangs."""

    async def measure(base: str) -> list[tuple[str, float]]:
        async with payasync(Service(base, connections=connections), timeouts=Timeouts(total=total, read=total)) as call:
            return await asyncio.gather(*(_timed(call) for _ in range(calls)))

    # Thousands of warnings would fill the terminal, which takes its own time.
    logger, quiet = logging.getLogger("payasync"), logging.NullHandler()
    logger.addHandler(quiet)
    with static_server(delay=3 * total) as base:
        ended = asyncio.run(measure(base))
    logger.removeHandler(quiet)
    if any(how == "done" for how, _ in ended):
        raise RuntimeError("the service responds too early for this measurement")
    late = [seconds - total for _, seconds in ended]
    p99 = statistics.quantiles(late, n=100)[P99]
    yield Figure(f"{calls:,} calls that time out, late by, p99", p99 * 1e3, "ms", most=100)
    early = sum(each < -CLOCK for each in late)
    yield Figure(f"{calls:,} calls that time out, ended early", early, "calls", most=0, measured="count")


def flood_10k(run: Run) -> Iterator[Figure]:
    """10,000 calls at once over 2,000 connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    errors: Counter[str] = Counter()
    p99: dict[str, list[float]] = {"hand-written": [], "payasync": []}

    async def measure(name: str, base: str) -> None:
        async with CLIENTS[name](Service(base, connections=2000)) as call:
            ended = await asyncio.gather(*(_timed(call) for _ in range(10_000)))
        errors.update(how for how, _ in ended if name == "payasync" and how != "done")
        p99[name].append(statistics.quantiles((seconds for _, seconds in ended), n=100)[P99])

    with static_server() as base:
        for _ in range(run.times(5)):
            for name in p99:
                asyncio.run(measure(name, base))
    ratio = statistics.median(p99["payasync"]) / statistics.median(p99["hand-written"])
    yield Figure("10,000 calls at once, errors", errors.total(), "calls", most=0, measured="count")
    yield Figure("10,000 at once, p99 to hand-written aiohttp", ratio, most=1.2)
    yield from _time_out(10_000, 2000, 10.0)


async def _timed(call: Call) -> tuple[str, float]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        await call()
    except Exception as error:  # noqa: BLE001 - counted
        return type(error).__name__, loop.time() - started
    return "done", loop.time() - started
