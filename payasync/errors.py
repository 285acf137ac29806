"""The errors, named by what to do next, and the removal of our frames from their tracebacks.

PayasyncError
    ConfigurationError
        NotConfiguredError
    InvalidArgumentError
    NotSentError
        NotSentTimeoutError (a TimeoutError)
    OutcomeUnknownError
    NoAnswerError
        NoAnswerTimeoutError (a TimeoutError)
        WaitTimeoutError (a TimeoutError)
    ServiceError
        AuthenticationError
        DuplicateError
        RateLimitedError
    InvalidSignatureError
    IntentConflictError
    StorageError
    SessionClosedError
"""

from __future__ import annotations

import re
import sys
from contextlib import aclosing, suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping

    from payasync.evidence.comparison import Objection
    from payasync.wire.response import Response


class PayasyncError(Exception):
    """The root of all errors that payasync raises.

    Attributes:
        operation: The name of the operation, such as `"refunds.create"`.
        reference: The order or refund number that the call was about.
        attempts: How many attempts had begun, including queries about a lost response.
        sent: Whether the request left this machine: `False` if provably not, `True` if it did, `None` if it may have.
        retry_after: The seconds that the service asked to wait.
        reason: The cause: a text, or another error of payasync.
        response: The service's response, if there was one.
        asked: For a write, its numbers, amounts, currency and merchant, by wire names. A response about another write
            differs from them.
        objection: Why a recognised response is not believed.
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


class ConfigurationError(PayasyncError):
    """The profile, the credentials or a setting of the session is wrong.

    Attributes:
        field: The setting, as the profile or the signature writes it, such as `"signature.algorithm"`.
        line: The line of the TOML file, if there is one.
    """

    field: str | None = None
    line: int | None = None


class NotConfiguredError(ConfigurationError):
    """The common interface leaves this point open, and the profile does not define it.

    A call raises it before anything is sent. A property of a response raises it after the call: `sent` is then true.
    """


class InvalidArgumentError(PayasyncError):
    """An argument was refused; nothing was sent.

    `Response.to` raises it after the call, for data that does not fit: `sent` is then true.

    Attributes:
        field: The argument.
        rule: What it must be.
        value: The refused value. For a mapping, such as a customer's details, it is the type.
    """

    field: str | None = None
    rule: str | None = None
    value: object = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Any other value might not pickle.
        plain = isinstance(self.value, str | int | float | bytes | None)
        return type(self), self.args, {**self.__dict__, "value": self.value if plain else repr(self.value)}


class NotSentError(PayasyncError):
    """Provably nothing left this machine, so you may repeat the call.

    Attributes:
        permanent: Whether repeating fails until you remove the cause, such as a bad certificate.
    """

    permanent: bool = False


class NotSentTimeoutError(NotSentError, TimeoutError):
    """Nothing was sent before the call's time was over."""


class OutcomeUnknownError(PayasyncError):
    """A write may have been carried out, and no recognised response says whether: query, never repeat.

    Attributes:
        intent_id: The number of the intent in the session's journal, if there is one.
        used_before: The service said that the number was used before, perhaps by an earlier attempt of this write.
    """

    sent: bool | None = None
    intent_id: int | None = None
    used_before: bool = False


class NoAnswerError(PayasyncError):
    """A query got no usable response: you may repeat it."""

    sent: bool | None = None


class NoAnswerTimeoutError(NoAnswerError, TimeoutError):
    """A query got no response before the call's time was over."""


class WaitTimeoutError(NoAnswerError, TimeoutError):
    """The awaited state did not come in time; `response` is the last response."""


class ServiceError(PayasyncError):
    """The service responded that the request was not carried out.

    Attributes:
        code: The service's result code, if the profile says where it is.
        message: The service's message, if the profile says where it is. Of code and message, only what prints is here,
            200 characters at most. `response` has all.
        http_status: The status of the response.
        absent: The service says "not found" as the profile lists it, and signed if responses are signed.
    """

    code: str | int | None = None
    message: str | None = None
    http_status: int | None = None
    absent: bool = False
    sent: bool | None = True


class AuthenticationError(ServiceError):
    """The service does not accept these keys, or this signature."""


class DuplicateError(ServiceError):
    """This number was used before: ask for its state."""


class RateLimitedError(ServiceError):
    """There were too many requests; `retry_after` says how long to wait, if the service says so."""


class InvalidSignatureError(PayasyncError):
    """A response or a notification is not signed by the service.

    Attributes:
        field: What is wrong: a header, or a path inside the document, if it is known.
    """

    field: str | None = None
    sent: bool | None = None


