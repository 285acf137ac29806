"""The lists of docs/reference/events.md, and the dashboard and alert rules of examples/observability."""

import ast
import asyncio
import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final

import promql_parser
import pytest
import yaml
from attrs import fields, frozen
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from prometheus_client import REGISTRY

from payasync import Attempted, PayasyncError, Retrying, Unknown
from payasync.journal import SqliteJournal
from payasync.middleware.observe import EventSink
from payasync.notifications import SqliteInbox
from payasync.notifications.inbox import REPLAYABLE
from payasync.sandbox import Sandbox
from tests.integrations.telemetry import backend
from tests.sessions import FAST

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
EXAMPLES: Final = ROOT / "examples" / "observability"


def table(heading: str, number: int = 0) -> list[list[str]]:
    """Return the cells of a table under a heading of the page."""
    _, _, below = PAGE.partition(f"\n## {heading}\n")
    tables = re.findall(r"(?:^\|.*\n)+", below.partition("\n## ")[0], re.MULTILINE)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in tables[number].splitlines()]
    return rows[2:]


def names(cell: str) -> set[str]:
    """Return the names in a cell."""
    return set(re.findall(r"`([^`]+)`", cell))


def test_events_are_listed() -> None:
    """The page lists each event with its attributes."""
    rows = {row[0].strip("`"): names(row[2]) for row in table("Events")}

    assert rows == {event.__name__: {each.name for each in fields(event)} for event in (Attempted, Retrying, Unknown)}


Record = tuple[str, str, str, frozenset[str]]
"""Logger, name, level and attributes."""
BARE: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def records_of(module: Path) -> Iterator[Record]:
    """Yield what a module logs: with the logger that it makes, or with that of its package."""
    text = module.read_text(encoding="utf-8")
    (logger,) = re.findall(r'getLogger\("([\w.]+)"\)', text)[:1] or [f"payasync.{module.parent.name}"]
    for call in (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)):
        function = ast.unparse(call.func)
        given = {each.arg: each.value for each in call.keywords if each.arg}
        if function == "log":
            level, name = (ast.unparse(each).removeprefix("logging.") for each in call.args[1:3])
            yield logger, name.strip("'"), level, frozenset(given.keys() - {"exc_info"})
        elif match := re.fullmatch(r"_?logger\.(debug|info|warning|error|exception)", function, re.IGNORECASE):
            extra = ast.literal_eval(re.sub(r": (\w+)", r": '\1'", ast.unparse(given["extra"])))
            level = "ERROR" if match[1] == "exception" else match[1].upper()
            yield logger, extra.pop("event_name"), level, frozenset(extra)


def test_records_are_listed(caplog: pytest.LogCaptureFixture) -> None:
    """The page lists each record that the package logs: logger, name, level and attributes."""
    report = EventSink()
    with caplog.at_level(logging.DEBUG, "payasync"):
        report(Attempted(operation="orders.place", reference="T1", attempt=1, elapsed=0.1, status=200))
        report(Retrying(operation="orders.place", reference="T1", attempt=2, delay=0.1, reason="reset"))
        report(Unknown(operation="orders.place", reference="T1", reason="reset"))
    written = {
        (each.name, vars(each)["event_name"], each.levelname, frozenset(vars(each).keys() - BARE - {"event_name"}))
        for each in caplog.records
    }
    written |= {record for module in ROOT.joinpath("payasync").rglob("*.py") for record in records_of(module)}
    levels = {"WARNING, then INFO": "level", "WARNING, or INFO": "level"}
    listed = {
        (logger, name.strip("`"), levels.get(level, level), frozenset(names(meaning)))
        for number, logger in enumerate(re.findall(r"^### Logger `(.*)`$", PAGE, re.MULTILINE))
        for name, level, meaning in table("Log records", number)
    }

    assert listed == written


