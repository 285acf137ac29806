"""The failure matrix: what follows from the end of an attempt. Read it beside the design's table.

A row is what the attempt ended as (`verdicts.row`), a column what kind of call it was. Nothing here does I/O.
"""

import enum
from typing import Final

from payasync.calls import Call, Reply
from payasync.coverage import coverage
from payasync.documents import at
from payasync.errors import PayasyncError
from payasync.match import names_an_amount
from payasync.operations import CLOSE_ORDER
from payasync.responses import payload
from payasync.shapes import among
from payasync.verdicts import Row, is_vouched_for, names_its_thing, row


class Action(enum.Enum):
    """What is done next."""

    DONE = "done"
    """The reply is the call's answer."""
    REPEAT = "repeat"
    """Try again, with a new nonce and signature, after a wait; else end with the last word."""
    QUERY = "query"
    """Ask what became of it, before anything else."""
    END = "end"
    """No further attempt: end with the last word."""


class Column(enum.IntEnum):
    """The kind of a call; the columns of the matrix."""

    UNNAMED = 0
    """1, 2 without a number, 8 to 10: nothing can be asked about, so nothing is sent twice."""
    READ = 1
    """3, 6 and 7: asking again changes nothing."""
    CLOSE = 2
    """4: closing is a target state, and repeating it moves no money."""
    NAMED = 3
    """2 with a number, and 5: the number can be asked about."""


R, Q, O, D = Action.REPEAT, Action.QUERY, Action.END, Action.DONE  # noqa: E741 - as the design's table has it
F = Action.END

# fmt: off
MATRIX: Final[dict[Row, tuple[Action, Action, Action, Action]]] = {
    #                 unnamed read close named
    Row.SUCCESS:      (D, D, D, D),
    Row.UNSENT:       (R, R, R, R),
    Row.HOPELESS:     (F, F, F, F),
    Row.UNANSWERED:   (O, R, R, Q),
    Row.UNRECOGNISED: (O, R, R, Q),
    Row.UNVERIFIED:   (O, F, R, Q),
    Row.REDIRECT:     (O, F, O, Q),
    Row.NOT_EXECUTED: (F, F, F, F),
    Row.ABSENT:       (F, F, F, F),
    Row.UNLISTED:     (O, F, O, Q),
    Row.DUPLICATE:    (O, F, F, F),  # the first send; after an earlier one of ours, close and named ask
    Row.RATE_LIMITED: (O, R, R, Q),  # R everywhere if the profile says that it precedes execution
    Row.BROKEN:       (O, R, R, Q),
}
# fmt: on

DOUBTFUL: Final = frozenset(
    {Row.UNANSWERED, Row.UNRECOGNISED, Row.UNVERIFIED, Row.REDIRECT, Row.UNLISTED, Row.BROKEN},
)
"""Rows after which a write may have been done; of two more it depends on the call."""

REFUSED: Final = frozenset({Row.NOT_EXECUTED, Row.ABSENT, Row.DUPLICATE})
"""Rows that say nothing of an earlier attempt."""


def column(call: Call) -> Column:
    """Return the column of a call."""
    if call.read:
        return Column.READ
    if call.operation is CLOSE_ORDER:
        return Column.CLOSE
    return Column.NAMED if names_its_thing(call) else Column.UNNAMED


def leaves_doubt(call: Call, found: Row) -> bool:
    """Return whether a write may have been done by the attempt that ended so."""
    if call.read:
        return False
    if found is Row.RATE_LIMITED:
        return not call.profile.http.rate_limit_precedes_execution
    if found is Row.DUPLICATE:
        return not names_its_thing(call)
    return found in DOUBTFUL


def decide(call: Call, found: Row, *, doubt: bool) -> Action:
    """Return what follows from an attempt's end.

    Args:
        call: Which call it was.
        found: What the attempt ended as.
        doubt: A write, and this attempt or an earlier one may have been executed. Doubt is sticky: a refusal of
            attempt 2 says nothing of attempt 1.
    """
    where = column(call)
    if doubt and found in REFUSED:
        # On a close, "used before" may also mean that the order was paid.
        asks = where is Column.NAMED or (where is Column.CLOSE and found is Row.DUPLICATE)
        return Action.QUERY if asks else Action.END
    if found is Row.RATE_LIMITED and not (doubt or leaves_doubt(call, found)):
        return Action.REPEAT
    if where is Column.UNNAMED and doubt and found is not Row.SUCCESS:
        return Action.END
    return MATRIX[found][where]


def decide_afresh(call: Call, found: Row) -> Action:
    """Return what follows once an absent answer was final: what may have been done was not.

    A refusal that came after what was in doubt is definite now; whatever else led to the question is repeated.
    """
    action = decide(call, found, doubt=False)
    return Action.REPEAT if action is Action.QUERY else action


def confirms_absence(question: Call, answer: Reply | PayasyncError) -> bool:
    """Return whether the response to a query says, and may be believed, that there is no such thing.

    Signed responses need a signature over the refusal, unless the profile says that the service signs none. An
    attacker who relabels a genuine success cannot change the amounts and the code that its signature covers.
    """
    if not isinstance(answer, Reply) or row(question, answer) is not Row.ABSENT:
        return False
    profile, shape = question.profile, question.profile.answer
    if not shape.signature:
        return True
    if not is_vouched_for(question, answer):
        return shape.refusals_signed is False
    code_is_signed = coverage(shape.signature, profile.signature).covers(shape.code)
    if code_is_signed and among(at(answer.document, shape.code), profile.codes.absent):
        return True
    return not names_an_amount(profile, payload(shape, answer.document))
