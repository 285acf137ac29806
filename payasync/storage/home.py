"""The schema in which the tables of a journal, an inbox or a handler are in PostgreSQL; no I/O here.

A connection behind a pooler has what another program has set. The tables stay where they are all the same: each name is
qualified, and the schema is found on the path that is configured, and not on the one that a connection happens to have.
"""

import re
from collections.abc import Sequence
from typing import Final

from payasync.storage import read_sql

_FIND: Final = read_sql("payasync.storage", "find_home")
_PATH: Final = re.compile(r'"((?:[^"]|"")*)"|([^\s,"]+)')
_OPTION: Final = re.compile(r"(?:-c\s*|--)search[_-]path=((?:\\.|\S)*)", re.IGNORECASE)


def find_home(table: str) -> str:
    """Return the statement that finds the schemas with a table; its only value, `found`, is JSON."""
    return _FIND.replace("<table>", table)


def quote_name(name: str) -> str:
    """Return a name as it stands in a statement."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def configured_path(path: str, options: str, role: str) -> list[str]:
    """Return the schemas in which a role looks for tables.

    Args:
        path: The role's configured `search_path`.
        options: The options of the connection string. A `search_path` in them replaces the role's.
        role: The role's name.
    """
    given = [re.sub(r"\\(.)", r"\1", each) for each in _OPTION.findall(options)]
    found = _PATH.findall(given[-1] if given else path)
    names = [quoted.replace('""', '"') or plain.lower() for quoted, plain in found]
    return [role if name == "$user" else name for name in names]


def choose_home(given: str | None, path: Sequence[str], homes: Sequence[str], schemas: Sequence[str]) -> str:
    """Return the schema of a store's tables, or the one to make them in.

    Args:
        given: The argument `schema`.
        path: The configured path.
        homes: The schemas that have such tables.
        schemas: The schemas that the role may use.

    Raises:
        LookupError: There is no such schema, or the tables are elsewhere. The error says what to do.
    """
    candidates = [each for each in ([given] if given else path) if each in schemas]
    if found := next((each for each in candidates if each in homes), None):
        return found
    if given and not candidates:
        raise LookupError(f"the role has no schema {given!r}: run CREATE SCHEMA, and GRANT USAGE on it to the role")
    if homes and not given:
        raise LookupError(
            f"its tables are in the schema {' and '.join(homes)}, and the search_path is {', '.join(path) or 'empty'}. "
            f"Give {' or '.join(f'schema={each!r}' for each in homes)}, or this schema as the search_path in the "
            "options of the connection string. To make other tables, run payasync journal upgrade --schema NAME"
        )
    if not candidates:
        raise LookupError(f"no schema of the search_path {', '.join(path)} exists: create one, or give schema=")
    return candidates[0]
