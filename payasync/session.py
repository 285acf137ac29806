"""The session: its settings, the way that a call takes through its layers, and its lifetime."""

import asyncio
import logging
import os
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from attrs import Factory, evolve, field, frozen
from yarl import URL

from payasync.credentials import Credentials, Environment, Secret
from payasync.endpoints import Kind, custom
from payasync.errors import (
    ConfigurationError,
    DuplicateError,
    InvalidArgumentError,
    NoAnswerError,
    OutcomeUnknownError,
    PayasyncError,
    SessionClosedError,
    StorageError,
    drop_frames,
    frameless,
    frameless_async,
    frameless_results,
)
from payasync.middleware.chain import chain, users, wired
from payasync.middleware.observe import Event, Teller, observe
from payasync.middleware.observe import Unknown as UnknownEvent
from payasync.middleware.recovery import about, about_write, check_answer, question, unmatched
from payasync.middleware.retry import Ask, Pace, Quota, Rules, retry
from payasync.middleware.sign import authorize, check, sign, signable
from payasync.middleware.verify import verify
from payasync.profile.consistency import check_keys, short_keys
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.profile.signed_fields import check_answers_covered
from payasync.resources.orders import Orders
from payasync.resources.payments import Payments
from payasync.resources.refunds import Refunds
from payasync.resources.subscriptions import Subscriptions
from payasync.settings import (
    RetryPolicy,
    Timeouts,
    check_function,
    check_tls,
    environment_proxy,
    is_loopback,
    parse_base_url,
    parse_proxy_url,
)
from payasync.transport import PoolSettings, Transport
from payasync.transport.deadlines import running_task
from payasync.wire.call import Call, Entry, Layer, Reply, Send, Wiring
from payasync.wire.encode import Codec
from payasync.wire.request import NOTHING, Request, invalid, word
from payasync.wire.response import Response

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

LANDING: Final = 0.5
"""Seconds that a call which was cut off has for its last word; only a layer of the user's takes so long."""


