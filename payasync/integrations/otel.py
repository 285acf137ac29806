"""Spans and metrics of calls, and gauges of what waits in a journal and an inbox. Extra `[otel]`.

The names follow OpenTelemetry's conventions for HTTP clients. Names that these do not have begin with `payasync.`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic, perf_counter
from typing import Final, TypeAlias, get_args

from attrs import Factory, define, frozen
from opentelemetry import trace
from opentelemetry.context import Context, attach, create_key, detach, get_value, set_value
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from yarl import URL

from payasync import __version__
from payasync.endpoints import BY_NAME
from payasync.errors import AuthenticationError, InvalidSignatureError, PayasyncError, drop_frames
from payasync.journal import Journal
from payasync.middleware.observe import Event, Retrying, Unknown, log
from payasync.middleware.retry import QUERY_REASON
from payasync.notifications.inbox import Inbox
from payasync.notifications.ingest import Refusal
from payasync.settings import is_number
from payasync.storage import Backlog
from payasync.wire.call import Call, Reply, Send
from payasync.wire.encode import encode
from payasync.wire.validators import invalid_argument

__all__ = ["OpenTelemetry"]

logger: Final = logging.getLogger("payasync")

SCOPE: Final = "payasync"
OTHER: Final = "request"
"""The operation of each call by `Session.request`. Its path may hold a number, and metrics need few values."""
ATTEMPT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Seconds, as the conventions advise."""
CALL_BUCKETS: Final = (*ATTEMPT_BUCKETS, 20, 30, 45, 60)
"""Seconds. A call may last as long as `Timeouts.total`, which is 45 seconds by default."""
FAILED_STATUS: Final = 400
KEY_ERRORS: Final = (AuthenticationError.__name__, InvalidSignatureError.__name__)

Attributes: TypeAlias = dict[str, str | int]
Ended: TypeAlias = Reply | BaseException | None


@define
class _TracedCall:
    """A call in progress, as its attempts and events find it in the context.

    Attributes:
        operation: Its name, or `OTHER`.
        span: The span of the whole call.
        base_url: The address of the service.
        sends: How often each operation was sent. A query about a lost write is another operation.
    """

    operation: str
    span: Span
    base_url: str
    sends: Counter[str] = Factory(Counter)


@frozen
class _Sample:
    """A backlog, and when it was read.

    Attributes:
        backlog: The backlog.
        read_at: On the monotonic clock.
    """

    backlog: Backlog
    read_at: float

    def read(self, fact: str) -> list[Observation]:
        """Return a fact of the backlog: counts by state, or an age as it is by now.

        So an age grows if nothing is read any more; 0 stays 0.
        """
        value: Mapping[str, int] | float = getattr(self.backlog, fact)
        if isinstance(value, Mapping):
            return [Observation(count, {"payasync.state": state}) for state, count in value.items()]
        return [Observation(value and value + monotonic() - self.read_at)]


