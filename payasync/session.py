"""The session: its settings, its middleware, its calls in flight, and its lifetime."""

import asyncio
import logging
import os
import ssl
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sized,
)
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

from attrs import Factory, evolve, field, frozen
from yarl import URL

import payasync.profile
from payasync.clocks import Pace, running_task
from payasync.credentials import Credentials, Environment, Secret
from payasync.endpoints import custom_operation
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
from payasync.middleware.chain import chain, guard, hide_frames
from payasync.middleware.mask import KeyMask
from payasync.middleware.observe import Event, EventSink, Instrumentation, log, observe
from payasync.middleware.observe import Unknown as UnknownEvent
from payasync.middleware.recovery import check_response, query_about, query_after, unmatched_error
from payasync.middleware.retry import Quota, RetryContext, retry
from payasync.middleware.sign import Sender, add_times, authorize, check_signable, require_signable, sign
from payasync.profile.signed_fields import check_answers_covered
from payasync.profile.wire_names import SOUGHT, unaskable
from payasync.resources.orders import Orders
from payasync.resources.payments import Payments
from payasync.resources.refunds import Refunds
from payasync.resources.subscriptions import Subscriptions
from payasync.settings import (
    RetryPolicy,
    Timeouts,
    check_ciphers,
    check_function,
    check_tls,
    environment_proxy,
    invalid_setting,
    is_loopback,
    is_number,
    parse_base_url,
    parse_proxy_url,
)
from payasync.signing.templates import unfilled
from payasync.transport.pools import PoolSettings
from payasync.transport.send import Transport
from payasync.wire.call import Call, Entry, Layer, Reply, Send, number_key
from payasync.wire.encode import Codec
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import NOTHING, check_word, invalid_argument

if TYPE_CHECKING:
    import aiohttp

    from payasync.journal.journal import Journal
    from payasync.profile import Profile

T = TypeVar("T")
R = TypeVar("R", bound=Response)
R_co = TypeVar("R_co", bound=Response, covariant=True)

logger: Final = logging.getLogger("payasync")

PROFILE_PATH: Final = "PAYASYNC_PROFILE"
SANDBOX_WORD: Final = "sandbox"
"""Names the sandbox's own profile in place of a file."""
SANDBOX_NAME: Final = "payasync-sandbox"
SANDBOX_PAID: Final = "SBX_PAID"
"""The name and a state of the sandbox's profile, which tell others from it before its file is read."""
NO_JOURNAL: Final = "%(operation)s has an intent, but no journal remembers it: a repeat may be a second payment"
NO_QUERY: Final = "a person must look after each lost response: %(reason)s"
LONGEST_JOURNALLED: Final = 3600.0
"""The longest call with a journal, in seconds: the reconciler asks about a lost call only after this time."""
TOTAL_RULE: Final = f"at most {LONGEST_JOURNALLED:.0f} seconds with a journal, which asks about a lost call after that"
CUT_OFF_GRACE: Final = 0.5
"""Seconds in which a call that was cut off must end. Only a user's own layer takes so long."""


@frozen
class Done(Generic[R_co]):
    """The service carried out the request.

    Attributes:
        request: The request.
        response: The response.
    """

    request: Request[R_co]
    response: R_co


@frozen
class Refused:
    """The request was not carried out, or it was a query without a usable response, which you may repeat.

    Attributes:
        request: The request.
        error: Why. If its `sent` is `False`, nothing left this machine. Repeat a `NotSentError` as it is. Repeat a
            `SessionClosedError` with another session, and a `StorageError` once the journal works again. An
            `InvalidArgumentError` names the position of an invalid request. A `ServiceError` is a refusal by the
            service.
    """

    request: Request[Response]
    error: PayasyncError


