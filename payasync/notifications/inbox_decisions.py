"""What every inbox decides alike, wherever it keeps notifications: no I/O here."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from payasync.notifications.inbox import ENDS, STATES, Added, State
from payasync.requests import invalid

FORGOTTEN_AT_ONCE: Final = 500
"""Events that one transaction deletes, so that nobody waits long behind it."""
AHEAD: Final = 60.0
"""Seconds by which a moment in the past may be ahead of now: by more, and the clock was set back."""


def beside(others: Sequence[Mapping[str, Any]], digest: str) -> tuple[Added, dict[str, Any]]:
    """Return what becomes of a notification, and its state and reason; of one that is there already, nothing.

    Args:
        others: Those that have its key, oldest first.
        digest: Its own.
    """
    if any(other["digest"] == digest for other in others):
        return Added.AGAIN, {}
    if not others:
        return Added.NEW, {"state": "pending", "reason": ""}
    reason = f"event {others[0]['id']} came with the same key and another body"
    return Added.CONFLICT, {"state": "quarantined", "reason": reason}


def a_state(state: State | None) -> State | None:
    """Return a state that events can be listed by.

    Raises:
        InvalidArgumentError: There is none such.
    """
    if state is not None and state not in STATES:
        raise invalid("state", f"one of {', '.join(STATES)}", state)
    return state


def an_end(state: State) -> State:
    """Return a state that a lease can end in.

    Raises:
        InvalidArgumentError: None does.
    """
    if state not in ENDS and state != "pending":
        raise invalid("state", f"pending, {', '.join(sorted(ENDS))}", state)
    return state
