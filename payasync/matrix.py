"""The failure matrix: what follows from the end of an attempt. Read it beside the design's table.

A row is what the attempt ended as (`verdicts.row`), a column what kind of call it was. Nothing here does I/O.
"""

import enum
from typing import Final

from payasync.calls import Call, Reply
from payasync.errors import PayasyncError
from payasync.operations import CLOSE_ORDER
from payasync.sameness import tells_of_something
from payasync.verdicts import Row, names_its_thing, row


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
    Row.DUPLICATE:    (O, F, F, F),
    Row.RATE_LIMITED: (R, R, R, R),  # unnamed: only where the profile says that it precedes execution
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
        return _refused_in_doubt(where, found)
    if where is Column.UNNAMED and found is not Row.SUCCESS and (doubt or leaves_doubt(call, found)):
        return Action.END
    return MATRIX[found][where]


def _refused_in_doubt(where: Column, found: Row) -> Action:
    """A refusal after an attempt in doubt: the number is asked about; "used before" means that it was done."""
    if where is Column.NAMED:
        return Action.QUERY
    return Action.DONE if where is Column.CLOSE and found is Row.DUPLICATE else Action.END


def decide_afresh(call: Call, found: Row) -> Action:
    """Return what follows once an absent answer was final: what may have been done was not.

    A refusal that came after what was in doubt is definite now; whatever else led to the question is repeated.
    """
    action = decide(call, found, doubt=False)
    return Action.REPEAT if action is Action.QUERY else action


def proves_absence(question: Call, answer: Reply | PayasyncError) -> bool:
    """Return whether a query says that there is no such thing, and nothing else; where answers are signed, by one."""
    if not isinstance(answer, Reply) or row(question, answer) is not Row.ABSENT:
        return False
    if tells_of_something(question, answer.document):
        return False
    return answer.verified is True or not question.profile.answer.signature
