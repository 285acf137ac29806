"""What became of each row of an import: what a call and the journal say of it, in one word. No I/O here."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

from attrs import evolve, frozen

from payasync.bulk import Done, Result, Unknown
from payasync.cli.exit_codes import NEEDS_A_PERSON
from payasync.cli.refund_sheet import Row
from payasync.errors import DuplicateError, IntentConflictError, ServiceError
from payasync.journal.endings import BY_STATE
from payasync.journal.intents import Intent, State
from payasync.operations import CREATE_REFUND
from payasync.profile import Profile
from payasync.responses import RefundResponse, Response

Word = Literal["succeeded", "accepted", "refused", "unsent", "left out", "unknown", "manual"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)
"""What can become of a row."""
OPEN: Final[frozenset[Word]] = frozenset({"unknown", "manual"})
"""It may have been done."""
NOT_DONE: Final[frozenset[Word]] = frozenset({"refused", "unsent", "left out"})

_OF_STATE: Final[dict[State, Word]] = {
    "new": "unsent",
    "sending": "unknown",
    "accepted": "accepted",
    "succeeded": "succeeded",
    "rejected": "refused",
    "unknown": "unknown",
    "manual": "manual",
}

_TAKEN: Final[frozenset[State]] = frozenset({"accepted", "succeeded"})

NOT_BEGUN: Final = "not begun"
BEGUN: Final = "begun by an earlier run, which has not ended it"

_ALREADY: Final[dict[State, str]] = {
    "accepted": "was already refunded",
    "succeeded": "was already refunded",
    "new": "was used before",
    "rejected": "was used before",
}
"""What became of the refund that a number stands for; of any other state, it may have been done."""
_MAYBE: Final = "may have been refunded already"
_OWED: Final = "Only if both are owed, give this one a number of its own."
_ALSO: Final = {"out_trade_no": "order {}", "total_amt": "{} in all"}
"""What else than its amount makes it another refund."""

ALL_WELL: Final = 0
SOME_REFUSED: Final = 1


@frozen(kw_only=True)
class Verdict:
    """What became of a row.

    Attributes:
        row: Of the file.
        state: One of `WORDS`.
        code: The service's result code, where it gave one.
        message: The service's words, or ours.
        kind: The same without this row's numbers, where it has some: many rows may have it.
        earlier: An earlier run has done it: the journal says so, and this one sent nothing.
    """

    row: Row
    state: Word
    code: str = ""
    message: str = ""
    kind: str = ""
    earlier: bool = False


def left_out(row: Row) -> Verdict:
    """Return what becomes of a bad row."""
    return Verdict(row=row, state="left out", message=row.wrong)


def of_result(
    row: Row, result: Result[RefundResponse], kept: Intent | None, profile: Profile, *, unread: str = ""
) -> Verdict:
    """Return what became of a row that was sent, or that the journal has answered.

    Args:
        row: Of the file.
        result: Of its call.
        kept: What the journal has of it by now.
        profile: Says where codes and messages stand.
        unread: Why the journal could not be read, where that is so.
    """
    if isinstance(result, Done):
        return _answered(row, result.response, kept, profile)
    if isinstance(result, Unknown):
        found = of_kept(row, kept, result.reason)
        if isinstance(result.error, DuplicateError) and found.state in OPEN:
            return _said(row, found.state, result.error)
        return found
    if isinstance(result.error, ServiceError):
        return _refused(row, result.error, kept)
    if isinstance(result.error, IntentConflictError) and kept:
        return _conflicting(row, kept)
    return _not_sent(row, str(result.error.args[0]), kept, unread)


def of_kept(row: Row, kept: Intent | None, reason: str = "") -> Verdict:
    """Return what the journal says of a row that was in doubt."""
    if kept is None or kept.state == "sending":
        return Verdict(row=row, state="unknown", message=reason)
    message = kept.reason or ("" if kept.state in _TAKEN else reason)
    return Verdict(row=row, state=_OF_STATE[kept.state], message=message)


def not_begun(row: Row, kept: Intent | None, *, unread: str = "") -> Verdict:
    """Return what is known of a row that this run has not begun: a former one may have done it."""
    return _not_sent(row, NOT_BEGUN, kept, unread)


def never_arrived(kept: Intent | None) -> bool:
    """Return whether it is certain, by now, that a write which was in doubt was not done: no answer refused it."""
    return kept is not None and kept.state == "rejected" and kept.outcome is None


def _answered(row: Row, response: RefundResponse, kept: Intent | None, profile: Profile) -> Verdict:
    """Return what an answer comes to; of a refund that was declined, its code and its words are those of a success."""
    state = kept.state if kept else BY_STATE[CREATE_REFUND.name].get(response.state or "", "accepted")
    if state == "rejected":
        message = kept.reason if kept else f"the {response.thing}'s state is {response.state}"
        return Verdict(row=row, state="refused", message=message)
    return Verdict(row=row, state=_OF_STATE[state], earlier=not response.attempts, **_words(response, profile))


def _refused(row: Row, error: ServiceError, kept: Intent | None) -> Verdict:
    """Return what a refusal says, or the journal in spite of it."""
    state: Word = "refused"
    if kept and kept.state in {"unknown", "manual"}:
        state = _OF_STATE[kept.state]
    return _said(row, state, error)


def _said(row: Row, state: Word, error: ServiceError) -> Verdict:
    """Return a verdict with the service's code and words."""
    code = "" if error.code is None else str(error.code)
    return Verdict(row=row, state=state, code=code, message=error.message or str(error.args[0]))


def _conflicting(row: Row, kept: Intent) -> Verdict:
    """Return what becomes of a row whose number stands for another refund: it was not done, but that may have been."""
    word = _OF_STATE[kept.state]
    before, now = _told_apart(kept.request, row.cells)
    already = _ALREADY.get(kept.state, _MAYBE)
    return Verdict(
        row=row,
        state=word if word in OPEN else "refused",
        message=f"{row.number} {already}: {before} ({kept.state}); this row says {now}. {_OWED}",
        kind=f"the number {already} ({kept.state}), and the row says another refund. {_OWED}",
    )


def _told_apart(before: Mapping[str, Any], now: Mapping[str, str]) -> tuple[str, str]:
    """Return how much each of two refunds is, with whatever else is not the same."""
    words = {"refund_amt": "{}"} | {
        name: word for name, word in _ALSO.items() if str(before.get(name)) != now.get(name)
    }
    first, second = (
        ", ".join(word.format(each.get(name, "-")) for name, word in words.items()) for each in (before, now)
    )
    return first, second


def _not_sent(row: Row, why: str, kept: Intent | None, unread: str) -> Verdict:
    """Return what the journal says of a row of which this run has sent nothing."""
    if unread:
        return Verdict(row=row, state="unknown", message=f"{why}; an earlier run may have sent it: {unread}")
    if kept is None or kept.state == "new" or (kept.state == "rejected" and kept.sent_at is None):
        return Verdict(row=row, state="unsent", message=why)
    return evolve(of_kept(row, kept, BEGUN), earlier=kept.state in _TAKEN)


def _words(response: Response, profile: Profile) -> dict[str, str]:
    places = {"code": profile.answer.code, "message": profile.answer.message}
    return {name: str(response.get(path, "")) if path else "" for name, path in places.items()}


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return what the command ends with."""
    states = {each.state for each in verdicts}
    if states & OPEN:
        return NEEDS_A_PERSON
    return SOME_REFUSED if states & NOT_DONE else ALL_WELL