class IntentConflictError(PayasyncError):
    """The number or `intent` belongs to another request in the journal; nothing was sent.

    Attributes:
        intent_id: The number of the earlier intent in the session's journal.
    """

    intent_id: int | None = None


class StorageError(PayasyncError):
    """A journal or an inbox cannot be read or written now: it is locked, full or closed. Nothing was done."""


class SessionClosedError(PayasyncError):
    """The session is closed: make a new one."""


SHOWN: Final = 200
"""The most characters of a text of the service that an error, an event, a log record or a terminal shows."""


def plain(text: str) -> str:
    """Return a text with `?` for what does not print: terminals obey such characters, or order others by them."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def clean(value: object, longest: int = SHOWN) -> str:
    """Return a value of the service as it may be shown: one line of printable characters, and not too many."""
    line = re.sub(r"\s+", " ", str(value))
    return plain(line if len(line) <= longest else f"{line[: longest - 1]}…")


def describe_error(error: BaseException) -> str:
    """Return the class of an error and its text, which may be that of the service unless the error is ours."""
    try:
        text = plain(str(error)) if isinstance(error, PayasyncError) else clean(error)
    except Exception:  # noqa: BLE001 - the user's code
        text = ""
    return f"{type(error).__name__}: {text}" if text.strip() else type(error).__name__


P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_DEPENDENCIES: Final = (
    "aiohappyeyeballs aiohttp aiosignal attr attrs backoff cattr cattrs cryptography frozenlist multidict orjson "
    "procrastinate propcache psycopg tzdata yarl"
)
LIBRARIES: Final = frozenset({*sys.stdlib_module_names, "payasync", *_DEPENDENCIES.split()})
"""The packages whose frames are removed."""


def drop_frames(error: E, handled: BaseException | None = None) -> E:
    """Remove the frames of payasync and its libraries from an error, its causes, its contexts and its group.

    Args:
        error: Is about to leave payasync.
        handled: The error that the caller was handling before the call; it stays as it is.
    """
    seen, waiting = {id(error), id(handled), id(None)}, [error]
    while waiting:
        each: Any = waiting.pop()
        _drop(each)
        for behind in (each.__cause__, each.__context__, *getattr(each, "exceptions", ())):
            if id(behind) not in seen:
                seen.add(id(behind))
                waiting.append(behind)
    return error


def _drop(error: BaseException) -> None:
    kept: list[TracebackType] = []
    last, trace = None, error.__traceback__
    while trace is not None:
        # Code that attrs generates has no module.
        if trace.tb_frame.f_globals.get("__name__", "payasync").partition(".")[0] not in LIBRARIES:
            kept.append(trace)
        last, trace = trace, trace.tb_next
    error.__traceback__ = None
    for each in reversed(kept):
        error.__traceback__ = TracebackType(error.__traceback__, each.tb_frame, each.tb_lasti, each.tb_lineno)
    if last is not None and not kept:
        _note_origin(error, last)


def _note_origin(error: BaseException, last: TracebackType) -> None:
    """Add a note of where an error was raised, if only a bug of ours explains it."""
    expected = isinstance(error, PayasyncError) or not isinstance(error, Exception)
    if not expected and not hasattr(error, "__notes__"):
        where = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
        error.add_note(f"Raised at {where}; payasync removed its own frames.")


def frameless(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function whose errors must not show its arguments."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            ended = [error]  # a list, because a plain variable would stay in this frame
        del arguments, named
        raise drop_frames(ended.pop(), sys.exception())

    return call


def frameless_async(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function whose errors must not show its arguments.

    Its arguments stand in no frame that an error can show, even if its task is cancelled before it starts.
    """
    name = getattr(function, "__qualname__", "call")

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        coroutine: Any = _awaited([lambda: function(*arguments, **named)])
        coroutine.__qualname__ = name  # a warning shows it if it is never awaited
        return coroutine  # type: ignore[no-any-return] # it is typed `Any`

    return call


async def _awaited(waiting: list[Callable[[], Awaitable[T]]]) -> T:
    try:
        return await waiting.pop()()  # in no variable, in which the arguments would stay
    except BaseException as error:  # noqa: BLE001 - it is raised below
        ended = [error]
    raise drop_frames(ended.pop(), sys.exception())


async def frameless_results(results: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield what a generator yields; its errors show none of its variables."""
    try:
        async with aclosing(results):
            with suppress(StopAsyncIteration):
                while True:
                    yield await anext(results)  # without a variable, in which it would stay
    except BaseException as error:  # noqa: BLE001 - it is raised below
        ended = [error]
    else:
        return
    del results
    raise drop_frames(ended.pop(), sys.exception())
