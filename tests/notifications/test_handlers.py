"""Which functions handle which notifications."""

from functools import partial
from typing import Any

import pytest

from payasync import ConfigurationError
from payasync.notifications import Notification
from payasync.notifications.endings import Ending
from payasync.notifications.handlers import Handler, check_new, handler_of, takers
from tests.notifications.merchant import notification


async def paid(notification: Notification) -> None:
    """Handle a notification."""


async def shipped(notification: Notification, *, fast: bool = False) -> None:
    """Handle a notification."""


class Books:
    """What has handlers among its methods, and is one itself."""

    async def enter(self, notification: Notification) -> None:
        """Handle a notification."""

    async def __call__(self, notification: Notification) -> None:
        """Handle a notification."""


def handler(kind: str = "payment", function: Any = paid, **settings: Any) -> Handler:
    """Return a handler."""
    return handler_of(function, kind=kind, **settings)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (paid, "paid"),
        (Books().enter, "Books.enter"),
        (Books(), "Books"),
        (partial(shipped, fast=True), "shipped"),
        (partial(partial(shipped), fast=True), "shipped"),
    ],
)
def test_handler_has_the_name_of_its_function(function: Any, name: str) -> None:
    """What is remembered outlives the process: where the function stands, and how it is called."""
    assert f"{__name__}:{name}" == handler(function=function).name


def plain(notification: Notification) -> None:
    """Be no coroutine function."""


@pytest.mark.parametrize("function", [plain, partial(plain), None, "paid", Books])
def test_handler_is_a_coroutine_function(function: Any) -> None:
    """A plain function would block every other handler: it is refused where it is registered."""
    with pytest.raises(ConfigurationError, match="async def"):
        handler(function=function)


@pytest.mark.parametrize("kind", ["payments", "", None, 7, ["payment"]])
def test_kind_must_exist(kind: Any) -> None:
    """A kind that there is not would never be handled."""
    with pytest.raises(ConfigurationError, match="payment, refund, subscription and \\*"):
        handler(kind)


@pytest.mark.parametrize("kind", ["payment", "refund"])
def test_what_can_be_confirmed_is_not_taken_unconfirmed(kind: str) -> None:
    """A payment can be asked about: no handler may wish to believe it unseen."""
    with pytest.raises(ConfigurationError, match="Leave it out"):
        handler(kind, unverified=True)


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"unverified": 1}, "unverified"), ({"transaction": 1}, "transaction"), ({"expect": {"a": 1}}, "expect")],
)
def test_settings_are_checked(settings: dict[str, Any], field: str) -> None:
    """A wrong setting is found where it is given, not when money has come."""
    with pytest.raises(ConfigurationError) as caught:
        handler("subscription", **settings)

    assert field == caught.value.field


async def other(notification: Notification) -> None:
    """Handle a notification."""


other.__qualname__ = "paid"


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (handler("payment"), handler("payment")),
        (handler("payment"), handler("*")),
        (handler("*"), handler("refund")),
        (handler("payment"), handler("payment", other)),
        (handler("payment"), handler("refund", other)),
    ],
)
def test_two_of_one_name_are_refused(one: Handler, another: Handler) -> None:
    """What one has done would count as done by the other."""
    with pytest.raises(ConfigurationError, match="two handlers are named"):
        check_new(another, [one])


@pytest.mark.parametrize(
    ("one", "another"),
    [(handler("payment"), handler("refund")), (handler("payment"), handler("payment", shipped))],
)
def test_one_function_may_handle_several_kinds(one: Handler, another: Handler) -> None:
    """No event is of two kinds, so that one function does not meet itself."""
    check_new(another, [one])

    assert one.name == another.name or one.function is not another.function


PAYMENT = handler("payment")
ANY = handler("*", shipped)
UNCONFIRMED = handler("subscription", Books().enter, unverified=True)
SUBSCRIPTION = handler("subscription")


@pytest.mark.parametrize(
    ("facts", "taking"),
    [
        ({"kind": "payment"}, (PAYMENT, ANY)),
        ({"kind": "payment", "verified": False}, (PAYMENT, ANY)),
        ({"kind": "refund"}, (ANY,)),
        ({"kind": None}, (ANY,)),
        ({"kind": "subscription"}, (ANY, UNCONFIRMED, SUBSCRIPTION)),
        ({"kind": "subscription", "verified": False}, (UNCONFIRMED,)),
    ],
)
def test_handlers_take_their_kind(facts: dict[str, Any], taking: tuple[Handler, ...]) -> None:
    """Each matching handler takes it, in their order; what nobody can confirm, only who wants it so."""
    assert taking == takers([PAYMENT, ANY, UNCONFIRMED, SUBSCRIPTION], notification(**facts))


@pytest.mark.parametrize(
    ("handlers", "facts", "reason"),
    [
        ([PAYMENT], {"kind": "refund"}, "no handler for refunds"),
        ([], {"kind": "payment", "verified": False}, "no handler for payments"),
        ([PAYMENT], {"kind": None}, "no handler for events of an unknown kind"),
        ([PAYMENT], {"kind": "subscription", "verified": False}, "no handler for subscriptions"),
        ([SUBSCRIPTION], {"kind": "subscription", "verified": False}, "nothing can confirm subscriptions"),
        ([ANY], {"kind": None, "verified": False}, "nothing can confirm events of an unknown kind"),
    ],
)
def test_what_nobody_takes_is_parked(handlers: list[Handler], facts: dict[str, Any], reason: str) -> None:
    """The reason says whether a handler is missing, or anybody who could say that it is true."""
    ending = takers(handlers, notification(**facts))

    assert isinstance(ending, Ending)
    assert ("parked", True) == (ending.state, ending.reason.startswith(reason))
