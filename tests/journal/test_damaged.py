"""Damaged rows: each is an error of its own, stops no other row, and moves no money."""

import json
import math
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from payasync import InvalidArgumentError, OutcomeUnknownError, RetryPolicy, Session
from payasync.clocks import Pace
from payasync.journal import Journal, Outcome, Reconciler, Report, SqliteJournal
from payasync.journal.intents import Step
from payasync.sandbox import Sandbox
from tests.journal.building import LEASE, Clock, draft, only, refund
from tests.journal.conftest import both_stores

Damage = Callable[..., Callable[[], object]]

ONCE: Final = RetryPolicy(attempts=1, quota=0)
BOMB: Final = '{"a":' + "[" * 3000 + "]" * 3000 + "}"
"""JSON so deep that Python cannot read it."""
DIGITS: Final = f'{{"a":{"9" * 5000}}}'
"""An integer so long that Python does not read it."""
INVALID: Final = b"\xff"
"""No text in UTF-8."""
BOTH: Final[list[tuple[str, object]]] = [
    *(("request", each) for each in (BOMB, DIGITS, "[]", "450", "null", '{"extra": []}', '{"refund_amt": 450e999}')),
    ("named", "[1]"),
    *(("outcome", each) for each in ("{bad", "[]", '{"status": "x", "body": "", "headers": {}}')),
    ("outcome", '{"status": 200, "body": "", "headers": []}'),
    ("outcome", '{"status": 200, "body": 5, "headers": {}}'),
    ("outcome", '{"status": 200, "body": "", "headers": {}, "verified": []}'),
    *(("tick", each) for each in ("now", "a nan", "a b c")),
    ("key_tick", "a 1e300"),
    ("reference", "R9"),
    ("number", "refunds.create:R9"),
    ("number", None),
]
SQLITE: Final[list[tuple[str, object]]] = [
    *BOTH,
    *((each, INVALID) for each in ("request", "reason", "outcome")),
    ("request", "{bad"),
    ("named", "{bad"),
    ("state", "odd"),
    ("updated", math.inf),
    ("due", -math.inf),
    ("created", 1e12),
]
POSTGRES: Final[list[tuple[str, object]]] = [
    *BOTH,
    ("updated", "infinity"),
    ("due", "-infinity"),
]


@pytest.fixture
async def journal(store: Journal) -> Journal:
    """An empty journal, whose tables are made."""
    await store.list()
    return store