@frozen
class Unknown(UnknownEvent):
    """The request may have been carried out, and no recognised response says whether: ask, and never repeat it.

    It is a `payasync.Unknown`, as `on_event` receives it, with the request and the error.

    Attributes:
        request: The request.
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
ProgressListener: TypeAlias = Callable[[int, int], object]


def _to_layers(given: Iterable[Layer]) -> tuple[Layer, ...]:
    layers = tuple(given) if isinstance(given, Iterable) else (given,)
    for layer in layers:
        if not callable(layer) or isinstance(layer, type):
            raise invalid_setting("middleware", f"must be a list of layers, not {layer!r}")
    return layers


class Options:
    """The settings in which sessions that share connections may differ.

    Raises:
        ConfigurationError: A setting has another type, the profile's signature does not cover what a response says, or
            a key cannot sign or verify.
    """

    def __init__(
        self,
        *,
        credentials: Credentials,
        profile: "Profile",
        timeouts: Timeouts,
        retry: RetryPolicy,
        middleware: Iterable[Layer],
        on_event: Callable[[Event], None] | None,
        journal: "Journal | None",
    ) -> None:
        self.credentials = credentials
        self.profile = profile
        self.timeouts = timeouts
        self.retry = retry
        self.middleware: tuple[Layer, ...] = _to_layers(middleware)
        self.on_event = on_event
        self.journal = journal
        self._check()

    def replaced(self, **changes: Any) -> "Options":
        """Return the settings with others under these names."""
        return Options(**{**vars(self), **changes})

    def _check(self) -> None:
        from payasync.profile.consistency import check_keys  # noqa: PLC0415 - a profile has loaded it

        profile = payasync.profile.Profile
        kinds = {"credentials": Credentials, "profile": profile, "timeouts": Timeouts, "retry": RetryPolicy}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                # Wrong credentials, such as a dict, may hold keys.
                shown = type(value).__name__ if name == "credentials" else repr(value)
                raise invalid_setting(name, f"must be a {kind.__name__}, not {shown}")
        check_answers_covered(self.profile)
        check_keys(self.profile, self.credentials)
        if self.on_event is not None:
            check_function("on_event", self.on_event)
        if self.journal is not None and not hasattr(getattr(self.journal, "recorder", None), "layer"):
            raise invalid_setting("journal", f'must be a journal such as SqliteJournal("pay.db"), not {self.journal!r}')
        if self.is_too_long(self.timeouts.total):
            raise invalid_setting("Timeouts.total", f"must be {TOTAL_RULE}")

    def is_too_long(self, total: float) -> bool:
        """Return whether a call may last longer than the journal allows."""
        return self.journal is not None and total > LONGEST_JOURNALLED


class InFlight:
    """The calls in flight of a session and its copies.

    Attributes:
        closed: Whether no further call may start.
        warned: Whether the log says that an `intent` needs a journal.
    """

    def __init__(self) -> None:
        self.closed = False
        self.warned = False
        self._cut_off = False
        self._tasks: dict[object, asyncio.Task[Any] | None] = {}
        self._waiters: dict[object, asyncio.Future[None]] = {}
        self._shielded: set[asyncio.Task[Any]] = set()
        self._pauses: set[asyncio.Future[None]] = set()

    def begin(self, call: object, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Note that a call begins in the running task.

        Args:
            call: The key of the call, for `end`.
            loop: The running loop, if the caller has it, because asking for it costs a system call.
        """
        self._tasks[call] = asyncio.current_task(loop)

    def end(self, call: object) -> None:
        """Note that a call has ended, and wake `wait`."""
        del self._tasks[call]
        if self._waiters and (waiter := self._waiters.pop(call, None)) is not None and not waiter.done():
            waiter.set_result(None)

    async def pause(self, seconds: float) -> bool:
        """Sleep between two attempts. Return `False` if the calls are cut off."""
        if self._cut_off:
            return False
        pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pauses.add(pause)
        try:
            await asyncio.wait([pause], timeout=seconds)
        finally:
            self._pauses.discard(pause)
        return not self._cut_off

    async def shield(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that goes on even if its caller is cancelled.

        Raises:
            SessionClosedError: The session was closed before the call ended.
        """
        task = asyncio.ensure_future(call)
        self._shielded.add(task)
        task.add_done_callback(self._discard_shielded)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled() or running_task().cancelling():
                raise
        raise SessionClosedError("the session was closed, and waited no longer for this call", sent=None)

    def _discard_shielded(self, task: "asyncio.Task[Any]") -> None:
        self._shielded.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it if nobody waits any more

    async def wait(self, grace: float) -> None:
        """Wait for the calls of this loop, except those of the running task."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        tasks = tuple(self._tasks.items())
        others = [call for call, task in tasks if task and task is not me and task.get_loop() is here]
        if others and grace > 0:
            await asyncio.wait([self._waiters.setdefault(call, here.create_future()) for call in others], timeout=grace)

    def cut_off(self) -> None:
        """Wake all calls that pause, and allow no further attempt."""
        self._cut_off = True
        for pause in tuple(self._pauses):
            with suppress(RuntimeError):  # the loop was closed, and its calls with it
                pause.get_loop().call_soon_threadsafe(pause.cancel)

    async def end_shielded(self) -> None:
        """Wait for the shielded calls of this loop after `cut_off`, and cancel those that do not end."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        left = {each for each in self._shielded if each.get_loop() is here and each is not me}
        if not left:
            return
        _, stuck = await asyncio.wait(left, timeout=CUT_OFF_GRACE)
        for task in stuck:
            task.cancel()
        if stuck:
            await asyncio.wait(stuck, timeout=CUT_OFF_GRACE)


class Session:
    """The connection of one merchant to one service; constructing it opens nothing.

    Use it with `async with`, or call `aclose` at the end. You may use it in one event loop after another, and in
    forked children: they never share connections.

    Args:
        base_url: The address of the service, which may have a path. https, or http on loopback.
        credentials: The merchant's number and keys.
        profile: What the service does.
        timeouts: How long a call may take, in seconds.
        retry: How often a call is sent, and how long it waits in between.
        middleware: Your own layers, outermost first. Each is an `async def layer(call, send)` that returns what
            `await send(call)` returns. It sees every attempt before it is signed. `OpenTelemetry` of
            `payasync.integrations.otel` also sees whole calls.
        on_event: Called with each `Attempted`, `Retrying` and `Unknown`; it must not block.
        journal: Stores each write durably before its first byte leaves, such as `SqliteJournal("pay.db")` of
            `payasync.journal`. If it cannot, the call fails with `StorageError` and nothing is sent. A repeated
            number or `intent` is not sent twice. Another request under the same number or `intent` raises
            `IntentConflictError`. The session does not close the journal, because others may use it, too.
        http: An `aiohttp.ClientSession` whose connector and trace configs the session uses, and nothing else: no
            headers, cookies, middlewares, credentials, proxy or TLS settings. The session does not close it. It
            belongs to one event loop. Its connector limits the number of connections and their idle time. A write
            may therefore reuse a connection that the service is closing.
        tls: An `ssl.SSLContext` that verifies, for a CA bundle or a client certificate of your own. It is checked
            again for each new connection, also with `http`: verification cannot be switched off. All its ciphers must
            encrypt. `SSLKEYLOGFILE` has no effect.
        proxy: A proxy's URL, or `"environment"` for the one in the environment. With `http`, its connector must
            support proxies, as aiohttp's `TCPConnector` does.
        max_connections: The most connections for writes, and as many for reads. Further calls wait for a free one
            until `Timeouts.total` is over. With `http`, the limit of its connector counts instead.
        max_response_bytes: A longer response counts as unreadable.

    Attributes:
        payments: `create` and `status`: endpoints 1 and 6.
        orders: `place`, `query` and `close`: endpoints 2, 3 and 4.
        refunds: `create` and `status`: endpoints 5 and 7.
        subscriptions: `create`, `update` and `cancel`: endpoints 8, 9 and 10.

    Raises:
        ConfigurationError: A setting is wrong or unsafe.
    """

    def __init__(
        self,
        base_url: str,
        *,
        credentials: Credentials,
        profile: "Profile",
        timeouts: Timeouts = Timeouts(),
        retry: RetryPolicy = RetryPolicy(),
        middleware: Iterable[Layer] = (),
        on_event: Callable[[Event], None] | None = None,
        journal: "Journal | None" = None,
        http: "aiohttp.ClientSession | None" = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        max_connections: int = 100,
        max_response_bytes: int = 1 << 20,
    ) -> None:
        options = Options(
            credentials=credentials,
            profile=profile,
            timeouts=timeouts,
            retry=retry,
            middleware=middleware,
            on_event=on_event,
            journal=journal,
        )
        _warn_about_weak_keys(options)
        for error in filter(None, (unaskable(profile, query) for query in SOUGHT)):
            log(logger, logging.WARNING, "recovery_without_query", NO_QUERY, reason=str(error))
        for _, key, why in unfilled(profile.constants):
            log(logger, logging.WARNING, "constant_not_filled", "%(reason)s", reason=f"{key} {why}")
        url = _parse_service_url(base_url, profile)
        for name, value in (("max_connections", max_connections), ("max_response_bytes", max_response_bytes)):
            if type(value) is not int or value < 1:
                raise invalid_setting(name, f"must be an integer of 1 or more, not {value!r}")
        proxy_url = _resolve_proxy(url, proxy)
        pools = PoolSettings(
            tls=None if tls is None else check_ciphers(check_tls(tls)),
            max_connections=max_connections,
            secure=url.scheme == "https" or (proxy_url is not None and URL(proxy_url.reveal()).scheme == "https"),
            http=http,
            headers=profile.headers,
        )
        self._transport = Transport(url, pools=pools, proxy=proxy_url, max_response_bytes=max_response_bytes)
        self._in_flight = InFlight()
        self._owner = True
        self._set_up(options, Codec(profile, credentials), Quota(retry.quota))

    def _set_up(self, options: Options, codec: Codec, quota: Quota) -> None:
        self._options = options
        self._codec = codec
        self._quota = quota
        self._closed = False
        self._send_call = self._build_chain(Pace(sleep=self._in_flight.pause))
        self.payments: Payments = Payments(self._send, options.profile)
        self.orders: Orders = Orders(self._send, options.profile)
        self.refunds: Refunds = Refunds(self._send, options.profile)
        self.subscriptions: Subscriptions = Subscriptions(self._send, options.profile)

    def _build_chain(self, pace: Pace) -> Send:
        """Return a `send` that passes a call through all layers, the first of them outermost."""
        options, credentials = self._options, self._options.credentials
        instrumentations = [each for each in options.middleware if isinstance(each, Instrumentation)]
        report = EventSink(options.on_event, *(each.on_event for each in instrumentations))
        context = RetryContext(
            policy=options.retry,
            quota=self._quota,
            report=report,
            ask=partial(query_about, self._codec),
            mask=KeyMask(options.profile.auth, credentials),
            pace=pace,
        )
        layers: list[Layer] = []
        if options.journal is not None:
            record = options.journal.recorder.layer(credentials.merchant_id, self.service, report)
            # Another layer may change what was signed.
            layers += [require_signable(credentials.signing_key, early=not options.middleware), record]
        layers.append(retry(context))
        if options.profile.answer.signed:
            from payasync.middleware.verify import verify  # noqa: PLC0415 - few services sign their responses

            layers.append(verify(credentials, base_path=URL(self._transport.base).raw_path.rstrip("/")))
        for layer in options.middleware:
            layers += [guard(layer), hide_frames]
        # The innermost three wrap `send` directly, because as layers they would cost one frame more per call.
        send = observe(report, self._transport.send)
        send = authorize(options.profile.auth, credentials, send)
        sender = Sender(self._transport.base, credentials.merchant_id)
        send = add_times(options.profile.constants, sign(credentials.signing_key, send, sender))
        send = chain(layers, send)
        for each in reversed(instrumentations):
            send = each.around(send, self._transport.base)
        return send

    @property
    def credentials(self) -> Credentials:
        """Who the merchant is; every key in them is a `Secret`."""
        return self._options.credentials

    @property
    def merchant_id(self) -> str:
        """The merchant's number."""
        return self._options.credentials.merchant_id

    @property
    def service(self) -> str:
        """The name by which a journal knows this service: its base URL; all sandboxes have the same one."""
        # A sandbox moves no money, and its port changes with each start.
        return _sandbox_profile().name if _is_sandbox(self._options.profile) else self._transport.base

    @property
    def journal(self) -> "Journal | None":
        """The journal that stores its writes, or `None`."""
        return self._options.journal

    @property
    def profile(self) -> "payasync.profile.Profile":
        """What the service does."""
        return self._options.profile

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **settings: Any) -> Self:
        """Make a session from the environment, read now.

        It reads `PAYASYNC_BASE_URL`, `PAYASYNC_PROFILE` and what `Credentials.from_env` reads. The profile is the path
        of a TOML file, or `sandbox`. Without it, the session knows only what the common interface states. Each other
        variable may have `_FILE` behind its name, and then holds the path of a file with the value.

        Args:
            environ: Read in place of `os.environ`.
            settings: Any argument of `Session`; it replaces the variable.

        Raises:
            ConfigurationError: A variable is missing, empty or wrong.
        """
        environment = Environment(os.environ if environ is None else environ)
        del environ  # a traceback may show local variables, so only masked values remain
        if "credentials" not in settings:
            settings["credentials"] = Credentials.from_env(environment.variables)
        if "profile" not in settings:
            settings["profile"] = _profile_from(environment)
        if "base_url" not in settings:
            settings["base_url"] = environment.required("PAYASYNC_BASE_URL")
        return cls(**settings)

    def with_options(
        self, *, timeouts: Timeouts | None = None, retry: RetryPolicy | None = None, journal: "Journal | None" = None
    ) -> Self:
        """Return a copy with other timeouts, retries or another journal; closing it does not close the connections.

        Raises:
            ConfigurationError: A value has another type.
        """
        given = {"timeouts": timeouts, "retry": retry, "journal": journal}
        return self._copy(**{name: value for name, value in given.items() if value is not None})

    def for_merchant(self, credentials: Credentials) -> Self:
        """Return a copy for another merchant, on the same connections; closing it does not close them.

        Raises:
            ConfigurationError: The credentials have another type, or a key cannot sign or verify.
        """
        return self._copy(credentials=credentials)

    def _copy(self, **changes: Any) -> Self:
        options, codec, quota = self._options.replaced(**changes), self._codec, self._quota
        if "credentials" in changes:
            _warn_about_weak_keys(options)
            codec = codec.for_merchant(options.credentials)
        if options.retry.quota != self._options.retry.quota:
            quota = Quota(options.retry.quota)
        copy = object.__new__(type(self))
        copy._in_flight, copy._transport, copy._owner = self._in_flight, self._transport, False
        copy._set_up(options, codec, quota)
        return copy

    def send(
        self, request: Request[R], *, timeout: float | None = None, intent: str | None = None, shield: bool = False
    ) -> Coroutine[Any, Any, R]:
        """Send a request object, as the methods of the namespaces do.

        Args:
            request: Such as `CreateRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of a write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled; `aclose(grace=)` waits for it.

        Raises:
            PayasyncError: As the method that makes this request says, such as `refunds.create`.
        """
        return self._send(lambda: _check_request("request", request), timeout=timeout, intent=intent, shield=shield)

    async def _send(
        self,
        make: Callable[[], Request[R]],
        *,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> R:
        """Make a request and send it; the errors show no frame that holds its texts."""
        maker: Callable[[], Request[R]] | None
        request: Request[R] | None = None
        call: Call | None = None
        maker = make
        del make
        try:
            if shield:
                return await self._in_flight.shield(self._send(maker, timeout=timeout, intent=intent))
            request = maker()
            timeouts = self._options.timeouts
            if timeout is not None or intent is not None or self._closed or self._in_flight.closed:
                timeouts = self._timeouts_of(request, timeout, intent)
            loop = asyncio.get_running_loop()
            call = self._codec.call(request, timeouts, loop.time() + timeouts.total, intent)
            answer = request.answer
            maker = request = None  # the call has their values, and many calls may be in flight
            self._in_flight.begin(call.progress, loop)
            try:
                reply = await self._send_call(call)  # not as an argument: the call in flight would hold a bound method
                return answer.of(call, reply)  # type: ignore[return-value] # its own
            finally:
                self._in_flight.end(call.progress)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            ended = [error]
        del maker, request, call
        raise drop_frames(ended.pop(), sys.exception())

    async def _reply_to(self, call: Call) -> Reply:
        """Send a call of a method that is decorated with `frameless_async`."""
        self._in_flight.begin(call.progress)
        try:
            return await self._send_call(call)
        finally:
            self._in_flight.end(call.progress)

    def _timeouts_of(self, call: Call | Request[Any], seconds: float | None, intent: str | None) -> Timeouts:
        """Return the timeouts of one call, after the checks that it may begin."""
        try:
            self._check_open()
            if intent is not None:
                check_word("intent", intent, call.operation)
                if not (call.operation.read or self._options.journal or self._in_flight.warned):
                    self._in_flight.warned = True
                    log(logger, logging.WARNING, "intent_without_journal", NO_JOURNAL, operation=call.operation.name)
            return self._timeouts_within(seconds)
        except PayasyncError as error:
            error.add(operation=call.operation.name, reference=call.reference)
            raise

    def _timeouts_within(self, seconds: float | None) -> Timeouts:
        """Return the session's timeouts, with a call's own total.

        Raises:
            InvalidArgumentError: It is no number of seconds above 0, or too long for a journal.
        """
        if seconds is None:
            return self._options.timeouts
        try:
            timeouts = evolve(self._options.timeouts, total=seconds)
        except ConfigurationError:
            raise invalid_argument("timeout", "a number of seconds above 0", seconds) from None
        if self._options.is_too_long(seconds):
            raise invalid_argument("timeout", TOTAL_RULE, seconds)
        return timeouts

    @frameless
    def check(self, request: Request[Response]) -> None:
        """Raise what sending a request would raise before anything is sent.

        Use it before you store a request that is sent later, such as by `journal.add`. The service may still refuse a
        request that passes.

        Args:
            request: Such as `CreateRefund(...)`.

        Raises:
            InvalidArgumentError: It is no request object, the profile says that the service does not accept it, or it
                cannot be signed. A missing signing key is no error here.
            NotConfiguredError: The profile leaves open what the request needs.
        """
        _check_request("request", request)
        call, key = self._codec.call(request), self._options.credentials.signing_key
        if key is not None:  # without a key, this session may still queue requests for another one
            check_signable(call, key)

    @frameless
    def bulk(
        self,
        requests: Iterable[Request[R]] | AsyncIterable[Request[R]],
        *,
        limit: int = 20,
        on_progress: ProgressListener | None = None,
        timeout: float | None = None,
        check_first: bool | None = None,
    ) -> AsyncGenerator[Result[R]]:
        """Send many requests, a few at a time, and yield one result for each as it ends.

        A list, or anything else that has a length, is checked whole before the first request is sent. A generator, also
        an `async` one, is read as its requests are sent, so that any number of them takes little memory. An invalid
        request of a generator is `Refused`, and the others are sent. The generator may raise an error, or yield
        something that is not a request. Then the requests in flight end and are yielded before the error is raised.

        If you leave the loop early, or your task is cancelled, the requests in flight are cancelled. They may have been
        carried out; a journal records which. With `contextlib.aclosing` they have ended before your next line runs. If
        the session is closed, requests that had not begun are `Refused`, with a `SessionClosedError`. After a 429 with
        `Retry-After`, no further request begins before that time is over.

        Args:
            requests: Request objects, such as `CreateRefund(...)`; no two writes with one number. The numbers of orders
                and refunds are remembered until the end: about 150 bytes each.
            limit: The most requests that were read and whose results were not yielded. If it exceeds the session's
                `max_connections`, requests wait for a free connection.
            on_progress: A plain function, called with how many requests have ended, and how many there are. For a
                generator, the second number is how many were read.
            timeout: Seconds for each request, in place of `Timeouts.total`.
            check_first: `True` reads and checks all requests before the first is sent, also those of a generator.
                `False` reads a list as if it were a generator.

        Raises:
            InvalidArgumentError: An argument is wrong, and nothing was sent. If a request cannot be sent or signed, the
                error names its position, from 0 on.
            ConfigurationError: The key that a request is signed with is missing; it and those after it were not sent.
            NotConfiguredError: The profile leaves open what a request needs; it and those after it were not sent.
            SessionClosedError: The session is closed.
        """
        self._check_open()
        self._timeouts_within(timeout)
        if type(limit) is not int or limit < 1:
            raise invalid_argument("limit", "an int of 1 or more", limit)
        if on_progress is not None and (not callable(on_progress) or iscoroutinefunction(on_progress)):
            raise invalid_argument("on_progress", "a plain function of two numbers, or None", on_progress)
        if not isinstance(requests, Iterable | AsyncIterable) or isinstance(requests, str | bytes):
            raise invalid_argument(
                "requests", "an iterable of request objects, such as [CreateRefund(...), ...]", requests
            )
        if check_first is not None and type(check_first) is not bool:
            raise invalid_argument("check_first", "True, False or None", check_first)
        key = self._options.credentials.signing_key
        check = _Check(lambda each: check_signable(self._codec.call(each), key))
        whole = isinstance(requests, Sized) if check_first is None else check_first
        source = _check_all(requests, check) if whole else requests
        bulk = _Bulk(source, None if whole else check, partial(self._result_of, timeout), limit)
        return frameless_results(bulk.results(lambda ended: on_progress and on_progress(ended, check.count)))

    async def _result_of(self, timeout: float | None, request: Request[R]) -> Result[R]:
        """Send one request of a bulk, after any `Retry-After` of a 429, and return its result."""
        clock = asyncio.get_running_loop().time
        while (left := self._quota.held_until - clock()) > 0 and not self._closed and not self._in_flight.closed:
            await self._in_flight.pause(left)
        try:
            return Done(request, await self._send(lambda: request, timeout=timeout))
        except (OutcomeUnknownError, DuplicateError) as error:
            return Unknown(request, drop_frames(error))
        except PayasyncError as error:
            return Refused(request, drop_frames(error))

    @frameless_async
    async def execute(self, intent_id: int, *, timeout: float | None = None, fence: int | None = None) -> Response:
        """Send an intent that `journal.add` has stored. If it is done already, return the recorded response instead.

        Args:
            intent_id: The intent's number in the session's journal.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            fence: The fence of a lease by `journal.ask`, whose holder knows that the intent was never carried out. The
                intent is then sent again.

        Raises:
            ConfigurationError: The session has no journal.
            InvalidArgumentError: There is no such intent, it is another merchant's, or it was a direct call. Or a
                person has rejected it, or it turned out not to be done. Or the profile no longer allows it; the journal
                records this as the reason.
            OutcomeUnknownError: It may have been done, or another process is sending it.
            PayasyncError: As the method of the request's own name says.
        """
        self._check_open()
        journal, credentials = self._options.journal, self._options.credentials
        if journal is None:
            raise invalid_setting("journal", 'is not set: give the session one, such as SqliteJournal("pay.db")')
        request = await journal.recorder.queued(intent_id, credentials.merchant_id)
        timeouts = self._timeouts_of(request, timeout, None)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        try:
            call = self._codec.call(request, timeouts, deadline).derived(entry=Entry(intent_id, fence))
            check_signable(call, credentials.signing_key)
        except PayasyncError as error:
            with suppress(StorageError):
                await journal.note(intent_id, str(error.args[0]))
            raise
        return request.answer.of(call, await self._reply_to(call))

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
        """Call an endpoint that the common interface does not have, through the same middleware.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: The path below the base URL, such as `/payment/bill`.
            fields: The fields by their wire names. They are in a JSON body, or for GET and DELETE in the query.
            bearer: Send the headers of the profile's `auth`, such as `Authorization: Bearer`.
            signed: Add `nonceStr` and `sign`.
            read: Whether the call is a query, which changes nothing. Default: a write without a number. Such a write is
                never sent twice, unless the profile has an idempotency key.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of a write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled.

        Raises:
            PayasyncError: As for any other call.
        """
        operation = custom_operation(method, path, read=read)
        for name, flag in (("bearer", bearer), ("signed", signed), ("read", read)):
            if not isinstance(flag, bool):
                raise invalid_argument(name, "True or False", flag, operation)
        call = self._codec.custom(operation, fields, bearer=bearer, signed=signed)
        timeouts = self._timeouts_of(call, timeout, intent)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        call = self._codec.with_idempotency_key(call.derived(timeouts=timeouts, deadline=deadline, intent=intent))
        reply = self._reply_to(call)
        return Response.of(call, await (self._in_flight.shield(reply) if shield else reply))

    @frameless_async
    async def reconcile(
        self, error: PayasyncError, *, extra: Mapping[str, Any] = NOTHING, timeout: float | None = None
    ) -> Response:
        """Ask the service what happened to a write that ended without a recognised response.

        Args:
            error: The error of an order or a refund with a number of yours, such as an `OutcomeUnknownError`.
            extra: Fields of the query that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            PayasyncError: The error itself, if it has no number to ask about, or its number belongs to something else.
            OutcomeUnknownError: The response is empty, or the number belongs to another order or refund at the service.
            NotConfiguredError: The profile does not say how to ask, or the query takes the service's own number.
            NoAnswerError: No usable response came: ask again later.
            ServiceError: The service refused the query, or knows no such number (`absent`). "Not found" is final only
                after `recovery.quarantine` seconds, because the service may still commit the write.
        """
        query = query_after(error, self.profile)
        if extra:
            query = evolve(query, extra=extra)
        try:
            call, reply = await self.inquire(query, timeout=timeout, asked=error.asked)
        except NoAnswerError as failed:
            unmatched = unmatched_error(error, failed)
        else:
            check_response(error, call, reply)
            return query.answer.of(call, reply)
        raise unmatched from error

    @frameless_async
    async def inquire(
        self, question: Request[Response], *, timeout: float | None = None, asked: Mapping[str, object] | None = None
    ) -> tuple[Call, Reply]:
        """Send a query, and return the call and the unread reply, so that you can store both.

        Args:
            question: The query, such as `QueryRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            asked: The numbers, amounts, currency and merchant of the write in doubt, by wire names. The response must
                match them, too.

        Raises:
            PayasyncError: As for any other call.
        """
        timeouts = self._timeouts_of(question, timeout, None)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        call = self._codec.call(question, timeouts, deadline).expect_match(asked)
        return call, await self._reply_to(call)

    async def aclose(self, grace: float = 0) -> None:
        """Close the session, and the connections if they are its own.

        Args:
            grace: Seconds to wait for calls in flight. Calls that have not ended by then are cut off, and raise what is
                known of them.

        Raises:
            InvalidArgumentError: `grace` is not a number of seconds of 0 or more; the session stays open.
        """
        if not is_number(grace) or not grace >= 0:
            raise invalid_argument("grace", "a number of seconds, 0 or more", grace)
        self._closed = True
        if not self._owner:
            return
        self._in_flight.closed = True
        try:
            await self._in_flight.wait(grace)
        finally:
            self._in_flight.cut_off()
            await self._transport.aclose()
            await self._in_flight.end_shielded()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed or self._in_flight.closed:
            raise SessionClosedError("the session is closed: make another")

    def __repr__(self) -> str:
        if not hasattr(self, "_send_call"):
            return "<Session, not made yet>"  # in a traceback, if its settings were refused
        state = "closed" if self._closed or self._in_flight.closed else "open"
        return f"<Session {self._transport.base!r} for {self.merchant_id!r}, {state}>"


def _warn_about_weak_keys(options: Options) -> None:
    from payasync.profile.consistency import weak_keys  # noqa: PLC0415 - a profile has loaded it

    for warning in weak_keys(options.profile, options.credentials):
        log(logger, logging.WARNING, "weak_key", "%(reason)s", reason=warning)


def _parse_service_url(address: str, profile: "Profile") -> URL:
    url = parse_base_url(address)
    if not is_loopback(url) and _is_sandbox(profile):
        raise invalid_setting(
            "profile",
            f"is the sandbox's own, and {address!r} is not on this machine: its responses are not the service's; "
            "write a profile of the service",
        )
    return url


def _sandbox_profile() -> "Profile":
    from payasync.profile.sandbox_profile import PROFILE  # noqa: PLC0415 - it reads and checks a file

    return PROFILE


def _is_sandbox(profile: "Profile") -> bool:
    if not (profile.name == SANDBOX_NAME or SANDBOX_PAID in profile.states.order.get("paid", ())):
        return False  # to read the sandbox's profile takes a third of the time that `Session` takes to import
    sandbox = _sandbox_profile()
    return profile.name == sandbox.name or evolve(profile, name=sandbox.name) == sandbox


def _resolve_proxy(url: URL, given: str | None) -> Secret | None:
    address = environment_proxy(url) if given == "environment" else given
    if address is None:
        return None
    proxy = parse_proxy_url(address)
    if url.scheme == "http" and not is_loopback(URL(proxy)):
        raise invalid_setting(
            "proxy",
            "is not on this machine, and base_url is plain http: keys would leave it in plain text. Use https, "
            'or no proxy (with proxy="environment", name the host in NO_PROXY)',
        )
    return Secret(proxy)


def _profile_from(environment: Environment) -> "Profile":
    if f"{PROFILE_PATH}_FILE" in environment.variables:
        raise invalid_setting(PROFILE_PATH, "is itself a path: use it without _FILE")
    given = environment.optional(PROFILE_PATH)
    return payasync.profile.Profile() if given is None else load_profile(given.strip())


def load_profile(path: str) -> "Profile":
    """Return the profile of a TOML file, or for the word `sandbox` the sandbox's own.

    Raises:
        ConfigurationError: The file cannot be read, or is not a valid profile.
    """
    return _sandbox_profile() if path == SANDBOX_WORD else payasync.profile.Profile.from_file(path)


def _check_request(name: str, request: Request[R]) -> Request[R]:
    """Return a request, unless it is something else."""
    if not isinstance(request, Request) or not hasattr(request, "operation"):
        raise invalid_argument(name, "a request object, such as CreateRefund(...)", request)
    return request


class _Check:
    """Refuses a request of a bulk if it cannot be sent, or if another one has the same number.

    Args:
        check: Raises what sending a request would raise before anything is sent.

    Attributes:
        count: How many requests it has checked.

    Raises:
        InvalidArgumentError: The request is wrong. The error names its position, from 0 on.
        ConfigurationError: The profile or a key is incomplete. The error names no request, because all may lack it.
    """

    def __init__(self, check: Callable[[Request[Any]], object]) -> None:
        self.count = 0
        self._check = check
        self._places: dict[str, int] = {}

    def __call__(self, request: Request[Any]) -> None:
        place = self.count
        self.count += 1
        name = f"requests[{place}]"
        _check_request(name, request)
        try:
            self._check(request)
        except ConfigurationError as error:
            error.add(reference=None)  # the setting is wrong, not this request
            raise
        except InvalidArgumentError as error:
            error.args = (f"{name}: {error.args[0]}",)
            error.add(field=f"{name}.{error.field}")
            raise
        operation, reference = request.operation, request.reference
        number = number_key(operation, reference)
        first = place if number is None else self._places.setdefault(number, place)
        if first != place:
            field_name, rule = f"{name}.{operation.reference}", "a number of its own"
            raise InvalidArgumentError(
                f"{field_name} must be {rule}: requests[{first}] has {reference!r} already",
                field=field_name,
                rule=rule,
                value=reference,
                operation=operation.name,
                reference=reference,
            )


def _check_all(requests: Iterable[Request[R]] | AsyncIterable[Request[R]], check: _Check) -> tuple[Request[R], ...]:
    if isinstance(requests, AsyncIterable):
        rule = "None or False with an async iterable: for True, pass [each async for each in requests]"
        raise invalid_argument("check_first", rule, value=True)
    found = tuple(requests)
    for each in found:
        check(each)
    return found


_END: Final[Any] = object()
"""Stands for the request, or the result, after the last one."""


class _Bulk(Generic[R]):
    """Sends requests, a few at a time. One task reads all requests, and begins a task for each.

    If no request can be read, or a call ends with a foreign error, such as one of the user's own middleware, no further
    call begins. The error is raised after the calls in flight have ended.

    Args:
        requests: The requests.
        check: Checks each, unless all were checked before.
        send: Sends one.
        limit: The most requests that were read and whose results were not yielded.
    """

    def __init__(
        self,
        requests: Iterable[Request[R]] | AsyncIterable[Request[R]],
        check: _Check | None,
        send: Callable[[Request[R]], Awaitable[Result[R]]],
        limit: int,
    ) -> None:
        self._source: Any = aiter(requests) if isinstance(requests, AsyncIterable) else iter(requests)
        self._check = check
        self._send = send
        self._room = asyncio.Semaphore(limit)
        self._tasks: set[asyncio.Task[Result[R]]] = set()
        self._ended: asyncio.Queue[asyncio.Task[Result[R]]] = asyncio.Queue()
        self._stopped = False

    async def results(self, on_progress: Callable[[int], object]) -> AsyncGenerator[Result[R]]:
        """Yield each result as its request ends; at the end cancel the requests in flight."""
        failed: asyncio.Task[Result[R]] | None = None
        ended = 0
        try:
            reader = self._begin(self._read_all())
            while self._tasks:
                task = await self._ended.get()
                if task.cancelled() or task.exception():
                    failed = failed or task
                    self._stopped = True
                    reader.cancel()
                elif task is not reader:
                    ended += 1
                    on_progress(ended)
                    yield task.result()
                    self._room.release()
                self._tasks.remove(task)
        finally:
            await self._cancel()
        if failed:
            failed.result()

    def _begin(self, work: Coroutine[Any, Any, Result[R]]) -> asyncio.Task[Result[R]]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended.put_nowait)
        return task

    async def _read_all(self) -> Result[R]:
        while (request := await self._next()) is not _END and not self._stopped:
            _ = self._begin(self._result_of(self._checked(request)))
        return _END  # type: ignore[no-any-return] # as its text says

    async def _next(self) -> Any:
        """Return the next element of the source, or `_END`, when there is room for it."""
        source = self._source
        try:
            await asyncio.sleep(0)  # a request begins before the next is read, which may block
            await self._room.acquire()
        except asyncio.CancelledError as error:
            if self._stopped or not isinstance(source, AsyncGenerator):
                raise
            # A timeout or task group of the source cancels the task that reads. Only the source can handle this.
            with suppress(StopAsyncIteration):
                element = await source.athrow(error)
                await self._room.acquire()
                return element
            return _END
        return next(source, _END) if isinstance(source, Iterator) else await anext(source, _END)

    def _checked(self, request: Request[R]) -> Request[R] | Refused:
        try:
            if self._check is not None:
                self._check(request)
        except InvalidArgumentError as error:
            if not isinstance(request, Request):
                raise
            return Refused(request, drop_frames(error))
        return request

    async def _result_of(self, request: Request[R] | Refused) -> Result[R]:
        return request if isinstance(request, Refused) else await self._send(request)

    async def _cancel(self) -> None:
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            for task in self._tasks:
                _ = task.cancelled() or task.exception()  # retrieved, so that asyncio does not log it
