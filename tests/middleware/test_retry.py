import asyncio
import itertools
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.calls import Call, Layer, Reply, Send
from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NoAnswerTimeoutError,
    NotSentError,
    NotSentTimeoutError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
)
from payasync.events import Retrying, Unknown
from payasync.middleware.chain import chain
from payasync.middleware.nonce import nonce
from payasync.middleware.observe import Teller
from payasync.middleware.quota import Quota
from payasync.middleware.retry import Pace, retry
from payasync.operations import CREATE_REFUND, OPERATIONS, QUERY_ORDER, Kind, Operation
from payasync.settings import RetryPolicy, Timeouts
from tests.building import Heard, Hours, Way, bare_call, reply, way

START: Final = 1000.0
"""When every call here begins."""


def unsent(**facts: Any) -> NotSentError:
    """Return the end of an attempt that never left."""
    return NotSentError("nothing was sent: refused", reason="refused", **facts)


def refund(total: float = 45.0, **facts: Any) -> Call:
    """Return a write that names its thing, and has so many seconds."""
    return bare_call(CREATE_REFUND, reference="R1", timeouts=Timeouts(total=total), deadline=START + total, **facts)


def layer(
    policy: RetryPolicy = RetryPolicy(),
    *,
    quota: Quota | None = None,
    heard: Heard | None = None,
    hours: Hours | None = None,
) -> Layer:
    """Return the layer, with time that passes only where it waits."""
    return retry(policy, quota or Quota(500), Teller((heard or Heard()).tell), (hours or Hours(now=START)).pace())


def taking(hours: Hours, seconds: float, end: Way) -> Send:
    """Return a way that takes so many seconds."""

    async def send(call: Call) -> Reply:
        hours.now += seconds
        return await end.send(call)

    return send


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_what_never_left_is_sent_again(operation: Operation) -> None:
    """An attempt that provably left nothing behind is harmless to repeat, for every operation."""
    end = way(unsent(), NotSentTimeoutError("late"), reply({"a": 1}))
    answer = await layer()(bare_call(operation), end.send)

    assert [1, 2, 3] == [call.attempt for call in end.calls]
    assert {"a": 1} == answer.document
    assert 3 == answer.attempts


async def test_waits_grow_up_to_a_bound() -> None:
    """The bound of the wait doubles with each attempt, up to the policy's greatest."""
    hours, end = Hours(now=START), way(*[unsent()] * 7, reply({}))
    await layer(RetryPolicy(attempts=8), hours=hours)(refund(100.0), end.send)

    assert [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0] == hours.bounds
    assert hours.bounds == hours.waits


async def test_waits_are_of_the_policy() -> None:
    """Base and greatest wait are the caller's."""
    hours = Hours(now=START)
    with pytest.raises(NotSentError):
        await layer(RetryPolicy(attempts=4, base_delay=3, max_delay=7), hours=hours)(refund(), way(unsent()).send)

    assert [3.0, 6.0, 7.0] == hours.bounds


async def test_waits_are_random_in_full() -> None:
    """What is waited is what chance says, from nothing to the bound: many clients do not come back at once."""
    hours = Hours(share=0.25)
    await layer(hours=hours)(refund(), way(unsent(), unsent(), reply({})).send)

    assert [0.125, 0.25] == hours.waits


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_attempts_are_limited(attempts: int) -> None:
    """The policy says how often at most, the first attempt included; the error says how often it was."""
    end = way(unsent())
    with pytest.raises(NotSentError) as caught:
        await layer(RetryPolicy(attempts=attempts))(refund(), end.send)

    assert list(range(1, attempts + 1)) == [call.attempt for call in end.calls]
    assert ("refunds.create", "R1", attempts) == (caught.value.operation, caught.value.reference, caught.value.attempts)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    "end",
    [
        NoAnswerError("cut", reason="cut"),
        NoAnswerTimeoutError("late", reason="late"),
        OutcomeUnknownError("?"),
        ConfigurationError("no key"),
        unsent(permanent=True),
        reply({}, 302),
        reply({}, 400),
        reply({}, 409),
        reply({}, 418),
        reply({}, 429),
        reply({}, 503),
        reply([]),
    ],
    ids=repr,
)
async def test_nothing_else_is_sent_again(operation: Operation, end: Reply | PayasyncError) -> None:
    """Whatever may have left is never repeated here, and what repeating does not mend is not, either."""
    hours, heard, lost = Hours(now=START), Heard(), way(end)
    with pytest.raises(PayasyncError) as caught:
        await layer(hours=hours, heard=heard)(bare_call(operation, reference="X1"), lost.send)

    assert 1 == len(lost.calls)
    assert ([], []) == (hours.waits, heard.of(Retrying))
    assert (operation.name, "X1", 1) == (caught.value.operation, caught.value.reference, caught.value.attempts)


