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

KINDS: Final = {
    "1": "unnamed",
    "2": "unnamed",
    "2n": "named",
    "3": "read",
    "4": "close",
    "5": "named",
    "6": "read",
    "7": "read",
    "8": "unnamed",
    "9": "unnamed",
    "10": "unnamed",
}
"""By endpoint, the kind of its call; `2n` is 2 with a number."""

UNKNOWN: Final = OutcomeUnknownError


@frozen
class Row:
    """What follows from one end of an attempt.

    The words: `repeat` it, `wait` and repeat it, `query` what became of it, end as `unknown`, `definite` or `used`.

    Attributes:
        unnamed: For a write that nothing names.
        read: For a read.
        close: For a close.
        named: For a write that its number names.
        read_error: What a read ends as, if no further attempt follows.
        write_error: What a write ends as, if its word does not say it.
    """

    unnamed: str
    read: str
    close: str
    named: str
    read_error: type[PayasyncError]
    write_error: type[PayasyncError]

    def word(self, number: str) -> str:
        """Return what follows for an endpoint."""
        return str(getattr(self, KINDS[number]))

    def error(self, number: str) -> type[PayasyncError]:
        """Return what a call ends as, if no further attempt follows."""
        if KINDS[number] == "read":
            return self.read_error
        by_word = {"unknown": OutcomeUnknownError, "query": OutcomeUnknownError, "used": DuplicateError}
        return by_word.get(self.word(number), self.write_error)


ROWS: Final = {
    #                             unnamed     read        close       named
    "not sent":               Row("repeat",   "repeat",   "repeat",   "repeat",   NotSentError, NotSentError),
    "not sent in time":       Row("repeat",   "repeat",   "repeat",   "repeat",   NotSentTimeoutError,
                                  NotSentTimeoutError),
    "not sendable":           Row("definite", "definite", "definite", "definite", NotSentError, NotSentError),
    "no response":            Row("unknown",  "repeat",   "repeat",   "query",    NoAnswerError, UNKNOWN),
    "no response in time":    Row("unknown",  "repeat",   "repeat",   "query",    NoAnswerTimeoutError, UNKNOWN),
    "unrecognised":           Row("unknown",  "repeat",   "repeat",   "query",    NoAnswerError, UNKNOWN),
    "unverified":             Row("unknown",  "definite", "repeat",   "query",    InvalidSignatureError, UNKNOWN),
    "redirect":               Row("unknown",  "definite", "unknown",  "query",    ServiceError, UNKNOWN),
    "not executed":           Row("definite", "definite", "definite", "definite", ServiceError, ServiceError),
    "not authenticated":      Row("definite", "definite", "definite", "definite", AuthenticationError,
                                  AuthenticationError),
    "absent":                 Row("definite", "definite", "definite", "definite", ServiceError, ServiceError),
    "unlisted":               Row("unknown",  "definite", "unknown",  "query",    ServiceError, UNKNOWN),
    "duplicate":              Row("unknown",  "definite", "used",     "used",     ServiceError, UNKNOWN),
    "rate limited":           Row("unknown",  "wait",     "wait",     "query",    RateLimitedError, UNKNOWN),
    "rate limited before it": Row("wait",     "wait",     "wait",     "wait",     RateLimitedError, RateLimitedError),
    "server error":           Row("unknown",  "repeat",   "repeat",   "query",    NoAnswerError, UNKNOWN),
}  # fmt: skip
