"""What an observer sees of a journal and of the writes that leave: in the journal's own file, and at the signature."""

import sqlite3
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from payasync.credentials import Secret
from payasync.journal.intents import Intent
from payasync.signing.schemes import SignatureScheme
from payasync.wire.call import Call

TRIGGERS: Final = """
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE numbered (row INTEGER PRIMARY KEY, id INTEGER);
CREATE TABLE observed (seq INTEGER PRIMARY KEY, id INTEGER, before TEXT, after TEXT);
CREATE TRIGGER kept AFTER INSERT ON payasync_intents BEGIN
    INSERT INTO numbered (id) VALUES (NEW.id);
    INSERT INTO observed (id, before, after) VALUES (NEW.id, '', NEW.state);
END;
CREATE TRIGGER moved AFTER UPDATE ON payasync_intents WHEN OLD.state <> NEW.state BEGIN
    INSERT INTO observed (id, before, after) VALUES (NEW.id, OLD.state, NEW.state);
END;
CREATE TRIGGER pruned AFTER DELETE ON payasync_intents BEGIN
    INSERT INTO observed (id, before, after) VALUES (OLD.id, OLD.state, '');
END;
COMMIT;
"""
"""The intentions in their order, without gaps, and each change of a state, in the transaction that makes it."""
MOVES: Final = "SELECT row, before, after FROM observed JOIN numbered USING (id) WHERE seq > ? ORDER BY seq"
NUMBER: Final = "SELECT id FROM numbered WHERE row = ?"
ROW: Final = "SELECT row FROM numbered WHERE id = ?"
ABOUT: Final = "SELECT state FROM payasync_intents WHERE operation = ? AND reference IS ?"


@frozen
class Attempt:
    """A write that is about to leave.

    Attributes:
        operation: The endpoint's name.
        reference: The number that it names.
        states: Those of the intentions about it, as they stand in the journal's file at that moment.
    """

    operation: str
    reference: str | None
    states: tuple[str, ...]


class Observer:
    """Looks into the file of a journal, on a connection of its own.

    Args:
        path: The file's.

    Attributes:
        attempts: Of all writes that it was shown, in their order.
    """

    def __init__(self, path: Path) -> None:
        self.attempts = list[Attempt]()
        self._path = path

    def begin(self) -> None:
        """Take note of all that changes from now on; the journal has made its file and its tables."""
        self._db = sqlite3.connect(self._path, isolation_level=None)
        self._db.executescript(TRIGGERS)

    def close(self) -> None:
        """Look no more."""
        self._db.close()

    def show(self, call: Call) -> None:
        """Take note of an attempt at a write."""
        about = call.operation.name, call.reference
        self.attempts.append(Attempt(*about, tuple(state for (state,) in self._db.execute(ABOUT, about))))

    def moves(self, since: int) -> list[tuple[int, str, str]]:
        """Return the changes of states behind the first so many: of which intention, from what, and to what."""
        return list(self._db.execute(MOVES, (since,)))

    def number(self, row: int) -> int:
        """Return the journal's number of the intention that was kept as the first, the second, and so on."""
        (found,) = self._db.execute(NUMBER, (row,)).fetchone()
        return int(found)

    def row(self, intent: Intent) -> int:
        """Return as which an intention was kept."""
        (found,) = self._db.execute(ROW, (intent.id,)).fetchone()
        return int(found)


class Witness:
    """A signature scheme that remembers the nonces which were signed with it.

    Args:
        scheme: Signs.

    Attributes:
        nonces: In their order.
    """

    def __init__(self, scheme: SignatureScheme) -> None:
        self.nonces = list[str]()
        self._scheme = scheme

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str | Awaitable[str]:
        """Return the signature of the wire fields of one request."""
        self.nonces.append(fields["nonceStr"])
        return self._scheme.sign(fields, path=path, key=key)

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Return whether the signature is that of the fields."""
        return self._scheme.verify(fields, signature, path=path, key=key)