async def test_ambiguity_after_a_retry_is_the_end() -> None:
    """A retry that may have left is as final as a first attempt that may have."""
    end = way(unsent(), NoAnswerError("cut", reason="cut"))
    with pytest.raises(OutcomeUnknownError) as caught:
        await layer()(refund(), end.send)

    assert (2, 2, "cut") == (len(end.calls), caught.value.attempts, caught.value.reason)


@pytest.mark.parametrize(
    ("call", "end", "expected"),
    [
        (refund(), NoAnswerTimeoutError("late"), OutcomeUnknownError),
        (bare_call(QUERY_ORDER), NoAnswerTimeoutError("late"), NoAnswerTimeoutError),
        (bare_call(QUERY_ORDER), reply({}, 429), RateLimitedError),
        (refund(), reply({}, 400), ServiceError),
    ],
)
async def test_last_word_is_that_of_the_verdict(call: Call, end: Reply | PayasyncError, expected: type) -> None:
    """Which error a call ends with is decided without I/O, and raised here."""
    with pytest.raises(PayasyncError) as caught:
        await layer()(call, way(end).send)

    assert expected is type(caught.value)


async def test_one_deadline_for_all_attempts() -> None:
    """The call carries when it must end: the transport applies it, and no retry moves it."""
    end = way(unsent(), unsent(), reply({}))
    await layer()(refund(30.0), end.send)

    assert [START + 30.0] * 3 == [sent.deadline for sent in end.calls]


@pytest.mark.parametrize(
    ("total", "taken", "attempts"),
    [
        (45.0, 42.5, 2),
        (45.0, 42.6, 1),
        (45.0, 60.0, 1),
        (10.0, 8.5, 2),
        (10.0, 8.6, 1),
        (1.0, 0.4, 2),
        (1.0, 0.5, 1),
    ],
)
async def test_no_retry_starts_too_late(total: float, taken: float, attempts: int) -> None:
    """After the wait of 0.5 s there must be 2 s left, or a tenth of the total where that is less."""
    hours, end = Hours(now=START), way(unsent())
    with pytest.raises(NotSentError):
        await layer(RetryPolicy(attempts=2), hours=hours)(refund(total), taking(hours, taken, end))

    assert attempts == len(end.calls)
    assert [0.5] * (attempts - 1) == hours.waits


async def test_call_that_came_too_late_keeps_its_tokens() -> None:
    """Tokens are taken for retries that are made, not for those that were only thought of."""
    hours, quota = Hours(now=START), Quota(500)
    with pytest.raises(NotSentError):
        await layer(quota=quota, hours=hours)(refund(), taking(hours, 44.0, way(unsent())))

    assert 500 == quota.tokens


async def test_empty_quota_makes_a_failure_final() -> None:
    """A dead service is left in peace: without tokens nothing is repeated, whoever used them up."""
    quota, heard = Quota(12), Heard()
    layer_ = layer(RetryPolicy(attempts=10), quota=quota, heard=heard)
    first, second = way(unsent()), way(unsent())
    with pytest.raises(NotSentError):
        await layer_(refund(), first.send)
    with pytest.raises(NotSentError):
        await layer_(refund(), second.send)

    assert (3, 1) == (len(first.calls), len(second.calls))
    assert 2 == quota.tokens
    assert 2 == len(heard.of(Retrying))


@pytest.mark.parametrize(("end", "cost"), [(unsent(), 5), (NotSentTimeoutError("late"), 10)])
async def test_failures_cost_tokens(end: NotSentError, cost: int) -> None:
    """A retry costs 5 tokens, after a time-out 10; a call that fails in the end pays nothing back."""
    quota = Quota(500)
    with pytest.raises(NotSentError):
        await layer(quota=quota)(refund(), way(end).send)

    assert 500 - 2 * cost == quota.tokens


async def test_success_pays_back() -> None:
    """A call that succeeded gives back what its retries took; one without retries gives one token."""
    quota = Quota(500)
    quota.take(100)
    await layer(quota=quota)(refund(), way(unsent(), NotSentTimeoutError("late"), reply({})).send)
    after_retries = quota.tokens
    await layer(quota=quota)(refund(), way(reply({})).send)

    assert (400, 401) == (after_retries, quota.tokens)


