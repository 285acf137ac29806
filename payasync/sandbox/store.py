"""The sandbox's memory: SQLite and nothing else, one connection, one thread."""

import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from importlib import resources
from typing import Any, Final, TypeVar

from attrs import asdict

from payasync.errors import ConfigurationError
from payasync.sandbox import statements
from payasync.sandbox.values import (
    Answered,
    Attempt,
    Notification,
    Order,
    Refund,
    RefundState,
    RefusedError,
    Subscription,
)

T = TypeVar("T")
BUSY_SECONDS: Final = 0.25
"""How long another process may hold the file: the event loop waits as long."""


class Store:
    """Reads and writes rows; whoever changes something does it in one `transaction`.

    Args:
        path: The database's file, or `:memory:`.

    Raises:
        ConfigurationError: The file cannot be opened, or it is no such database.
    """

    def __init__(self, path: str) -> None:
        self._committed: Callable[[], object] = bool
        try:
            self._db = _opened(path)
        except sqlite3.Error as error:
            why = str(error)
        else:
            return
        raise ConfigurationError(f"db: cannot use {path!r} as the sandbox's database: {why}", field="db")

    def on_commit(self, committed: Callable[[], object]) -> None:
        """Have a function called after each transaction that was committed."""
        self._committed = committed

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit all that is done inside, or nothing of it where an exception leaves.

        Raises:
            RefusedError: Another process holds the file.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise RefusedError("busy", "the sandbox's database is locked") from error
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._committed()

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Undo what is done inside where an exception leaves; the transaction around it goes on."""
        self._db.execute("SAVEPOINT attempt")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK TO attempt")
            raise
        finally:
            self._db.execute("RELEASE attempt")

    def add_order(self, order: Order) -> bool:
        """Keep a new order; `False` where its number is taken."""
        return self._changed(statements.ADD_ORDER, asdict(order))

    def order(self, out_trade_no: str) -> Order | None:
        """Return the order with this number."""
        return self._one(Order, statements.ORDER, out_trade_no)

    def order_by_payment(self, payment_id: str) -> Order | None:
        """Return the order with this payment number."""
        return self._one(Order, statements.ORDER_BY_PAYMENT, payment_id)

    def order_by_token(self, token: str) -> Order | None:
        """Return the order whose gateway page this token names."""
        return self._one(Order, statements.ORDER_AT_GATEWAY, token)

    def move_order(self, before: Order, after: Order) -> bool:
        """Change an order's state; `False` where it is no longer as it was."""
        row = {**asdict(after), "was": before.state, "declined": before.declines}
        return self._changed(statements.MOVE_ORDER, row)

    def reserve(self, out_trade_no: str, amount: int) -> bool:
        """Set aside what a refund gives back; `False` where the order has less left, or is not paid."""
        return self._changed(statements.RESERVE, {"out_trade_no": out_trade_no, "amount": amount})

    def release(self, out_trade_no: str, amount: int) -> None:
        """Give back what was set aside for a refund that failed."""
        self._changed(statements.RELEASE, {"out_trade_no": out_trade_no, "amount": amount})

    def count_orders(self, origin: str) -> int:
        """Count what one of the endpoints 1 (`payment`) and 2 (`order`) made."""
        return self._number(statements.COUNT_ORDERS, {"origin": origin})

    def add_refund(self, refund: Refund) -> None:
        """Keep a new refund."""
        self._changed(statements.ADD_REFUND, asdict(refund))

    def refund(self, out_refund_no: str) -> Refund | None:
        """Return the refund with this number."""
        return self._one(Refund, statements.REFUND, out_refund_no)

    def move_refund(self, out_refund_no: str, was: RefundState, state: RefundState) -> bool:
        """Change a refund's state; `False` where it is no longer as it was."""
        return self._changed(statements.MOVE_REFUND, {"out_refund_no": out_refund_no, "was": was, "state": state})

    def refunded(self, out_trade_no: str) -> int:
        """Sum up what of an order was given back."""
        return self._number(statements.REFUNDED, {"out_trade_no": out_trade_no})

    def count_refunds(self) -> int:
        """Count all refunds."""
        return self._number(statements.ALL_REFUNDS, {})

    def add_subscription(self, subscription: Subscription) -> None:
        """Keep a new subscription."""
        self._changed(statements.ADD_SUBSCRIPTION, _subscription_row(subscription))

    def subscription(self, subscription_id: str) -> Subscription | None:
        """Return the subscription with this number."""
        return self._one(Subscription, statements.SUBSCRIPTION, subscription_id)

    def move_subscription(self, before: Subscription, after: Subscription) -> bool:
        """Change a subscription; `False` where it is no longer as it was."""
        row = {**_subscription_row(after), "was": before.state, "before": before.period}
        return self._changed(statements.MOVE_SUBSCRIPTION, row)

    def burn(self, merchant_id: str, nonce: str) -> bool:
        """Use up a nonce; `False` where it was used before (spec: Authentication, 3)."""
        return self._changed(statements.BURN, {"merchant_id": merchant_id, "nonce": nonce})

    def add_notification(self, notification: Notification) -> None:
        """Put a notification into the outbox, due at once."""
        self._changed(statements.ADD_NOTIFICATION, asdict(notification))

    def due(self) -> Notification | None:
        """Return the oldest notification that is due."""
        return self._one(Notification, statements.DUE)

    def add_attempt(self, attempt: Attempt) -> None:
        """Keep the record of an attempt; its notification is no longer due."""
        with self.transaction():
            self._changed(statements.ADD_ATTEMPT, asdict(attempt))
            self._changed(statements.DONE, {"notification_id": attempt.notification_id})

    def attempts(self) -> list[Attempt]:
        """Return all attempts, oldest first."""
        return self._all(Attempt, statements.ALL_ATTEMPTS, {})

    def add_call(self, call: Answered) -> None:
        """Keep the record of a call that is about to be answered."""
        self._changed(statements.ADD_CALL, asdict(call))

    def calls(self, operation: str | None) -> list[Answered]:
        """Return the calls of one operation, or all, oldest first."""
        if operation is None:
            return self._all(Answered, statements.ALL_CALLS, {})
        return self._all(Answered, statements.CALLS, {"operation": operation})

    def _changed(self, statement: str, row: Mapping[str, Any]) -> bool:
        with closing(self._db.execute(statement, row)) as cursor:
            return cursor.rowcount == 1

    def _one(self, kind: type[T], statement: str, key: str = "") -> T | None:
        found = self._all(kind, statement, {"key": key})
        return found[0] if found else None

    def _all(self, kind: type[T], statement: str, row: Mapping[str, Any]) -> list[T]:
        with closing(self._db.execute(statement, row)) as cursor:
            return [kind(**dict(found)) for found in cursor]

    def _number(self, statement: str, row: Mapping[str, Any]) -> int:
        with closing(self._db.execute(statement, row)) as cursor:
            return int(cursor.fetchone()[0])


def _opened(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    database.row_factory = sqlite3.Row
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA foreign_keys = ON")
        database.executescript(resources.files("payasync.sandbox").joinpath("schema.sql").read_text(encoding="utf-8"))
    except BaseException:
        database.close()
        raise
    return database


def _subscription_row(subscription: Subscription) -> dict[str, Any]:
    # sqlite3's own way of writing dates is deprecated.
    return {**asdict(subscription), "start_date": subscription.start_date.isoformat()}
