import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import product
from typing import Any, Final

import psycopg
import pytest
from attrs import evolve

from benchmarks import statements as listed
from payasync.credentials import Hidden, Secret
from payasync.errors import ConfigurationError, IntentConflictError, StorageError
from payasync.journal import PostgresJournal, transactions
from payasync.journal.intents import BeginResult, Step
from payasync.journal.postgres_journal import SCHEMA
from payasync.storage.postgres import Database, to_psycopg
from tests.journal.building import LEASE, MERCHANT, SERVICE, START, Clock, draft, refund
from tests.plans import Plan, dearer, plan
from tests.postgres import database
from tests.works import asking

AT_ONCE: Final = 20


@pytest.fixture
async def journal(postgres_dsn: str, clock: Clock) -> AsyncGenerator[PostgresJournal]:
    """An empty journal."""
    async with PostgresJournal(postgres_dsn, clock=clock) as journal:
        yield journal


@asynccontextmanager
async def several(dsn: str, clock: Clock) -> AsyncGenerator[list[PostgresJournal]]:
    """Return four journals on one database, as several workers have them."""
    journals = [PostgresJournal(dsn, clock=clock) for _ in range(4)]
    await asyncio.gather(*(journal.next_due() for journal in journals))
    yield journals
    await asyncio.gather(*(journal.aclose() for journal in journals))


async def references(journal: PostgresJournal) -> list[str | None]:
    """Return the references of the intents."""
    return [each.reference for each in await journal.list()]


def test_journal_says_where_it_is_without_the_password() -> None:
    """A journal's `repr` shows the host, the database and the user, but not the password."""
    dsn = "postgresql://shop:letmein@db.example/pay"
    shown = "PostgresJournal('host=db.example dbname=pay user=shop')"

    assert [shown, shown] == [repr(PostgresJournal(dsn)), repr(PostgresJournal(Secret(dsn)))]


async def test_keys_that_cross_together_are_one_intention(postgres_dsn: str, clock: Clock) -> None:
    """If four workers begin a write by its number, its intent key or both, only one of them sends it."""
    async with several(postgres_dsn, clock) as journals:
        for number in range(AT_ONCE):
            one = refund(f"R{number}")
            drafts = [draft(one), draft(one, intent="x" * number or None), draft(one, intent="x" * number or None)]
            begun = await asyncio.gather(
                *(each.begin(what, LEASE) for each, what in zip(journals, drafts, strict=False)),
                journals[3].add(one, merchant=MERCHANT),
            )
            steps = [each.step for each in begun if isinstance(each, BeginResult)]
            assert 1 == steps.count(Step.SEND)
            assert {Step.SEND, Step.WAIT} >= set(steps)
        kept = await journals[0].list()

    assert AT_ONCE == len(kept)