async def test_amplification_is_bounded() -> None:
    """A dead service sees at most a tenth more than what was asked of it, however many attempts are allowed."""
    end, layer_ = way(unsent()), layer(quota=Quota(500), hours=Hours(now=START, share=0))
    for _ in range(1000):
        with pytest.raises(NotSentError):
            await layer_(refund(), end.send)

    assert 1100 == len(end.calls)


async def test_retries_are_told() -> None:
    """`on_event` learns of each retry before it is waited for: which call, when and why."""
    heard, end = Heard(), way(unsent(), NotSentError("no such host"), reply({}))
    await layer(heard=heard)(refund(), end.send)

    assert [
        Retrying(operation="refunds.create", reference="R1", attempt=2, delay=0.5, reason="refused"),
        Retrying(operation="refunds.create", reference="R1", attempt=3, delay=1.0, reason="no such host"),
    ] == heard.events


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (NoAnswerError("no usable answer: cut", reason="cut"), "cut"),
        (NoAnswerError("no usable answer", reason=NotSentError("within")), "within"),
        (reply({}, 503), "the service failed"),
        (OutcomeUnknownError("from a layer"), "from a layer"),
    ],
)
async def test_unknown_outcome_is_told(end: Reply | PayasyncError, reason: str) -> None:
    """`on_event` learns of a write that may have been done, so that somebody asks about it."""
    heard = Heard()
    with pytest.raises(OutcomeUnknownError):
        await layer(heard=heard)(refund(), way(end).send)

    assert [Unknown(operation="refunds.create", reference="R1", reason=reason)] == heard.events


async def test_answer_says_what_the_call_took() -> None:
    """Attempts and elapsed time are those of the whole call, waits included."""
    hours, end = Hours(now=START), way(unsent(), reply({}))
    answer = await layer(hours=hours)(refund(), taking(hours, 1.5, end))

    assert (2, 3.5) == (answer.attempts, answer.elapsed)


async def test_refusal_says_how_many_attempts_it_took() -> None:
    """The error and the answer in it agree."""
    with pytest.raises(ServiceError) as caught:
        await layer()(refund(), way(unsent(), reply({}, 400)).send)

    assert caught.value.response is not None
    assert (2, 2) == (caught.value.attempts, caught.value.response.attempts)


@pytest.mark.parametrize("foreign", [ZeroDivisionError("mine"), TimeoutError(), asyncio.CancelledError()], ids=repr)
async def test_foreign_errors_pass_through(foreign: BaseException) -> None:
    """What a user's own layer raises, and a cancellation, is the user's: it is neither repeated nor dressed up."""
    heard, end = Heard(), way(foreign)
    with pytest.raises(type(foreign)) as caught:
        await layer(heard=heard)(refund(), end.send)

    assert foreign is caught.value
    assert (1, []) == (len(end.calls), heard.events)


async def test_each_attempt_has_its_own_nonce() -> None:
    """A signed call that is sent again is a new request to the service."""
    end = way(unsent(), unsent(), reply({}))
    await chain([layer(), nonce], end.send)(refund(signed=True))

    assert 3 == len({call.fields["nonceStr"] for call in end.calls})


async def test_pace_is_the_loops_own_by_default() -> None:
    """Without a pace of its own the layer reads the event loop's clock, and draws full jitter."""
    answer = await retry(RetryPolicy(), Quota(0), Teller())(refund(), way(reply({})).send)

    assert 0 <= answer.elapsed < asyncio.get_running_loop().time()
    assert 0 <= Pace().jitter(1.0) <= 1.0


ENDS: Final = st.lists(
    st.sampled_from(
        [
            unsent(),
            NotSentTimeoutError("late"),
            unsent(permanent=True),
            NoAnswerError("cut"),
            reply({}),
            reply({}, 400),
            reply({}, 503),
        ]
    ),
    min_size=1,
    max_size=6,
)


@given(ENDS, st.integers(1, 5), st.sampled_from(OPERATIONS))
def test_at_most_one_attempt_may_have_left(
    ends: list[Reply | PayasyncError], attempts: int, operation: Operation
) -> None:
    """Whatever happens, in any order: after an attempt that may have left this machine there is no other."""
    end = way(*ends)

    async def run() -> object:
        try:
            return await layer(RetryPolicy(attempts=attempts))(bare_call(operation), end.send)
        except PayasyncError as error:
            return error

    asyncio.run(run())
    given = [*ends, *itertools.repeat(ends[-1], attempts)][: len(end.calls)]

    assert all(isinstance(each, NotSentError) and not each.permanent for each in given[:-1])
    assert len(end.calls) <= attempts


