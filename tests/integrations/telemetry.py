"""What a trace and a metrics backend would receive, in memory."""

from typing import Any

from attrs import frozen
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, MetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from payasync.integrations.otel import OpenTelemetry


@frozen
class Backend:
    """A backend in memory.

    Attributes:
        telemetry: Sends to it.
        exporter: Receives the spans.
        reader: Receives the metrics.
        meters: Makes the metrics.
    """

    telemetry: OpenTelemetry
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    meters: MeterProvider

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended, in this order."""
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        """Return the one span of a name."""
        (found,) = [each for each in self.spans if each.name == name]
        return found

    def metrics(self) -> list[Metric]:
        """Return all metrics."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return [metric for scope in scopes for metric in scope.metrics]

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], float]:
        """Return the values of a metric, or the counts of a histogram, by their attributes."""
        found = (metric for metric in self.metrics() if metric.name == name)
        points: list[Any] = [point for metric in found for point in metric.data.data_points]
        return {
            tuple(sorted((point.attributes or {}).items())): point.count if hasattr(point, "count") else point.value
            for point in points
        }


def backend(*readers: MetricReader, processor: SpanProcessor | None = None, propagate: bool = False) -> Backend:
    """Return a backend, and telemetry that sends to it, to more readers of metrics, and to a processor of spans."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader, *readers])
    for each in (SimpleSpanProcessor(exporter), *([processor] if processor else [])):
        tracers.add_span_processor(each)
    telemetry = OpenTelemetry(tracer_provider=tracers, meter_provider=meters, propagate=propagate)
    return Backend(telemetry, exporter, reader, meters)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})
