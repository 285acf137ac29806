"""One call's attempts, the waits between them, the queries after a lost response, and the retry budget."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import errors
from payasync.endpoints import (
    CLOSE_ORDER,
    CREATE_PAYMENT,
    CREATE_REFUND,
    OPERATIONS,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_REFUND,
    Kind,
    Operation,
)
from payasync.middleware.observe import Event, EventSink, Unknown
from payasync.middleware.retry import RETRY_COST, Quota, RetryContext, retry
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, Idempotency, Recovery, ResultCodes
from payasync.settings import RetryPolicy, Timeouts
from payasync.wire.call import Call, Layer, Reply, Send
from tests.building import PROFILE, Hours, Way, bare_call, reply, way

START: Final = 1000.0
"""When every call here begins."""


def unsent(**facts: Any) -> errors.NotSentError:
    """Return the error of an attempt that was not sent."""
    return errors.NotSentError("nothing was sent: refused", reason="refused", **facts)


def refund(total: float = 45.0, **facts: Any) -> Call:
    """Return a refund with its number and this total timeout."""
    return bare_call(CREATE_REFUND, reference="R1", timeouts=Timeouts(total=total), deadline=START + total, **facts)


def layer(
    policy: RetryPolicy = RetryPolicy(),
    *,
    quota: Quota | None = None,
    heard: list[Event] | None = None,
    hours: Hours | None = None,
    ask: Callable[[Call], Call | None] = lambda _: None,
) -> Layer:
    """Return the retry layer, on a clock that only its waits move."""
    context = RetryContext(
        policy=policy,
        quota=quota or Quota(500),
        report=EventSink(None if heard is None else heard.append),
        ask=ask,
        mask=lambda reply: reply,
        pace=(hours or Hours(now=START)).pace(),
    )
    return retry(context)


def taking(hours: Hours, seconds: float, end: Way) -> Send:
    """Return a `send` that takes this many seconds."""

    async def send(call: Call) -> Reply:
        hours.now += seconds
        return await end.send(call)

    return send


async def test_waits_grow_up_to_a_bound() -> None:
    """A wait is random between 0 and a bound, which doubles with each attempt, up to the policy's greatest."""
    for policy, share, bounds in [
        (RetryPolicy(attempts=8), 1.0, [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]),
        (RetryPolicy(attempts=4, base_delay=3, max_delay=7), 1.0, [3.0, 6.0, 7.0]),
        (RetryPolicy(), 0.25, [0.5, 1.0]),
    ]:
        hours = Hours(now=START, share=share)
        with pytest.raises(errors.NotSentError):
            await layer(policy, hours=hours)(refund(100.0), way(unsent()).send)

        assert bounds == hours.bounds
        assert [share * bound for bound in bounds] == hours.waits


UNNAMED: Final = [operation for operation in OPERATIONS if operation.kind is Kind.UNKEYED]


async def test_no_retry_starts_too_late() -> None:
    """A retry starts only if 2 s, or a tenth of a smaller total, are left after its wait. Only a started one costs."""
    for total, taken, attempts in [
        (45.0, 42.5, 2),
        (45.0, 42.6, 1),
        (45.0, 60.0, 1),
        (10.0, 8.5, 2),
        (10.0, 8.6, 1),
        (1.0, 0.4, 2),
        (1.0, 0.5, 1),
    ]:
        hours, end, quota = Hours(now=START), way(unsent()), Quota(500)
        with pytest.raises(errors.NotSentError):
            await layer(RetryPolicy(attempts=2), hours=hours, quota=quota)(refund(total), taking(hours, taken, end))

        assert (attempts, 505 - 5 * attempts) == (len(end.calls), quota.tokens)
        assert [0.5] * (attempts - 1) == hours.waits


async def test_tokens_of_a_call() -> None:
    """A retry costs 5 tokens, after a time-out 10. A call that succeeds returns its tokens, or one if it took none."""
    quota = Quota(530)
    for end in (unsent(), errors.NotSentTimeoutError("late")):
        with pytest.raises(errors.NotSentError):
            await layer(quota=quota)(refund(), way(end).send)
    quota.take(100)
    await layer(quota=quota)(refund(), way(unsent(), errors.NotSentTimeoutError("late"), reply({})).send)
    after_retries = quota.tokens
    await layer(quota=quota)(refund(), way(reply({})).send)

    assert (400, 401) == (after_retries, quota.tokens)