async def test_write_needs_two_statements(journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new write is begun with one statement, and settled with one. Neither needs a transaction of its own."""
    await journal.bind(MERCHANT, SERVICE)
    # A transaction of its own takes a `BEGIN` of its own.
    monkeypatch.delattr("payasync.storage.postgres.BEGIN")
    begun = await journal.begin(draft(), LEASE, service=SERVICE)
    settled = await journal.settle(begun.intent, "unknown")

    assert (Step.SEND, True) == (begun.step, settled)


async def test_moments_are_of_the_servers_time(postgres_dsn: str) -> None:
    """Without a `clock`, an intent's moments are the server's, and `begin` returns what is stored."""
    async with PostgresJournal(postgres_dsn) as journal, await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await journal.bind(MERCHANT, SERVICE)
        moments: list[Any] = []
        begun = (await journal.begin(evolve(draft(), idempotency_key="k"), LEASE, service=SERVICE)).intent
        stored = await journal.get(begun.id)
        moments += await (await other.execute("SELECT clock_timestamp()")).fetchall()
        await journal.settle(begun, "unknown")
        settled = await journal.get(begun.id)

    assert begun == stored
    assert settled
    assert begun.created < moments[0][0] < settled.updated
    assert begun.created == begun.key_sent
    assert settled.updated == settled.due == settled.sent_at
    assert begun.lease == begun.created + timedelta(seconds=LEASE)
    assert "UTC" == begun.created.tzname()


async def test_locked_key_holds_no_other_write_up(journal: PostgresJournal, postgres_dsn: str) -> None:
    """If another transaction holds a key, writes with other keys go on. The write with that key waits."""
    await journal.bind(MERCHANT, SERVICE)
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await journal.add(refund("R1"), merchant=MERCHANT, connection=other)
        waiting = asyncio.ensure_future(journal.begin(draft(refund("R1")), LEASE, service=SERVICE))
        begun = await asyncio.gather(
            *(journal.begin(draft(refund(f"R{number}")), LEASE, service=SERVICE) for number in (2, 3, 4))
        )
        waits = not waiting.done()
        await other.rollback()

    assert waits
    assert [Step.SEND] * 4 == [each.step for each in (*begun, await waiting)]
    assert ["R1", "R2", "R3", "R4"] == sorted(map(str, await references(journal)))


async def test_asking_does_not_wait_for_who_is_at_it(journal: PostgresJournal, postgres_dsn: str) -> None:
    """`ask` skips rows that another transaction has locked."""
    for number in ("R1", "R2"):
        begun = await journal.begin(draft(refund(number)), LEASE)
        await journal.settle(begun.intent, "unknown")
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT * FROM payasync_intents WHERE reference = 'R1' FOR UPDATE")
        asked = await journal.ask(10, LEASE)

    assert ["R2"] == [each.reference for each in asked]


@pytest.mark.parametrize("autocommit", [False, True])
async def test_added_within_the_callers_transaction(
    journal: PostgresJournal, postgres_dsn: str, *, autocommit: bool
) -> None:
    """`add` with a connection commits or rolls back together with the caller's transaction."""
    async with await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=autocommit) as connection:
        await connection.execute("CREATE TABLE invoices (number text)")
        async with connection.transaction():
            await connection.execute("INSERT INTO invoices VALUES ('1')")
            kept = await journal.add(refund("R1"), merchant=MERCHANT, connection=connection)
            again = await journal.add(refund("R1"), merchant=MERCHANT, connection=connection)
            unseen = await references(journal)
        async with connection.transaction(force_rollback=True):
            await journal.add(refund("R2"), merchant=MERCHANT, connection=connection)

    found = await journal.list()
    assert (kept, []) == (again, unseen if autocommit else [])
    assert [(kept, "R1", "new")] == [(each.id, each.reference, each.state) for each in found]


async def test_conflict_leaves_the_transaction_usable(journal: PostgresJournal, postgres_dsn: str) -> None:
    """If `add` raises `IntentConflictError`, the caller's transaction can go on. In an aborted one, `add` fails.

    Its `StorageError` does not have psycopg's error as its cause.
    """
    await journal.add(refund(), merchant=MERCHANT)
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
        with pytest.raises(IntentConflictError):
            await journal.add(refund(refund_amt=1), merchant=MERCHANT, connection=connection)
        await journal.add(refund("R2"), merchant=MERCHANT, connection=connection)
        await connection.commit()
        with pytest.raises(psycopg.errors.UndefinedTable):
            await connection.execute("SELECT * FROM nowhere")
        with pytest.raises(StorageError, match="current transaction is aborted") as caught:
            await journal.add(refund(), merchant=MERCHANT, connection=connection)

    assert (None, None) == (caught.value.__cause__, caught.value.__context__)
    assert ["R1", "R2"] == await references(journal)


async def test_connection_must_lead_to_the_journal(journal: PostgresJournal, postgres_dsn: str) -> None:
    """If the connection is not psycopg's, is in no transaction, or leads elsewhere, `add` stores nothing."""
    with database(postgres_dsn, "elsewhere") as elsewhere:
        async with PostgresJournal(elsewhere) as another:
            await another.next_due()
        async with (
            await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as by_itself,
            await psycopg.AsyncConnection.connect(elsewhere) as other,
        ):
            for connection, rule in (
                (1, "psycopg's AsyncConnection, not int"),
                (by_itself, "in a transaction"),
                (other, "one to the journal's own database"),
            ):
                with pytest.raises(ConfigurationError, match=f"connection must be {rule}") as caught:
                    await journal.add(refund(), merchant=MERCHANT, connection=connection)

                assert "connection" == caught.value.field

    assert [] == await journal.list()