@pytest.fixture
def damage(request: pytest.FixtureRequest, path: Path, journal: Journal) -> Damage:
    """Return a function that changes columns of the first intent in the table, and returns one that restores them."""

    def in_sqlite(**values: object) -> Callable[[], object]:
        with closing(sqlite3.connect(path)) as db, db:
            db.text_factory = bytes
            db.execute("PRAGMA ignore_check_constraints = 1")
            (before,) = db.execute(f"SELECT {', '.join(values)} FROM payasync_intents WHERE id = 1")  # noqa: S608
            for name, value in values.items():
                new = "CAST(? AS text)" if isinstance(value, bytes) else "?"
                db.execute(f"UPDATE payasync_intents SET {name} = {new} WHERE id = 1", (value,))  # noqa: S608
        return partial(in_sqlite, **dict(zip(values, before, strict=True)))

    def in_postgres(**values: object) -> Callable[[], object]:
        texts = ", ".join(f"{name}::text" for name in values)
        with psycopg.connect(request.getfixturevalue("postgres_dsn")) as db:
            (before,) = db.execute(f"SELECT {texts} FROM payasync_intents WHERE id = 1".encode())  # noqa: S608
            for name, value in values.items():
                db.execute(f"UPDATE payasync_intents SET {name} = %s WHERE id = 1".encode(), (value,))  # noqa: S608
        return partial(in_postgres, **dict(zip(values, before, strict=True)))

    return in_sqlite if isinstance(journal, SqliteJournal) else in_postgres


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order."""
    async with Sandbox(clock="frozen") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        yield sandbox


@pytest.fixture
async def pay(sandbox: Sandbox, journal: Journal) -> AsyncIterator[Session]:
    """A session that leaves unknown writes to the reconciler."""
    async with sandbox.session(journal=journal, retry=ONCE) as pay:
        yield pay


@both_stores
async def test_damaged_row_is_one_error(journal: Journal, damage: Damage, clock: Clock) -> None:
    """Whatever stands in a row, the others are listed, counted and claimed; the damaged one names its id."""
    for number in ("R1", "R2"):
        begun = await journal.begin(draft(refund(number)), LEASE)
        await journal.settle(begun.intent, "unknown", outcome=Outcome(status=503))
    intact, _ = await journal.list()
    for case in SQLITE if isinstance(journal, SqliteJournal) else POSTGRES:
        restore = damage(**dict([case]))
        first, second = await journal.list()
        by_id, counted = await journal.get(1), await journal.backlog()
        asked = await journal.ask(2, LEASE)
        restore()
        clock.advance(LEASE)

        assert [first, ""] == [by_id, second.damaged], case
        assert first.damaged.startswith("row 1 "), case
        assert first.damaged == first.reason
        assert [1, 2] == [first.id, second.id]
        assert 2 >= counted.counts["unknown"] >= 1, case
        assert {2} <= {each.id for each in asked}, case
    restored, _ = await journal.list()
    assert intact.request == restored.request


@both_stores
async def test_damaged_write_is_not_sent_or_ended(
    sandbox: Sandbox, pay: Session, journal: Journal, damage: Damage
) -> None:
    """Whoever repeats, adds, claims or reports a write whose row is damaged sends nothing, and changes nothing."""
    request = refund(extra={"currency": "CAD"})
    number = await journal.add(request, merchant=pay.merchant_id)
    begun = await journal.claim(number, LEASE)
    await journal.settle(begun.intent, "unknown")
    (held,) = await journal.ask(1, LEASE)
    damage(request="[]")
    before = await only(journal)
    for again in (pay.send(request), journal.add(request, merchant=pay.merchant_id)):
        with pytest.raises(
            OutcomeUnknownError, match=r"row 1 cannot be read: damaged in request; nothing was sent"
        ) as caught:
            await again
        assert number == caught.value.intent_id
    steps = [(await journal.claim(number, LEASE, fence=fence)).step for fence in (held.fence, None)]
    data = {"outTradeNo": "T1", "outRefundNo": "R1", "refundAmt": 450}
    ended = await journal.told("refunds.create", "R1", "succeeded", data, merchant=pay.merchant_id)

    assert ([Step.ASK] * 2, [], []) == (steps, ended, sandbox.ledger.calls("refunds.create"))
    assert before == await only(journal)


@both_stores
async def test_changed_amount_of_a_queued_write_is_not_sent(
    sandbox: Sandbox, pay: Session, journal: Journal, damage: Damage
) -> None:
    """A queued write that was changed since is not sent: it becomes *manual*, and each worker gets an error."""
    number = await journal.add(refund(refund_amt=2), merchant=pay.merchant_id)
    damage(request=request_with(refund_amt=450))
    with pytest.raises(InvalidArgumentError, match="does not match its hash or its number; nothing was sent"):
        await pay.execute(number)
    after = await only(journal)
    with pytest.raises(OutcomeUnknownError, match="is manual: row 1 was changed"):
        await pay.execute(number)
    ended = await journal.resolve(1, as_="rejected", reason="seen")

    assert [] == sandbox.ledger.calls("refunds.create")
    assert ("manual", "row 1 was changed or damaged: its request does not match its hash or its number") == (
        after.state,
        after.reason,
    )
    assert ("rejected", "seen", "") == (ended.state, ended.reason, ended.damaged)


@both_stores
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operation": "refunds.newer"}, "this version of payasync cannot read it"),
        ({"request": {"newer": 1}}, "this version of payasync cannot read it"),
        ({"request": {"refund_desc": 5}}, "refund_desc must be"),
    ],
    ids=str,
)
async def test_queued_write_that_cannot_be_made_is_noted(
    sandbox: Sandbox, journal: Journal, damage: Damage, change: dict[str, Any], words: str
) -> None:
    """If a queued request cannot be made from its row, `execute` raises an error of ours, and stores the reason."""
    number = await journal.add(refund(), merchant=sandbox.credentials.merchant_id)
    damage(**{each: request_with(**value) if each == "request" else value for each, value in change.items()})
    async with sandbox.session(journal=journal) as pay:
        with pytest.raises(InvalidArgumentError, match=words):
            await pay.execute(number)
    after = await only(journal)

    assert [] == sandbox.ledger.calls("refunds.create")
    assert ("new", "") == (after.state, after.damaged)
    assert words in after.reason


@both_stores
@pytest.mark.parametrize(
    "change", [{"request": "[]"}, {"tick": "now"}, {"reference": "R9"}, {"reference": "", "number": None}], ids=str
)
async def test_reconciler_leaves_a_damaged_row_to_a_person(
    sandbox: Sandbox, journal: Journal, damage: Damage, clock: Clock, change: dict[str, Any]
) -> None:
    """A damaged row becomes *manual* in its first run, though it is the first that is due, and the others are asked."""
    async with sandbox.session(journal=journal, retry=ONCE) as pay:
        for number in ("R1", "R2"):
            sandbox.faults.reset_after_commit("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await pay.send(refund(number, refund_amt=100))
            clock.advance(1)
        damage(**change)
        reconciler = Reconciler(pay, journal, concurrency=1, pace=Pace(clock=clock))
        reports = [await reconciler.run_once(), await reconciler.run_once()]

    assert [Report(manual=1, resolved=1), Report()] == reports
    assert ["manual", "succeeded"] == [each.state for each in await journal.list()]
    assert [1] == [each.id for each in await reconciler.manual()]


def request_with(**changes: object) -> str:
    """Return the request of a refund as a row has it, with changes."""
    return json.dumps({**draft().request, **changes})
