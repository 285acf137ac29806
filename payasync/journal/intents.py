"""What a journal keeps of each intention to move money, and what may become of it: no I/O here."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import field, frozen

from payasync.endpoints import OPERATIONS, camel
from payasync.errors import InvalidArgumentError
from payasync.profile.schema import MERCHANT
from payasync.wire.match import compared_fields

State = Literal["new", "sending", "accepted", "succeeded", "rejected", "unknown", "manual"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""What an intention can be."""

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    "new": frozenset({"sending", "succeeded", "rejected"}),
    "sending": frozenset({"new", "accepted", "succeeded", "rejected", "unknown", "manual"}),
    "unknown": frozenset({"accepted", "succeeded", "rejected", "sending", "manual"}),
    "accepted": frozenset({"succeeded", "rejected", "manual"}),
    "succeeded": frozenset(),
    "rejected": frozenset({"sending", "new", "manual"}),
    "manual": frozenset({"succeeded", "rejected"}),
}
"""By state, what may follow it, and nothing else.

A rejected one is *new* again when it is queued again; a queued one, where an attempt at it has certainly done nothing,
so that whoever looks for what nobody sends finds it. A *new* one ends, without being sent, by a person's word:
rejected where nobody wants it any more, succeeded where it was done by other means; or by the service's, where it was
done the first time after all. From *sending* straight to *manual* goes only what was sent again for who queued it, and
was refused: its caller has gone, and nobody else would hear of it. A *rejected* one becomes *manual* if the
service tells that it was done after all. An *accepted* one becomes *manual* if no response was usable for too long, and
the last one was about something else.
"""

ENDS: Final[frozenset[State]] = frozenset({"succeeded", "rejected"})
"""Nothing is still to be learnt; only these are ever deleted."""
ASKED: Final[frozenset[State]] = frozenset({"unknown", "accepted"})
"""What the service is asked about, again and again."""
FOR_A_PERSON: Final[frozenset[State]] = frozenset({"manual", "unknown", "accepted", "new"})
"""What a person may end."""


@frozen(kw_only=True)
class Outcome:
    """An answer of the service, as far as it may be kept.

    Attributes:
        status: Of HTTP.
        body: JSON, without signatures, nonces and the customer's details.
        headers: Only the one that the profile names for the request's number.
        verified: Whether its signature was the service's; `None` where it had none, or nobody looked.
        recovered: It answered a question that was asked after the first answer was lost.
    """

    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    verified: bool | None = None
    recovered: bool = False


@frozen(kw_only=True)
class Draft:
    """An intention that is about to be kept.

    Attributes:
        operation: Its name, such as `refunds.create`.
        merchant: The merchant's number; keys are one merchant's.
        reference: The order, refund or subscription number that it is about.
        number: The key that follows from the merchant's own number, such as `refunds.create:R1`, where there is one.
        intent: The caller's own key.
        hash: SHA-256 of what moves money, in hexadecimal digits.
        request: The arguments that may be kept, by their names in Python, as JSON values.
        queued: A worker may send it from what is kept: it was added, and neither has a person rejected it since,
            nor did it turn out not to be done.
        named: What responses are compared with, and no argument says, by wire names: as it was last sent, such as a
            currency of the profile's constants. `None`: it was not sent, or by an earlier version that did not keep it.
    """

    operation: str
    merchant: str
    reference: str | None = None
    number: str | None = None
    intent: str | None = None
    hash: str
    request: Mapping[str, Any] = field(factory=dict, repr=False)
    queued: bool = False
    named: Mapping[str, object] | None = field(default=None, repr=False)


@frozen(kw_only=True)
class Intent(Draft):
    """An intention as the journal has it. Who was given it by a claim holds it, as long as its fence is the latest.

    Attributes:
        id: The journal's number of it, ascending.
        state: One of `STATES`.
        attempts: How often it was begun to be sent.
        asked: How often it was claimed to be asked about since it was last sent.
        denied: Of what was accepted, how often in a row, and up to now, the service has denied to know it, or has said
            nothing from which its end could follow; silence does not count.
        silent_since: Of what was accepted, the first question that had no usable answer, where none has had one since.
        fence: The number of the latest claim; an earlier holder changes nothing any more.
        lease: When the claim ends, an aware moment as all others; `None` where nobody holds it.
        due: When the service is to be asked about it, where nobody holds it; `None` where there is nothing to ask.
        created: When it was kept.
        updated: When its state was last set.
        sent_at: The latest moment at which something of it may have been sent without a recognised answer.
        tick: By a clock that nobody sets, where there is one: since when it is being sent, later the same as `sent_at`.
        answered: The service said of an attempt that its number was used before. Nothing of that attempt is on its way
            any more, and no "not found" is believed.
        outcome: The last answer that counts, where there is one.
        reason: Why it is in that state, in one line, where there is something to say.
    """

    id: int
    state: State
    attempts: int = 0
    asked: int = 0
    denied: int = 0
    silent_since: datetime | None = None
    fence: int = 0
    lease: datetime | None = None
    due: datetime | None = None
    created: datetime
    updated: datetime
    sent_at: datetime | None = None
    tick: str | None = None
    answered: bool = False
    outcome: Outcome | None = None
    reason: str = ""

    @property
    def key(self) -> str | None:
        """What says that two calls are one intention: the caller's word for it, else the number; else nothing does."""
        return self.number if self.intent is None else f"intent:{self.intent}"


