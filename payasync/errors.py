"""What can go wrong, named for what the caller may do next.

PayasyncError                 the one root; every class pickles, none carries a secret
├── ConfigurationError        mend the profile, the credentials or the session's settings
│   └── NotConfiguredError    an open point that the profile does not answer
├── InvalidArgumentError      refused before any I/O
├── NotSentError              provably nothing left this machine: repeating is harmless
├── OutcomeUnknownError       a write may have been done: query, never repeat
├── NoAnswerError             a read got no usable answer: repeating is harmless
│   └── WaitTimeoutError      the awaited state did not come in time
├── ServiceError              the service answered, and it was not done
│   ├── AuthenticationError
│   ├── DuplicateError        this number was used before: ask for its state
│   └── RateLimitedError
├── InvalidSignatureError     an answer or a notification is not from the service
├── IntentConflictError       the same key was used before for a different request
├── StorageError              the inbox or journal cannot be read or written now: repeat it later
└── SessionClosedError

`OutcomeUnknownError` is never a `TimeoutError`, nor an `OSError`: what retries on those must not
pay twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from payasync.calls import Objection
    from payasync.responses import Response


class PayasyncError(Exception):
    """The root of all errors that payasync raises.

    Attributes:
        operation: The name of the operation, such as `"refunds.create"`.
        reference: The order or refund number that the call was about.
        attempts: The attempts that had begun, queries of recovery included.
        sent: Whether the request left this machine: `False` where that is proven not, `True` where it
            is known, `None` where it may have.
        retry_after: Seconds that the service asked to wait.
        reason: What was behind it: a phrase, or another error of ours.
        response: The service's answer, where there was one.
        asked: Of a write: the numbers, amounts, currency and merchant that it named, by their wire names, so that a
            response about another one is known.
        objection: Why a response is not believed, where it is recognised and still about something else.
    """

    operation: str | None = None
    reference: str | None = None
    attempts: int = 0
    sent: bool | None = False
    retry_after: float | None = None
    reason: str | PayasyncError | None = None
    response: Response | None = None
    asked: Mapping[str, object] | None = None
    objection: Objection | None = None

    def __init__(self, message: str = "", /, **facts: Any) -> None:
        super().__init__(message)
        self.add(**facts)

    def add(self, **facts: Any) -> None:
        """Set facts that were learnt after the error was made, such as `attempts`."""
        for name, value in facts.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no {name!r}")
            setattr(self, name, value)

    def __str__(self) -> str:
        about = " ".join(each for each in (self.operation, self.reference) if each)
        after = f" (after {self.attempts} attempts)" if self.attempts > 1 else ""
        return f"{about}: {self.args[0]}{after}" if about else f"{self.args[0]}{after}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, self.__dict__)


def _revive(kind: type[PayasyncError], args: tuple[Any, ...], facts: Mapping[str, Any]) -> PayasyncError:
    error = kind(*args)
    error.__dict__.update(facts)
    return error


class ConfigurationError(PayasyncError):
    """The profile, the credentials or a setting of the session is wrong.

    Attributes:
        field: The setting, as the profile or the signature writes it, such as `"signature.algorithm"`.
        line: The line of the TOML file, where there is one.
    """

    field: str | None = None
    line: int | None = None


class NotConfiguredError(ConfigurationError):
    """The service's document leaves this point open, and the profile does not answer it."""


class InvalidArgumentError(PayasyncError):
    """An argument was refused; nothing was sent.

    Attributes:
        field: The argument.
        rule: What it must be.
        value: What it was; of a mapping, such as a customer's details, its type.
    """

    field: str | None = None
    rule: str | None = None
    value: object = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, {**self.__dict__, "value": _shown(self.value)})


def _shown(value: object) -> object:
    """Return what pickles for sure: a plain value, else how it reads."""
    return value if isinstance(value, str | int | float | bytes | None) else repr(value)


class NotSentError(PayasyncError):
    """Provably nothing left this machine: repeating the call is harmless.

    Attributes:
        permanent: Repeating will not help before something is mended, such as a certificate.
    """

    permanent: bool = False


class NotSentTimeoutError(NotSentError, TimeoutError):
    """Nothing was sent within the time that the call had."""


class OutcomeUnknownError(PayasyncError):
    """A write may have been done, and no recognised answer says whether: query, never repeat.

    Attributes:
        intent_id: Its number in the session's journal, where there is one.
        used_before: The service said that the number was used before, perhaps by an earlier attempt of this write.
    """

    sent: bool | None = None
    intent_id: int | None = None
    used_before: bool = False


class NoAnswerError(PayasyncError):
    """A read got no usable answer: repeating it is harmless."""

    sent: bool | None = None


class NoAnswerTimeoutError(NoAnswerError, TimeoutError):
    """A read got no answer within the time that the call had."""


class WaitTimeoutError(NoAnswerError, TimeoutError):
    """The awaited state did not come in time; `response` is the last answer."""


class ServiceError(PayasyncError):
    """The service answered, and it was not done.

    Attributes:
        code: The service's result code, where the profile says where it stands.
        message: The service's words, where the profile says where they stand.
        http_status: The status of the answer.
        absent: It says that there is no such thing, in the words that the profile lists, and signed by the service
            where answers are.
    """

    code: str | int | None = None
    message: str | None = None
    http_status: int | None = None
    absent: bool = False
    sent: bool | None = True


class AuthenticationError(ServiceError):
    """The service does not take these keys, or this signature."""


class DuplicateError(ServiceError):
    """This number was used before: ask for its state."""


class RateLimitedError(ServiceError):
    """Too many requests; `retry_after` says how long to wait, if the service did."""


class InvalidSignatureError(PayasyncError):
    """An answer or a notification is not signed by the service.

    Attributes:
        field: What is wrong with it: a header, or a path inside the document, where it is known.
    """

    field: str | None = None
    sent: bool | None = None


class IntentConflictError(PayasyncError):
    """The same key was used before for a different request; nothing was sent.

    Attributes:
        intent_id: The number of the other one in the session's journal.
    """

    intent_id: int | None = None


class StorageError(PayasyncError):
    """A file cannot be read or written now: it is locked, full or closed. Nothing of it counts as done: repeat it."""


class SessionClosedError(PayasyncError):
    """The session was closed; make another."""
