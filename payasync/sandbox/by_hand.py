"""What a test does by hand, past the wire: in a transaction, with our own errors."""

from collections.abc import Generator
from contextlib import contextmanager

from payasync.errors import ConfigurationError, InvalidArgumentError, PayasyncError
from payasync.sandbox.database import Database
from payasync.sandbox.values import RefusedError


@contextmanager
def by_hand(database: Database, **given: object) -> Generator[None]:
    """Commit all that is done inside, or nothing of it where it is refused.

    Args:
        database: Holds the transaction.
        given: The arguments of who asks for it: the number first, and what is to become of it last.

    Raises:
        InvalidArgumentError: It is refused.
        ConfigurationError: The database cannot be written.
    """
    try:
        with database.transaction():
            yield
    except RefusedError as refused:
        error = _told(refused, given)
    else:
        return
    raise error


def _told(refused: RefusedError, given: dict[str, object]) -> PayasyncError:
    if refused.why == "busy":
        return ConfigurationError(f"db: {refused.message}", field="db")
    numbered, *_, ended = (*given, *given)
    field = refused.argument if refused.argument in given else numbered if refused.why == "absent" else ended
    return InvalidArgumentError(
        f"{field}: {given[field]!r} is refused: {refused.message}",
        field=field,
        rule=refused.message,
        value=given[field],
    )
