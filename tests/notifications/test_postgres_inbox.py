import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from payasync.credentials import Secret
from payasync.notifications import Added, Claim, PostgresInbox
from payasync.notifications.inbox import ENDS, SQL
from payasync.notifications.postgres_inbox import SCHEMA
from payasync.storage.postgres import to_psycopg
from tests.inside import until
from tests.journal.building import LEASE, START, Clock
from tests.notifications.inbox_building import received
from tests.plans import Plan, dearer, plan

AT_ONCE: Final = 8
LONGEST: Final = (timedelta(seconds=LEASE), timedelta(seconds=30), timedelta(seconds=30))


@asynccontextmanager
async def several(dsn: str, clock: Clock) -> AsyncGenerator[list[PostgresInbox]]:
    """Return four inboxes on one database, as several web workers have them."""
    inboxes = [PostgresInbox(dsn, clock=clock) for _ in range(4)]
    await asyncio.gather(*(inbox.next_due() for inbox in inboxes))
    yield inboxes
    await asyncio.gather(*(inbox.aclose() for inbox in inboxes))


def test_inbox_says_where_it_is_without_the_password() -> None:
    """An inbox's `repr` shows the host, the database and the user, but not the password."""
    dsn = "postgresql://shop:letmein@db.example/pay"
    shown = "PostgresInbox('host=db.example dbname=pay user=shop')"

    assert [shown, shown] == [repr(PostgresInbox(dsn)), repr(PostgresInbox(Secret(dsn)))]


async def test_concurrent_bodies_are_a_conflict(postgres_dsn: str, clock: Clock) -> None:
    """If two bodies with one key are added together, one of them is the event, and the other a conflict."""
    async with several(postgres_dsn, clock) as inboxes:
        added = [
            await asyncio.gather(
                *(each.add(received(str(key), body)) for each, body in zip(inboxes, "abab", strict=True))
            )
            for key in range(AT_ONCE)
        ]

    assert {(1, 1, 2)} == {
        tuple(each.count(kind) for kind in (Added.NEW, Added.CONFLICT, Added.AGAIN)) for each in added
    }


async def test_keys_are_stored_in_each_encoding(postgres_database: str, clock: Clock) -> None:
    """In a database of any encoding that payasync supports, keys and facts may have any characters."""
    name, facts = f"{conninfo_to_dict(postgres_database)['dbname']}_ascii", {"fact": "payment:\u8ba2\u5355:paid"}
    event = received('payment:["\u8ba2\u5355"]', verified=True, **facts)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        made: Any = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(made)
    try:
        async with several(make_conninfo(postgres_database, dbname=name), clock) as (inbox, *_):
            added = [await inbox.add(event) for _ in range(2)]
            (claim,) = await inbox.claim(1, LEASE)
            await inbox.finish(claim, "done", handler="credit")
            clock.advance(3600)
            forgotten = await inbox.forget(clock.now)
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            dropped: Any = f"DROP DATABASE {name} WITH (FORCE)"
            connection.execute(dropped)

    assert ([Added.NEW, Added.AGAIN], 1) == (added, forgotten)


async def test_concurrent_replays_of_one_key_replay_one_event(postgres_dsn: str, clock: Clock) -> None:
    """If several workers replay the events of a key together, one event is dispatched."""
    async with several(postgres_dsn, clock) as inboxes:
        replayed = list[int]()
        for key in range(AT_ONCE):
            for digest in "abcd":
                await inboxes[0].add(received(str(key), digest))
                (claim,) = await inboxes[0].claim(1, LEASE)
                await inboxes[0].finish(claim, "held")
            together = (each.replay(4 * key + number) for number, each in enumerate(inboxes, start=1))
            replayed.append(sum(await asyncio.gather(*together)))
            for claim in await inboxes[0].claim(4, LEASE):
                await inboxes[0].finish(claim, "dead")

    assert [1] * AT_ONCE == replayed


async def test_confirmed_key_is_one_events(postgres_dsn: str, clock: Clock) -> None:
    """If several workers confirm hints with the same key together, only one event gets the key."""
    async with several(postgres_dsn, clock) as inboxes:
        for number in range(AT_ONCE):
            for each in inboxes:
                await each.add(received(f"{number} {id(each)}"))
            claims = [(await each.claim(1, LEASE))[0] for each in inboxes]
            owned = await asyncio.gather(
                *(each.own(claim, f"confirmed {number}") for each, claim in zip(inboxes, claims, strict=True))
            )

            assert [False, False, False, True] == sorted(owned)


async def test_concurrent_claims_lease_each_event_once(postgres_dsn: str, clock: Clock) -> None:
    """If many dispatchers claim together, each event is leased once."""
    async with several(postgres_dsn, clock) as inboxes:
        for number in range(AT_ONCE):
            await inboxes[0].add(received(str(number)))
        shares = await asyncio.gather(*(each.claim(3, LEASE) for each in inboxes * AT_ONCE))

    assert list(range(1, AT_ONCE + 1)) == sorted(claim.event.id for share in shares for claim in share)
    assert {1} == {claim.event.attempts for share in shares for claim in share}


async def test_claim_skips_locked_events(postgres_dsn: str, clock: Clock) -> None:
    """`claim` skips rows that another transaction has locked."""
    async with several(postgres_dsn, clock) as (inbox, *_):
        await inbox.add(received("a"))
        await inbox.add(received("b"))
        with psycopg.connect(postgres_dsn) as other:
            other.execute("SELECT * FROM payasync_events WHERE key = 'a' FOR UPDATE")
            claimed = await inbox.claim(10, LEASE)

    assert ["b"] == [claim.event.key for claim in claimed]


