"""Who handles what: the functions that `Receiver.on` was given."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import iscoroutinefunction, signature
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen

from payasync.errors import ConfigurationError
from payasync.notifications.drivers import Begin
from payasync.notifications.endings import Ending, parked
from payasync.notifications.notification import PLURALS, Notification
from payasync.notifications.transactions import Transactions
from payasync.notifications.trust import ASKABLE
from payasync.shapes import KINDS

Function: TypeAlias = Callable[..., Awaitable[object]]
Expected: TypeAlias = Mapping[str, Any] | None
Expect: TypeAlias = Callable[[Notification], Expected | Awaitable[Expected]]
"""Says what a notification must tell, by dotted paths into what is trusted of it; `None`: nobody expects it."""

ANY: Final = "*"


@frozen(kw_only=True)
class Handler:
    """A function that handles events of a kind.

    Attributes:
        name: Under which it is remembered that it is done with an event.
        kind: `payment`, `refund`, `subscription` or `*`.
        function: Gets the notification, and the transaction's connection where it has one.
        transaction: The caller's, around each call of the function.
        expect: In place of the receiver's.
        unverified: It takes what nobody can confirm.
    """

    name: str
    kind: str
    function: Function
    transaction: Transactions | None = None
    expect: Expect | None = None
    unverified: bool = False

    def takes(self, notification: Notification) -> bool:
        """Return whether a notification is for it."""
        believable = notification.verified or self.unverified or notification.kind in ASKABLE
        return self.kind in {ANY, notification.kind} and believable

    def meets(self, other: "Handler") -> bool:
        """Return whether another could not be told from it, where both have handled one event."""
        overlapping = ANY in {self.kind, other.kind} or self.kind == other.kind
        return self.name == other.name and (overlapping or self.function is not other.function)


def handler_of(
    function: Function,
    *,
    kind: str,
    name: str | None = None,
    transaction: Begin | None = None,
    expect: Expect | None = None,
    unverified: bool = False,
) -> Handler:
    """Return the handler that a function is.

    Raises:
        ConfigurationError: There is no such kind, it is no coroutine function or takes other arguments, or its name
            is none.
    """
    check_kind(kind, unverified=unverified)
    check_callable("transaction", transaction)
    if transaction is not None and not _takes(transaction, 0):
        raise ConfigurationError(
            f"transaction is called without arguments: {_name(transaction)} cannot be", field="transaction"
        )
    check_expect(expect)
    called = getattr(type(function), "__call__", None)  # noqa: B004 - of an object with such a method
    if not iscoroutinefunction(function) and not iscoroutinefunction(called):
        raise ConfigurationError(f"a handler must be an async def function, not {function!r}", field="handler")
    if not _takes(function, 1 if transaction is None else 2):
        raise ConfigurationError(
            "a handler takes a notification, and with transaction= a connection: "
            f"{_name(function)} cannot be called with {'that alone' if transaction is None else 'these two'}",
            field="handler",
        )
    return Handler(
        name=_name(function) if name is None else _checked(name),
        kind=kind,
        function=function,
        transaction=None if transaction is None else Transactions(transaction),
        expect=expect,
        unverified=unverified,
    )


def check_kind(kind: object, *, unverified: object) -> None:
    """Refuse a kind that there is not, and to take unconfirmed what can be confirmed.

    Raises:
        ConfigurationError: It says what is allowed.
    """
    if kind not in (*KINDS, ANY):
        raise ConfigurationError(f"there is no kind {kind!r}: allowed are {', '.join(KINDS)} and *", field="kind")
    if not isinstance(unverified, bool):
        raise ConfigurationError(f"unverified must be True or False, not {unverified!r}", field="unverified")
    if unverified and kind in ASKABLE:
        raise ConfigurationError(
            f"unverified: {PLURALS[str(kind)]} are confirmed by asking the service, where they are not signed. "
            "Leave it out; it is for subscriptions, which no query tells of",
            field="unverified",
        )


def check_callable(name: str, given: object) -> None:
    """Refuse what cannot be called.

    Raises:
        ConfigurationError: It names the argument.
    """
    if given is not None and not callable(given):
        raise ConfigurationError(f"{name} must be a function, not {given!r}", field=name)


def check_expect(expect: Expect | None) -> None:
    """Refuse what cannot say of a notification what is expected.

    Raises:
        ConfigurationError: It cannot be called with one.
    """
    check_callable("expect", expect)
    if expect is not None and not _takes(expect, 1):
        raise ConfigurationError(
            f"expect takes a notification: {_name(expect)} cannot be called with that alone", field="expect"
        )


def _takes(function: Callable[..., object], arguments: int) -> bool:
    """Return whether a function can be called with so many arguments; one that does not say which it takes can."""
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _name(function: Any) -> str:
    """Return a function's name, without its module: that is another where it is moved, or run as a program."""
    named = function
    while isinstance(named, partial):
        named = named.func
    named = named if hasattr(named, "__qualname__") else type(named)
    return str(named.__qualname__)


def _checked(name: object) -> str:
    if not isinstance(name, str) or name.split() != [name]:
        raise ConfigurationError(f"name must be a word, such as 'credit', not {name!r}", field="name")
    return name


def check_new(handler: Handler, others: Iterable[Handler]) -> None:
    """Refuse a handler that could not be told from another.

    Raises:
        ConfigurationError: Another of its name may get the same events.
    """
    if any(handler.meets(other) for other in others):
        raise ConfigurationError(
            f"two handlers are named {handler.name}: what one has done would count as done by the other. "
            "Give one another name: on(..., name=...)",
            field="name",
        )


def takers(handlers: Iterable[Handler], notification: Notification) -> tuple[Handler, ...] | Ending:
    """Return the handlers of a notification, or why there is none."""
    given = tuple(handlers)
    if taking := tuple(handler for handler in given if handler.takes(notification)):
        return taking
    what = PLURALS.get(notification.kind or "", "events of an unknown kind")
    if any(evolve(handler, unverified=True).takes(notification) for handler in given):
        return parked(f"nothing can confirm {what} that are not signed; unverified=True takes them all the same")
    return parked(f"no handler for {what}")