Intents: TypeAlias = list[Intent]
"""Several; a journal has a method of the name `list`."""


class Step(Enum):
    """What follows from asking the journal whether to send."""

    SEND = auto()
    """It is kept as *sending*, and is the caller's: send it."""
    ANSWER = auto()
    """It was done: its outcome is the answer, and nothing is sent."""
    WAIT = auto()
    """Somebody else is sending it."""
    ASK = auto()
    """It may have been done: nothing is sent before somebody has asked."""
    CONFLICT = auto()
    """Its key stands for another request."""


@frozen
class Begun:
    """What a journal says to who wants to send.

    Attributes:
        step: What follows.
        intent: As it is kept now; in a conflict, the other one.
    """

    step: Step
    intent: Intent


def asked_for(intent: Intent) -> dict[str, object]:
    """Return what the write of an intent named, by wire names. A response about the intent must match it."""
    kept = {camel(name): value for name, value in intent.request.items()}
    number = next((each.reference for each in OPERATIONS if each.name == intent.operation and each.reference), None)
    if number is not None and intent.reference is not None:
        kept[camel(number)] = intent.reference
    return compared_fields({**kept, **(intent.named or {})})


def check_transition(before: State, after: State) -> None:
    """Refuse what the design's table does not have.

    Raises:
        InvalidArgumentError: It names both states, and what may follow the first.
    """
    allowed = sorted(TRANSITIONS[before])
    if after not in allowed:
        rule = f"one of {', '.join(allowed)}, which may follow {before}" if allowed else f"{before}, which is final"
        raise InvalidArgumentError(f"state must be {rule}, not {after!r}", field="state", rule=rule, value=after)


def check_queued(intent: Intent) -> None:
    """Refuse to send by its number what no worker may send.

    Raises:
        InvalidArgumentError: Of a direct call, no more is kept than a person needs; and what a person has rejected, or
            what turned out not to be done, is sent for whoever wants it again, and not for a queue that has its number.
    """
    if not intent.queued:
        rule = "the number of an intention that `journal.add` has kept"
        raise InvalidArgumentError(
            f"intent_id must be {rule}; {intent.id} was a direct call, or has been rejected since it was added: "
            "make it again, under the same number or intent",
            field="intent_id",
            rule=rule,
            value=intent.id,
        )


def standing(intent: Intent, now: datetime) -> State:
    """Return what a state means by now: who was sending when its lease ended will not say what became of it."""
    interrupted = intent.state == "sending" and intent.lease is not None and intent.lease <= now
    return "unknown" if interrupted else intent.state


def next_step(kept: Intent, now: datetime, *, fence: int | None = None) -> Step:
    """Return what follows for who wants to send an intention that is kept already.

    Args:
        kept: The intention.
        now: An aware moment.
        fence: Of who holds it and has found out that it was never done.
    """
    if fence is not None:
        return Step.SEND if kept.state == "unknown" and kept.fence == fence else Step.WAIT
    state = standing(kept, now)
    if state in {"new", "rejected"}:
        return Step.SEND
    if state in {"accepted", "succeeded"}:
        return Step.ANSWER
    return Step.WAIT if state == "sending" else Step.ASK


def match_draft(draft: Draft, kept: Sequence[Intent], now: datetime) -> Begun:
    """Return what follows for a draft from the intentions that have one of its keys.

    There are two where its number and the caller's own key stand for different ones, and so for another request. So
    does a number that was used for another intent.
    """
    other = next((each for each in kept if _is_another(draft, each)), None)
    return Begun(next_step(kept[0], now), kept[0]) if other is None else Begun(Step.CONFLICT, other)


def _is_another(draft: Draft, kept: Intent) -> bool:
    for_another = None not in {draft.intent, kept.intent} and draft.intent != kept.intent
    return for_another or draft.hash != kept.hash or _names_another(draft, kept)


def _names_another(draft: Draft, kept: Intent) -> bool:
    """Return whether two requests name another currency, say, beyond their arguments.

    Of one that was never sent, only `extra` is known: the constants come with the profile that sends it.
    """
    mine, theirs = _beyond(draft), _beyond(kept)
    names = {*mine, *theirs}
    if (draft.named is None) != (kept.named is None):
        names = set(mine if draft.named is None else theirs)
    return any(_differ(name, mine.get(name), theirs.get(name)) for name in names)


def _differ(name: str, mine: object, theirs: object) -> bool:
    if name == MERCHANT and (mine is None or theirs is None):
        return False  # the key is one merchant's already, and a deployment may begin to send its number
    return str(mine).casefold() != str(theirs).casefold() if name == "currency" else str(mine) != str(theirs)


def _beyond(draft: Draft) -> Mapping[str, object]:
    return compared_fields(draft.request.get("extra", {})) if draft.named is None else draft.named
