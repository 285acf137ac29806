"""Which name in a connection string PostgreSQL does not know; nothing that may be a password is shown."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

_QUOTED: Final = re.compile(r'"(\w+)"')
_SECRETS: Final = ("pass", "secret", "key", "://")
"""Behind these, what looks like a name may be part of a password."""


def mistyped(text: str) -> str:
    """Return what is wrong with a name in a connection string; nothing, where that cannot be told."""
    try:
        from psycopg import Error, pq  # noqa: PLC0415 - the extra may be missing
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - the same
    except ImportError:
        return ""
    try:
        conninfo_to_dict(text)
    except Error as error:
        refused = str(error)
    else:
        return ""
    return _wrong(text, refused, [each.keyword.decode() for each in pq.Conninfo.get_defaults()])


def _wrong(text: str, refused: str, known: Sequence[str]) -> str:
    quoted = _QUOTED.search(refused)
    found = quoted and re.search(rf"\b{quoted[1]}\s*=", text)
    if not quoted or not found:
        return ""
    meant = [f"{each!r} may be meant" for each in get_close_matches(quoted[1], known, n=1)]
    before = text[: found.start()].lower()
    if not any(each in before for each in _SECRETS):
        return ": ".join([f"no connection string has a {quoted[1]!r}", *meant])
    return ": ".join(["it has a name that no connection string has", *meant])
