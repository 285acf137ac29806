"""Dotted paths into documents: how the sandbox puts things where a profile says."""

from typing import Any


def put(document: dict[str, Any], path: str, value: object) -> None:
    """Set a value at a dotted path, objects on the way included; an empty path is the document itself."""
    if not path and isinstance(value, dict):
        document.update(value)
        return
    *above, name = path.split(".")
    for part in above:
        inner = document.get(part)
        if not isinstance(inner, dict):
            inner = document[part] = {}
        document = inner
    document[name] = value


def beside(path: str, name: str) -> str:
    """Return the path of a name in the object that holds a path."""
    above, dot, _ = path.rpartition(".")
    return f"{above}{dot}{name}"