async def test_unknown_outcome_is_reported() -> None:
    """`on_event` receives `Unknown` for a write that may have been done."""
    cases: list[tuple[Reply | errors.PayasyncError, str]] = [
        (errors.NoAnswerError("no usable answer: cut", reason="cut"), "cut"),
        (errors.NoAnswerError("no usable answer", reason=errors.NotSentError("within")), "within"),
        (reply({}, 503), "the service failed"),
        (errors.OutcomeUnknownError("from a layer"), "from a layer"),
    ]
    for end, reason in cases:
        heard = list[Event]()
        with pytest.raises(errors.OutcomeUnknownError):
            await layer(heard=heard)(refund(), way(end).send)

        assert [Unknown(operation="refunds.create", reference="R1", reason=reason)] == heard


def sent(end: Way) -> Send:
    """Return a `send` that marks the call as begun, as the transport does."""

    async def send(call: Call) -> Reply:
        call.progress.begun = True
        return await end.send(call)

    return send


async def test_foreign_errors_pass_through() -> None:
    """If no write was sent, an error of a user's layer, or a cancellation, is raised unchanged and not repeated."""
    for call, begun in [(refund(), False), (bare_call(QUERY_ORDER), True)]:
        for foreign in [ZeroDivisionError("mine"), TimeoutError(), asyncio.CancelledError()]:
            heard, end = list[Event](), way(foreign)
            with pytest.raises(type(foreign)) as caught:
                await layer(heard=heard)(call, sent(end) if begun else end.send)

            assert foreign is caught.value
            assert (1, []) == (len(end.calls), heard)


async def test_foreign_error_after_a_write_was_sent() -> None:
    """If a user's layer raises after a write was sent, the outcome is unknown: a retry would pay twice."""
    for operation in [*UNNAMED, PLACE_ORDER, CREATE_REFUND]:
        for foreign in [ZeroDivisionError("mine"), TimeoutError(), ConnectionResetError()]:
            heard, end = list[Event](), way(foreign)
            with pytest.raises(errors.OutcomeUnknownError) as caught:
                await layer(heard=heard)(bare_call(operation, reference="X1"), sent(end))
            reason = f"middleware raised {type(foreign).__name__}"

            lost = caught.value

            assert foreign is lost.__cause__
            assert (None, reason, False) == (lost.sent, lost.reason, "mine" in str(lost))
            assert [Unknown(operation=operation.name, reference="X1", reason=reason)] == heard
            assert 1 == len(end.calls)


DENIALS: Final = (errors.NotSentTimeoutError, errors.InvalidArgumentError, errors.ServiceError)


async def test_what_denies_a_write_that_was_sent() -> None:
    """A layer's error cannot deny a write that was sent."""
    for denial in [unsent(), *(kind("another call") for kind in DENIALS)]:
        end = way(denial)
        with pytest.raises(errors.OutcomeUnknownError) as caught:
            await layer()(refund(), sent(end))

        assert denial is caught.value.__cause__
        assert (1, None) == (len(end.calls), caught.value.sent)


QUARANTINED: Final = evolve(
    PROFILE,
    answer=AnswerShape(code="code", ok=("OK",)),
    codes=ResultCodes(not_executed=("PARAM",), absent=("NONE",)),
    recovery=Recovery(quarantine=20.0),
)
"""A service that says what absent is, and when that is final."""

OK: Final = reply({"code": "OK"})
NONE: Final = reply({"code": "NONE"})
PARAM: Final = reply({"code": "PARAM"})
YEAR_9999: Final = "Fri, 31 Dec 9999 23:59:59 GMT"
CUT: Final = errors.NoAnswerError("cut", reason="cut")
BUSY: Final = reply({}, 503)


def questioned(profile: Profile = QUARANTINED, operation: Operation = CREATE_REFUND, **facts: Any) -> Call:
    """Return a write that can be queried."""
    total = facts.pop("total", 45.0)
    given = {"reference": "R1", "timeouts": Timeouts(total=total), "deadline": START + total, **facts}
    return bare_call(operation, profile=profile, **given)


def asking(call: Call) -> Call:
    """Return the query about a write."""
    query = QUERY_REFUND if call.operation is CREATE_REFUND else QUERY_ORDER
    return evolve(call, operation=query)


def names(end: Way) -> list[str]:
    """Return the calls that were sent, in order: W for the write, Q for a query."""
    return ["Q" if call.read else "W" for call in end.calls]


