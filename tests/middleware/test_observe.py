"""Events and log lines about each attempt."""

import asyncio
import logging
import pickle
from typing import Final

import attrs
import pytest

from payasync.credentials import Secret
from payasync.endpoints import CREATE_REFUND
from payasync.middleware.observe import Attempted, Event, EventSink, Retrying, Unknown, observe
from tests.building import Heard, bare_call, reply, way


async def test_foreign_errors_make_no_event() -> None:
    """An error that is not of payasync passes unchanged, and without an event."""
    heard, foreign = Heard(), ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as caught:
        await observe(EventSink(heard.tell), way(foreign).send)(bare_call(CREATE_REFUND))

    assert foreign is caught.value
    assert [] == heard.events


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


async def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    """Without a listener there is no event, and no extra coroutine."""
    on_its_way = asyncio.get_running_loop().create_future()
    with caplog.at_level(logging.INFO, "payasync"):
        went = observe(EventSink(), lambda _: on_its_way)(bare_call(CREATE_REFUND))

    assert on_its_way is went
    assert [] == caplog.records


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


@pytest.mark.parametrize("level", EVENTS, ids=logging.getLevelName)
def test_level_says_who_must_look(level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Attempts are logged as debug, retries as info, and unknown outcomes as warnings."""
    with caplog.at_level(logging.DEBUG, "payasync"):
        EventSink()(EVENTS[level])
    (record,) = caplog.records

    assert level == record.levelno
    assert str(EVENTS[level]) == record.getMessage()


def test_events_are_frozen_values() -> None:
    """Events are frozen, comparable, and pickle."""
    for event in EVENTS.values():
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            event.operation = "orders.close"  # type: ignore[misc] # the mistake that is refused

        assert event == pickle.loads(pickle.dumps(event))  # noqa: S301 - made in the same line


def test_event_reads_as_a_line_of_a_log() -> None:
    """The text of an event is one readable line."""
    for event, line in [
        (CUT, "orders.place T1: attempt 1: no response (ConnectionResetError) after 0.250 s"),
        (attrs.evolve(CUT, status=503), "orders.place T1: attempt 1: HTTP 503 after 0.250 s"),
        (AGAIN, "orders.query T1: attempt 2 starts in 0.50 s: no answer"),
        (DOUBT, "orders.place: outcome unknown: no answer"),
        (attrs.evolve(DOUBT, reason="cut\n in two"), "orders.place: outcome unknown: cut in two"),
    ]:
        assert line == str(event)
