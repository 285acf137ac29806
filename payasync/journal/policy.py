"""What follows from what is known of a write whose outcome is unknown: no I/O here."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import Enum, auto
from itertools import islice
from typing import Final, Literal, get_args

import backoff
from attrs import field, frozen

from payasync.endpoints import CLOSE_ORDER, CREATE_PAYMENT, OPERATIONS
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    NotConfiguredError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
    SessionClosedError,
    StorageError,
)
from payasync.journal.intents import ASKED, Intent, Outcome, State, asked_for, standing
from payasync.journal.replay import recorded_reply
from payasync.journal.transactions import BY_STATE, may_be_of_an_earlier_attempt, tells_states
from payasync.middleware.outcome import REPEAT_HINT
from payasync.middleware.recovery import status_query
from payasync.profile.profile import Profile
from payasync.resources.payments import QueryPayment
from payasync.settings import a_count, a_wait
from payasync.wire.match import PAYMENT, comparison_of, names_number_and_amounts
from payasync.wire.request import Request
from payasync.wire.response import PaymentResponse, Response, is_empty_envelope

NAMELESS: Final = "nothing names it: the service cannot be asked what became of it"
ABSENT: Final = "the service does not know it"
QUESTIONS_UNMAPPED: Final = frozenset({"payment_status", "refund_status"})
"""Without these a thing cannot be asked about."""


class Finding(Enum):
    """What a question came to."""

    TOLD = auto()
    """The service says what became of it."""
    NOT_DONE = auto()
    """The service says, provably, that it was not done so far."""
    UNCLEAR = auto()
    """The service answers, and what became of it does not follow from that."""
    UNMATCHED = auto()
    """The response is about something else."""
    SILENT = auto()
    """There is no usable answer, for reasons that are not of this write: it is asked again."""
    UNASKABLE = auto()
    """There is no such question."""


UNUSABLE: Final = frozenset({Finding.SILENT, Finding.UNMATCHED})
"""After these the service is asked again, as if it had not responded."""


@frozen(kw_only=True)
class Evidence:
    """What is known after a question.

    Attributes:
        finding: What it came to.
        state: What the service told, where it did.
        reason: In one line.
        outcome: The answer that says so, as far as it may be kept.
        retry_after: Seconds that the service asked to wait.
    """

    finding: Finding
    state: State | None = None
    reason: str = ""
    outcome: Outcome | None = None
    retry_after: float | None = None


def query_for(intent: Intent, profile: Profile) -> Request[Response] | None:
    """Return the query that tells what became of an intention; `None` where nothing names it.

    An order is asked about by endpoint 3, a refund by endpoint 7, a payment of endpoint 1 by endpoint 6, with the
    number that the service gave it (spec: Endpoints, rules 3 and 6).
    """
    if intent.operation != CREATE_PAYMENT.name:
        return status_query(intent.operation, intent.reference)
    number = _payment(intent, profile)
    return QueryPayment(identifier=str(number)) if number else None


def _payment(intent: Intent, profile: Profile) -> str | int | None:
    """Return the service's own number of a payment, where an answer was kept that has it."""
    shape = profile.answer
    if intent.outcome is None or not shape.payment_id:
        return None
    return PaymentResponse(recorded_reply(intent), shape, profile.states).payment_id


def names_of(intent: Intent, profile: Profile) -> dict[str, object]:
    """Return what a write named, which a response about it must match."""
    found = asked_for(intent)
    number = _payment(intent, profile) if intent.operation == CREATE_PAYMENT.name else None
    return {**found, PAYMENT: number} if number else found


def evidence_of_response(intent: Intent, answer: Response, profile: Profile) -> Evidence:
    """Return what the response to a query says of a write."""
    if is_empty_envelope(profile.answer, answer.document):
        return Evidence(finding=Finding.UNCLEAR, reason=f"the service tells nothing of the {answer.thing}")
    if intent.answered and not _is_whole(intent, answer, profile):
        reason = f"the number was used before, and {_is(answer)}, without a number and an amount to compare"
        return Evidence(finding=Finding.TOLD, state="manual", reason=reason)
    known = BY_STATE.get(intent.operation, {}).get(answer.state or "")
    if known:
        return Evidence(finding=Finding.TOLD, state=known, reason=_is(answer))
    if intent.operation == CLOSE_ORDER.name:
        return _not_closed(answer)
    return _taken(answer, profile)


