import hashlib
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.journal.postgres_journal import SCHEMA as POSTGRES_JOURNAL
from payasync.journal.sqlite_journal import SCHEMA as SQLITE_JOURNAL
from payasync.journal.sqlite_journal import SqliteJournal
from payasync.notifications.postgres_inbox import SCHEMA as POSTGRES_INBOX
from payasync.notifications.sqlite_inbox import SCHEMA as SQLITE_INBOX
from payasync.storage import Schema
from payasync.storage.sqlite import SqliteFile

FIRST: Final = {
    "journal in SQLite": (SQLITE_JOURNAL, "7a983e90b21fe05a"),
    "journal in PostgreSQL": (POSTGRES_JOURNAL, "00fcf822ed782ed8"),
    "inbox in SQLite": (SQLITE_INBOX, "2679d90f0009cd44"),
    "inbox in PostgreSQL": (POSTGRES_INBOX, "4b663be3bf02126c"),
}
INTENT: Final = """
INSERT INTO payasync_intents (operation, merchant, hash, request, queued, state, created, updated)
VALUES ('payments.create', 'M1', 'a', '{}', FALSE, 'manual', 0, 0)"""


@pytest.mark.parametrize(("schema", "digest"), FIRST.values(), ids=FIRST)
def test_script_that_has_made_stores_is_never_changed(schema: Schema, digest: str) -> None:
    """A store that exists takes only further scripts, so a new column needs a script of its own."""
    assert digest == hashlib.sha256(schema.migrations[0].encode()).hexdigest()[:16]


async def test_journal_of_an_earlier_payasync_keeps_its_intents(tmp_path: Path) -> None:
    """A journal file that an earlier payasync made is migrated at the first use, and its writes can be resolved."""
    file: SqliteFile = SqliteFile(tmp_path / "pay.db", evolve(SQLITE_JOURNAL, migrations=SQLITE_JOURNAL.migrations[:1]))
    await file.run(lambda db: db.execute(INTENT).rowcount)
    await file.aclose()

    async with SqliteJournal(tmp_path / "pay.db") as journal:
        await journal.resolve(1, as_="rejected", reason="looked up")
        found: Any = await journal.get(1)

    assert ("rejected", None) == (found.state, found.idempotency_key)