class Flights:
    """The calls in flight of a session and its copies, and whether further ones may start."""

    def __init__(self) -> None:
        self.closed = False
        self._cut = False
        self._flying: dict[object, asyncio.Task[Any] | None] = {}
        self._landings: dict[object, asyncio.Future[None]] = {}
        self._shielded: set[asyncio.Task[Any]] = set()
        self._pauses: set[asyncio.Future[bool]] = set()

    def begin(self, call: object, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Note that a call begins, in the task that runs: `call` is anything that is its own.

        Args:
            call: Ends under the same.
            loop: The one that runs; who has it at hand saves the system call that asking for it is.
        """
        self._flying[call] = asyncio.current_task(loop)

    def end(self, call: object) -> None:
        """Note that a call has ended, and tell whoever waits for that."""
        del self._flying[call]
        landing = self._landings.pop(call, None)
        if landing is not None and not landing.done():
            landing.set_result(None)

    async def pause(self, seconds: float) -> bool:
        """Sleep between two attempts of a call; `False` where the call is cut off instead."""
        loop = asyncio.get_running_loop()
        pause: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(seconds, _end, pause, True)  # noqa: FBT003 - the result
        self._pauses.add(pause)
        try:
            return not self._cut and await pause
        finally:
            timer.cancel()
            self._pauses.discard(pause)

    async def shielded(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that goes on to its end even where its caller is cancelled.

        Raises:
            SessionClosedError: The session was closed, and did not wait for the call's end.
        """
        task = asyncio.ensure_future(call)
        self._shielded.add(task)
        task.add_done_callback(self._landed)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled() or running_task().cancelling():
                raise
        raise SessionClosedError("the session was closed, and waited no longer for this call", sent=None)

    def _landed(self, task: "asyncio.Task[Any]") -> None:
        self._shielded.discard(task)
        if not task.cancelled():
            task.exception()  # asked for, so that asyncio does not complain where nobody waits any more

    async def drain(self, grace: float) -> None:
        """Wait for the calls of this loop, but not for those that wait for us in turn."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        flying = tuple(self._flying.items())
        others = [call for call, task in flying if task and task is not me and task.get_loop() is here]
        if others and grace > 0:
            landings = [self._landings.setdefault(call, here.create_future()) for call in others]
            await asyncio.wait(landings, timeout=grace)

    def cut(self) -> None:
        """Let no call try again: those that pause go on to their last word."""
        self._cut = True
        for pause in tuple(self._pauses):
            loop = pause.get_loop()
            with suppress(RuntimeError):  # that loop was closed, and its calls with it
                loop.call_soon_threadsafe(_end, pause, False)  # noqa: FBT003 - the result

    async def land(self) -> None:
        """Wait for the shielded calls of this loop, which were cut off; what holds on to them is cancelled."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        left = {each for each in self._shielded if each.get_loop() is here and each is not me}
        if not left:
            return
        _, stuck = await asyncio.wait(left, timeout=LANDING)
        for task in stuck:
            task.cancel()
        if stuck:
            await asyncio.wait(stuck, timeout=LANDING)


def _end(pause: "asyncio.Future[bool]", whole: bool) -> None:  # noqa: FBT001 - the result
    if not pause.done():
        pause.set_result(whole)


PROFILE_PATH: Final = "PAYASYNC_PROFILE"
LONGEST_KEPT: Final = 3600.0
"""Seconds that a call may take with a journal: nobody asks about one that was cut off before they are over."""
SHORT_ENOUGH: Final = (
    f"at most {LONGEST_KEPT:.0f} seconds with a journal, which asks about a call that was cut off only after them"
)
ENVIRONMENT: Final = "environment"
"""The `proxy` that asks for the one in the environment."""


class Recorder(Protocol):
    """What a session uses of its journal."""

    def layer(self, merchant: str, service: str, tell: Callable[[Event], None] | None = None) -> Layer:
        """Return the layer that keeps one merchant's writes to one service, as `Session.service` says it."""
        ...

    async def queued(self, intent_id: int, merchant: str) -> Request[Response]:
        """Return a request that was queued."""
        ...


class Recording(Protocol):
    """A journal, as a session sees it."""

    @property
    def recorder(self) -> Recorder:
        """What keeps the writes."""
        ...

    async def note(self, intent_id: int, reason: str) -> bool:
        """Keep why what waits to be sent cannot be."""
        ...


def _layers(given: Iterable[Layer]) -> tuple[Layer, ...]:
    layers = tuple(given) if isinstance(given, Iterable) else (given,)
    for layer in layers:
        if not callable(layer):
            raise ConfigurationError(f"middleware must be a list of layers, not {layer!r}", field="middleware")
    return layers


@frozen(kw_only=True)
class Setup:
    """What makes one session differ from another that shares its connections.

    Raises:
        ConfigurationError: A setting of another type, a profile by which anybody could write what is believed, or a key
            that cannot sign or verify.
    """

    credentials: Credentials
    profile: Profile
    timeouts: Timeouts
    retry: RetryPolicy
    middleware: tuple[Layer, ...] = field(converter=_layers)
    on_event: Callable[[Event], None] | None = field(repr=False)
    journal: Recording | None = None

    def __attrs_post_init__(self) -> None:
        kinds = {"credentials": Credentials, "profile": Profile, "timeouts": Timeouts, "retry": RetryPolicy}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                # A value of another type may still hold keys.
                found = type(value).__name__ if name == "credentials" else repr(value)
                raise ConfigurationError(f"{name} must be a {kind.__name__}, not {found}", field=name)
        check_answers_covered(self.profile)
        check_keys(self.profile, self.credentials)
        if self.on_event is not None:
            check_function("on_event", self.on_event)
        if self.journal is not None and not hasattr(getattr(self.journal, "recorder", None), "layer"):
            raise ConfigurationError(
                f'journal must be a journal, such as SqliteJournal("pay.db"), not {self.journal!r}', field="journal"
            )
        if self._too_long(self.timeouts):
            raise ConfigurationError(f"Timeouts.total must be {SHORT_ENOUGH}", field="Timeouts.total")

    def way(self, quota: Quota, ask: Ask, pace: Pace, transport: Transport) -> Send:
        """Return the way of a call: each layer wraps those below it."""
        tell = Teller(self.on_event)
        return chain(
            [
                *self._recording(service(self.profile, transport.base), tell),
                partial(retry, Rules(policy=self.retry, quota=quota, tell=tell, ask=ask, pace=pace)),
                *([partial(verify, self.credentials)] if self.profile.answer.signature else []),
                *(users(layer) for layer in self.middleware),
                partial(sign, self.credentials.signing_key),
                partial(authorize, self.credentials.secret_key),
                partial(observe, tell),
            ],
            transport.send,
        )

    def check(self, call: Call, *, keyless: bool = False) -> None:
        """Refuse a call that cannot be signed.

        Args:
            call: Which.
            keyless: Who has no key may keep it for others, who have.

        Raises:
            ConfigurationError: The scheme or the key is missing.
            InvalidArgumentError: A field has what the scheme does not sign.
        """
        key = self.credentials.signing_key
        if key is not None or not keyless:
            check(call, key)

    def _recording(self, service: str, tell: Teller) -> list[Wiring]:
        """Return the layers of a session with a journal: what cannot be signed is not kept there."""
        if self.journal is None:
            return []
        recorder, merchant = self.journal.recorder, self.credentials.merchant_id
        keeping = wired(recorder.layer(merchant, service, tell))
        return [partial(signable, self.credentials.signing_key), keeping]

    def times(self, seconds: float | None) -> Timeouts:
        """Return the times of one call, whose own total goes before the session's.

        Raises:
            InvalidArgumentError: It is no number of seconds above 0, or too long for a journal.
        """
        if seconds is None:
            return self.timeouts
        try:
            times = evolve(self.timeouts, total=seconds)
        except ConfigurationError:
            times = None
        if times is None:
            raise invalid("timeout", "a number of seconds above 0", seconds)
        if self._too_long(times):
            raise invalid("timeout", SHORT_ENOUGH, seconds)
        return times

    def _too_long(self, times: Timeouts) -> bool:
        return self.journal is not None and times.total > LONGEST_KEPT


def transport(
    address: str,
    profile: Profile,
    *,
    http: "aiohttp.ClientSession | None",
    tls: ssl.SSLContext | None,
    proxy: str | None,
    max_connections: int,
    max_response_bytes: int,
) -> Transport:
    """Return the transport for these settings; it opens nothing yet.

    Raises:
        ConfigurationError: A setting that is wrong, or that would not be safe.
    """
    url = parse_base_url(address)
    if _is_sandbox(profile) and not is_loopback(url):
        raise ConfigurationError(
            f"profile is the sandbox's own, and {address!r} is not on this machine: its answers are not the "
            "service's; write a profile of the service",
            field="profile",
        )
    for name, value in (("max_connections", max_connections), ("max_response_bytes", max_response_bytes)):
        if type(value) is not int or value < 1:
            raise ConfigurationError(f"{name} must be an integer of 1 or more, not {value!r}", field=name)
    via = _proxy(url, proxy)
    return Transport(
        url,
        pools=PoolSettings(
            tls=None if tls is None else check_tls(tls),
            max_connections=max_connections,
            secure=url.scheme == "https" or (via is not None and URL(via.reveal()).scheme == "https"),
            http=http,
        ),
        headers=profile.headers,
        proxy=via,
        max_response_bytes=max_response_bytes,
    )


def service(profile: Profile, base: str) -> str:
    """Return by what a journal tells a service from others: its base URL, or the sandbox's name.

    A sandbox moves no money, and has another port with each start: all of them are one, and none is a real service.
    """
    return SANDBOX.name if _is_sandbox(profile) else base


def _is_sandbox(profile: Profile) -> bool:
    return profile.name == SANDBOX.name or evolve(profile, name=SANDBOX.name) == SANDBOX


def _proxy(url: URL, given: str | None) -> Secret | None:
    found = environment_proxy(url) if given == ENVIRONMENT else given
    if found is None:
        return None
    proxy = parse_proxy_url(found)
    if url.scheme == "http" and not is_loopback(URL(proxy)):
        raise ConfigurationError(
            "proxy is not on this machine, and base_url is plain http: keys would leave it in plain text. Use https, "
            'or no proxy (with proxy="environment", name the host in NO_PROXY)',
            field="proxy",
        )
    return Secret(proxy)


def from_environment(read: Environment, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session's settings: those that are given, and the others read from the environment.

    Raises:
        ConfigurationError: A variable is missing, empty or wrong.
    """
    chosen = dict(settings)
    if "credentials" not in chosen:
        chosen["credentials"] = Credentials.from_env(read.variables)
    if "profile" not in chosen:
        chosen["profile"] = _profile(read)
    if "base_url" not in chosen:
        chosen["base_url"] = read.required("PAYASYNC_BASE_URL")
    return chosen


def _profile(read: Environment) -> Profile:
    if f"{PROFILE_PATH}_FILE" in read.variables:
        raise ConfigurationError(f"{PROFILE_PATH} is itself a path: use it without _FILE", field=PROFILE_PATH)
    given = read.optional(PROFILE_PATH)
    if given is None:
        return Profile()
    return SANDBOX if given.strip() == "sandbox" else Profile.from_file(given.strip())


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
class Unknown(UnknownEvent):
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


class Sender:
    """The half of a session that sends; the other half is its making and its end."""

    _setup: Setup
    _codec: Codec
    _flights: Flights
    _way: Send
    _quota: Quota
    _closed: bool

    @frameless_async
    async def send(
        self,
        request: Request[R],
        *,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> R:
        """Send a request object, as the methods of the namespaces do.

        Args:
            request: Such as `CreateRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of what a write is for: its key in the session's journal, and not on the wire.
            shield: Let the call go on to its end where its caller is cancelled; `aclose(grace=)` waits for it.

        Raises:
            PayasyncError: As the method of the same name says.
        """
        _check_request(request)
        return await self._send(request, timeout=timeout, intent=intent, shield=shield)

    async def _send(
        self, request: Request[R], *, timeout: float | None = None, intent: str | None = None, shield: bool = False
    ) -> R:
        if shield:
            return await self._flights.shielded(self._send(request, timeout=timeout, intent=intent))
        usual = timeout is None and intent is None and not self._closed and not self._flights.closed
        timeouts = self._setup.timeouts if usual else self._times(request, timeout, intent)
        loop = asyncio.get_running_loop()
        call = self._codec.call(request, timeouts, loop.time() + timeouts.total, intent)
        self._flights.begin(call.progress, loop)
        try:
            reply = await self._way(call)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            ended = [error]
        else:
            answer: R = request.answer.of(call, reply)  # type: ignore[assignment] # its own
            return answer
        finally:
            self._flights.end(call.progress)
        del request, call
        raise drop_frames(ended.pop(), sys.exception())

    @frameless
    def check(self, request: Request[Response]) -> None:
        """Refuse a request that this session could not send, as sending it would; and send nothing.

        For who keeps a request now and has it sent later, such as by `journal.add`. It passes where the service may
        refuse it all the same.

        Args:
            request: Such as `CreateRefund(...)`.

        Raises:
            InvalidArgumentError: It is no request object, the profile says that the service does not take it, or it
                cannot be signed; whether there is a key for that is not looked at.
            NotConfiguredError: It needs a point that the profile leaves open.
        """
        _check_request(request)
        self._check(request, keyless=True)

    @frameless
    def bulk(
        self,
        requests: Iterable[Request[R]],
        *,
        limit: int = 20,
        on_progress: Progress | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Result[R]]:
        """Send many requests, a few at a time, and yield what each comes to, as they end: one result for each.

        All are checked before the first is sent. Who leaves the loop, or is cancelled, cuts off those under way: they
        may have been done, and a journal knows which. `contextlib.aclosing` has it done before the next line runs.
        If the session is closed, requests that had not begun are `Refused`, with a `SessionClosedError`. After a 429
        with `Retry-After`, no further request begins before that time is over.

        Args:
            requests: Request objects, such as `CreateRefund(...)`; no two writes with one number.
            limit: At most so many are under way, or ended and not looked at; more than the session's `max_connections`
                wait for each other.
            on_progress: A plain function, called with how many have ended, and how many there are.
            timeout: Seconds for each, in place of `Timeouts.total`.

        Raises:
            InvalidArgumentError: An argument is wrong, and nothing was sent; of a request that could not be sent, or
                not be signed, its position from 0 on is named.
            ConfigurationError: The key that a request is signed with is missing; nothing was sent.
            NotConfiguredError: A request needs a point that the profile leaves open; nothing was sent.
            SessionClosedError: The session is closed.
        """
        self._check_open()
        self._setup.times(timeout)
        check_settings(limit, on_progress)
        sendable = checked(requests, self._check)
        return results(
            sendable,
            partial(self.send, timeout=timeout),
            limit=limit,
            on_progress=on_progress,
            pause=self._held,
        )

    async def _held(self) -> None:
        """Wait until the service wants further requests, or the session is closed."""
        clock = asyncio.get_running_loop().time
        while (left := self._quota.held_until - clock()) > 0 and not self._closed and not self._flights.closed:
            await self._flights.pause(left)

    def _check(self, request: Request[Response], *, keyless: bool = False) -> None:
        self._setup.check(self._codec.call(request), keyless=keyless)

    @frameless_async
    async def execute(self, intent_id: int, *, timeout: float | None = None, fence: int | None = None) -> Response:
        """Send what `journal.add` has kept; what was done already is answered from the journal, and not sent.

        Args:
            intent_id: Its number in the session's journal.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            fence: Of who holds it by `journal.ask` and has found out that it was never done: it is sent again then.

        Raises:
            ConfigurationError: The session has no journal.
            InvalidArgumentError: There is no such intention, it is another merchant's, or it was a direct call; a
                person has rejected it, or it turned out not to be done. Or the service does not take it, as the profile
                says by now: that is kept as its reason.
            OutcomeUnknownError: It may have been done, or another process is at it.
            PayasyncError: As the method of the request's own name says.
        """
        self._check_open()
        journal = self._setup.journal
        if journal is None:
            raise ConfigurationError(
                'journal is not set: give the session one, such as SqliteJournal("pay.db")', field="journal"
            )
        request = await journal.recorder.queued(intent_id, self._setup.credentials.merchant_id)
        timeouts = self._times(request, timeout, None)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        try:
            call = self._codec.call(request, timeouts, deadline, None).derived(entry=Entry(intent_id, fence))
            self._setup.check(call)
        except PayasyncError as error:
            with suppress(StorageError):
                await journal.note(intent_id, str(error.args[0]))
            raise
        return request.answer.of(call, await self._reply(call))

    @frameless_async
    async def request(
        self,
        method: str,
        path: str,
        *,
        fields: Mapping[str, Any] = NOTHING,
        bearer: bool = False,
        signed: bool = False,
        read: bool = False,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Response:
        """Call an endpoint that the document does not show, through the same middleware.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: Below the base URL, such as `/payment/bill`.
            fields: By their wire names: in a JSON body, or for GET and DELETE in the query.
            bearer: Send `Authorization: Bearer`.
            signed: Add `nonceStr` and `sign`.
            read: Asking again changes nothing. Without it the call is a write that nothing names, and is never
                sent twice.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of what a write is for: its key in the session's journal, and not on the wire.
            shield: Let the call go on to its end where its caller is cancelled.

        Raises:
            PayasyncError: As for any other call.
        """
        operation = custom(method, path, read=read)
        for name, flag in (("bearer", bearer), ("signed", signed), ("read", read)):
            if not isinstance(flag, bool):
                raise invalid(name, "True or False", flag, operation)
        call = self._codec.custom(operation, fields, bearer=bearer, signed=signed)
        timeouts = self._times(call, timeout, intent)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        answer = self._answer(call.derived(timeouts=timeouts, deadline=deadline, intent=intent))
        return await (self._flights.shielded(answer) if shield else answer)

    async def _answer(self, call: Call) -> Response:
        return Response.of(call, await self._reply(call))

    async def _reply(self, call: Call) -> Reply:
        self._flights.begin(call.progress)
        try:
            return await self._way(call)
        finally:
            self._flights.end(call.progress)

    def _times(self, about: Call | Request[Any], seconds: float | None, intent: str | None) -> Timeouts:
        """Return the times of one call that may begin."""
        try:
            self._check_open()
            if intent is not None:
                word("intent", intent, about.operation)
            return self._setup.times(seconds)
        except PayasyncError as error:
            error.add(operation=about.operation.name, reference=about.reference)
            raise

    @frameless_async
    async def reconcile(
        self, error: PayasyncError, *, extra: Mapping[str, Any] = NOTHING, timeout: float | None = None
    ) -> Response:
        """Ask the service what became of a write that ended without a recognised answer.

        Args:
            error: Of an order or a refund that has a number of the merchant's, such as an `OutcomeUnknownError`.
            extra: Fields of the query that the document does not show, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            PayasyncError: The error itself, where nothing names what it was about, or its number stands for another.
            OutcomeUnknownError: The answer holds nothing, or the number stands at the service for another order or
                refund.
            NotConfiguredError: The profile does not say how to ask.
            NoAnswerError: No usable answer came: ask again later.
            ServiceError: The service refused the query, or knows no such number (`absent`): as long as its quarantine
                lasts, it may still do what it has received, and under another number that would be a second one.
        """
        question = about(error)
        if extra:
            question = evolve(question, extra=extra)
        try:
            call, reply = await self.inquire(question, timeout=timeout, asked=error.asked)
        except NoAnswerError as failed:
            unmatching = unmatched(error, failed)
        else:
            check_answer(error, call, reply)
            return question.answer.of(call, reply)
        raise unmatching from error

    @frameless_async
    async def inquire(
        self,
        question: Request[Response],
        *,
        timeout: float | None = None,
        asked: Mapping[str, object] | None = None,
    ) -> tuple[Call, Reply]:
        """Send a query, and return it as it was sent, with the answer as it came: for who keeps both.

        Args:
            question: Such as `QueryRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            asked: What the write named that it asks about, by wire names: the response must match that, too.

        Raises:
            PayasyncError: As for any other call.
        """
        timeouts = self._times(question, timeout, None)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        call = about_write(self._codec.call(question, timeouts, deadline), asked)
        return call, await self._reply(call)

    def _check_open(self) -> None:
        if self._closed or self._flights.closed:
            raise SessionClosedError("the session is closed: make another")


def _check_request(request: object) -> None:
    if not isinstance(request, Request) or not hasattr(request, "operation"):
        raise invalid("request", "a request object, such as CreateRefund(...)", request)


logger = logging.getLogger("payasync")


class Session(Sender):
    """One merchant's way to one service; constructing it opens nothing.

    Use it with `async with`, or call `aclose` at the end. It may be used in one event loop after another, and in
    forked children: connections are never shared between them.

    Args:
        base_url: The address under which all endpoints are (spec: Endpoints); a path in it is kept. https, or
            http on loopback.
        credentials: Who the merchant is.
        profile: What the service does.
        timeouts: In seconds.
        retry: How often and how patiently a call is tried.
        middleware: Your own layers, outermost first, each an `async def layer(call, send)` that returns what
            `await send(call)` returns; it sees every attempt, before that is signed.
        on_event: Called with each `Attempted`, `Retrying` and `Unknown`; it must not block.
        journal: Keeps each write, durably, before its first byte leaves, such as `SqliteJournal("pay.db")` of
            `payasync.journal`; one that cannot is a `StorageError`, and nothing is sent. Under the same number or
            `intent` nothing is done twice, and another request is an `IntentConflictError`. It is left open, and
            others may use it, too.
        http: An `aiohttp.ClientSession` that lends its connector and its trace configs, and nothing else: no
            headers, cookies, middlewares, credentials, proxy or TLS settings. It is left open, and belongs to one
            event loop. Its connector decides how many connections there are and how long they stay idle. A write
            may therefore reuse a connection that the service is closing.
        tls: An `ssl.SSLContext` that verifies, for a CA bundle or a client certificate of your own. It is checked
            again for each new connection, also with `http`: verification cannot be switched off.
        proxy: A proxy's URL, or `"environment"` for the one in the environment. With `http`, its connector must
            support proxies, as aiohttp's `TCPConnector` does.
        max_connections: The most connections for writes, and as many for reads. Further calls wait for a free one
            until `Timeouts.total` is over. With `http`, the limit of its connector counts instead.
        max_response_bytes: A longer answer is an unreadable one.

    Attributes:
        payments: `create` and `status`: endpoints 1 and 6.
        orders: `place`, `query` and `close`: endpoints 2, 3 and 4.
        refunds: `create` and `status`: endpoints 5 and 7.
        subscriptions: `create`, `update` and `cancel`: endpoints 8, 9 and 10.

    Raises:
        ConfigurationError: A setting that is wrong, or that would not be safe.
    """

    def __init__(
        self,
        base_url: str,
        *,
        credentials: Credentials,
        profile: Profile,
        timeouts: Timeouts = Timeouts(),
        retry: RetryPolicy = RetryPolicy(),
        middleware: Iterable[Layer] = (),
        on_event: Callable[[Event], None] | None = None,
        journal: Recording | None = None,
        http: "aiohttp.ClientSession | None" = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        max_connections: int = 100,
        max_response_bytes: int = 1 << 20,
    ) -> None:
        setup = Setup(
            credentials=credentials,
            profile=profile,
            timeouts=timeouts,
            retry=retry,
            middleware=middleware,
            on_event=on_event,
            journal=journal,
        )
        _warn_of_short_keys(setup)
        way_out = transport(
            base_url,
            profile,
            http=http,
            tls=tls,
            proxy=proxy,
            max_connections=max_connections,
            max_response_bytes=max_response_bytes,
        )
        self._flights = Flights()
        self._transport = way_out
        self._owner = True
        self._wire(setup, Codec(profile, credentials), Quota(retry.quota))

    def _wire(self, setup: Setup, codec: Codec, quota: Quota) -> None:
        self._setup = setup
        self._codec = codec
        self._quota = quota
        self._closed = False
        pace = Pace(sleep=self._flights.pause)
        self._way = setup.way(quota, partial(question, codec), pace, self._transport)
        self.payments = Payments(self._send, setup.profile)
        self.orders = Orders(self._send, setup.profile)
        self.refunds = Refunds(self._send, setup.profile)
        self.subscriptions = Subscriptions(self._send, setup.profile)

    @property
    def credentials(self) -> Credentials:
        """Who the merchant is; every key in them is a `Secret`."""
        return self._setup.credentials

    @property
    def merchant_id(self) -> str:
        """The merchant's number."""
        return self._setup.credentials.merchant_id

    @property
    def service(self) -> str:
        """By what a journal tells this service from others: its base URL; all sandboxes are one."""
        return service(self._setup.profile, self._transport.base)

    @property
    def profile(self) -> Profile:
        """What the service does."""
        return self._setup.profile

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **settings: Any) -> Self:
        """Make a session from the environment, read now.

        `PAYASYNC_BASE_URL`, `PAYASYNC_PROFILE` (the path of a TOML file, or `sandbox`; without it only what the
        document itself states is known), and what `Credentials.from_env` reads; each may be given with `_FILE`
        behind its name, as the path of a file that holds the value.

        Args:
            environ: Read in place of `os.environ`.
            settings: Any other argument of `Session`; one that is given here is not read.

        Raises:
            ConfigurationError: A variable is missing, empty or wrong.
        """
        read = Environment(os.environ if environ is None else environ)
        del environ  # a traceback may show what is local: from here on only masked values are
        return cls(**from_environment(read, settings))

    def with_options(
        self,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        journal: Recording | None = None,
    ) -> Self:
        """Return a copy with other times or retries, or another journal; closing it does not close the connections.

        Raises:
            ConfigurationError: A value of another type.
        """
        setup = evolve(
            self._setup,
            timeouts=self._setup.timeouts if timeouts is None else timeouts,
            retry=self._setup.retry if retry is None else retry,
            journal=self._setup.journal if journal is None else journal,
        )
        same = setup.retry.quota == self._setup.retry.quota
        return self._copy(setup, self._codec, self._quota if same else Quota(setup.retry.quota))

    def for_merchant(self, credentials: Credentials) -> Self:
        """Return a copy for another merchant, on the same connections; closing it does not close them.

        Raises:
            ConfigurationError: A value of another type, or a key that cannot sign or verify.
        """
        setup = evolve(self._setup, credentials=credentials)
        _warn_of_short_keys(setup)
        return self._copy(setup, self._codec.for_merchant(credentials), self._quota)

    def _copy(self, setup: Setup, codec: Codec, quota: Quota) -> Self:
        copy = object.__new__(type(self))
        copy._flights, copy._transport, copy._owner = self._flights, self._transport, False
        copy._wire(setup, codec, quota)
        return copy

    async def aclose(self, grace: float = 0) -> None:
        """Close the session, and the connections if they are its own.

        Args:
            grace: Seconds to let calls in flight come to their end; those left after it are cut off, and raise
                what is known of them.

        Raises:
            InvalidArgumentError: The grace is no number of seconds, 0 or more; the session is left open.
        """
        if isinstance(grace, bool) or not isinstance(grace, int | float) or not grace >= 0:
            raise invalid("grace", "a number of seconds, 0 or more", grace)
        self._closed = True
        if not self._owner:
            return
        self._flights.closed = True
        try:
            await self._flights.drain(grace)
        finally:
            self._flights.cut()
            await self._transport.aclose()
            await self._flights.land()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        if not hasattr(self, "_way"):
            return "<Session, not made yet>"  # as a traceback shows it, of settings that were refused
        state = "closed" if self._closed or self._flights.closed else "open"
        return f"<Session {self._transport.base!r} for {self._setup.credentials.merchant_id!r}, {state}>"


def _warn_of_short_keys(setup: Setup) -> None:
    for warning in short_keys(setup.profile, setup.credentials):
        logger.warning("%s", warning)