def _is_whole(intent: Intent, answer: Response, profile: Profile) -> bool:
    """Return whether a response names what tells this write from another one under its number."""
    write = next(each for each in OPERATIONS if each.name == intent.operation)
    return names_number_and_amounts(write, asked_for(intent), comparison_of(write, profile), answer.data)


def _not_closed(answer: Response) -> Evidence:
    if answer.state is None:
        return Evidence(finding=Finding.UNCLEAR, reason="the profile does not say what the order's state means")
    return Evidence(finding=Finding.NOT_DONE, reason=_is(answer))


def _taken(answer: Response, profile: Profile) -> Evidence:
    if not tells_states(profile, answer.thing):
        return Evidence(finding=Finding.TOLD, state="succeeded", reason=_is(answer))
    if answer.state is None:
        reason = f"{_is(answer)}, and the profile does not say what its state means"
        return Evidence(finding=Finding.UNCLEAR, state="accepted", reason=reason)
    return Evidence(finding=Finding.TOLD, state="accepted", reason=_is(answer))


def _is(answer: Response) -> str:
    if answer.state is None:
        return f"the service knows the {answer.thing}"
    return f"the {answer.thing}'s state is {answer.state}"


def evidence_of_error(error: PayasyncError) -> Evidence:
    """Return what a question says that ended with an error.

    Raises:
        PayasyncError: The error itself, where it is of this process and says nothing of the write.
    """
    words = str(error.args[0] if error.args else error).removesuffix(f"; {REPEAT_HINT}")
    if error.objection is not None:
        # Under the same number the service will go on to tell of another amount.
        state: State | None = None if error.objection.about_another else "manual"
        return Evidence(finding=Finding.UNMATCHED, state=state, reason=str(error.reason), retry_after=error.retry_after)
    if isinstance(error, InvalidArgumentError) or _unmapped(error):
        return Evidence(finding=Finding.UNASKABLE, reason=f"the service cannot be asked: {words}")
    if isinstance(error, ConfigurationError | SessionClosedError | StorageError):
        raise error
    if isinstance(error, ServiceError) and error.absent:
        return Evidence(finding=Finding.NOT_DONE, reason=ABSENT)
    heard = isinstance(error, ServiceError) and not isinstance(error, AuthenticationError | RateLimitedError)
    finding = Finding.UNCLEAR if heard else Finding.SILENT
    return Evidence(finding=finding, reason=words, retry_after=error.retry_after)


def evidence_of_failure(error: Exception) -> Evidence:
    """Return what a question says that ended with an error that is none of ours, such as that of a user's layer."""
    return Evidence(finding=Finding.SILENT, reason=f"{type(error).__name__}: {error}")


def _unmapped(error: PayasyncError) -> bool:
    return isinstance(error, NotConfiguredError) and error.field in QUESTIONS_UNMAPPED


NO_QUARANTINE: Final = "the profile has no recovery.quarantine, so nobody can say that it will not arrive after all"
USED_BEFORE: Final = "and it said before that the number was used"
LONGEST_RETRY_AFTER: Final = 86_400.0
"""Seconds: a service that asks for more is asked again all the same."""


