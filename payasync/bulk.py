"""Many requests, a few at a time: what is checked of them before the first is sent, and what each comes to.

Where the caller looks at a result, at most `limit` others are under way or wait to be looked at: who stops there knows
how many there are of which nothing was heard.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from inspect import iscoroutinefunction
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

from attrs import Factory, field, frozen

from payasync import events
from payasync.errors import ConfigurationError, DuplicateError, InvalidArgumentError, OutcomeUnknownError, PayasyncError
from payasync.operations import Kind
from payasync.requests import Request, invalid
from payasync.responses import Response
from payasync.tracebacks import drop_frames, frameless_results

R_co = TypeVar("R_co", bound=Response, covariant=True)
R = TypeVar("R", bound=Response)

REQUESTS: Final = "an iterable of request objects, such as [CreateRefund(...), ...]"


@frozen
class Done(Generic[R_co]):
    """The service did it.

    Attributes:
        request: As it was given.
        response: The answer.
    """

    request: Request[R_co]
    response: R_co


@frozen
class Refused:
    """It was not done; or it was a read without a usable answer, and repeating that is harmless.

    Attributes:
        request: As it was given.
        error: Its `sent` is `False` where nothing left this machine: a `NotSentError` may be repeated as it is, a
            `SessionClosedError` with another session, a `StorageError` when the journal is there again. A
            `ServiceError` is the service's word.
    """

    request: Request[Response]
    error: PayasyncError


@frozen
class Unknown(events.Unknown):
    """It may have been done, and no recognised answer says whether: ask, and never repeat it.

    It is the `payasync.Unknown` that `on_event` hears, with the request and the error: `isinstance` takes it for one.

    Attributes:
        request: As it was given.
        error: What is known; `await pay.reconcile(error)` asks. A `DuplicateError` says that the number was used
            before, perhaps for this very request.
    """

    request: Request[Response]
    error: OutcomeUnknownError | DuplicateError
    operation: str = field(init=False, default=Factory(lambda self: self.request.operation.name, takes_self=True))
    reference: str | None = field(init=False, default=Factory(lambda self: self.request.reference, takes_self=True))
    reason: str = field(
        init=False, default=Factory(lambda self: str(self.error.reason or self.error.args[0]), takes_self=True)
    )


Result: TypeAlias = Done[R] | Refused | Unknown
Progress: TypeAlias = Callable[[int, int], object]


def checked(requests: Iterable[Request[R]], check: Callable[[Request[R]], object]) -> tuple[Request[R], ...]:
    """Return the requests, each of which can be sent, and no two of which would make the same thing.

    Args:
        requests: Given by the user.
        check: Refuses what this session cannot send.

    Raises:
        InvalidArgumentError: It names the first one that is wrong, by its position from 0 on.
        ConfigurationError: The session cannot send one, whatever stands in it, such as without a key; it names none.
        NotConfiguredError: One needs a point that the profile leaves open.
    """
    if not isinstance(requests, Iterable) or isinstance(requests, str | bytes):
        raise invalid("requests", REQUESTS, requests)
    found = tuple(requests)
    places: dict[tuple[str, str], int] = {}
    for place, request in enumerate(found):
        _check(place, request, check)
        key = _key(request)
        if key is not None and places.setdefault(key, place) != place:
            raise _twice(place, places[key], request)
    return found


def _check(place: int, request: Request[R], check: Callable[[Request[R]], object]) -> None:
    name = f"requests[{place}]"
    if not isinstance(request, Request) or not hasattr(request, "operation"):
        raise invalid(name, "a request object, such as CreateRefund(...)", request)
    try:
        check(request)
    except ConfigurationError as error:
        error.add(reference=None)  # the setting is wrong, and not this request
        raise
    except InvalidArgumentError as error:
        refused = error
    else:
        return
    raise InvalidArgumentError(
        f"{name}: {refused.args[0]}",
        field=f"{name}.{refused.field}",
        rule=refused.rule,
        value=refused.value,
        operation=request.operation.name,
        reference=request.reference,
    )


def _key(request: Request[Response]) -> tuple[str, str] | None:
    """Return what names the thing that a write makes or ends, where the merchant's own number does."""
    named = request.operation.kind is Kind.KEYED and request.reference is not None
    return (request.operation.name, str(request.reference)) if named else None


