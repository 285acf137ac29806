import pickle
from collections.abc import Callable
from typing import Final

import attrs
import pytest

from payasync.middleware.observe import Attempted, Event, Retrying, Unknown

CUT: Final = Attempted(operation="orders.place", reference="T1", attempt=1, elapsed=0.25, error="ConnectionResetError")
AGAIN: Final = Retrying(operation="orders.query", reference="T1", attempt=2, delay=0.5, reason="no answer")
DOUBT: Final = Unknown(operation="orders.place", reference=None, reason="no answer")
EVENTS: Final[list[Event]] = [CUT, AGAIN, DOUBT]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_are_frozen_values(event: Event) -> None:
    """An observer can keep, compare and send on what it was told, and cannot change it."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.operation = "orders.close"  # type: ignore[misc] # the mistake that is refused

    assert event == pickle.loads(pickle.dumps(event))  # noqa: S301 - made in the same line


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (CUT, "orders.place T1: attempt 1: no response (ConnectionResetError) after 0.250 s"),
        (attrs.evolve(CUT, status=503), "orders.place T1: attempt 1: HTTP 503 after 0.250 s"),
        (AGAIN, "orders.query T1: attempt 2 starts in 0.50 s: no answer"),
        (DOUBT, "orders.place: outcome unknown: no answer"),
        (attrs.evolve(DOUBT, reason="cut\n in two"), "orders.place: outcome unknown: cut in two"),
    ],
)
def test_event_reads_as_a_line_of_a_log(event: Event, line: str) -> None:
    """Whoever is woken by a line of a log reads what happened, and not how a class is written."""
    assert line == str(event)


@pytest.mark.parametrize("kind", [Attempted, Retrying, Unknown])
def test_events_take_keywords_only(kind: Callable[..., Event]) -> None:
    """A field that is added later breaks nobody's call."""
    with pytest.raises(TypeError, match="positional"):
        kind("orders.place", "T1")


def test_attempt_without_an_answer_has_no_status() -> None:
    """Either a status or an error says how an attempt ended: both are absent until given."""
    event = Attempted(operation="orders.place", reference=None, attempt=1, elapsed=0.0)

    assert (None, None) == (event.status, event.error)