async def test_columns_of_a_later_payasync_do_no_harm(journal: PostgresJournal, postgres_dsn: str) -> None:
    """If a newer payasync adds a column, an older one can still settle the intents that it began."""
    begun = await journal.begin(draft(), LEASE)
    with psycopg.connect(postgres_dsn) as other:
        other.execute("ALTER TABLE payasync_intents ADD COLUMN later text NOT NULL DEFAULT 'x'")
    settled = await journal.settle(begun.intent, "succeeded")

    assert settled
    assert ["succeeded"] == [each.state for each in await journal.list()]


async def test_what_is_sent_again_is_not_pruned(journal: PostgresJournal, postgres_dsn: str) -> None:
    """If a rejected write is being sent again, `prune` waits for that transaction, and leaves the intent."""
    begun = await journal.begin(draft(), LEASE)
    await journal.settle(begun.intent, "rejected")
    again = to_psycopg(transactions.SQL["send"], SCHEMA.adapt)
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        until = START + timedelta(seconds=LEASE)
        unset = dict.fromkeys(("tick", "named", "key", "key_sent", "key_tick"))
        await other.execute(again.encode(), {"id": 1, "now": START, "until": until, **unset})
        pruning = asyncio.ensure_future(journal.prune(START + timedelta(seconds=1)))
        await blocked(postgres_dsn)
        await other.commit()
    pruned = await pruning

    assert 0 == pruned
    assert ["sending"] == [each.state for each in await journal.list()]


async def blocked(dsn: str) -> None:
    """Wait until a transaction in this database waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with (
        asyncio.timeout(30),
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
    ):
        while not await (await connection.execute(waiting)).fetchall():
            await connection.execute("SELECT pg_sleep(0.01)")


async def test_size_and_other_merchants_cost_nothing(journal: PostgresJournal, postgres_dsn: str) -> None:
    """With 10,000 intents, no statement that finds rows costs much more than with 1,000.

    What a turn for a merchant with few writes executes reads no more beside 10,000 open writes of another.
    """
    cases: dict[Any, Any] = {
        case: listed.CASES[case] for case in listed.CASES.keys() - listed.READING - listed.STOPPING - {"ADD"}
    }
    pairs = product(listed.OF_ONE_MERCHANT, ("M1", "M2"))
    mine: dict[Any, Any] = {(name, merchant): (name, {"merchant": merchant}) for name, merchant in pairs}
    # The regular task of procrastinate lists these. Merchant M2 has none.
    mine["new ones", "M2"] = "LIST_OF_STATE", {"merchant": "M2", "state": "new", "limit": 100}
    await journal.next_due()
    filled = [(1, 1000, "M1"), (1001, listed.BESIDE, "M1"), (1, listed.BESIDE, "M3")]
    found = list[dict[Any, Plan]]()
    async with await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as connection:
        for values in filled:
            await listed.fill_postgres(connection, **listed.values_to_fill(*values))
            plans = dict[Any, Plan]()
            for case, (name, given) in (cases | mine).items():
                known = listed.values_for(name, listed.KINDS) | {"limit": 10} | given
                plans[case] = await plan(connection, listed.of_postgres(name), known)
            found.append(plans)
    few, many, beside = found

    assert {} == dearer(few, many)
    assert not mine.keys() & dearer(few, beside).keys()


async def test_zero_in_a_text_is_no_obstacle(postgres_dsn: str) -> None:
    """A text with a zero, which PostgreSQL's JSON functions refuse, is stored, upgraded and listed as any other."""
    request = evolve(refund("R1"), refund_desc="a\0b", extra={"note": "\0"})
    older = Database(Hidden(postgres_dsn), evolve(SCHEMA, migrations=SCHEMA.migrations[:-1]))
    await older.run(asking("SELECT 1"))
    await older.aclose()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO payasync_intents (operation, merchant, hash, request, queued, state, created, updated) "
            "VALUES ('refunds.create', 'M1', 'a', %s, false, 'succeeded', now(), now())",
            (json.dumps({"refund_desc": "a\0b", "out_trade_no": "T9"}),),
        )
    async with PostgresJournal(postgres_dsn) as journal:
        await journal.add(request, merchant=MERCHANT)
        await journal.add(refund("R2"), merchant=MERCHANT)
        listed = [each.reference for each in await journal.list()]
        of_order = [each.reference for each in await journal.list(order=refund().out_trade_no)]

    assert ([None, "R1", "R2"], ["R2"]) == (listed, of_order)
