"""Random scripts of failures against a service that counts: what is never done, whatever happens."""

from collections.abc import Coroutine
from functools import cache
from itertools import pairwise, product
from typing import Any, Final

from attrs import evolve, field, frozen, mutable
from hypothesis import given, settings
from hypothesis import strategies as st

from payasync import errors
from payasync.endpoints import (
    CREATE_REFUND,
    OPERATIONS,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_REFUND,
    Kind,
    Operation,
)
from payasync.middleware.observe import EventSink
from payasync.middleware.retry import Quota, RetryContext, retry
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, HttpCodes, Recovery, ResultCodes
from payasync.settings import RetryPolicy, Timeouts
from payasync.wire.call import Call, Reply
from tests.building import Hours, bare_call, reply

LATEST: Final = 5.0
"""Seconds after the end of an attempt by which the service has done it, if it ever does."""
START: Final = 1000.0

DONE: Final = reply({"code": "OK"})
ABSENT: Final = reply({"code": "NONE"})


@frozen
class Fate:
    """What becomes of one attempt.

    Attributes:
        end: What the caller sees; `None`: what the service truly says.
        executes: The service does it, if it reads it at all.
        late: Seconds after the end of the attempt.
        takes: Seconds that the attempt takes.
    """

    end: Reply | errors.PayasyncError | None
    executes: bool
    late: float = 0.0
    takes: float = 0.0


UNSENT: Final = (errors.NotSentError("refused"), errors.NotSentTimeoutError("no connection in time"))
LOST: Final[tuple[Reply | errors.PayasyncError, ...]] = (
    errors.NoAnswerError("cut"),
    errors.NoAnswerTimeoutError("late"),
    reply([]),
    reply({}, 302),
    reply({}, 418),
    reply({}, 500),
    reply({}, 503, {"Retry-After": "1"}),
    reply({"code": "BUSY"}),
    reply({"code": "WHAT"}),
)
REFUSED: Final = (reply({}, 400), reply({}, 401), reply({"code": "PARAM"}), reply({}, 429), reply({}, 429))
TAKES: Final = (0.0, 0.1, 3.0)
# One draw for each attempt, and not one for each of its facts: those took longer than the calls.
FATES: Final = st.one_of(
    st.sampled_from([Fate(end, executes=False, takes=takes) for end, takes in product(UNSENT, TAKES)]),
    st.sampled_from([Fate(*facts) for facts in product(LOST, (False, True), (0.0, 1.0, LATEST), TAKES)]),
    st.sampled_from([Fate(end, executes=False, takes=takes) for end, takes in product(REFUSED, TAKES)]),
    st.sampled_from([Fate(None, executes=True, takes=takes) for takes in TAKES]),
)


@mutable
class Service:
    """A service that does what its script says, and keeps a ledger of what it did and was asked.

    Args:
        script: What becomes of the attempts, in their order; afterwards all goes well.
        hours: What time it is.
        distinct: It refuses a number that was used before; without it, it does the same twice.
    """

    script: list[Fate]
    hours: Hours
    distinct: bool
    done: list[float] = field(factory=list)
    log: list[tuple[str, float, float, Reply | errors.PayasyncError]] = field(factory=list)

    async def send(self, call: Call) -> Reply:
        """Take an attempt."""
        fate = self.script.pop(0) if self.script else Fate(None, executes=True)
        begun = self.hours.now
        call.progress.begun = not isinstance(fate.end, errors.NotSentError)
        self.hours.now += fate.takes
        end = self._asked(fate) if call.read else self._written(fate)
        self.log.append(("Q" if call.read else "W", begun, self.hours.now, end))
        if isinstance(end, errors.PayasyncError):
            raise end
        return end

    def _asked(self, fate: Fate) -> Reply | errors.PayasyncError:
        there = any(when <= self.hours.now - fate.takes for when in self.done)
        return (DONE if there else ABSENT) if fate.end is None else fate.end

    def _written(self, fate: Fate) -> Reply | errors.PayasyncError:
        used = self.distinct and bool(self.done)
        if fate.executes and not used:
            self.done.append(self.hours.now + fate.late)
        truth = reply({}, 409) if used else DONE
        return truth if fate.end is None else fate.end

    @property
    def writes(self) -> list[tuple[float, float, Reply | errors.PayasyncError]]:
        """When each write began and ended, and how."""
        return [(begun, ended, end) for kind, begun, ended, end in self.log if kind == "W"]

    def proven_absent(self, since: float, until: float) -> bool:
        """Return whether an absent answer stands between two times, asked for once the quarantine was over."""
        return any(
            kind == "Q" and end is ABSENT and begun >= since + LATEST and ended <= until
            for kind, begun, ended, end in self.log
        )


