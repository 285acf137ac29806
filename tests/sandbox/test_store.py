"""The database: transactions, conditional changes, and indexes."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from payasync.sandbox import statements
from payasync.sandbox.model import Order, OrderState, Refund, Subscription
from payasync.sandbox.store import Store
from payasync.sandbox.webhooks import Notification, Outbox

ORDER: Final = Order(out_trade_no="T1", payment_id="P1", token="t", origin="order", total_amt=450, currency="CAD")
SUBSCRIPTION: Final = Subscription(
    subscription_id="S1", frequency="monthly", amount=9, start_date="2027-01-31", customer="{}"
)
STATEMENTS: Final = {name: text for name, text in vars(statements).items() if name.isupper()}
LOOKUPS: Final = {name for name in STATEMENTS if not name.startswith("ALL_")}


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store."""
    opened = Store(":memory:")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """How SQLite finds the rows of each statement."""
    path = str(tmp_path_factory.mktemp("plans") / "sandbox.db")
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.create_function("sandbox_now", 0, str)
        return {
            name: [step[3] for step in database.execute(f"EXPLAIN QUERY PLAN {text}", defaultdict(lambda: None))]
            for name, text in STATEMENTS.items()
        }


@pytest.mark.parametrize("name", sorted(LOOKUPS - {"DUE_NOTIFICATION"}))
def test_no_lookup_scans_a_table(plans: dict[str, list[str]], name: str) -> None:
    """Every statement but those that read a whole table finds its rows by an index, and sorts none of them."""
    assert [] == [step for step in plans[name] if step.startswith(("SCAN", "USE TEMP B-TREE"))]


def test_what_is_due_next_is_found_among_what_is_due(plans: dict[str, list[str]]) -> None:
    """What was delivered long ago stands in no one's way: the index holds what is due."""
    assert ["SEARCH notifications USING INDEX notifications_by_due"] == [
        step.partition(" (")[0] for step in plans["NEXT_NOTIFICATION"]
    ]


def test_what_is_due_is_found_address_by_address(plans: dict[str, list[str]]) -> None:
    """Scanned and sorted is the list of addresses alone; notifications are found by an index of what is due."""
    found = {step.partition(" (")[0] for step in plans["DUE_NOTIFICATION"] if "notifications" in step}
    scanned = {step for step in plans["DUE_NOTIFICATION"] if step.startswith("SCAN")}

    assert {
        "SEARCH notifications USING COVERING INDEX notifications_by_url",
        "SEARCH notifications USING INTEGER PRIMARY KEY",
    } == found
    assert {"SCAN addresses", "SCAN json_each VIRTUAL TABLE INDEX 1:"} == scanned


def test_what_waits_behind_a_delivery_costs_nothing(tmp_path: Path) -> None:
    """To look for what is due takes as many steps with two notifications at a slow address as with hundreds."""
    path, steps = str(tmp_path / "sandbox.db"), list[int]()
    for count in (2, 500):
        store = Store(path)
        for number in range(count):
            Outbox(store).add(Notification(notification_id=f"{count}/{number}", url="http://slow", body="{}"))
        store.close()
        with closing(sqlite3.connect(path)) as database:
            taken = list[None]()
            database.set_progress_handler(partial(taken.append, None), 1)
            found = database.execute(statements.DUE_NOTIFICATION, {"now": 0, "busy": '["http://slow"]'}).fetchall()
            steps.append(len(taken))

        assert [] == found
    assert steps[0] == steps[1] > 0


def test_each_thing_has_one_next_state(store: Store) -> None:
    """Of two who saw the same order, refund or subscription, the first changes it; the other is told that it has."""
    refund = Refund(out_refund_no="R1", out_trade_no="T1", total_amt=450, refund_amt=200, fingerprint="f")
    store.add_order(ORDER)
    store.add_refund(refund)
    store.add_subscription(SUBSCRIPTION)
    declined = evolve(ORDER, declines=1)
    begun = evolve(SUBSCRIPTION, state="active")
    moved = [
        *(store.move_order(ORDER, each) for each in (declined, declined)),
        *(store.move_order(declined, evolve(declined, state=state)) for state in ("paid", "closed")),
        *(store.move_refund("R1", "processing", state) for state in ("succeeded", "failed")),
        *(store.move_subscription(SUBSCRIPTION, each) for each in (begun, begun)),
        *(store.move_subscription(begun, evolve(begun, period=1)) for _ in range(2)),
    ]

    assert [True, False] * 5 == moved
    assert (evolve(declined, state="paid"), 200) == (store.order("T1"), store.refunded("T1"))


@pytest.mark.parametrize(
    ("state", "amount", "fits"), [("paid", 450, True), ("paid", 451, False), ("pending", 1, False)]
)
def test_reserve(store: Store, state: OrderState, amount: int, *, fits: bool) -> None:
    """A reservation is taken from what was paid, in one statement, or not at all."""
    order = evolve(ORDER, state=state)
    store.add_order(order)

    assert fits == store.reserve("T1", amount)
    assert evolve(order, reserved=amount if fits else 0) == store.order("T1")
