"""Events and log lines about each attempt."""

import logging
from typing import Final

import pytest

from payasync.credentials import Secret
from payasync.endpoints import CREATE_REFUND
from payasync.middleware.observe import Attempted, Event, EventSink, Retrying, Unknown, observe
from tests.building import bare_call, reply, way


async def test_foreign_errors_make_no_event() -> None:
    """An error that is not of payasync passes unchanged, and without an event."""
    heard, foreign = list[Event](), ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as caught:
        await observe(EventSink(heard.append), way(foreign).send)(bare_call(CREATE_REFUND))

    assert foreign is caught.value
    assert [] == heard


async def test_log_shows_no_field_of_the_request(caplog: pytest.LogCaptureFixture) -> None:
    """The log line of an attempt names the call, and shows nothing of its content."""
    call = bare_call(
        CREATE_REFUND,
        fields={"refundDesc": "canary"},
        headers={"Authorization": Secret("canary"), "X-A": "canary"},
        reference="R1",
    )
    with caplog.at_level(logging.DEBUG, "payasync"):
        await observe(EventSink(None), way(reply({"a": "canary"}, headers={"Set-Cookie": "canary"})).send)(call)
    (record,) = caplog.records

    assert ("payasync", logging.DEBUG) == (record.name, record.levelno)
    assert record.getMessage().startswith("refunds.create R1: attempt 1: HTTP 200 after ")
    assert "canary" not in record.getMessage()


def test_on_event_may_stop_the_program() -> None:
    """A `KeyboardInterrupt` within `on_event` is raised."""

    def stopping(event: Event) -> None:
        raise KeyboardInterrupt(event)

    with pytest.raises(KeyboardInterrupt):
        EventSink(stopping)(Attempted(operation="orders.place", reference=None, attempt=1, elapsed=0.0))


CUT: Final = Attempted(operation="orders.place", reference="T1", attempt=1, elapsed=0.25, error="ConnectionResetError")
AGAIN: Final = Retrying(operation="orders.query", reference="T1", attempt=2, delay=0.5, reason="no answer")
DOUBT: Final = Unknown(operation="orders.place", reference=None, reason="no answer")
EVENTS: Final[dict[int, Event]] = {logging.DEBUG: CUT, logging.INFO: AGAIN, logging.WARNING: DOUBT}


def test_level_says_who_must_look(caplog: pytest.LogCaptureFixture) -> None:
    """Attempts are logged as debug, retries as info, and unknown outcomes as warnings."""
    with caplog.at_level(logging.DEBUG, "payasync"):
        for event in EVENTS.values():
            EventSink()(event)

    assert {level: str(event) for level, event in EVENTS.items()} == {
        record.levelno: record.getMessage() for record in caplog.records
    }
