"""Tracebacks of errors that leave payasync.

Error trackers store the local variables of every frame. Frames of payasync and of its libraries hold signed bodies,
unused nonces and customer details, so they are removed. Frames of the caller's own code stay.
"""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import wraps
from types import CoroutineType, TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from payasync.errors import PayasyncError

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

LIBRARIES: Final = frozenset(
    {
        *sys.stdlib_module_names,
        "payasync",
        "aiohappyeyeballs",
        "aiohttp",
        "aiosignal",
        "attr",
        "attrs",
        "backoff",
        "cattr",
        "cattrs",
        "cryptography",
        "frozenlist",
        "multidict",
        "orjson",
        "procrastinate",
        "propcache",
        "psycopg",
        "yarl",
    }
)
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
    """Say where an error was raised that only a bug of ours explains."""
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
            ended = [error]  # a plain variable would keep it in this frame
        del arguments, named
        raise drop_frames(ended.pop(), sys.exception())

    return call


def frameless_async(function: Callable[P, Awaitable[T]]) -> Callable[P, "CoroutineType[Any, Any, T]"]:
    """Decorate a coroutine function whose errors must not show its arguments.

    Its arguments stand in no frame that an error can show, even if its task is cancelled before it starts.
    """
    name = getattr(function, "__qualname__", "call")

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> "CoroutineType[Any, Any, T]":
        coroutine: Any = _awaited(lambda: function(*arguments, **named))
        coroutine.__qualname__ = name  # a warning shows it if it is never awaited
        return coroutine  # type: ignore[no-any-return] # mypy sees no CoroutineType in it

    return call


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except BaseException as error:  # noqa: BLE001 - it is raised below
        ended = [error]
    del call
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