@frozen(kw_only=True)
class Patience:
    """How long the service is asked about a write before a person is.

    Args:
        first: Seconds from a question without a result to the next; they double with each further one.
        longest: The most that they can grow to.
        questions: After so many, answers that say nothing of the write give it to a person; what was accepted is
            shown to one after so many in a row, and asked about further.
        give_up: Seconds since something of the write may last have been sent; who gets no answer at all for so long,
            and to so many questions, gives it to a person. An accepted write is shown to a person if no response was
            usable for so long. It is given to the person if the last response is about something else.
        sends: After so many, a queued write that arrives nowhere is given to a person.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    first: float = field(default=2.0, validator=a_wait)
    longest: float = field(default=3600.0, validator=a_wait)
    questions: int = field(default=8, validator=a_count(1))
    give_up: float = field(default=86_400.0, validator=a_wait)
    sends: int = field(default=5, validator=a_count(1))


class Move(Enum):
    """What is done with a write that was asked about."""

    SETTLE = auto()
    POSTPONE = auto()
    SEND = auto()
    """It was never done, and is queued: it is sent again, under the same number."""


@frozen(kw_only=True)
class Decision:
    """What follows.

    Attributes:
        move: What is done.
        state: Which it has from then on.
        reason: Why, in one line.
        pause: Seconds from this question to the next, where there is one.
        denied: How often in a row nothing that was heard of what was accepted was of use, as `Intent` has it.
        silent_since: Since when nothing usable was heard of it, as `Intent` has it.
    """

    move: Move
    state: State
    reason: str = ""
    pause: float | None = None
    denied: int = 0
    silent_since: datetime | None = None


def decide(
    intent: Intent,
    evidence: Evidence,
    *,
    asked_at: datetime,
    quarantine: float | None,
    patience: Patience,
    jitter: Callable[[float], float],
) -> Decision:
    """Return what follows for an intention from what is known of it.

    Args:
        intent: As it was claimed: unknown or accepted.
        evidence: What a question came to.
        asked_at: The journal's time before that question, aware.
        quarantine: Seconds after which an absent answer is final; `None`: it never is.
        patience: How long to ask.
        jitter: Draws a number of seconds up to a bound.
    """
    pause = _pause(intent, evidence, patience, jitter)
    if intent.state == "accepted" and evidence.finding is Finding.UNMATCHED:
        return _accepted(intent, evidence, pause, asked_at, patience)
    on_its_way = intent.state == "unknown" and not intent.answered
    earlier = on_its_way and may_be_of_an_earlier_attempt(intent, evidence.state)
    if evidence.state not in {None, intent.state} and not earlier:
        return _settled(evidence.state or "accepted", evidence.reason, pause)
    if intent.state == "accepted":
        return _accepted(intent, evidence, pause, asked_at, patience)
    in_doubt = (asked_at - (intent.sent_at or intent.updated)).total_seconds()
    if not (earlier or evidence.finding is Finding.NOT_DONE) or quarantine is None or intent.answered:
        return _unresolved(intent, evidence, in_doubt, pause, patience)
    if in_doubt < quarantine:
        reason = f"{evidence.reason}{', perhaps of an earlier attempt' if earlier else ' yet'}, and it may still arrive"
        return Decision(move=Move.POSTPONE, state="unknown", reason=reason, pause=min(pause, quarantine - in_doubt))
    return _settled("rejected", evidence.reason) if earlier else _never_done(intent, evidence, patience)


def is_shown(accepted: Intent, now: datetime, patience: Patience) -> bool:
    """Return whether a person is shown what was accepted, as nothing of use is heard of it again and again, or long."""
    return accepted.denied >= patience.questions or _too_long(accepted.silent_since, now, patience)


def _too_long(since: datetime | None, now: datetime, patience: Patience) -> bool:
    return since is not None and (now - since).total_seconds() >= patience.give_up


def _accepted(intent: Intent, evidence: Evidence, pause: float, asked_at: datetime, patience: Patience) -> Decision:
    """Only its end is still to be learnt. A denial, or a response of no use, changes nothing; a person is shown.

    If no response was usable for too long, and the last one is about something else, a person must say.
    """
    unusable = evidence.finding in UNUSABLE
    denied = intent.denied if unusable else 0 if evidence.finding is Finding.TOLD else intent.denied + 1
    since = (intent.silent_since or asked_at) if unusable else None
    reason = evidence.reason
    if evidence.finding is Finding.NOT_DONE:
        reason = f"accepted before, and now {evidence.reason}"
    if since and _too_long(since, asked_at, patience):
        reason = f"no usable answer since {since:%Y-%m-%d}: {evidence.reason}"
        if evidence.finding is Finding.UNMATCHED:
            return _settled("manual", reason)
    return Decision(move=Move.POSTPONE, state="accepted", reason=reason, pause=pause, denied=denied, silent_since=since)


def _settled(state: State, reason: str, pause: float | None = None) -> Decision:
    return Decision(move=Move.SETTLE, state=state, reason=reason, pause=pause if state == "accepted" else None)


def _never_done(intent: Intent, evidence: Evidence, patience: Patience) -> Decision:
    """What was called directly is its caller's to repeat; what was queued has nobody else who would."""
    if not intent.queued:
        return _settled("rejected", f"never arrived: {evidence.reason}")
    if intent.attempts >= patience.sends:
        return _settled("manual", f"sent {intent.attempts} times, and never arrived: {evidence.reason}")
    return Decision(move=Move.SEND, state="sending", reason=f"never arrived: {evidence.reason}")


