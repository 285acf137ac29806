"""The failure matrix as the design has it: one table for the plain functions and for calls over HTTP."""

from typing import Final

from attrs import frozen

from payasync import (
    AuthenticationError,
    DuplicateError,
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

BY_KIND: Final = {
    "unnamed": ("1", "2", "8", "9", "10"),
    "named": ("2n", "5"),
    "read": ("3", "6", "7"),
    "close": ("4",),
    "keyed": ("1k", "2k", "8k", "9k", "10k"),
}
KINDS: Final = {number: kind for kind, numbers in BY_KIND.items() for number in numbers}
"""By endpoint, the kind of its call; `2n` is 2 with a number, and `1k` is 1 with an idempotency key."""


@frozen
class Row:
    """What follows from one end of an attempt.

    The words: `repeat` it, `wait` and repeat it, `query` what became of it, end as `unknown`, `definite` or `used`.

    Attributes:
        unnamed: For a write that nothing names.
        read: For a read.
        close: For a close.
        named: For a write that its number names.
        keyed: For a write that nothing names, with an idempotency key.
        failure: What a read ends as, if no further attempt follows, and a write that was certainly not done.
    """

    unnamed: str
    read: str
    close: str
    named: str
    keyed: str
    failure: type[PayasyncError]

    def word(self, number: str) -> str:
        """Return what follows for an endpoint."""
        return str(getattr(self, KINDS[number]))

    def error(self, number: str) -> type[PayasyncError]:
        """Return what a call ends as, if no further attempt follows."""
        if self.word(number) == "used":
            return DuplicateError
        in_doubt = self.unnamed == "unknown" and KINDS[number] != "read"
        return OutcomeUnknownError if in_doubt else self.failure


ROWS: Final = {
    #                             unnamed     read        close       named       keyed
    "not sent":               Row("repeat",   "repeat",   "repeat",   "repeat",   "repeat",   NotSentError),
    "not sent in time":       Row("repeat",   "repeat",   "repeat",   "repeat",   "repeat",   NotSentTimeoutError),
    "not sendable":           Row("definite", "definite", "definite", "definite", "definite", NotSentError),
    "no response":            Row("unknown",  "repeat",   "repeat",   "query",    "repeat",   NoAnswerError),
    "no response in time":    Row("unknown",  "repeat",   "repeat",   "query",    "repeat",   NoAnswerTimeoutError),
    "unrecognised":           Row("unknown",  "repeat",   "repeat",   "query",    "repeat",   NoAnswerError),
    "unverified":             Row("unknown",  "definite", "repeat",   "query",    "repeat",   InvalidSignatureError),
    "redirect":               Row("unknown",  "definite", "unknown",  "query",    "unknown",  ServiceError),
    "not executed":           Row("definite", "definite", "definite", "definite", "definite", ServiceError),
    "not authenticated":      Row("definite", "definite", "definite", "definite", "definite", AuthenticationError),
    "absent":                 Row("definite", "definite", "definite", "definite", "definite", ServiceError),
    "unlisted":               Row("unknown",  "definite", "unknown",  "query",    "unknown",  ServiceError),
    "duplicate":              Row("unknown",  "definite", "used",     "used",     "wait",     ServiceError),
    "rate limited":           Row("unknown",  "wait",     "wait",     "query",    "wait",     RateLimitedError),
    "rate limited before it": Row("wait",     "wait",     "wait",     "wait",     "wait",     RateLimitedError),
    "server error":           Row("unknown",  "repeat",   "repeat",   "query",    "repeat",   NoAnswerError),
}  # fmt: skip