@frozen
class Seen:
    """What a busy merchant showed.

    Attributes:
        spans: All spans.
        metrics: By name: unit, kind, and the attributes of all points.
        exported: By the name in Prometheus: the values of each label.
    """

    spans: tuple[ReadableSpan, ...]
    metrics: Mapping[str, tuple[str, str, frozenset[str]]]
    exported: Mapping[str, Mapping[str, set[str]]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What a merchant shows whose calls succeed, fail, are repeated, recovered and unknown."""
    return asyncio.run(_be_busy(tmp_path_factory.mktemp("stores")))


async def _be_busy(folder: Path) -> Seen:
    shown = backend(PrometheusMetricReader())
    telemetry = shown.telemetry
    journal, inbox = SqliteJournal(folder / "pay.db"), SqliteInbox(folder / "inbox.db")
    async with aclosing(journal), aclosing(inbox), Sandbox(clock="frozen") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        sandbox.faults.server_error("orders.query")
        sandbox.faults.reset_after_commit("refunds.create")
        sandbox.faults.reset_after_commit("payments.create")
        async with sandbox.session(journal=journal, middleware=[telemetry], retry=FAST) as pay:
            await pay.orders.query("T1")
            await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=1)
            for call in (pay.payments.create(amount=1, currency="CAD"), pay.orders.query("T404")):
                with pytest.raises(PayasyncError):
                    await call
        async with telemetry.watch(journal=journal, inbox=inbox):
            found, exported = shown.metrics(), _exported()
    shown.meters.shutdown()
    metrics = {
        metric.name: (
            metric.unit or "",
            type(metric.data).__name__,
            frozenset(key for point in metric.data.data_points for key in point.attributes or {}),
        )
        for metric in found
    }
    return Seen(shown.spans, metrics, exported)


def _exported() -> Mapping[str, Mapping[str, set[str]]]:
    labels: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for sample in (sample for metric in REGISTRY.collect() for sample in metric.samples):
        for name, value in {"__name__": sample.name, **sample.labels}.items():
            labels[sample.name][name].add(value)
    return labels


def test_spans_are_listed(seen: Seen) -> None:
    """The page lists the attributes of calls and attempts, and the events of calls."""
    spans: dict[str, set[str]] = defaultdict(set)
    events: dict[str, set[str]] = defaultdict(set)
    for span in seen.spans:
        spans["call" if span.parent is None else "attempt"] |= (span.attributes or {}).keys()
        for event in span.events:
            events[event.name] |= (event.attributes or {}).keys()

    assert {row[0]: names(row[3]) for row in table("Spans")} == spans
    assert {row[0].strip("`"): names(row[2]) for row in table("Spans", 1)} == events


def test_metrics_are_listed(seen: Seen) -> None:
    """The page lists the metrics with kind, unit and attributes."""
    kinds = {"histogram": "Histogram", "counter": "Sum", "gauge": "Gauge"}
    listed = {
        name.strip("`"): (*names(kind), kinds[kind.partition(",")[0]], frozenset(names(value)))
        for name, kind, value in table("Metrics")
    }

    assert listed == seen.metrics


def test_alerts_are_explained() -> None:
    """The guide says of each alert how severe it is, when it fires and what to do."""
    guide = ROOT.joinpath("docs", "how-to", "observability.md").read_text(encoding="utf-8")
    groups = yaml.safe_load(EXAMPLES.joinpath("alerts.yml").read_text(encoding="utf-8"))["groups"]
    rules = [(rule["alert"], rule["labels"]["severity"]) for group in groups for rule in group["rules"]]

    assert rules == re.findall(r"^\| `(Payasync\w+)` \| (\w+) \|", guide, re.MULTILINE)


def queries() -> dict[str, str]:
    """Return the queries of the alert rules and of the dashboard, by their names."""
    groups = yaml.safe_load(EXAMPLES.joinpath("alerts.yml").read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    panels = json.loads(EXAMPLES.joinpath("dashboard.json").read_text(encoding="utf-8"))["panels"]
    return alerts | {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "5m")
        for panel in panels
        for target in panel.get("targets", ())
    }


def test_queries_find_what_is_exported(seen: Seen) -> None:
    """Each query of the dashboard and the alert rules is valid, and its metrics, labels and values are exported."""
    for name, query in queries().items():
        selectors: list[promql_parser.VectorSelector] = []
        grouped: set[str] = set()
        _visit(promql_parser.parse(query), selectors, grouped)
        missing = [
            f"{selector.name}{{{matcher.name}={matcher.value}}}"
            for selector in selectors
            for matcher in selector.matchers.matchers
            for value in matcher.value.split("|")
            if value not in {"", *NOT_HERE} and value not in seen.exported[str(selector.name)][matcher.name]
        ]

        assert selectors, name
        assert set() == {str(each.name) for each in selectors} - seen.exported.keys(), name
        assert [] == missing, name
        assert all(grouped <= seen.exported[str(each.name)].keys() for each in selectors if grouped), name


def _visit(query: promql_parser.Expr, selectors: list[promql_parser.VectorSelector], grouped: set[str]) -> None:
    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            grouped.update(node.modifier.labels)
        return True

    promql_parser.walk(query, visit)


def test_slowness_can_fire(seen: Seen) -> None:
    """The greatest bucket is above the limit of the alert. A quantile never exceeds this bucket."""
    alerts = EXAMPLES.joinpath("alerts.yml").read_text(encoding="utf-8")
    (limit,) = re.findall(r"payasync_call_duration_seconds_bucket[^>]* > (\d+)", alerts)
    bounds = seen.exported["payasync_call_duration_seconds_bucket"]["le"] - {"+Inf"}

    assert float(limit) < max(float(each) for each in bounds)


def test_what_needs_a_person_has_an_alert(seen: Seen) -> None:
    """Alerts read each state for which `payasync journal --inbox` ends with exit code 3."""
    alerts = EXAMPLES.joinpath("alerts.yml").read_text(encoding="utf-8")
    read = {
        name: {
            state
            for found in re.findall(rf'{name}\{{payasync_state=~?"([\w|]+)"\}}', alerts)
            for state in found.split("|")
        }
        for name in ("payasync_journal_needs_person", "payasync_inbox_events")
    }

    assert {
        "payasync_journal_needs_person": seen.exported["payasync_journal_needs_person"]["payasync_state"],
        "payasync_inbox_events": REPLAYABLE,
    } == read


NOT_HERE: Final = {
    "AuthenticationError",
    "CancelledError",
    "DuplicateError",
    "IntentConflictError",
    "InvalidSignatureError",
}
"""Classes of errors that this merchant does not meet."""