def drive(work: Coroutine[Any, Any, Reply]) -> Reply | errors.PayasyncError:
    """Run to its end what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: Reply = end.value
        return answer
    except errors.PayasyncError as error:
        return error
    raise AssertionError("it waits for something")


@cache
def profile(*, quarantine: float | None, sure: bool) -> Profile:
    """Return what a service does."""
    return Profile(
        answer=AnswerShape(code="code", ok=("OK",)),
        codes=ResultCodes(not_executed=("PARAM",), retryable=("BUSY",), absent=("NONE",)),
        http=HttpCodes(rate_limit_precedes_execution=sure),
        recovery=Recovery(quarantine=quarantine),
    )


def called(operation: Operation, service: Service, said: Profile, attempts: int) -> Reply | errors.PayasyncError:
    """Return what a call ends as."""
    queries = {CREATE_REFUND: QUERY_REFUND, PLACE_ORDER: QUERY_ORDER}
    rules = RetryContext(
        policy=RetryPolicy(attempts=attempts),
        quota=Quota(500),
        report=EventSink(),
        ask=lambda call: evolve(call, operation=queries[call.operation]),
        mask=lambda reply: reply,
        pace=service.hours.pace(),
    )
    call = bare_call(operation, reference="X1", profile=said, timeouts=Timeouts(total=45.0), deadline=START + 45.0)
    return drive(retry(rules)(call, service.send))  # type: ignore[arg-type] # a coroutine


UNNAMED: Final = [operation for operation in OPERATIONS if operation.kind is Kind.UNKEYED]
NAMED: Final = [PLACE_ORDER, CREATE_REFUND]


EXAMPLES: Final = max(300, settings().max_examples)
FACTS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "script": st.lists(FATES, max_size=8),
    "attempts": st.integers(1, 5),
    "share": st.sampled_from([0.0, 0.3, 1.0]),
    "sure": st.booleans(),
    "distinct": st.booleans(),
}
QUARANTINES: Final = st.sampled_from([None, LATEST, LATEST + 3.0, 60.0])


def is_harmless(end: Reply | errors.PayasyncError, *, sure: bool) -> bool:
    """Return whether the end of an attempt says that it was not done."""
    return isinstance(end, errors.NotSentError) or (sure and isinstance(end, Reply) and end.status == 429)


@given(operation=st.sampled_from(UNNAMED), **FACTS)
@settings(max_examples=EXAMPLES)
def test_unnamed_write(
    *, operation: Operation, script: list[Fate], attempts: int, share: float, sure: bool, distinct: bool
) -> None:
    """A write without a number is never sent again after it may have left, unless the service refused it."""
    service = Service(list(script), Hours(now=START, share=share), distinct=distinct)
    result = called(operation, service, profile(quarantine=0.0, sure=sure), attempts)

    assert all(is_harmless(end, sure=sure) for _, _, end in service.writes[:-1])
    assert ["W"] * len(service.log) == [kind for kind, *_ in service.log]
    assert len(service.done) <= 1
    check_truth(service, result)


@given(operation=st.sampled_from(NAMED), quarantine=QUARANTINES, **FACTS)
@settings(max_examples=EXAMPLES)
def test_named_write(
    *,
    operation: Operation,
    script: list[Fate],
    attempts: int,
    share: float,
    quarantine: float | None,
    sure: bool,
    distinct: bool,
) -> None:
    """A write with a number is carried out once at most, even by a service that is late or allows duplicates."""
    service = Service(list(script), Hours(now=START, share=share), distinct=distinct)
    result = called(operation, service, profile(quarantine=quarantine, sure=sure), attempts)
    writes = service.writes

    for (_, ended, end), (begun, _, _) in pairwise(writes):
        proven = quarantine is not None and service.proven_absent(ended, begun)
        assert proven or is_harmless(end, sure=sure)
    assert len(writes) <= attempts
    assert len(service.done) <= 1
    check_truth(service, result)


def check_truth(service: Service, result: Reply | errors.PayasyncError) -> None:
    """Check that what a call says is true: done is done, refused and not sent are not."""
    definite = isinstance(result, errors.ServiceError | errors.NotSentError)

    assert isinstance(result, Reply | errors.ServiceError | errors.NotSentError | errors.OutcomeUnknownError)
    assert not (isinstance(result, Reply) and not service.done)
    assert not (definite and service.done)
    assert len(service.log) == getattr(result, "attempts", None)


def test_without_a_quarantine_a_late_service_would_do_it_twice() -> None:
    """The negative control: a quarantine shorter than the delay of the service pays twice."""
    late = Fate(errors.NoAnswerError("cut"), executes=True, late=LATEST)
    service = Service([late], Hours(now=START, share=1.0), distinct=False)
    called(CREATE_REFUND, service, profile(quarantine=0.0, sure=False), 3)

    assert 2 == len(service.done)
