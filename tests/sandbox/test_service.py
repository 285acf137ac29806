"""The service without HTTP: changes that come too late, and refunds that fail."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.sandbox import PROFILE
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.numbers import Numbering
from payasync.sandbox.outbox import Outbox
from payasync.sandbox.rules import EXPIRY
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.timers import Timer, Timers
from payasync.sandbox.values import Refund, RefusedError

NOW: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
PLAN: Final[dict[str, Any]] = {"frequency": "monthly", "amount": 9, "customer": "{}"}


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store."""
    opened = Store(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def service(store: Store) -> Service:
    """The service at noon of 31 January 2027."""
    written = Dialect(PROFILE).payloads.notification
    return Service(
        store, now=lambda: NOW, written=written, webhook_url="http://127.0.0.1/", numbering=Numbering(PROFILE)
    )


def told(store: Store) -> str | None:
    """Return the name of the oldest event that is due."""
    due = Outbox(store).due(NOW, ())
    return str(json.loads(due.body)["type"]) if due else None


def test_authorisation_of_what_was_closed_meanwhile(service: Service, store: Store) -> None:
    """Who decides on an order as it was comes too late: nothing changes, and nothing is told twice."""
    seen = service.place_order(out_trade_no="T1", total_amt=450, currency="CAD")
    service.close_order(out_trade_no="T1")
    with pytest.raises(RefusedError) as refused:
        service.decide(seen, "authorize")

    assert ("wrong_state", "closed") == (refused.value.why, service.order("T1").state)
    assert "payment.closed" == told(store)


def test_failed_refund_is_free_again(service: Service, store: Store) -> None:
    """What a failed refund had set aside can be refunded; a refund ends once, and its end is told."""
    order = service.place_order(out_trade_no="T1", total_amt=450, currency="CAD")
    store.move_order(order, evolve(order, state="paid"))
    store.reserve("T1", 450)
    seen = Refund(out_refund_no="R1", out_trade_no="T1", total_amt=450, refund_amt=450, fingerprint="f")
    store.add_refund(seen)
    service.settle_refund(seen, "failed")
    with pytest.raises(RefusedError, match="has ended meanwhile"):
        service.settle_refund(seen, "succeeded")

    assert (0, 0, "refund.failed") == (service.order("T1").reserved, store.refunded("T1"), told(store))


def test_subscription_begins_by_the_sandboxs_time(service: Service) -> None:
    """Whether a subscription has begun is told by the clock that the service is given."""
    states = [
        service.subscriptions.create(start_date=day, **PLAN).state
        for day in (NOW.date(), NOW.date().replace(year=2028))
    ]

    assert ["active", "scheduled"] == states


def test_what_is_decided_has_no_timer(service: Service, store: Store) -> None:
    """An order expires half an hour after it was made, unless it is paid: then nothing is left to wait for."""
    order = service.place_order(out_trade_no="T1", total_amt=450, currency="CAD")
    before = Timers(store).next(NOW)
    service.decide(order, "authorize")

    assert Timer(due=NOW + EXPIRY, kind="expire", reference="T1") == before
    assert Timers(store).next(NOW) is None