FOREIGN: Final = ZeroDivisionError("mine")
PROVEN_ABSENT: Final[dict[str, tuple[float, float, list[Any], str, list[float], str]]] = {
    "asked again when it is over": (20, 0, [CUT, NONE, NONE, OK], "WQQW", [0.5, 19.5, 2.0], "done"),
    "over before the query": (0.5, 0, [CUT, NONE, OK], "WQW", [0.5, 1.0], "done"),
    "over during the query": (3, 4, [CUT, NONE, OK], "WQQ", [0.0, 0.0], "recovered"),
    "longer than the call": (300, 0, [CUT, NONE], "WQ", [0.5], "unknown"),
    "committed meanwhile": (20, 0, [CUT, NONE, OK], "WQQ", [0.5, 19.5], "recovered"),
    "after two lost queries": (20, 0, [CUT, BUSY, BUSY, NONE, OK], "WQQQQ", [0.5, 1.0, 2.0, 16.5], "recovered"),
    "after a foreign error": (20, 0, [CUT, FOREIGN, OK], "WQQ", [0.5, 1.0], "recovered"),
    "from each lost attempt": (20, 7, [CUT, NONE, NONE, CUT, NONE, OK], "WQQWQQ", [0, 13, 0, 0, 13], "recovered"),
    "then refused": (0, 0, [CUT, NONE, PARAM], "WQW", [0.5, 1.0], "refused"),
    "then not found": (0, 0, [CUT, NONE, NONE], "WQW", [0.5, 1.0], "refused"),
}
"""The quarantine, the seconds of an attempt, the ends of all attempts; then what is sent, the waits and the result."""


async def test_quarantine() -> None:
    """A write is sent again only if a query after the quarantine of the last lost attempt says "not found".

    All attempts and queries share one deadline.
    """
    for quarantine, seconds, ends, expected, waits, result in PROVEN_ABSENT.values():
        profile = evolve(QUARANTINED, recovery=Recovery(quarantine=quarantine))
        hours, end = Hours(now=START, share=0.0 if seconds else 1.0), way(*ends)
        try:
            reply = await layer(ask=asking, hours=hours)(questioned(profile, total=200.0), taking(hours, seconds, end))
        except errors.OutcomeUnknownError:
            ended = "unknown"
        except errors.ServiceError as error:
            ended = "refused" if type(error) is errors.ServiceError else repr(error)
        else:
            ended = "recovered" if reply.recovered else "done"
            assert len(ends) == reply.attempts

        assert (list(expected), waits, result) == (names(end), hours.waits, ended)
        assert {("R1", START + 200.0)} == {(call.reference, call.deadline) for call in end.calls}


async def test_refusal_after_a_lost_attempt() -> None:
    """If a close or a keyed write is lost, and its repeat is refused, the outcome is unknown: the first may be done."""
    keyed = questioned(evolve(QUARANTINED, idempotency=Idempotency(header="Key")), CREATE_PAYMENT, reference=None)
    for call in [questioned(operation=CLOSE_ORDER), keyed.with_idempotency_key("k")]:
        end = way(CUT, PARAM)
        with pytest.raises(errors.OutcomeUnknownError) as caught:
            await layer()(call, end.send)

        assert (2, 2) == (len(end.calls), caught.value.attempts)


async def test_used_before_after_a_send_that_the_journal_knows_is_asked_about() -> None:
    """If the journal knows of an earlier send, "used before" leads to a query."""
    end = way(reply({}, 409), OK)
    answer = await layer(ask=asking)(questioned().derived(earlier_sends=1), end.send)

    assert (["W", "Q"], True) == (names(end), answer.recovered)


async def test_answer_that_holds_nothing_recovers_nothing() -> None:
    """An empty response to a query does not recover a write."""
    cases: list[object] = [None, [], {}, ""]
    for data in cases:
        shape = evolve(PROFILE.answer, data="data")
        profile, end = evolve(QUARANTINED, answer=shape), way(CUT, reply({"code": "OK", "data": data}))
        with pytest.raises(errors.OutcomeUnknownError, match="the service says nothing about R1"):
            await layer(ask=asking)(questioned(profile), end.send)

        assert ["W", "Q"] == names(end)


SIGNING: Final = evolve(QUARANTINED, answer=evolve(QUARANTINED.answer, signature="sign"))
"""A service that signs its answers."""


async def test_error_of_a_query_says_whether_absence_is_proven() -> None:
    """The error of a query says whether "not found" is proven, by the profile and by the signature."""
    for said, expected in [(evolve(NONE, verified=True), True), (NONE, False), (PARAM, False)]:
        with pytest.raises(errors.ServiceError) as caught:
            await layer()(asking(questioned(evolve(SIGNING, recovery=Recovery()))), way(said).send)

        assert expected is caught.value.absent


