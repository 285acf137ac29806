"""Dotted paths into documents: how the sandbox puts things where a profile says."""

from collections.abc import Mapping
from typing import Any


def found(document: object, path: str) -> object:
    """Return what stands at a dotted path; `None` where nothing does."""
    for part in path.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def put(document: dict[str, Any], path: str, value: object) -> None:
    """Set a value at a dotted path, objects on the way included.

    An empty path is the document itself: an object goes into it, and anything else has no place.
    """
    if not path:
        document.update(value if isinstance(value, dict) else {})
        return
    above, _, name = path.rpartition(".")
    inside(document, above)[name] = value


def inside(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the object at a dotted path, made where there is none; an empty path is the document itself."""
    for part in path.split(".") if path else ():
        inner = document.get(part)
        if not isinstance(inner, dict):
            inner = document[part] = {}
        document = inner
    return document


def overlaps(one: str, other: str) -> bool:
    """Return whether two paths are one, or one of them leads through the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def under(path: str, place: str) -> str | None:
    """Return the rest of a path below a place, or `None` where it stands elsewhere."""
    if not place:
        return path
    return path.removeprefix(f"{place}.") if path.startswith(f"{place}.") else None


def joined(*parts: str) -> str:
    """Return the path that leads through all of these, of which some may be empty."""
    return ".".join(filter(None, parts))


def beside(path: str, name: str) -> str:
    """Return the path of a name in the object that holds a path."""
    above, dot, _ = path.rpartition(".")
    return f"{above}{dot}{name}"
