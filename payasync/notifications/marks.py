"""What marks an event as done by a handler: a row in a table beside the effect. No I/O here."""

import hashlib
from datetime import datetime
from typing import Final

TABLE: Final = "CREATE TABLE payasync_handled (event TEXT PRIMARY KEY, at TEXT)"
RIGHTS: Final = "GRANT SELECT, INSERT, DELETE ON payasync_handled TO ..."


def mark(handler: str, merchant: str, key: str) -> str:
    """Return what marks an event as done by a handler: hexadecimal digits, so that it is a literal anywhere.

    Args:
        handler: Its name.
        merchant: Whose event it is: order numbers are one merchant's own.
        key: The event's.
    """
    return hashlib.sha256(f"{handler}\n{merchant}\n{key}".encode()).hexdigest()


def marking(digits: str, at: datetime) -> str:
    """Return the statement that sets a mark; drivers differ in how they write parameters, so it has none."""
    return (
        f"INSERT INTO payasync_handled (event, at) VALUES ('{digits}', '{at.isoformat()}') "  # noqa: S608 - see above
        "ON CONFLICT DO NOTHING"
    )


def unmarking(digits: str) -> str:
    """Return the statement that takes a mark away."""
    return f"DELETE FROM payasync_handled WHERE event = '{digits}'"  # noqa: S608 - as above