async def test_questions_have_a_small_budget_of_their_own() -> None:
    """A write is queried at most three times, even if the policy allows only one attempt."""
    cases: list[Reply | errors.PayasyncError] = [CUT, BUSY, reply([]), unsent(), reply({}, 429)]
    for lost in cases:
        hours, heard, end = Hours(now=START), list[Event](), way(CUT, lost)
        with pytest.raises(errors.OutcomeUnknownError) as caught:
            await layer(RetryPolicy(attempts=1), ask=asking, hours=hours, heard=heard)(questioned(), end.send)

        assert ["W", "Q", "Q", "Q"] == names(end)
        assert ([0.5, 1.0, 2.0], 4) == (hours.waits, caught.value.attempts)
        assert [Unknown(operation="refunds.create", reference="R1", reason="cut")] == [
            each for each in heard if isinstance(each, Unknown)
        ]


async def test_sends_are_limited_by_the_policy() -> None:
    """A "not found" never leads to more sends than the policy allows."""
    for attempts in [1, 3]:
        profile = evolve(QUARANTINED, recovery=Recovery(quarantine=0.0))
        end = way(CUT, NONE, CUT, NONE, CUT, NONE)
        with pytest.raises(errors.OutcomeUnknownError) as caught:
            await layer(RetryPolicy(attempts=attempts), ask=asking)(questioned(profile), end.send)

        assert ["W", "Q"] * attempts == names(end)
        assert (2 * attempts, "cut") == (caught.value.attempts, caught.value.reason)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("given", "waits"), [("7", [7.0]), ("0", [0.5]), ("soon", [0.5]), ("43", [43.0]), ("44", []), (YEAR_9999, [])]
)
async def test_retry_after_is_a_floor(given: str, waits: list[float], status: int) -> None:
    """`Retry-After` is the least wait; nonsense is ignored. If it is too long, the call fails, and the error has it."""
    hours, end = Hours(now=START), way(reply({}, status, {"Retry-After": given}), OK)
    ended: object
    try:
        ended = await layer(hours=hours)(questioned(operation=QUERY_ORDER), end.send)
    except (errors.NoAnswerError, errors.RateLimitedError) as error:
        ended = error.retry_after is not None and error.retry_after >= 44

    assert (waits, True) == (hours.waits, bool(ended))


async def test_query_waits_for_retry_after() -> None:
    """If the service sends `Retry-After`, the query about a write waits that long."""
    for status in [429, 503]:
        hours, end = Hours(now=START), way(reply({}, status, {"Retry-After": "7"}), OK)
        found = await layer(hours=hours, ask=asking)(questioned(), end.send)

        assert (["W", "Q"], [7.0], True) == (names(end), hours.waits, found.recovered)


async def test_error_has_the_retry_after_of_a_query() -> None:
    """The `Retry-After` of a query is in the error of the write."""
    end = way(CUT, reply({}, 429, {"Retry-After": "90"}))
    with pytest.raises(errors.OutcomeUnknownError) as caught:
        await layer(ask=asking)(questioned(), end.send)

    assert (["W", "Q"], 90.0) == (names(end), caught.value.retry_after)


def test_questions_have_tokens_of_their_own() -> None:
    """Successes fill a reserve for queries, up to a tenth of the quota, which retries cannot use."""
    quota = Quota(100)
    quota.take(RETRY_COST)
    for _ in range(50):
        quota.pay_back(2 * RETRY_COST)
    retries = [quota.take(RETRY_COST) for _ in range(21)]
    questions = [quota.take(RETRY_COST, asking=True) for _ in range(3)]

    assert ([*[True] * 20, False], [True, True, False]) == (retries, questions)
    assert 0 == quota.tokens


def test_queries_use_the_reserve_last() -> None:
    """A query uses the reserve last; without any success the reserve is empty."""
    quota = Quota(100)

    assert [*[True] * 20, False] == [quota.take(RETRY_COST, asking=True) for _ in range(21)]


async def test_used_before_under_a_key() -> None:
    """Under a key, "used before" means that an earlier attempt is in progress: it is waited for, and not recorded."""
    profile = evolve(PROFILE, idempotency=Idempotency(header="Key"))
    keyed = questioned(profile, CREATE_PAYMENT, reference=None).with_idempotency_key("k")
    hours, ends = Hours(now=START), way(reply({}, 409), reply({}, 409, {"Retry-After": "7"}), reply({}))
    done = await layer(hours=hours)(keyed, ends.send)

    assert (3, [0.5, 7.0], False) == (done.attempts, hours.waits, keyed.progress.used_before)
