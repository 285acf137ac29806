"""The database: transactions, conditional changes, and indexes."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from payasync.sandbox import statements
from payasync.sandbox.outbox import Notification, Outbox
from payasync.sandbox.store import Store
from payasync.sandbox.values import Answered, Charge, Order, OrderState, Refund, RefundState, Subscription
from tests.inside import set_writable

ORDER: Final = Order(out_trade_no="T1", payment_id="P1", token="t", origin="order", total_amt=450, currency="CAD")
SUBSCRIPTION: Final = Subscription(
    subscription_id="S1", frequency="monthly", amount=9, start_date="2027-01-31", customer="{}"
)
ENDS: Final[tuple[RefundState, ...]] = ("succeeded", "failed")
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


def test_order_has_one_next_state(store: Store) -> None:
    """Of two who saw the same order, the first changes it; the second is told that it has changed."""
    store.add_order(ORDER)
    won = store.move_order(ORDER, evolve(ORDER, state="paid"))
    lost = store.move_order(ORDER, evolve(ORDER, state="closed"))

    assert (True, False) == (won, lost)
    assert evolve(ORDER, state="paid") == store.order("T1")


def test_declines_are_counted_one_by_one(store: Store) -> None:
    """Of two declines at once, one counts: the other saw an order that has changed."""
    store.add_order(ORDER)
    declined = evolve(ORDER, declines=1)

    assert (True, False) == (store.move_order(ORDER, declined), store.move_order(ORDER, declined))


def test_number_names_one_order(store: Store) -> None:
    """A second order with the same number is not kept."""
    store.add_order(ORDER)
    taken = store.add_order(evolve(ORDER, payment_id="P2", token="u", total_amt=1))

    assert (False, ORDER) == (taken, store.order("T1"))


@pytest.mark.parametrize(
    ("state", "amount", "fits"), [("paid", 450, True), ("paid", 451, False), ("pending", 1, False)]
)
def test_reserve(store: Store, state: OrderState, amount: int, *, fits: bool) -> None:
    """A reservation is taken from what was paid, in one statement, or not at all."""
    order = evolve(ORDER, state=state)
    store.add_order(order)

    assert fits == store.reserve("T1", amount)
    assert evolve(order, reserved=amount if fits else 0) == store.order("T1")


def test_released_reservation_is_free_again(store: Store) -> None:
    """What a failed refund had set aside can be refunded."""
    store.add_order(evolve(ORDER, state="paid"))
    store.reserve("T1", 450)
    store.release("T1", 450)

    assert store.reserve("T1", 450)


def test_refund_ends_once(store: Store) -> None:
    """Of two ends of one refund, the first counts; only what succeeded was given back."""
    store.add_order(evolve(ORDER, state="paid"))
    store.add_refund(Refund(out_refund_no="R1", out_trade_no="T1", total_amt=450, refund_amt=200, fingerprint="f"))
    ended = [store.move_refund("R1", "processing", state) for state in ENDS]

    assert ([True, False], 200) == (ended, store.refunded("T1"))


def test_nonces_are_unique_per_merchant(store: Store) -> None:
    """Another merchant may use the same nonce."""
    assert [True, False, True] == [store.burn(merchant, "n1") for merchant in ("M1", "M1", "M2")]


def test_subscription_has_one_next_state(store: Store) -> None:
    """Of two who saw the same subscription, the first changes it."""
    planned = SUBSCRIPTION
    store.add_subscription(planned)
    cancelled = evolve(planned, state="cancelled")

    assert planned == store.subscription("S1")
    assert (True, False) == (
        store.move_subscription(planned, cancelled),
        store.move_subscription(planned, evolve(planned, state="active")),
    )


def test_file_keeps_everything(tmp_path: Path) -> None:
    """A store that is opened again holds what it held."""
    path = str(tmp_path / "sandbox.db")
    first = Store(path)
    first.add_order(ORDER)
    first.close()
    second = Store(path)
    found = second.order("T1")
    second.close()

    assert ORDER == found


def test_keys_are_drawn_once(store: Store) -> None:
    """A key that is kept is not drawn again; each name has its own."""
    drawn = iter("abc")

    assert ["a", "a", "b", "a"] == [store.kept(name, lambda: next(drawn)) for name in ("x", "x", "y", "x")]


def test_call_that_cannot_be_recorded(store: Store) -> None:
    """On a full disk the record of a call is lost, and no more than that: what it reports was done."""
    call = Answered(operation="orders.place", status=200, code="OK")
    set_writable(store, writable=False)
    store.add_call(call)
    set_writable(store, writable=True)
    lost = store.calls(None)
    store.add_call(call)

    assert ([], [call]) == (lost, store.calls(None))


def test_one_charge_to_a_period(store: Store) -> None:
    """A period is billed once, whoever tries."""
    store.add_subscription(SUBSCRIPTION)
    charge = Charge(subscription_id="S1", period=1, at=datetime(2027, 1, 31, tzinfo=UTC), amount=9, paid=True)
    store.add_charge(charge)
    with pytest.raises(sqlite3.IntegrityError):
        store.add_charge(charge)

    assert [charge] == store.charges("S1")
