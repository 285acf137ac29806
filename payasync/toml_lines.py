"""On which lines the keys of a TOML text stand: errors name them, and `tomllib` does not."""

import tomllib
from collections.abc import Iterator
from typing import Any, Final

_CLOSING: Final = ('"""', "'''", "]")
"""With one of these ends what began on an earlier line."""

_DEEPEST: Final = 8
"""Steps of a key; deeper ones have no line of their own."""


def lines_of(text: str) -> dict[str, int]:
    """Return the line on which each key first stands, by its dotted path; counted from 1.

    A table that only stands in the name of another, as `a` in `[a.b]`, is on that line, too. What
    stands in a list of inline tables is on none.
    """
    found: dict[str, int] = {}
    header = ""
    for number, first, tables in _statements(text):
        is_header = first.lstrip().startswith("[")
        keys = list(_keys(tables, "" if is_header else header, _DEEPEST))
        header = keys[-1] if is_header else header
        for key in keys:
            found.setdefault(key, number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield of each statement the line on which it begins, that line itself, and what it says when read alone."""
    begun: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        begun.append(line)
        tables = _read(begun)
        if tables is not None:
            yield number - len(begun) + 1, begun[0], tables
            begun = []


def _read(lines: list[str]) -> dict[str, Any] | None:
    """Return what the lines of a statement say, or `None` where it goes on."""
    if len(lines) > 1 and not any(mark in lines[-1] for mark in _CLOSING):
        return None
    try:
        return tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None


def _keys(value: Any, above: str, left: int) -> Iterator[str]:
    """Yield the paths in a value, each before those below it."""
    if isinstance(value, dict) and left:
        for name, inner in value.items():
            path = f"{above}.{name}" if above else name
            yield path
            yield from _keys(inner, path, left - 1)