def _unresolved(intent: Intent, evidence: Evidence, in_doubt: float, pause: float, patience: Patience) -> Decision:
    if evidence.finding is Finding.UNASKABLE:
        return _settled("manual", evidence.reason)
    late = evidence.finding is Finding.NOT_DONE or evidence.state == "rejected"
    reason = evidence.reason
    if late:
        reason = f"{reason}; {USED_BEFORE if intent.answered else NO_QUARANTINE}"
    too_long = evidence.finding is not Finding.SILENT or in_doubt >= patience.give_up
    if too_long and intent.asked >= patience.questions:
        return _settled("manual", f"asked {intent.asked} times: {reason}")
    return Decision(move=Move.POSTPONE, state="unknown", reason=reason, pause=pause)


def _pause(intent: Intent, evidence: Evidence, patience: Patience, jitter: Callable[[float], float]) -> float:
    """Return half of a bound that doubles, the other half by chance; and no less than the service asked for."""
    bounds = backoff.expo(base=2, factor=patience.first, max_value=patience.longest)
    # backoff's generators begin with an empty step.
    bound = next(islice(bounds, max(1, intent.asked), None))
    floor = min(evidence.retry_after or 0.0, LONGEST_RETRY_AFTER)
    return max(bound / 2 + jitter(bound / 2), floor)


End = Literal["resolved", "sent", "waiting", "manual", "lost"]
ENDS: Final[tuple[End, ...]] = get_args(End)
"""What can become of an intention in a run."""
SILENT: Final = 20
"""After so many questions without any answer, one after the other, a run leaves the service in peace."""


@frozen(kw_only=True)
class Result:
    """What became of one intention in a run.

    Attributes:
        intent: As it was before.
        end: `resolved`: the service told, or it never arrived; `sent`: it never arrived, and was sent again; `waiting`:
            it is asked about again later; `manual`: a person must say; `lost`: somebody else took it meanwhile.
        state: Which it has now, as far as this run knows.
        reason: Why, in one line.
        answered: Whether the service gave a usable answer, where it was asked; one about something else is none.
    """

    intent: Intent
    end: End
    state: State
    reason: str = ""
    answered: bool = True

    @property
    def rejected(self) -> bool:
        """Whether it was not done, and is not sent again: whoever believes that it was should hear of it."""
        return self.state == "rejected" and self.end in {"resolved", "sent"}


@frozen(kw_only=True)
class Report:
    """What a run came to, as numbers of intentions.

    Attributes:
        resolved: The service told what became of them, or they never arrived; those that were rejected are among them.
        sent: They had never arrived, and were sent again.
        waiting: They are asked about again later.
        manual: A person must say what became of them.
        lost: Somebody else took them meanwhile.
        silent: The run ended early: the service answers nobody.
        unsent: Queued, and not sent for minutes: no worker may be running, or none can send them. None of the above.
        rejected: Of those resolved or sent again, how many were not done: whoever believes that they were should hear
            of it.
    """

    resolved: int = 0
    sent: int = 0
    waiting: int = 0
    manual: int = 0
    lost: int = 0
    silent: bool = False
    unsent: int = 0
    rejected: int = 0

    @property
    def asked(self) -> int:
        """All that it asked about."""
        return self.resolved + self.sent + self.waiting + self.manual + self.lost

    @classmethod
    def of(cls, ends: Iterable[End], *, silent: bool = False, unsent: int = 0, rejected: int = 0) -> "Report":
        """Count what became of each."""
        counted = Counter(ends)
        return cls(silent=silent, unsent=unsent, rejected=rejected, **{end: counted[end] for end in ENDS})


def notice(result: Result) -> str:
    """Return, in one line, what somebody must hear of, as whoever has called or queued it may be gone; else nothing."""
    if not result.rejected and result.end != "manual":
        return ""
    intent, what = result.intent, "was not done" if result.rejected else "needs a person"
    name, why = intent.reference or intent.intent or "-", " ".join(result.reason.split())
    return f"intention {intent.id} ({intent.operation}, {name}) {what}: {why}"


def is_due(intent: Intent, now: datetime) -> bool:
    """Return whether a run would ask about an intention by now."""
    if standing(intent, now) not in ASKED:
        return False
    moment = intent.due if intent.lease is None else intent.lease
    return moment is not None and moment <= now
