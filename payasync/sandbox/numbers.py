"""Numbers that the sandbox gives, and things that a number must name."""

import secrets
from typing import TypeVar

from payasync.sandbox.values import RefusedError

T = TypeVar("T")


def known(found: T | None, thing: str, argument: str) -> T:
    """Return what was found.

    Raises:
        RefusedError: There is none.
    """
    if found is None:
        raise RefusedError("absent", f"there is no such {thing}", argument=argument)
    return found


def new_number(kind: str) -> str:
    """Return a number that names nothing yet; capitals and digits only: profiles narrow what a number may be."""
    return f"{kind}{secrets.randbelow(10**20):020}"
