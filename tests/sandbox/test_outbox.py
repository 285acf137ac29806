"""The outbox: what becomes of a notification after each attempt, and in which order they are due."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from attrs import evolve

from payasync.sandbox.outbox import REDELIVERIES, Attempt, Notification, Outbox, delivered
from payasync.sandbox.store import Store

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
FIRST: Final = Notification(
    notification_id="N1", event="payment.paid", reference="T1", url="http://a", body="{}", created=NOON, due=NOON, seq=1
)


def attempt(at: datetime = NOON, *, acknowledged: bool = False) -> Attempt:
    """Return an attempt."""
    return Attempt(
        notification_id="N1", url="http://a", at=at, status=500, error="no", answer="?", acknowledged=acknowledged
    )


@pytest.fixture
def outbox() -> Iterator[Outbox]:
    """An empty outbox."""
    store = Store(":memory:")
    yield Outbox(store)
    store.close()


def test_schedule() -> None:
    """Again after 5 seconds, 5 and 30 minutes, 2, 5 and 10 hours; then it is a dead letter."""
    waits, notification, at = list[timedelta](), FIRST, NOON
    while notification.state == "waiting":
        notification = delivered(notification, attempt(at))
        waits += [notification.due - at] if notification.due else []
        at = notification.due or at

    assert list(REDELIVERIES) == waits
    assert [5, 300, 1800, 7200, 18000, 36000] == [wait.total_seconds() for wait in waits]
    assert ("dead", None, 7) == (notification.state, notification.due, notification.tries)


def test_acknowledged_is_delivered() -> None:
    """What was taken is not due any more."""
    assert evolve(FIRST, state="delivered", due=None, tries=1) == delivered(FIRST, attempt(acknowledged=True))


@pytest.mark.parametrize("acknowledged", [True, False])
def test_taken_once_is_taken(*, acknowledged: bool) -> None:
    """Whatever a copy of what was taken is answered: it stays delivered."""
    taken = delivered(FIRST, attempt(acknowledged=True))

    assert evolve(taken, tries=2) == delivered(taken, attempt(acknowledged=acknowledged))


def test_rows_come_back_as_they_were(outbox: Outbox) -> None:
    """Notifications and attempts are kept whole, moments included."""
    outbox.add(FIRST)
    outbox.add_attempt(attempt())

    assert (FIRST, [FIRST]) == (outbox.notification("N1"), outbox.notifications())
    assert ([attempt()], [attempt()], []) == (outbox.attempts(), outbox.attempts_of("N1"), outbox.attempts_of("N2"))


def test_oldest_due_first(outbox: Outbox) -> None:
    """Of what is due the oldest comes first, and of what is due at once the one that was put in first."""
    for number, seconds in enumerate([10, 0, 0, 20], 1):
        due = NOON + timedelta(seconds=seconds)
        outbox.add(evolve(FIRST, notification_id=f"N{number}", url=f"http://{number}", due=due))
    by, busy, found = NOON + timedelta(seconds=15), set[str](), list[str]()
    for _ in range(4):
        if due_now := outbox.due(by, busy):
            busy.add(due_now.url)
            found.append(due_now.notification_id)

    assert ["N2", "N3", "N1"] == found
    assert "N4" == getattr(outbox.next(by), "notification_id", None)


def test_busy_addresses_are_left_out(outbox: Outbox) -> None:
    """What waits behind a delivery under way does not hide the others."""
    outbox.add(FIRST)
    outbox.add(evolve(FIRST, notification_id="N2"))
    outbox.add(evolve(FIRST, notification_id="N3", url="http://b"))

    assert "N3" == getattr(outbox.due(NOON, {"http://a"}), "notification_id", None)
    assert outbox.due(NOON, {"http://a", "http://b"}) is None
    assert outbox.due(NOON - timedelta(microseconds=1), ()) is None