async def test_call_is_not_changed_by_its_retries() -> None:
    """The caller's call is a value: it can be sent again as it was."""
    call = refund()
    await layer()(call, way(unsent(), reply({})).send)

    assert refund() == call


def sent(end: Way) -> Send:
    """Return a way that marks the start of what it sends, as the transport does."""

    async def send(call: Call) -> Reply:
        call.progress.begun = True
        return await end.send(call)

    return send


WRITES: Final = [operation for operation in OPERATIONS if operation.kind is not Kind.READ]
READS: Final = [operation for operation in OPERATIONS if operation.kind is Kind.READ]


@pytest.mark.parametrize("operation", WRITES, ids=lambda operation: operation.name)
async def test_write_that_is_cancelled_after_it_was_sent(operation: Operation) -> None:
    """Cancelling a write does not take it back: somebody must learn that it may have been done."""
    heard = Heard()
    with pytest.raises(asyncio.CancelledError):
        await layer(heard=heard)(bare_call(operation, reference="X1"), sent(way(asyncio.CancelledError())))

    assert [Unknown(operation=operation.name, reference="X1", reason="cancelled after it was sent")] == heard.events


@pytest.mark.parametrize("operation", READS, ids=lambda operation: operation.name)
async def test_read_that_is_cancelled(operation: Operation) -> None:
    """Nothing is in doubt after a read, whenever it ends."""
    heard = Heard()
    with pytest.raises(asyncio.CancelledError):
        await layer(heard=heard)(bare_call(operation), sent(way(asyncio.CancelledError())))

    assert [] == heard.events


@pytest.mark.parametrize("foreign", [ZeroDivisionError("mine"), TimeoutError(), ConnectionResetError()], ids=repr)
@pytest.mark.parametrize("operation", WRITES, ids=lambda operation: operation.name)
async def test_foreign_error_after_a_write_was_sent(operation: Operation, foreign: Exception) -> None:
    """An error of a user's own layer hides no doubt: what retries on it would pay twice."""
    heard, end = Heard(), way(foreign)
    with pytest.raises(OutcomeUnknownError) as caught:
        await layer(heard=heard)(bare_call(operation, reference="X1"), sent(end))
    reason = f"middleware raised {type(foreign).__name__}"

    assert foreign is caught.value.__cause__
    assert not isinstance(caught.value, OSError)
    assert (operation.name, "X1", 1, None, reason) == (
        caught.value.operation,
        caught.value.reference,
        caught.value.attempts,
        caught.value.sent,
        caught.value.reason,
    )
    assert "mine" not in str(caught.value)
    assert [Unknown(operation=operation.name, reference="X1", reason=reason)] == heard.events
    assert 1 == len(end.calls)


@pytest.mark.parametrize("foreign", [ZeroDivisionError("mine"), TimeoutError()], ids=repr)
async def test_foreign_error_after_a_read_was_sent(foreign: Exception) -> None:
    """A read may be repeated: what a user's own layer raises is the user's."""
    heard, end = Heard(), way(foreign)
    with pytest.raises(type(foreign)) as caught:
        await layer(heard=heard)(bare_call(QUERY_ORDER), sent(end))

    assert foreign is caught.value
    assert (1, []) == (len(end.calls), heard.events)


@pytest.mark.parametrize(
    "denial",
    [unsent(), NotSentTimeoutError("late"), InvalidArgumentError("the answer does not fit"), ConfigurationError("no")],
    ids=repr,
)
async def test_what_denies_a_write_that_was_sent(denial: PayasyncError) -> None:
    """Doubt stays, whatever comes after it: a layer that sent twice, or read the answer, cannot say "not sent"."""
    end = way(denial)
    with pytest.raises(OutcomeUnknownError) as caught:
        await layer()(refund(), sent(end))

    assert denial is caught.value.__cause__
    assert (1, None) == (len(end.calls), caught.value.sent)


@pytest.mark.parametrize("end", [ServiceError("refused"), InvalidSignatureError("forged"), OutcomeUnknownError("?")])
async def test_what_knows_of_the_sending_is_its_own_word(end: PayasyncError) -> None:
    """An error of ours that does not deny that something was sent goes on as it is."""
    with pytest.raises(type(end)) as caught:
        await layer()(refund(), sent(way(end)))

    assert end is caught.value


async def test_read_that_is_denied_may_be_repeated() -> None:
    """Asking again changes nothing, whatever was sent before."""
    end = way(unsent(), reply({}))
    answer = await layer()(bare_call(QUERY_ORDER), sent(end))

    assert 2 == answer.attempts
