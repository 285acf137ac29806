"""What follows from what is known of a write that nobody knows the end of: no I/O here.

An absent answer counts only where the quarantine is over since something of the write may last have been sent.
"""

from collections.abc import Callable
from datetime import datetime
from enum import Enum, auto
from itertools import islice
from typing import Final

import backoff
from attrs import field, frozen

from payasync.journal.endings import may_be_of_an_earlier_attempt
from payasync.journal.findings import UNUSABLE, Evidence, Finding
from payasync.journal.intents import Intent, State
from payasync.settings import a_count, a_wait

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
