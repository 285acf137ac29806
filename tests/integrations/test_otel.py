"""Spans and metrics of calls against the real sandbox, and gauges of a real journal and inbox."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import date
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

import pytest
from attrs import evolve
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from yarl import URL

from payasync import Call, CreateRefund, Credentials, Parameter, Reply, RetryPolicy, Send, Session, Unknown, errors
from payasync.endpoints import CREATE_REFUND
from payasync.integrations.otel import GAUGES, OpenTelemetry
from payasync.journal import SqliteJournal
from payasync.notifications import Receiver, SqliteInbox
from payasync.sandbox import PROFILE, Sandbox
from payasync.storage import Backlog
from tests.building import bare_call
from tests.inside import until
from tests.integrations.telemetry import Backend, attributes, backend
from tests.journal.building import Clock, draft
from tests.notifications.inbox_building import received
from tests.sessions import FAST, connect, create, query

REFUND: Final[Mapping[str, Any]] = {
    "out_trade_no": "T1",
    "out_refund_no": "R1",
    "total_amt": 450,
    "refund_amt": 100,
    "refund_desc": "canaryTweet",
}
UNKNOWN: Final = "payasync.unknown_outcomes"


@pytest.fixture
def seen() -> Backend:
    """A backend in memory."""
    return backend()


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    """A service with a paid order."""
    async with Sandbox(clock="frozen") as running:
        await running.given.paid_order(out_trade_no="T1", total_amt=450)
        yield running


def instrumented(sandbox: Sandbox, seen: Backend, **settings: Any) -> Session:
    """Return a session with telemetry, and short waits."""
    return sandbox.session(**{"middleware": [seen.telemetry], "retry": FAST, **settings})


def events(span: ReadableSpan) -> list[str]:
    """Return the names of the events of a span."""
    return [each.name for each in span.events]


async def test_call_is_a_span_with_its_attempt_below(sandbox: Sandbox, seen: Backend) -> None:
    """A call has a span named after its operation, and its attempt an HTTP client span below it."""
    async with instrumented(sandbox, seen) as pay:
        await pay.refunds.create(**REFUND)
    attempt, call = seen.spans
    host, port = sandbox.url.removeprefix("http://").split(":")

    assert ("refunds.create", SpanKind.INTERNAL) == (call.name, call.kind)
    assert {"payasync.reference": "R1", "payasync.attempts": 1}.items() <= attributes(call).items()
    assert ("POST /payment/refund", SpanKind.CLIENT) == (attempt.name, attempt.kind)
    assert call.context == attempt.parent
    expected = {"http.request.method": "POST", "http.response.status_code": 200, "server.address": host}
    expected |= {
        "server.port": int(port),
        "url.full": f"{sandbox.url}/payment/refund",
        "url.template": "/payment/refund",
    }
    assert {**expected, "payasync.operation": "refunds.create"} == attributes(attempt)


async def test_retries_are_counted_and_numbered(sandbox: Sandbox, seen: Backend) -> None:
    """Each further attempt has a span with its number, and is an event of its call and a count."""
    sandbox.faults.server_error("orders.query", times=2)
    async with instrumented(sandbox, seen) as pay:
        await pay.orders.query("T1")
    *attempts, call = seen.spans

    ends = [
        (attributes(each).get("http.request.resend_count"), attributes(each).get("error.type")) for each in attempts
    ]
    assert [(None, "503"), (1, "503"), (2, None)] == ends
    statuses = [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert statuses == [each.status.status_code for each in attempts]
    assert ["payasync.repeat", "payasync.repeat"] == events(call)
    assert {"payasync.attempt": 2, "payasync.reason": "HTTP 503"}.items() <= (call.events[0].attributes or {}).items()
    assert 3 == attributes(call)["payasync.attempts"]
    assert {(("payasync.operation", "orders.query"), ("payasync.retry", "repeat")): 2} == seen.points(
        "payasync.retries"
    )


async def test_recovery_shows_its_query_as_an_attempt(sandbox: Sandbox, seen: Backend) -> None:
    """If the response of a refund is lost, the query about it is an attempt of the call, which then succeeds."""
    sandbox.faults.reset_after_commit("refunds.create")
    async with instrumented(sandbox, seen) as pay:
        refund = await pay.refunds.create(**REFUND)
    lost, query, call = seen.spans

    assert refund.recovered
    assert "NoAnswerError" == attributes(lost)["error.type"]
    assert "http.response.status_code" not in attributes(lost)
    assert ("GET /payment/refund/status", "refunds.status") == (query.name, attributes(query)["payasync.operation"])
    assert "http.request.resend_count" not in attributes(query)
    assert "?" not in attributes(query)["url.full"]
    assert ["payasync.query", "payasync.recovered"] == events(call)
    assert "error.type" not in attributes(call)
    assert {(("payasync.operation", "refunds.create"), ("payasync.retry", "query")): 1} == seen.points(
        "payasync.retries"
    )


async def test_unknown_outcome_is_an_event_and_a_count(sandbox: Sandbox, seen: Backend) -> None:
    """An unknown outcome is an event and the error class of its call, and is counted; each write begins at 0."""
    sandbox.faults.reset_after_commit("payments.create")
    heard: list[object] = []
    async with instrumented(sandbox, seen, on_event=heard.append) as pay:
        with pytest.raises(errors.OutcomeUnknownError):
            await pay.payments.create(amount=1, currency="CAD")
    call = seen.span("payments.create")
    counted = seen.points(UNKNOWN)

    assert ["payasync.unknown"] == events(call)
    assert "OutcomeUnknownError" == attributes(call)["error.type"]
    assert StatusCode.ERROR is call.status.status_code
    assert 1 == counted.pop((("payasync.operation", "payments.create"),))
    assert {0} == set(counted.values())
    assert 6 == len(counted)
    assert 1 == sum(isinstance(each, Unknown) for each in heard)


async def test_cancelled_call_ends_its_spans(sandbox: Sandbox, seen: Backend) -> None:
    """A cancelled call ends its spans. If it was sent, its outcome is unknown."""
    fault = sandbox.faults.hang("refunds.create")
    async with instrumented(sandbox, seen) as pay:
        refunding = asyncio.ensure_future(pay.refunds.create(**REFUND))
        await until(lambda: fault.fired)
        refunding.cancel()
        await asyncio.wait([refunding])
    attempt, call = seen.spans

    assert ["CancelledError", "CancelledError"] == [attributes(each)["error.type"] for each in (attempt, call)]
    assert ["payasync.unknown"] == events(call)
    assert 1 == seen.points(UNKNOWN)[("payasync.operation", "refunds.create"),]


async def test_calls_at_once_have_their_own_spans(sandbox: Sandbox, seen: Backend) -> None:
    """Calls that run at the same time have their own spans, those of copies of a session and of `bulk`, too."""
    async with instrumented(sandbox, seen) as pay:
        copies = (pay, pay.with_options(retry=RetryPolicy(attempts=1)), pay.for_merchant(sandbox.credentials))
        async with asyncio.TaskGroup() as group:
            for each in copies * 4:
                group.create_task(each.orders.query("T1"))
        _ = [each async for each in pay.bulk([CreateRefund(**REFUND)])]
    calls = sorted(each.context.span_id for each in seen.spans if each.context and each.parent is None)
    parents = sorted(each.parent.span_id for each in seen.spans if each.parent)

    assert 13 == len(calls)
    assert calls == parents


async def test_metrics_have_few_values(seen: Backend) -> None:
    """No attribute of a metric holds a number or a path: custom calls are one operation, errors are classes.

    If a number stands in the path, only `url.full` shows it.
    """
    profile = evolve(PROFILE, payment_status=Parameter("outTradeNo", place="path"))
    async with Sandbox(profile) as sandbox, instrumented(sandbox, seen) as pay:
        order = await sandbox.given.paid_order()
        with pytest.raises(errors.ServiceError):
            await pay.orders.query("T404")
        with pytest.raises(errors.ServiceError):
            await pay.request("GET", "/bills/B77", fields={"token": "canary"}, read=True)
        await pay.payments.status(order)
    urls = [attributes(seen.span(name))["url.full"] for name in ("GET", "GET /payment/status")]
    attempts = seen.points("http.client.request.duration")

    assert ["/bills/B77", f"/payment/status/{order}"] == [URL(url).path for url in urls]
    assert "canary" not in urls[0]
    assert {
        (("error.type", "ServiceError"), ("payasync.operation", "orders.query")): 1,
        (("error.type", "ServiceError"), ("payasync.operation", "request")): 1,
        (("payasync.operation", "payments.status"),): 1,
    } == seen.points("payasync.call.duration")
    assert {("404", "POST", "orders.query"), ("404", "GET", "request"), (None, "GET", "payments.status")} == {
        (facts.get("error.type"), facts["http.request.method"], facts["payasync.operation"])
        for facts in map(dict, attempts)
    }
    assert order not in repr(attempts)


@pytest.mark.parametrize("propagate", [True, False], ids=["asked", "not asked"])
async def test_trace_is_continued_only_if_asked_for(propagate: bool, sandbox: Sandbox) -> None:  # noqa: FBT001 - cases
    """`traceparent` names the attempt, each attempt has its own, and the signature is still valid; default: none."""
    seen = backend(propagate=propagate)
    sandbox.faults.server_error("orders.query")
    sent: list[object] = []

    async def look(call: Call, send: Send) -> Reply:
        sent.append(call.headers.get("traceparent"))
        return await send(call)

    async with instrumented(sandbox, seen, middleware=[seen.telemetry, look]) as pay:
        await pay.orders.query("T1")
    spans = [each.context for each in seen.spans if each.parent is not None]
    expected = [f"00-{each.trace_id:032x}-{each.span_id:016x}-{each.trace_flags:02x}" for each in spans if each]

    assert (expected if propagate else [None, None]) == sent


class Raising(SpanProcessor):
    """A processor with a mistake.

    Attributes:
        raised: What it raised.
    """

    def __init__(self) -> None:
        self.raised: list[LookupError] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Raise."""
        del parent_context
        self.on_end(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Raise."""
        self.raised.append(LookupError(span))
        raise self.raised[-1]


async def test_mistake_of_a_processor_fails_no_call(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """If a tracer raises, the payment goes on, and a warning names the error's class only. No frame shows the call."""
    raising = Raising()
    async with instrumented(sandbox, backend(processor=raising)) as pay:
        refund = await pay.refunds.create(**REFUND)
    warnings = {record.getMessage() for record in caplog.records if record.levelno == logging.WARNING}

    frames = {frame.f_globals["__name__"] for each in raising.raised for frame, _ in walk_tb(each.__traceback__)}

    assert (1, True) == (refund.attempts, bool(raising.raised))
    assert {"OpenTelemetry raised LookupError; the call goes on"} == warnings
    assert not {name for name in frames if name.startswith("payasync.")}


async def test_no_secret_and_no_detail(sandbox: Sandbox) -> None:
    """No key, no nonce and no detail of a customer is in a span or a metric, however calls end."""
    seen = backend(propagate=True)
    canary = "canaryTweet"
    signing = sandbox.credentials.signing_key
    keys = Credentials(sandbox.credentials.merchant_id, secret_key=f"sk_{canary}", signing_key=signing)

    async def fail(call: Call, send: Send) -> Reply:
        await send(call)
        raise ZeroDivisionError(canary, call)

    sandbox.faults.reset_after_commit("orders.place")
    async with instrumented(sandbox, seen, credentials=keys) as pay:
        calls = [
            pay.payments.create(amount=1, currency="CAD", description=canary),
            pay.orders.place(total_amt=1, currency="CAD", out_trade_no="T2", body=canary, extra={"email": canary}),
            pay.send(CreateRefund(**REFUND)),
            pay.orders.query("T1", extra={"email": canary}),
            pay.payments.status("T1", extra={"email": canary}),
            pay.subscriptions.create(
                frequency="monthly", amount=900, start_date=date(2999, 1, 1), customer={"email": canary}
            ),
        ]
        ended: list[object] = [*await asyncio.gather(*calls, return_exceptions=True)]
    async with instrumented(sandbox, seen, middleware=[seen.telemetry, fail], credentials=keys) as pay:
        ended += await asyncio.gather(query(pay), create(pay), return_exceptions=True)
    shown = "".join(each.to_json() for each in seen.spans) + repr(seen.reader.get_metrics_data())

    assert {errors.AuthenticationError, errors.OutcomeUnknownError, ZeroDivisionError} <= {type(each) for each in ended}
    assert 2 * len(ended) <= len(seen.spans)
    assert canary not in shown
    assert signing is not None
    assert signing.reveal() not in shown


async def test_calls_of_others_pass_untouched(seen: Backend) -> None:
    """As a plain function, outside of a session's call, it passes calls and events on and shows nothing."""
    reply = Reply(200, {}, b"")

    async def send(_: Call) -> Reply:
        return reply

    seen.telemetry.on_event(Unknown(operation="orders.place", reference=None, reason="reset"))

    assert reply is await seen.telemetry(bare_call(CREATE_REFUND), send)
    assert () == seen.spans


def test_class_is_refused() -> None:
    """The class in place of an object is refused when the session is made."""
    with pytest.raises(errors.ConfigurationError, match="must be a list of layers, not <class"):
        connect("https://pay.example.com", middleware=[OpenTelemetry])


async def test_what_waits_is_shown(tmp_path: Path, seen: Backend) -> None:
    """The gauges show the states of a journal and an inbox, and ages that grow, as long as they are watched."""
    clock = Clock()
    journal, inbox = SqliteJournal(tmp_path / "pay.db", clock=clock), SqliteInbox(tmp_path / "inbox.db", clock=clock)
    async with aclosing(journal), aclosing(inbox):
        await journal.settle((await journal.begin(draft(), lease=60)).intent, "unknown")
        await inbox.add(received())
        clock.advance(50)
        async with seen.telemetry.watch(journal=journal, inbox=inbox):
            counts = {**seen.points("payasync.journal.intents"), **seen.points("payasync.inbox.events")}
            names = ("journal.oldest_unknown", "journal.overdue", "inbox.lag", "inbox.overdue")
            first, second = ([seen.points(f"payasync.{name}")[()] for name in names] for _ in range(2))

    assert {"unknown": 1, "pending": 1} == {state: count for ((_, state),), count in counts.items() if count}
    assert [True] * 4 == [50 <= earlier < later < 51 for earlier, later in zip(first, second, strict=True)]
    assert {} == seen.points("payasync.journal.intents")


@pytest.mark.parametrize("error", [errors.AuthenticationError, errors.InvalidSignatureError])
async def test_key_errors_are_counted_from_0(
    error: type[errors.PayasyncError], sandbox: Sandbox, seen: Backend
) -> None:
    """The errors of keys are counted, and begin at 0, so that an alert sees the first one."""

    async def fail(_: Call, __: Send) -> Reply:
        raise error("no")

    async with instrumented(sandbox, seen, middleware=[seen.telemetry, fail]) as pay:
        before = seen.points("payasync.key_errors")
        with pytest.raises(error):
            await pay.orders.query("T1")
    after = seen.points("payasync.key_errors")
    series = (("error.type", error.__name__),)

    assert [0, 0] == list(before.values())
    assert {**before, series: 1} == after


async def test_refused_notifications_are_counted_from_0(tmp_path: Path, sandbox: Sandbox, seen: Backend) -> None:
    """Each refusal of a receiver is counted by its reason. The reasons begin at 0, so that an alert sees the first."""
    inbox = SqliteInbox(tmp_path / "inbox.db")
    async with (
        instrumented(sandbox, seen) as pay,
        Receiver(session=pay, inbox=inbox, on_refused=seen.telemetry.on_refused) as receiver,
    ):
        before = seen.points("payasync.refused_notifications")
        for raw in (b"{}", b"{}", bytes(2 << 20)):
            await receiver.receive(raw, {})
    after = seen.points("payasync.refused_notifications")
    series = [(("payasync.refusal", name),) for name in ("signature", "invalid", "too_large")]

    assert dict.fromkeys(series, 0) == before
    assert dict(zip(series, (2, 0, 1), strict=True)) == after


async def test_nothing_waits(tmp_path: Path, seen: Backend) -> None:
    """All gauges are there, and 0, if nothing waits: a missing one means that nobody reads the stores."""
    inbox = SqliteInbox(tmp_path / "inbox.db")
    async with (
        aclosing(inbox),
        SqliteJournal(tmp_path / "pay.db") as journal,
        seen.telemetry.watch(journal=journal, inbox=inbox),
    ):
        values = [set(seen.points(f"payasync.{store}.{name}").values()) for store, name, *_ in GAUGES]

    assert [{0}] * len(GAUGES) == values


class Scripted(SqliteJournal):
    """A journal whose next readings a test decides."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waits = asyncio.Event()
        self.readings = asyncio.Queue[Backlog | Exception]()

    async def backlog(self) -> Backlog:
        """Return or raise the next reading."""
        self.waits.set()
        if isinstance(reading := await self.readings.get(), Exception):
            raise reading
        return reading


async def test_store_is_read_again(tmp_path: Path, seen: Backend, caplog: pytest.LogCaptureFixture) -> None:
    """If a reading raises anything, a warning says so, and the gauges are missing until the next reading."""
    journal, shown = Scripted(tmp_path / "pay.db"), list[bool]()
    async with SqliteJournal(tmp_path / "pay.db") as store:
        found = await store.backlog()
    journal.readings.put_nowait(found)
    async with seen.telemetry.watch(journal=journal, interval=0.001):
        for reading in (LookupError(), found, errors.StorageError("no"), found):
            await journal.waits.wait()
            journal.waits.clear()
            journal.readings.put_nowait(reading)
            await asyncio.wait_for(journal.waits.wait(), 10)
            shown.append(bool(seen.points("payasync.journal.intents")))

    assert [False, True, False, True] == shown
    assert [f"the journal cannot be watched: {name}" for name in ("LookupError", "StorageError")] == [
        record.getMessage() for record in caplog.records
    ]


async def test_watch_refuses(tmp_path: Path, seen: Backend) -> None:
    """A wrong argument of `watch` is refused by its name, and so is a second journal, which is not opened.

    After the first, the second one is watched.
    """
    later, watch = SqliteJournal(tmp_path / "later.db"), seen.telemetry.watch
    wrong: list[dict[str, Any]] = [{"interval": 0}, {"interval": "15"}, {"journal": "pay.db"}, {"inbox": later}]
    wrong.append({"journal": later})
    async with SqliteJournal(tmp_path / "pay.db") as journal, aclosing(later):
        async with seen.telemetry.watch(journal=journal):
            for given in wrong:
                with pytest.raises(errors.InvalidArgumentError) as caught:
                    async with watch(**given):
                        pass

                assert list(given) == [caught.value.field]
            opened, shown = (tmp_path / "later.db").exists(), seen.points("payasync.journal.intents")
        async with seen.telemetry.watch(journal=later):
            after = seen.points("payasync.journal.intents")

    assert not opened
    assert shown
    assert shown == after