async def test_confirmed_event_sees_what_is_being_leased(postgres_dsn: str, clock: Clock) -> None:
    """Two claims at once do not see each other. A confirmed event waits for the other one, and looks again."""
    async with (
        several(postgres_dsn, clock) as (inbox, *_),
        await psycopg.AsyncConnection.connect(postgres_dsn) as other,
    ):
        await inbox.add(received("hint:1"))
        (hint,) = await inbox.claim(1, LEASE)
        await inbox.add(received("webhook:1", verified=True, fact="payment:paid:T1"))
        await other.execute("UPDATE payasync_events SET state = 'leased' WHERE id = 2")

        async def confirm() -> Claim:
            await inbox.own(hint, "confirmed:1", fact="payment:paid:T1")
            return await inbox.read(hint)

        confirming = asyncio.create_task(confirm())
        with psycopg.connect(postgres_dsn, autocommit=True) as third:
            await until(lambda: confirming.done() or third.execute(BLOCKED).fetchone() is not None)
        await other.commit()
        found = await confirming

    assert [None] == list(found.known)


async def test_time_is_the_servers(postgres_dsn: str) -> None:
    """Without a `clock`, leases and waits count from the PostgreSQL server's time."""
    inbox, waits = PostgresInbox(postgres_dsn), list[timedelta]()

    def wait() -> timedelta:
        with psycopg.connect(postgres_dsn) as other:
            ((found,),) = other.execute("SELECT due - clock_timestamp() FROM payasync_events").fetchall()
        return timedelta(seconds=found.total_seconds())

    await inbox.add(received())
    (claim,) = await inbox.claim(1, LEASE)
    waits.append(wait())
    await inbox.finish(claim, "pending", "later", 30)
    waits += [wait(), timedelta(seconds=await inbox.next_due() or 0)]
    await inbox.aclose()

    assert [True] * 3 == [timedelta(0) < found <= longest for found, longest in zip(waits, LONGEST, strict=True)]


async def test_zeros_are_stored_as_escapes(postgres_dsn: str, clock: Clock) -> None:
    """The inbox stores a NUL in a key or an event's name as its escape, and recognises the redelivery."""
    async with several(postgres_dsn, clock) as (inbox, *_):
        added = await inbox.add(received("a\0", headers={"date": "\0"}, event="\0", raw=b"\0"))
        again = await inbox.add(received("a\0"))
        (event,) = await inbox.events()

    assert (Added.NEW, Added.AGAIN) == (added, again)
    assert ("a\\x00", {"date": "\0"}, "\\x00", b"\0") == (event.key, event.headers, event.event, event.raw)


FILL: Final = """
INSERT INTO payasync_events
    (key, digest, weak, verified, raw, headers, received_at, state, due, since, fact)
SELECT 'key ' || n, 'd', false, true, '{}', '{}', %(now)s,
    CASE n %% 10 WHEN 0 THEN 'pending' WHEN 1 THEN 'held' ELSE 'done' END,
    CASE n %% 10 WHEN 0 THEN %(now)s END, %(now)s, 'payment:paid:' || n
FROM generate_series(%(first)s::int, %(last)s::int) AS n"""
BLOCKED: Final = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
FILL_FACTS: Final = """
INSERT INTO payasync_facts
SELECT fact, 'h', true, false, %(now)s + interval '1 day' * (id > 100)::int FROM payasync_events
ON CONFLICT DO NOTHING"""
VALUES: Final[dict[str, Any]] = {
    **dict.fromkeys(("now", "until", "received_at", "due", "ahead"), START),
    **dict.fromkeys(("weak", "verified", "lasting"), False),
    **dict.fromkeys(("unless_done", "only"), True),
    **dict.fromkeys(("fence", "waited"), 0),
    **dict.fromkeys(("failed", "sends"), 1),
    **dict.fromkeys(("raw", "nothing"), b""),
    **dict.fromkeys(("event", "event_time"), None),
    **dict.fromkeys(("name", "handler", "reason", "kind", "digest"), "h"),
    "before": START + timedelta(seconds=1),
    "pause": timedelta(0),
    "limit": 10,
    "after": 100,
    "state": "pending",
    "headers": "{}",
    "id": 7,
    "ids": "[7]",
    "key": "key 7",
    "fact": "payment:paid:7",
    "facts": '["payment:paid:7"]',
    "others": '["key 8"]',
}


@pytest.mark.long
async def test_size_costs_nothing(postgres_dsn: str, clock: Clock) -> None:
    """With 50,000 events, no statement's query plan costs much more than with 1,000."""
    found = list[dict[str, Plan]]()
    async with (
        several(postgres_dsn, clock),
        await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as connection,
    ):
        for first, last in ((1, 1000), (1001, 50_000)):
            await connection.execute(FILL, {"first": first, "last": last, "now": START})
            await connection.execute(FILL_FACTS, {"now": START})
            await connection.execute("VACUUM ANALYZE payasync_events, payasync_facts")
            plans = [
                (name.upper(), text, VALUES)
                for name, text in SQL.items()
                if "WHERE" in text and name != "mark_in_sqlite"
            ]
            plans += [(state, SQL["events_of_state"], {**VALUES, "state": state}) for state in ENDS]
            found.append(
                {name: await plan(connection, to_psycopg(text, SCHEMA.adapt), values) for name, text, values in plans}
            )

    assert {"DUE", "FORGET", "SAME_KEY", "done", "held"} < found[0].keys()
    assert {} == dearer(*found)
