"""Who handles what: the functions that `Receiver.on` was given."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen

from payasync.errors import ConfigurationError
from payasync.notifications.endings import Ending, parked
from payasync.notifications.notification import Notification
from payasync.notifications.reading import KINDS
from payasync.notifications.transactions import Begin, Transactions
from payasync.notifications.trust import ASKABLE

Function: TypeAlias = Callable[..., Awaitable[object]]
Expected: TypeAlias = Mapping[str, Any] | None
Expect: TypeAlias = Callable[[Notification], Expected | Awaitable[Expected]]
"""Says what a notification must tell, by dotted paths into what is trusted of it; `None`: nobody expects it."""

ANY: Final = "*"
_NOUNS: Final = {"payment": "payments", "refund": "refunds", "subscription": "subscriptions"}


@frozen(kw_only=True)
class Handler:
    """A function that handles events of a kind.

    Attributes:
        name: Under which it is remembered that it is done with an event: the function's module and name.
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
    transaction: Begin | None = None,
    expect: Expect | None = None,
    unverified: bool = False,
) -> Handler:
    """Return the handler that a function is.

    Raises:
        ConfigurationError: There is no such kind, it is no coroutine function, or it has no name of its own.
    """
    check_kind(kind, unverified=unverified)
    for name, given in (("transaction", transaction), ("expect", expect)):
        check_callable(name, given)
    called = getattr(type(function), "__call__", None)  # noqa: B004 - of an object with such a method
    if not iscoroutinefunction(function) and not iscoroutinefunction(called):
        raise ConfigurationError(f"a handler must be an async def function, not {function!r}", field="handler")
    return Handler(
        name=_name(function),
        kind=kind,
        function=function,
        transaction=Transactions(transaction) if transaction else None,
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
            f"unverified: {_NOUNS[str(kind)]} are confirmed by asking the service, where they are not signed. "
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


def _name(function: Any) -> str:
    named = function
    while isinstance(named, partial):
        named = named.func
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}:{named.__qualname__}"


def check_new(handler: Handler, others: Iterable[Handler]) -> None:
    """Refuse a handler that could not be told from another.

    Raises:
        ConfigurationError: Another of its name may get the same events.
    """
    if any(handler.meets(other) for other in others):
        raise ConfigurationError(
            f"two handlers are named {handler.name}: what one has done would count as done by the other. Rename one",
            field="handler",
        )


def takers(handlers: Iterable[Handler], notification: Notification) -> tuple[Handler, ...] | Ending:
    """Return the handlers of a notification, or why there is none."""
    given = tuple(handlers)
    if taking := tuple(handler for handler in given if handler.takes(notification)):
        return taking
    what = _NOUNS.get(notification.kind or "", "events of an unknown kind")
    if any(evolve(handler, unverified=True).takes(notification) for handler in given):
        return parked(f"nothing can confirm {what} that are not signed; unverified=True takes them all the same")
    return parked(f"no handler for {what}")
