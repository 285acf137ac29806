"""Which service a merchant's writes go to, in one transaction; no I/O here.

Of another service the journal would believe what that has never done.
"""

from collections.abc import Sequence

from attrs import frozen

from payasync.errors import InvalidArgumentError
from payasync.journal import statements
from payasync.journal.asking import Asked, Transaction, numbers
from payasync.journal.recorded import elsewhere


@frozen
class Where:
    """Where a write goes to.

    Attributes:
        service: As `Session.service` says it.
        journal: Where its journal is, as a person may see it.
    """

    service: str
    journal: str


def bind(merchant: str, where: Where | None) -> Transaction[None]:
    """Keep which service a merchant's writes go to, where none is kept; refuse any other.

    Args:
        merchant: The merchant's number.
        where: Where they go to; `None` as long as nobody sends.
    """
    if where is None:
        return
    known = Asked(statements.SERVICES, {"merchant": merchant}, column="service")
    kept: Sequence[str] = yield known
    if not kept:
        # Of two who come at once, one waits here for the other.
        values = {"merchant": merchant, "service": where.service}
        kept = (yield Asked(statements.BIND, values, column="service")) or (yield known)
    if kept[0] != where.service:
        raise elsewhere(merchant, kept[0], where.service, where.journal)


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
