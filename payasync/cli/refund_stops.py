"""When an import sends nothing more, by what became of the rows so far: no I/O here."""

from typing import Final

from payasync.bulk import Done, Result
from payasync.errors import AuthenticationError, NotSentError, OutcomeUnknownError
from payasync.responses import RefundResponse

WRONG_KEYS: Final = "the service does not take these keys"
NO_ANSWER: Final = "the service gives no answer that says what was done"
UNAUTHORISED: Final = 401
DENIED: Final = 5
"""So many orders that may not be refunded are no accident, where none could be."""


class Stops:
    """Hears of each row. What is wrong with one order, or one answer, stops nothing.

    Args:
        unanswered: So many rows without an answer, one after the other, stop it.
    """

    def __init__(self, unanswered: int) -> None:
        self._most = unanswered
        self._unanswered = 0
        self._denied = 0
        self._known = False

    def why(self, result: Result[RefundResponse]) -> str:
        """Return why nothing more is to be sent after this result; nothing, where it may go on."""
        error = None if isinstance(result, Done) else result.error
        if not (result.response.attempts if isinstance(result, Done) else result.error.attempts):
            return ""  # the journal has answered, and says nothing of the service
        if isinstance(error, OutcomeUnknownError | NotSentError):
            self._unanswered += 1
            return NO_ANSWER if self._unanswered >= self._most else ""
        self._unanswered = 0
        if not isinstance(error, AuthenticationError):
            self._known = True
            return ""
        self._denied += 1
        denied = error.http_status == UNAUTHORISED or (self._denied >= DENIED and not self._known)
        return WRONG_KEYS if denied else ""