class _Harmless:
    """Logs what a tracer, a meter or a processor raises, so that no payment fails because of it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        drop_frames(error)  # its context may be an error of the attempt
        words, name = "OpenTelemetry raised %(error_type)s; the call goes on", type(error).__name__
        log(logger, logging.WARNING, "otel.failed", words, error_type=name)
        return True


_CALL: Final = create_key("payasync-call")
_harmless: Final = _Harmless()


class OpenTelemetry:
    """Shows calls as spans and metrics. Give it to a session as its first middleware.

        async with Session(..., middleware=[OpenTelemetry()]) as pay:

    Each call has a span. Each attempt, and each query about a lost response, has a span below it. One object may serve
    several sessions, also in several event loops. If a tracer or a meter raises an exception, it is logged, and the
    call goes on. No span and no metric has a key, a body or a customer's details. Numbers of orders are in spans only,
    because a metric stores each value of an attribute as a series of its own.

    Args:
        tracer_provider: Makes the spans. Default: the global provider.
        meter_provider: Makes the metrics. Default: the global provider.
        propagate: Send the header `traceparent` with each request, so that the service can continue the trace. No
            signature covers it.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagate: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
        self._propagator = TraceContextTextMapPropagator() if propagate else None
        self._samples: dict[str, _Sample] = {}
        meter = get_meter(SCOPE, __version__, meter_provider)
        self._attempts = meter.create_histogram(
            "http.client.request.duration", "s", "Attempts.", explicit_bucket_boundaries_advisory=ATTEMPT_BUCKETS
        )
        self._calls = meter.create_histogram(
            "payasync.call.duration",
            "s",
            "Calls with all their attempts.",
            explicit_bucket_boundaries_advisory=CALL_BUCKETS,
        )
        count = meter.create_counter
        self._retries = count("payasync.retries", "{attempt}", "Attempts after the first, and queries.")
        self._unknown = count("payasync.unknown_outcomes", "{call}", "Writes that may have been carried out.")
        self._key_errors = count("payasync.key_errors", "{call}", "Calls that failed because of a key.")
        refused = "Notifications that were refused, by reason."
        self._refused = count("payasync.refused_notifications", "{notification}", refused)
        self._watched: set[str] = set()
        for store, name, unit, words, fact in GAUGES:
            callback = partial(self._observe, store, fact)
            meter.create_observable_gauge(f"payasync.{store}.{name}", [callback], unit, words)

    def around(self, send: Send, base_url: str) -> Send:
        """Return a `send` that shows each whole call. A session calls this when it is made.

        Args:
            send: Sends a call through all layers.
            base_url: The address of the service.
        """
        with _harmless:
            for operation in BY_NAME.values():
                if not operation.read:  # a counter that first appears as 1 shows no increase
                    self._unknown.add(0, {"payasync.operation": operation.name})
            for error_type in KEY_ERRORS:
                self._key_errors.add(0, {"error.type": error_type})
            for refusal in get_args(Refusal):
                self._refused.add(0, {"payasync.refusal": refusal})

        async def send_traced(call: Call) -> Reply:
            name = _bounded_name(call)
            facts: Attributes = {"payasync.operation": name}
            about = facts if call.reference is None else {**facts, "payasync.reference": call.reference}
            traced = _TracedCall(name, self._start(name, SpanKind.INTERNAL, about), base_url)

            def finish(ended: Ended, seconds: float) -> None:
                if isinstance(ended, Reply | PayasyncError):
                    traced.span.set_attribute("payasync.attempts", ended.attempts)
                if isinstance(ended, Reply) and ended.recovered:
                    traced.span.add_event("payasync.recovered")
                failed = _error_type(ended)
                if failed in KEY_ERRORS:
                    self._key_errors.add(1, {"error.type": failed})
                self._calls.record(seconds, facts | _end(traced.span, failed))

            context = set_value(_CALL, traced, trace.set_span_in_context(traced.span))
            return await _send_within(context, call, send, finish)

        return send_traced

    async def __call__(self, call: Call, send: Send) -> Reply:
        """Send one attempt, below a span of its own."""
        traced = get_value(_CALL)
        if not isinstance(traced, _TracedCall):
            return await send(call)
        url = URL(traced.base_url)
        facts: Attributes = {
            "http.request.method": call.operation.method,
            "server.address": url.host or "",
            "server.port": url.port or 0,
            "payasync.operation": _bounded_name(call),
        }
        span = self._start_attempt(call, traced, facts)

        def finish(ended: Ended, seconds: float) -> None:
            failed = _error_type(ended)
            if isinstance(ended, Reply):
                facts["http.response.status_code"] = ended.status
                span.set_attribute("http.response.status_code", ended.status)
                failed = str(ended.status) if ended.status >= FAILED_STATUS else ""
            self._attempts.record(seconds, facts | _end(span, failed))

        context = trace.set_span_in_context(span)
        return await _send_within(context, self._with_trace(call, context), send, finish)

    def on_event(self, event: Event) -> None:
        """Show a retry, a query or an unknown outcome. A session calls this within the call of the event."""
        traced = get_value(_CALL)
        if not isinstance(traced, _TracedCall):
            return
        facts: Attributes = {"payasync.operation": traced.operation}
        with _harmless:
            if isinstance(event, Unknown):
                self._unknown.add(1, facts)
                traced.span.add_event("payasync.unknown", {"payasync.reason": event.reason})
            elif isinstance(event, Retrying):
                kind = "query" if event.reason == QUERY_REASON else "repeat"
                self._retries.add(1, {**facts, "payasync.retry": kind})
                about = {"payasync.attempt": event.attempt, "payasync.delay": event.delay}
                traced.span.add_event(f"payasync.{kind}", {**about, "payasync.reason": event.reason})

    def on_refused(self, reason: Refusal) -> None:
        """Count a refused notification: `Receiver(..., on_refused=telemetry.on_refused)`.

        Args:
            reason: `signature`, `invalid` or `too_large`.
        """
        with _harmless:
            self._refused.add(1, {"payasync.refusal": reason})

    @asynccontextmanager
    async def watch(
        self, *, journal: Journal | None = None, inbox: Inbox | None = None, interval: float = 15.0
    ) -> AsyncGenerator[None]:
        """Show what waits in a journal and in an inbox, as long as the block runs.

        If one of them cannot be read, its gauges are missing until it can be read again. One object watches one journal
        and one inbox at a time.

        Args:
            journal: The journal of your sessions.
            inbox: The inbox of your receiver.
            interval: Seconds between two readings.

        Raises:
            InvalidArgumentError: An argument has another type, the interval is not above 0, or this object watches a
                journal or an inbox already.
        """
        if not is_number(interval) or not interval > 0:
            raise invalid_argument("interval", "a number of seconds above 0", interval)
        given: dict[str, tuple[Journal | Inbox | None, type]] = {"journal": (journal, Journal), "inbox": (inbox, Inbox)}
        for name, (store, kind) in given.items():
            if store is not None and not isinstance(store, kind):
                raise invalid_argument(name, f"an object such as Sqlite{name.capitalize()}(path)", store)
            if store is not None and name in self._watched:
                rule = f"the only {name} that an OpenTelemetry object watches: use another object for a second {name}"
                raise invalid_argument(name, rule, store)
        stores = {name: store for name, (store, _) in given.items() if store is not None}
        self._watched |= stores.keys()
        try:
            await self._sample(stores)
            sampling = asyncio.create_task(self._sample_repeatedly(stores, interval))
            try:
                yield
            finally:
                sampling.cancel()
                await asyncio.wait([sampling])
        finally:
            self._watched -= stores.keys()
            for name in stores:
                self._samples.pop(name, None)

    async def _sample_repeatedly(self, stores: Mapping[str, Journal | Inbox], interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            await self._sample(stores)

    async def _sample(self, stores: Mapping[str, Journal | Inbox]) -> None:
        for name, store in stores.items():
            try:
                self._samples[name] = _Sample(await store.backlog(), monotonic())
            except Exception as error:  # noqa: BLE001 - a task that ends would show its last values for ever
                self._samples.pop(name, None)
                drop_frames(error)
                words = "the %(store)s cannot be watched: %(error_type)s"
                log(logger, logging.WARNING, "otel.not_watched", words, store=name, error_type=type(error).__name__)

    def _observe(self, store: str, fact: str, _: CallbackOptions) -> Iterable[Observation]:
        sample = self._samples.get(store)
        return [] if sample is None else sample.read(fact)

    def _start(self, name: str, kind: SpanKind, attributes: Mapping[str, str | int]) -> Span:
        with _harmless:
            return self._tracer.start_span(name, kind=kind, attributes=attributes)
        return trace.INVALID_SPAN

    def _start_attempt(self, call: Call, traced: _TracedCall, facts: Attributes) -> Span:
        operation = call.operation
        path = encode(call).path if call.layout.elsewhere else operation.path
        about: Attributes = {**facts, "url.full": f"{traced.base_url}{path}"}
        if earlier := traced.sends[operation.name]:
            about["http.request.resend_count"] = earlier
        traced.sends[operation.name] += 1
        if operation.name not in BY_NAME:
            return self._start(operation.method, SpanKind.CLIENT, about)
        about["url.template"] = operation.path
        return self._start(f"{operation.method} {operation.path}", SpanKind.CLIENT, about)

    def _with_trace(self, call: Call, context: Context) -> Call:
        """Return a call with `traceparent`, but not with `tracestate`, whose text other programs choose."""
        headers: dict[str, str] = {}
        if self._propagator is not None:
            with _harmless:
                self._propagator.inject(headers, context)
        parent = headers.get("traceparent")
        return call if parent is None else call.with_headers({"traceparent": parent})


async def _send_within(context: Context, call: Call, send: Send, finish: Callable[[Ended, float], None]) -> Reply:
    """Send a call in a context, and report how it ended and after how many seconds, also if it is cancelled."""
    token = attach(context)
    started = perf_counter()
    ended: Ended = None
    try:
        reply = ended = await send(call)
    except BaseException as error:
        ended = error
        raise
    finally:
        with _harmless:
            finish(ended, perf_counter() - started)
        detach(token)
        del ended  # an error holds this frame
    return reply


def _end(span: Span, error_type: str) -> Attributes:
    """End a span, and return the metrics' attributes. The text of an error may quote the service: it is not shown."""
    if error_type:
        span.set_attribute("error.type", error_type)
        span.set_status(StatusCode.ERROR)
    span.end()
    return {"error.type": error_type} if error_type else {}


def _error_type(ended: Ended) -> str:
    return type(ended).__name__ if isinstance(ended, BaseException) else ""


def _bounded_name(call: Call) -> str:
    return call.operation.name if call.operation.name in BY_NAME else OTHER


GAUGES: Final = (
    ("journal", "intents", "{intent}", "Intents that are not at their end, by state.", "counts"),
    ("journal", "needs_person", "{intent}", "Intents that need a person, by state.", "needs_person"),
    ("journal", "oldest_unknown", "s", "Age of the oldest unknown intent.", "oldest"),
    ("journal", "overdue", "s", "How long the next query is overdue.", "overdue"),
    ("inbox", "events", "{event}", "Notifications that are not done, by state.", "counts"),
    ("inbox", "lag", "s", "Age of the oldest undelivered notification.", "oldest"),
    ("inbox", "overdue", "s", "How long the next delivery is overdue.", "overdue"),
)
"""The store, name, unit and words of each gauge, and what it shows of a `Backlog`."""