def _twice(place: int, first: int, request: Request[Response]) -> InvalidArgumentError:
    name = f"requests[{place}].{request.operation.reference}"
    rule = "a number of its own"
    return InvalidArgumentError(
        f"{name} must be {rule}: requests[{first}] has {request.reference!r} already",
        field=name,
        rule=rule,
        value=request.reference,
        operation=request.operation.name,
        reference=request.reference,
    )


def check_settings(limit: object, on_progress: object) -> None:
    """Refuse a limit or a listener that is none.

    Raises:
        InvalidArgumentError: Which, and what it must be.
    """
    if type(limit) is not int or limit < 1:
        raise invalid("limit", "an int of 1 or more", limit)
    if on_progress is not None and (not callable(on_progress) or iscoroutinefunction(on_progress)):
        raise invalid("on_progress", "a plain function of two numbers, or None", on_progress)


def results(
    requests: Sequence[Request[R]],
    send: Callable[[Request[R]], Coroutine[Any, Any, R]],
    *,
    limit: int,
    on_progress: Progress | None,
    pause: Callable[[], Awaitable[None]],
) -> AsyncGenerator[Result[R]]:
    """Send requests, and yield what each comes to, as they end; what is still under way at the end is cancelled.

    Where a call ends with an error that is not ours, such as one of the user's own middleware, no further one begins;
    those under way come to their end, and then it is raised.

    Args:
        requests: In the order in which they begin.
        send: Sends one.
        limit: At most so many at once.
        on_progress: Called with how many have ended, and how many there are.
        pause: Waits, before a request is sent, as long as the service wants no further one.
    """

    async def begun(request: Request[R]) -> Result[R]:
        await pause()
        return await result(request, send)

    return frameless_results(_results(requests, begun, limit=limit, on_progress=on_progress))


async def _results(
    requests: Sequence[Request[R]],
    begun: Callable[[Request[R]], Coroutine[Any, Any, Result[R]]],
    *,
    limit: int,
    on_progress: Progress | None,
) -> AsyncGenerator[Result[R]]:
    waiting, total = iter(requests), len(requests)
    flying: set[asyncio.Task[Result[R]]] = set()
    ended: asyncio.Queue[asyncio.Task[Result[R]]] = asyncio.Queue()

    def begin(count: int) -> None:
        for request in islice(waiting, count):
            task = asyncio.ensure_future(begun(request))
            flying.add(task)
            task.add_done_callback(ended.put_nowait)

    foreign: list[asyncio.Task[Result[R]]] = []
    done = 0
    try:
        begin(limit)
        while flying:
            task = await ended.get()
            flying.remove(task)
            if task.cancelled() or task.exception():
                foreign.append(task)
                continue
            done += 1
            if on_progress is not None:
                on_progress(done, total)
            yield task.result()
            begin(0 if foreign else 1)
    finally:
        await _cancelled(flying)
    if foreign:
        foreign[0].result()


async def result(request: Request[R], send: Callable[[Request[R]], Coroutine[Any, Any, R]]) -> Result[R]:
    """Send one request, and return what it comes to."""
    try:
        return Done(request, await send(request))
    except (OutcomeUnknownError, DuplicateError) as error:
        return Unknown(request, drop_frames(error))
    except PayasyncError as error:
        return Refused(request, drop_frames(error))


async def _cancelled(tasks: set[asyncio.Task[Result[R]]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
        for task in tasks:
            _ = task.cancelled() or task.exception()  # asked for, so that asyncio does not complain
