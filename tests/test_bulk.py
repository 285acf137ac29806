"""`pay.bulk`: many requests, a few at a time, over a real service whose ledger is the truth."""

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, nullcontext, suppress
from typing import Any, Final

import pytest
from attrs import evolve
from multidict import CIMultiDict

import payasync
from payasync import (
    Call,
    CloseOrder,
    CreatePayment,
    CreateRefund,
    Credentials,
    Done,
    QueryRefund,
    Refused,
    Reply,
    Request,
    Response,
    RetryPolicy,
    Send,
    Session,
    SortedPairs,
    errors,
)
from payasync.sandbox import PROFILE, Sandbox
from payasync.session import Result, Unknown
from tests.foreign.recorder import Recorder, answer
from tests.inside import Time, turns, until
from tests.sessions import connect

ONE_TRY: Final = RetryPolicy(attempts=1, quota=0)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox with a paid order."""
    async with Sandbox(clock="frozen") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=45_000)
        yield sandbox


@pytest.fixture
async def pay(sandbox: Sandbox) -> AsyncIterator[Session]:
    """A session that makes one attempt."""
    async with sandbox.session(retry=ONE_TRY) as pay:
        yield pay


def refund(number: str = "R1", **given: Any) -> CreateRefund:
    """Return a refund of 100."""
    facts: dict[str, Any] = {"out_trade_no": "T1", "total_amt": 45_000, "refund_amt": 100, **given}
    return CreateRefund(out_refund_no=number, **facts)


def refunds(count: int) -> list[CreateRefund]:
    """Return this many refunds."""
    return [refund(f"R{number}") for number in range(count)]


class Gate:
    """A layer that holds calls until the test opens it, and counts the calls that it holds."""

    def __init__(self, *free: str) -> None:
        self.open = asyncio.Event()
        self._free = free
        self.held = 0
        self.most = 0
        self.begun: list[str | None] = []

    async def __call__(self, call: Call, send: Send) -> Reply:
        """Hold a call."""
        self.begun.append(call.reference)
        self.held += 1
        self.most = max(self.most, self.held)
        try:
            if call.reference not in self._free:
                await self.open.wait()
            return await send(call)
        finally:
            self.held -= 1


def others() -> set[asyncio.Task[Any]]:
    """Return the tasks that a bulk has begun and that have not ended."""
    # No public name says which tasks are a bulk's.
    return {task for task in asyncio.all_tasks() if "_Bulk" in getattr(task.get_coro(), "__qualname__", "")}


async def test_each_request_has_one_result(sandbox: Sandbox, pay: Session) -> None:
    """Each request has exactly one result, which names it."""
    given: list[Request[Response]] = [*refunds(30)]
    found = [result async for result in pay.bulk(given)]

    assert [Done] * 30 == [type(result) for result in found]
    assert given == sorted((result.request for result in found), key=given.index)
    assert {"succeeded"} == {result.response.state for result in found if isinstance(result, Done)}
    assert (30, 3_000) == (sandbox.ledger.refunds(), sandbox.ledger.refunded("T1"))


async def test_result_of_each_kind(sandbox: Sandbox, pay: Session) -> None:
    """A refused, unsent or read request without a response is `Refused` with its error; the others are sent."""
    missing, query = refund("R2", out_trade_no="T9"), QueryRefund(identifier="R1")
    sandbox.faults.reset_before("refunds.status")
    first, *found, last = await _all(pay.bulk([refund(), missing, query, refund("R3")], limit=1))
    async with connect("http://127.0.0.1:1", credentials=sandbox.credentials, profile=PROFILE) as nowhere:
        (unsent,) = await _all(nowhere.bulk([refund("R4")]))
    refused = [*found, unsent]

    assert [Refused] * 3 == [type(each) for each in refused]
    assert [errors.ServiceError, errors.NoAnswerError, errors.NotSentError] == [type(each.error) for each in refused]
    assert unsent.error.sent is False
    assert [Done, Done] == [type(first), type(last)]
    assert 2 == sandbox.ledger.refunds()


async def forgetful(call: Call, send: Send) -> Reply:
    """Lose every response."""
    await send(call)
    raise errors.NoAnswerError("lost")


async def test_unknown_has_its_error(sandbox: Sandbox, pay: Session) -> None:
    """A write that may have been done is `Unknown`, with the error that `reconcile` takes.

    So is one whose number was used before, perhaps by an earlier run. Each is also the event of that name.
    """
    async with sandbox.session(retry=ONE_TRY, middleware=[forgetful]) as forgetting:
        (lost,) = await _all(forgetting.bulk([refund()]))
    with Recorder([answer(409, b'{"code":"SBX_OTHER"}')]) as service:
        async with connect(service, profile=PROFILE, retry=ONE_TRY) as other:
            (used,) = await _all(other.bulk([refund()]))

    assert [Unknown, Unknown] == [type(each) for each in (lost, used)]
    assert [errors.OutcomeUnknownError, errors.DuplicateError] == [type(each.error) for each in (lost, used)]
    assert "succeeded" == (await pay.reconcile(lost.error)).state
    assert isinstance(used, payasync.Unknown)
    assert ("refunds.create", "R1", "the number was used before") == (used.operation, used.reference, used.reason)
    assert "it may have been done" == Unknown(refund(), errors.OutcomeUnknownError("it may have been done")).reason


async def test_no_more_than_the_limit_are_under_way(sandbox: Sandbox) -> None:
    """Exactly `limit` calls are in flight while enough requests are left."""
    for run, limit in enumerate((1, 3, 20)):
        gate = Gate()
        requests = [refund(f"{run}-{number}") for number in range(25)]
        async with sandbox.session(middleware=[gate]) as pay:
            results = asyncio.ensure_future(_all(pay.bulk(requests, limit=limit)))
            await until(lambda gate=gate, limit=limit: gate.held == limit)  # type: ignore[misc]
            gate.open.set()

            assert (25, limit) == (len(await results), gate.most)


async def _all(results: AsyncIterator[Any]) -> list[Any]:
    return [result async for result in results]


async def test_progress_counts_what_has_ended(pay: Session) -> None:
    """`on_progress` is called for each result before it is yielded. For a generator, it says how many were read."""
    heard: list[tuple[int, int]] = []
    seen = [len(heard) async for _ in pay.bulk(refunds(5), limit=2, on_progress=lambda *counts: heard.append(counts))]

    assert [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)] == heard
    assert [1, 2, 3, 4, 5] == seen
    heard.clear()
    await _all(pay.bulk(iter(refunds(5)), limit=2, on_progress=lambda *counts: heard.append(counts)))

    assert [1, 2, 3, 4, 5] == [ended for ended, _ in heard]
    assert {0, 1} == {read - ended for ended, read in heard}
    assert (5, 5) == heard[-1]
    assert [] == await _all(pay.bulk([]))


BAD: Final[dict[str, tuple[Any, str, str]]] = {
    "no iterable": (refund(), "requests", "iterable of request objects"),
    "a text": ("R1", "requests", "iterable of request objects"),
    "no request": ([refund(), "R2"], "requests[1]", "a request object"),
    "a class": ([CreateRefund], "requests[0]", "a request object"),
    "refused by the profile": ([refund(), refund("R 2")], "requests[1].out_refund_no", "identifier"),
    "refused by the codec": ([refund(extra={"sign": "x"})], "requests[0].extra", "sign"),
    "cannot be signed": ([refund(), refund("R2", extra={"note": "a&b"})], "requests[1].note", "cannot be signed"),
    "one number twice": (
        [refund(), refund("R2"), refund(refund_amt=1)],
        "requests[2].out_refund_no",
        "requests[0] has 'R1' already",
    ),
}


async def test_all_is_checked_before_the_first_is_sent(sandbox: Sandbox, pay: Session) -> None:
    """An invalid request is named by its position, and nothing is sent."""
    for requests, field, words in BAD.values():
        with pytest.raises(errors.InvalidArgumentError) as caught:
            pay.bulk(requests)

        assert field == caught.value.field
        assert words in str(caught.value)
        assert field.partition(".")[0] in str(caught.value)
    assert [] == sandbox.ledger.calls()


class Source:
    """Requests that are read one by one, and how many of them were read."""

    def __init__(self, requests: Iterable[Any]) -> None:
        self._requests = requests
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        for request in self._requests:
            self.read += 1
            yield request

    async def rows(self) -> AsyncIterator[Any]:
        """Yield the requests as rows of a database cursor, with a pause before each."""
        for request in self:
            await asyncio.sleep(0)
            yield request


SOURCES: Final[dict[str, Callable[[Source], Any]]] = {"generator": iter, "async generator": Source.rows}
sources = pytest.mark.parametrize("kind", SOURCES)


@sources
@pytest.mark.parametrize("limit", [1, 4])
async def test_generator_is_read_as_its_requests_are_sent(pay: Session, kind: str, limit: int) -> None:
    """No more than `limit` requests of a generator are read and not yet yielded."""
    source = Source(refunds(20))
    ahead: list[int] = []
    async for result in pay.bulk(SOURCES[kind](source), limit=limit):
        ahead.append(source.read - len(ahead))
        assert isinstance(result, Done)

    assert 20 == len(ahead) == source.read
    assert limit == max(ahead)


@pytest.mark.parametrize("name", [name for name, (given, *_) in BAD.items() if isinstance(given, list)][2:])
@sources
async def test_invalid_request_of_a_generator_is_refused(sandbox: Sandbox, pay: Session, kind: str, name: str) -> None:
    """An invalid request of a generator is `Refused` with its position, and the others are sent."""
    requests, field, words = BAD[name]
    found = await _all(pay.bulk(SOURCES[kind](Source([*requests, refund("R9")]))))
    (refused,) = [result for result in found if isinstance(result, Refused)]

    assert len(requests) + 1 == len(found)
    assert requests[-1] == refused.request
    assert isinstance(refused.error, errors.InvalidArgumentError)
    assert (field, False) == (refused.error.field, refused.error.sent)
    assert words in str(refused.error)
    assert len(requests) == sandbox.ledger.refunds()


@sources
@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [("R3", errors.InvalidArgumentError, r"requests\[2\] must be a request object"), (None, ZeroDivisionError, "zero")],
    ids=["something else", "an error"],
)
async def test_generator_that_breaks_loses_nothing(
    sandbox: Sandbox, kind: str, wrong: Any, error: type[Exception], words: str
) -> None:
    """If a generator breaks, the requests in flight are yielded, no other begins, and then the error is raised."""

    def broken() -> Iterator[Any]:
        yield from refunds(2)
        yield wrong or 1 / 0
        yield refund("R3")

    gate, found = Gate(), list[Any]()

    async def gather(pay: Session) -> None:
        async for result in pay.bulk(SOURCES[kind](source)):
            found.append(result)

    source = Source(broken())
    async with sandbox.session(middleware=[gate]) as pay:
        gathering = asyncio.ensure_future(gather(pay))
        await until(lambda: gate.held == 2)
        await turns(20)
        gate.open.set()
        with pytest.raises(error, match=words):
            await gathering

    assert ["R0", "R1"] == sorted(str(result.request.reference) for result in found)
    assert [Done, Done] == [type(result) for result in found]
    assert 2 == sandbox.ledger.refunds()


async def test_check_first(sandbox: Sandbox, pay: Session) -> None:
    """With `check_first=True`, a generator is read and checked before the first request is sent. An `async` one cannot.

    With `check_first=False`, an invalid request of a list is `Refused`, and the others are sent.
    """
    with pytest.raises(errors.InvalidArgumentError, match="requests\\[1\\]"):
        pay.bulk(iter([refund(), refund("R 2")]), check_first=True)
    with pytest.raises(errors.InvalidArgumentError, match="async for each in requests"):
        pay.bulk(Source(refunds(2)).rows(), check_first=True)
    before = sandbox.ledger.calls()
    found = await _all(pay.bulk([refund("R 1"), refund("R2")], check_first=False))

    assert [] == before
    assert {Refused: 1, Done: 1} == Counter(type(result) for result in found)


async def test_slow_generator_holds_no_result_back(pay: Session) -> None:
    """While an `async` generator waits for its next request, the results that are there are yielded."""
    more = asyncio.Event()

    async def slow() -> AsyncIterator[CreateRefund]:
        yield refund("R1")
        await more.wait()
        yield refund("R2")

    async with aclosing(pay.bulk(slow())) as results:
        first = await anext(results)
        more.set()
        second = await anext(results)

    assert ["R1", "R2"] == [each.request.reference for each in (first, second)]


async def test_error_that_is_not_ours(sandbox: Sandbox) -> None:
    """An error that is not of payasync is raised after the requests in flight have ended, and no other begins.

    It is raised even if an `async` generator never yields another request.
    """

    async def breaking(call: Call, send: Send) -> Reply:
        if call.reference == "R0":
            raise ZeroDivisionError
        return await send(call)

    async def endless() -> AsyncIterator[CreateRefund]:
        yield refund("R0")
        await asyncio.Event().wait()

    found, source = list[Result[Any]](), Source(refunds(3))

    async def gather(pay: Session) -> None:
        async for result in pay.bulk(refunds(10), limit=3):
            found.append(result)

    async with sandbox.session(middleware=[breaking]) as pay:
        with pytest.raises(ZeroDivisionError):
            await gather(pay)
        for requests, limit in ((endless(), 20), (iter(source), 1)):
            with pytest.raises(ZeroDivisionError):
                await _all(pay.bulk(requests, limit=limit))

    assert ["R1", "R2"] == sorted(str(result.request.reference) for result in found)
    assert (2, set(), 1) == (sandbox.ledger.refunds(), others(), source.read)


async def test_request_begins_before_the_next_is_read(sandbox: Sandbox) -> None:
    """A generator that takes long for its next request does not hold back those that it has yielded."""
    gate, begun = Gate(), list[list[str | None]]()
    gate.open.set()

    def rows() -> Iterator[CreateRefund]:
        for request in refunds(3):
            begun.append(list(gate.begun))
            yield request

    async with sandbox.session(middleware=[gate]) as pay:
        await _all(pay.bulk(rows()))

    assert [[], ["R0"], ["R0", "R1"]] == begun


@pytest.mark.parametrize("limit", [2, 3], ids=["while the source stands at its yield", "while the source waits"])
@pytest.mark.parametrize("more", [None, 0, 1], ids=["raised", "handled", "handled, and another request"])
async def test_timeout_of_a_generator_cancels_no_request(sandbox: Sandbox, limit: int, more: int | None) -> None:
    """A timeout in an `async` generator is its own: it may raise or handle it, and requests in flight end."""
    gate, found, timeouts = Gate(), list[Any](), list[asyncio.Timeout]()

    async def rows() -> AsyncIterator[CreateRefund]:
        with nullcontext() if more is None else suppress(TimeoutError):
            async with asyncio.timeout(None) as timeout:
                timeouts.append(timeout)
                for request in refunds(2):
                    yield request
                await asyncio.Event().wait()
        if more:
            yield refund("R2")

    async def gather(pay: Session) -> None:
        with pytest.raises(TimeoutError) if more is None else nullcontext():
            async for result in pay.bulk(rows(), limit=limit):
                found.append(result)

    async with sandbox.session(middleware=[gate]) as pay:
        gathering = asyncio.ensure_future(gather(pay))
        await until(lambda: gate.held == 2)
        await turns(20)
        timeouts[0].reschedule(0)
        await turns(20)
        gate.open.set()
        await gathering

    assert [Done] * (2 + (more or 0)) == [type(result) for result in found]
    assert len(found) == sandbox.ledger.refunds()


async def test_request_that_is_read_too_late_is_not_sent(sandbox: Sandbox, pay: Session) -> None:
    """After the loop was left, a request is not sent, even if an `async` generator ignores its cancellation."""

    async def stubborn() -> AsyncIterator[CreateRefund]:
        yield refund("R1")
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        yield refund("R2")

    async with aclosing(pay.bulk(stubborn())) as results:
        await anext(results)

    assert 1 == sandbox.ledger.refunds()


async def test_one_number_for_two_things_is_no_contradiction(pay: Session) -> None:
    """One number may stand in different operations and in reads; requests without a number never clash."""
    same = [refund("T1"), CloseOrder(out_trade_no="T1"), *[QueryRefund(identifier="T1")] * 2]
    payments: list[Request[Any]] = [CreatePayment(amount=1, currency="CAD")] * 2

    assert 6 == len(await _all(pay.bulk([*same, *payments])))


async def _waiting(done: int, total: int) -> None:
    del done, total


async def test_invalid_option_is_refused_before_the_first_is_sent(pay: Session) -> None:
    """An invalid option is refused by name. An `async` listener is refused, because it would not be awaited."""
    wrong: list[tuple[str, Any]] = [("limit", value) for value in (0, -1, True, 1.5, "3", None)]
    wrong += [("on_progress", 3), ("on_progress", _waiting), ("timeout", 0), ("check_first", 1)]
    for option, value in wrong:
        with pytest.raises(errors.InvalidArgumentError, match=f"{option} must be"):
            pay.bulk([refund()], **{option: value})


async def test_what_is_missing_to_sign_is_named_before_the_first_is_sent(sandbox: Sandbox) -> None:
    """A missing key or signature option is raised before sending, without naming a request, because all lack it."""
    known: dict[str, Any] = {"secret_key": sandbox.credentials.secret_key, "signing_key": "signing key of M1"}
    cases: list[tuple[Any, Any, type[errors.ConfigurationError], str]] = [
        ({"signing_key": None}, {}, errors.ConfigurationError, "credentials.signing_key"),
        ({}, {"signature": None}, errors.NotConfiguredError, "signature"),
        ({}, {"signature": SortedPairs(encoding="hex")}, errors.NotConfiguredError, "signature.algorithm"),
    ]
    for keys, changes, kind, field in cases:
        credentials = Credentials(sandbox.credentials.merchant_id, **{**known, **keys})
        async with Session(sandbox.url, credentials=credentials, profile=evolve(PROFILE, **changes)) as pay:
            with pytest.raises(kind) as single:
                await pay.send(refund())
            with pytest.raises(kind) as caught:
                pay.bulk([CreatePayment(amount=1, currency="CAD"), refund()])
            with pytest.raises(kind) as read:
                await _all(pay.bulk(iter([refund(), refund("R2")])))

        assert (single.value.args, None) == (read.value.args, read.value.reference)
        assert (single.value.args, field) == (caught.value.args, caught.value.field)
        assert ("refunds.create", None) == (caught.value.operation, caught.value.reference)
    assert [] == sandbox.ledger.calls()


async def broken_off(pay: Session, requests: list[CreateRefund]) -> None:
    """Leave the loop at the first result."""
    async for _ in pay.bulk(requests, limit=3):
        break


async def cancelled(pay: Session, requests: list[CreateRefund]) -> None:
    """Cancel the caller at the first result."""
    first = asyncio.Event()
    caller = asyncio.ensure_future(_all(pay.bulk(requests, limit=3, on_progress=lambda *_: first.set())))
    await first.wait()
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()


async def raised(pay: Session, requests: list[CreateRefund]) -> None:
    """Let the listener raise."""

    def listener(done: int, total: int) -> None:
        raise ZeroDivisionError(done, total)

    with pytest.raises(ZeroDivisionError):
        await _all(pay.bulk(requests, limit=3, on_progress=listener))


@pytest.mark.parametrize("leave", [broken_off, cancelled, raised])
async def test_leaving_leaves_no_task(
    sandbox: Sandbox, leave: Callable[[Session, list[CreateRefund]], Awaitable[None]]
) -> None:
    """Leaving the loop in any way cancels requests in flight, and no other begins."""
    gate = Gate("R0")
    async with sandbox.session(middleware=[gate]) as pay:
        await leave(pay, refunds(10))
        await until(lambda: not others())

    assert 0 == gate.held
    assert ["R0", "R1", "R2"] == gate.begun
    assert 1 == sandbox.ledger.refunds()


async def test_session_that_closes_refuses_what_has_not_begun(sandbox: Sandbox) -> None:
    """After closing, requests in flight end, and each other request is `Refused`."""
    gate = Gate()
    async with sandbox.session(middleware=[gate]) as pay:
        results = asyncio.ensure_future(_all(pay.bulk(refunds(10), limit=3)))
        await until(lambda: gate.held == 3)
        closing = asyncio.ensure_future(pay.aclose(grace=30))
        await asyncio.sleep(0)
        gate.open.set()
        found = await results
        await closing
        with pytest.raises(errors.SessionClosedError):
            pay.bulk([refund()])
    refused = [result for result in found if isinstance(result, Refused)]

    assert (10, 7, 3) == (len(found), len(refused), sandbox.ledger.refunds())
    assert {(errors.SessionClosedError, False)} == {(type(each.error), each.error.sent) for each in refused}


async def test_nothing_new_begins_before_retry_after_is_over() -> None:
    """After a 429 the next request is sent when its `Retry-After` is over, and not before.

    Closing ends the wait: requests that have not begun are `Refused`.
    """
    time, busy = Time(), answer(429, b'{"code":"SBX_BUSY"}', ("Retry-After", "60"))
    with Recorder([busy, answer(200, b'{"code":"SBX_OK","status":"SBX_SUCCEEDED"}'), busy]) as service:
        async with connect(service, profile=PROFILE, retry=ONE_TRY) as pay:
            results = pay.bulk(refunds(4), limit=1)
            first = await anext(results)
            second = asyncio.create_task(anext(results))
            await time.pass_by(59)
            early = len(service.requests)
            await time.pass_by(2)
            found = [type(first), type(await second), type(await anext(results))]
            closing = asyncio.create_task(pay.aclose())
            last: Any = await anext(results)
            await closing

    assert (1, [Refused, Done, Refused]) == (early, found)
    assert (Refused, errors.SessionClosedError) == (type(last), type(last.error))
    assert 3 == len(service.requests)


async def test_many_take_no_more_memory_than_few() -> None:
    """Requests of a generator take no memory after they have ended, besides the numbers: at most 200 bytes each."""

    async def succeed(call: Call, send: Send) -> Reply:
        del call, send
        return Reply(200, CIMultiDict(), b'{"code":"SBX_OK","status":"SBX_SUCCEEDED"}')

    async def peak(pay: Session, requests: Iterable[Request[Any]]) -> int:
        tracemalloc.start()
        try:
            async for result in pay.bulk(requests):
                assert isinstance(result, Done)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    async with connect("http://127.0.0.1:1", profile=PROFILE, middleware=[succeed]) as pay:
        await _all(pay.bulk(refunds(20)))
        few, many = [await peak(pay, (QueryRefund(identifier="R1") for _ in range(count))) for count in (200, 2000)]
        numbered = await peak(pay, (refund(f"R{number:08d}") for number in range(2000)))

    assert many <= 1.2 * few
    assert numbered - many <= 2000 * 200
