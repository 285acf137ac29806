"""docs/: SQL runs as the pages say, on tables that a journal and a receiver have made."""

import re
import sqlite3
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from payasync import Credentials, PlaceOrder, StorageError
from payasync.journal import Journal, PostgresJournal, SqliteJournal
from payasync.notifications import Inbox, Notification, PostgresInbox, Receiver, SqliteInbox
from payasync.sandbox import PROFILE, Sandbox
from payasync.testing import Signed, sign_notification
from tests.sandbox.test_exchanges import run_bash
from tests.test_readme import blocks

GUIDES: Final = Path(__file__).parents[1] / "docs" / "how-to"
RUN: Final = {"going-live", "journal", "notifications", "rotate-keys", "procrastinate"}
"""The pages whose SQL a test runs. tests/storage/test_way_back.py runs that of going-live.md, and
tests/integrations/test_tasks_docs.py that of procrastinate.md."""
CREDENTIALS: Final = Credentials("M1", notification_keys="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
ROLES: Final = re.compile(r"\b(shop(?:_b)?)\b")


def sign_payment() -> Signed:
    """Return a notification that is signed now, because a test may begin minutes after it was collected."""
    data = {"outTradeNo": "T1", "status": "SBX_PAID"}
    return sign_notification(data, profile=PROFILE, credentials=CREDENTIALS, kind="payment")


def sql_of(name: str) -> str:
    """Return the SQL of a page."""
    return "".join(text for _, text in blocks((GUIDES / f"{name}.md").read_text(encoding="utf-8"), "sql"))


MARKS, ENDING = (text for _, text in blocks((GUIDES / "notifications.md").read_text(encoding="utf-8"), "sql"))
"""The SQL of the guide to notifications: the table of marks, and how a person ends an event."""


class Roles:
    """The roles of the pages, under names that no other test uses.

    Args:
        dsn: Of the owner of the database.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._suffix = conninfo_to_dict(dsn)["dbname"]

    def execute(self, statements: str) -> None:
        """Execute SQL of a page as the owner of the database."""
        with psycopg.connect(self._dsn, autocommit=True) as owner:
            owner.execute(ROLES.sub(rf"\1_of_{self._suffix}", statements).encode())

    def dsn(self, role: str) -> str:
        """Return the connection string of a role."""
        return make_conninfo(self._dsn, user=f"{role}_of_{self._suffix}")


@pytest.fixture
def roles(postgres_dsn: str) -> Generator[Roles]:
    """The role `shop`, which may use the schema."""
    roles = Roles(postgres_dsn)
    roles.execute("CREATE ROLE shop LOGIN; GRANT USAGE ON SCHEMA public TO shop")
    try:
        yield roles
    finally:
        roles.execute("DROP ROLE IF EXISTS shop_b; DROP OWNED BY shop; DROP ROLE shop")


async def refund(journal: Journal, number: str, *, prune: bool = True) -> str | None:
    """Make a refund with a journal, forget it there, and return its state."""
    async with Sandbox() as sandbox, journal, sandbox.session(journal=journal) as pay:
        order = await sandbox.given.paid_order(total_amt=450)
        response = await pay.refunds.create(out_trade_no=order, out_refund_no=number, total_amt=450, refund_amt=200)
        if prune:
            assert 1 == await journal.prune(datetime.now(UTC) + timedelta(minutes=1))
        return response.state


async def test_backup_of_a_journal(tmp_path: Path) -> None:
    """The command of the guide copies a journal that is in use, and only the owner can read the copy."""
    page = (GUIDES / "journal.md").read_text(encoding="utf-8")
    ((_, command),) = [block for block in blocks(page, "bash") if "backup" in block[1]]
    for shown, used in (
        ("/opt/shop/bin/python", sys.executable),
        ("/var/lib/shop/pay.db", tmp_path / "pay.db"),
        ("/var/backups/pay.db", tmp_path / "copy.db"),
    ):
        assert shown in command
        command = command.replace(shown, str(used))
    async with SqliteJournal(tmp_path / "pay.db") as journal:
        await journal.add(PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD"), merchant="M1")
        await run_bash(command)
    async with SqliteJournal(tmp_path / "copy.db") as copy:
        stored = [each.reference for each in await copy.list()]

    assert (["T1"], 0o600) == (stored, stat.S_IMODE((tmp_path / "copy.db").stat().st_mode))


def test_every_page_with_sql_is_tested() -> None:
    """No page has SQL that no test runs."""
    assert {page.stem for page in GUIDES.parent.rglob("*.md") if blocks(page.read_text(encoding="utf-8"), "sql")} == RUN


async def make_tables(dsn: str) -> None:
    """Use a journal and an inbox once, as the owner of the database."""
    async with PostgresJournal(dsn) as journal, aclosing(PostgresInbox(dsn)) as inbox:
        await journal.list()
        await inbox.next_due()


async def test_rights_on_a_journal(postgres_dsn: str, roles: Roles) -> None:
    """A role with the rights of the guide writes in a journal whose tables the owner has made, and deletes nothing."""
    await make_tables(postgres_dsn)
    roles.execute(sql_of("journal"))

    assert "succeeded" == await refund(PostgresJournal(roles.dsn("shop")), "R1", prune=False)
    async with PostgresJournal(roles.dsn("shop")) as journal:
        with pytest.raises(StorageError, match="permission denied for table payasync_intents"):
            await journal.prune(datetime.now(UTC) + timedelta(minutes=1))


async def test_rights_on_an_inbox(postgres_dsn: str, roles: Roles) -> None:
    """A role with the rights of the guide handles and forgets an event in an inbox whose tables the owner has made."""
    await make_tables(postgres_dsn)
    roles.execute(sql_of("journal"))
    handled = list[str | None]()

    async with Receiver(inbox=PostgresInbox(roles.dsn("shop")), profile=PROFILE, credentials=CREDENTIALS) as receiver:

        @receiver.on("payment")
        async def paid(notification: Notification) -> None:
            handled.append(notification.out_trade_no)

        notified = sign_payment()
        await receiver.receive(notified.raw, notified.headers, kind="payment")
        await receiver.settle()
    async with aclosing(PostgresInbox(roles.dsn("shop"))) as inbox:
        forgotten = await inbox.forget(datetime.now(UTC) + timedelta(minutes=1))

    assert (["T1"], 1) == (handled, forgotten)


async def test_second_role_of_a_journal(roles: Roles) -> None:
    """While two roles take turns as the guide says, one can always use the journal."""
    page = (GUIDES / "rotate-keys.md").read_text(encoding="utf-8")
    new_password, lock, unlock = re.findall(r"`(ALTER ROLE [^`]*;)`", page)
    roles.execute("GRANT CREATE ON SCHEMA public TO shop")
    states = [await refund(PostgresJournal(roles.dsn("shop")), "R1")]
    roles.execute(new_password)
    roles.execute(sql_of("rotate-keys"))
    states.append(await refund(PostgresJournal(roles.dsn("shop_b")), "R2"))
    roles.execute(lock)
    with pytest.raises(StorageError):
        await refund(PostgresJournal(roles.dsn("shop")), "R3")
    states.append(await refund(PostgresJournal(roles.dsn("shop_b")), "R4"))
    roles.execute(unlock)
    states.append(await refund(PostgresJournal(roles.dsn("shop")), "R5"))

    assert ["succeeded"] * 4 == states


async def handle_twice(begin: Callable[[], Any], *inboxes: Inbox) -> list[str | None]:
    """Receive a notification in two inboxes, so that only the mark in a database shows that it was handled."""
    handled, notified = list[str | None](), sign_payment()

    async def credited(notification: Notification, _db: object) -> None:
        handled.append(notification.out_trade_no)

    for each in inboxes:
        async with Receiver(inbox=each, profile=PROFILE, credentials=CREDENTIALS) as receiver:
            receiver.on("payment", transaction=begin)(credited)
            await receiver.receive(notified.raw, notified.headers, kind="payment")
            await receiver.settle()
    return handled


async def test_rights_on_the_marks_of_handlers(postgres_dsn: str, roles: Roles, tmp_path: Path) -> None:
    """In PostgreSQL, a role with the rights of the guide marks what it has handled in the table of the guide."""
    roles.execute(MARKS)

    @asynccontextmanager
    async def begin() -> AsyncGenerator[psycopg.AsyncConnection]:
        async with await psycopg.AsyncConnection.connect(roles.dsn("shop")) as db:
            yield db

    assert ["T1"] == await handle_twice(begin, PostgresInbox(postgres_dsn), SqliteInbox(tmp_path / "inbox.db"))


async def test_marks_of_handlers_in_sqlite(tmp_path: Path) -> None:
    """SQLite takes the table of the guide, too; it has no roles."""
    table, _, _ = MARKS.partition("\n")

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
            yield db

    with begin() as db:
        db.execute(table)

    assert ["T1"] == await handle_twice(begin, SqliteInbox(tmp_path / "1.db"), SqliteInbox(tmp_path / "2.db"))


async def end_held(inbox: Inbox, execute: Callable[[str], object]) -> tuple[list[str], int]:
    """Have an event held, end it with the statement of the guide, and receive it again.

    Return the reasons of the events that are done then, and how many events a receiver deletes later.
    """
    notified = sign_payment()
    async with Receiver(inbox=inbox, profile=PROFILE, credentials=CREDENTIALS, expect=lambda _: None) as receiver:

        @receiver.on("payment")
        async def paid(_: Notification) -> None:
            raise AssertionError("nobody expects this event")

        await receiver.receive(notified.raw, notified.headers, kind="payment")
        await receiver.settle()
        (held,) = await receiver.events("held")
        execute(ENDING.replace("17", str(held.id)))
        await receiver.receive(notified.raw, notified.headers, kind="payment")
        await receiver.settle()
        reasons = [f"{each.state}: {each.reason}" for each in await receiver.events()]
        return reasons, await inbox.forget(datetime.now(UTC) + timedelta(minutes=1))


ENDED: Final = (["done: ended by a person"], 1)


async def test_person_ends_an_event_in_postgres(postgres_dsn: str, roles: Roles) -> None:
    """In PostgreSQL, a person ends a held event as the guide says: a redelivery is recognised, and it is deleted."""
    assert ENDED == await end_held(PostgresInbox(postgres_dsn), roles.execute)


async def test_person_ends_an_event_in_sqlite(tmp_path: Path) -> None:
    """In SQLite, the same statement ends an event in the table that the guide names."""

    def execute(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "inbox.db")) as db, db:
            db.execute(statement.replace("payasync_events", "events"))

    assert "In SQLite, the table is `events`." in (GUIDES / "notifications.md").read_text(encoding="utf-8")
    assert ENDED == await end_held(SqliteInbox(tmp_path / "inbox.db"), execute)
