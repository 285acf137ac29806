"""Which service a merchant's writes go to, in one transaction; no I/O here.

Of another service the journal would believe what that has never done.
"""

from collections.abc import Sequence

from payasync.errors import InvalidArgumentError
from payasync.journal import statements
from payasync.journal.transactions import Asked, Transaction, numbers


def bind(merchant: str, service: str) -> Transaction[str]:
    """Return the service that a merchant's writes go to: this one, where there was none."""
    values = {"merchant": merchant, "service": service}
    kept: Sequence[str] = yield Asked(statements.BIND, values, column="service")
    if not kept:
        kept = yield Asked(statements.SERVICES, {"merchant": merchant}, column="service")
    return kept[0]


def move(old: str, new: str, *, unused: bool) -> Transaction[tuple[Sequence[str], Sequence[str]]]:
    """Give a service another address; return the merchants that are its own, and all addresses there are then.

    Args:
        old: Its address.
        new: The other one.
        unused: Only where it has done nothing yet, and may not have.
    """
    if unused and (done := (yield from numbers(statements.DONE_THERE, {"old": old}))):
        rule = "a service that has done nothing, where it is the sandbox"
        why = f"old must be {rule}: intention {done[0]} was done there, or may have been"
        raise InvalidArgumentError(why, field="old", rule=rule, value=old)
    merchants: Sequence[str] = yield Asked(statements.MOVE, {"old": old, "new": new}, column="merchant")
    services: Sequence[str] = yield Asked(statements.SERVICES, {"merchant": None}, column="service")
    return merchants, services
