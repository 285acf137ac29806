"""Which functions handle which notifications."""

from functools import partial
from typing import Any

import pytest

from payasync import ConfigurationError
from payasync.notifications import Notification
from payasync.notifications.transitions import Transition
from payasync.notifications.worker import Handler, build_handler, check_distinct, select_handlers
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
    return build_handler(function, kind=kind, **settings)


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
    """What is remembered outlives the process, and is the same where the module is moved, or run as a program."""
    assert name == handler(function=function).name


def test_name_may_be_given() -> None:
    """A function that is renamed keeps the name under which it has handled events."""
    assert "credit" == handler(name="credit").name


@pytest.mark.parametrize("name", ["", " ", "two words", "line\n", 7, b"credit"])
def test_name_is_a_word(name: Any) -> None:
    """What is remembered under no name, or under one that ends nowhere, would be another's, too."""
    with pytest.raises(ConfigurationError, match="name must be a word, such as 'credit'") as caught:
        handler(name=name)

    assert "name" == caught.value.field


def plain(notification: Notification) -> None:
    """Be no coroutine function."""


@pytest.mark.parametrize("function", [plain, partial(plain), None, "paid", Books])
def test_handler_is_a_coroutine_function(function: Any) -> None:
    """A plain function would block every other handler: it is refused where it is registered."""
    with pytest.raises(ConfigurationError, match="async def"):
        handler(function=function)


async def none() -> None:
    """Take nothing."""


async def two(notification: Notification, db: object) -> None:
    """Take a connection, too."""


async def named(notification: Notification, *, db: object) -> None:
    """Take a connection by its name alone."""


async def several(*things: object) -> None:
    """Take whatever there is."""


def begin() -> Any:
    """Begin nothing."""


@pytest.mark.parametrize(
    ("function", "transaction"),
    [(none, None), (two, None), (named, None), (Books.enter, None), (none, begin), (paid, begin), (named, begin)],
)
def test_handler_takes_what_it_is_given(function: Any, transaction: Any) -> None:
    """What would fail with every event is found where it is registered, and the words say what a handler takes."""
    with pytest.raises(ConfigurationError, match="a handler takes a notification, and with transaction= a conn") as bad:
        handler(function=function, transaction=transaction)

    assert ("handler", True) == (bad.value.field, function.__qualname__ in str(bad.value))


@pytest.mark.parametrize(
    ("function", "transaction"),
    [(shipped, None), (several, None), (several, begin), (two, begin), (partial(two, db=1), None)],
)
def test_handler_may_take_more(function: Any, transaction: Any) -> None:
    """What has a default, or takes anything, can be called."""
    assert function is handler(function=function, transaction=transaction).function


def test_transaction_is_called_without_arguments() -> None:
    """What nobody could begin is found where it is given, not with the first event."""
    with pytest.raises(ConfigurationError, match=r"transaction is called without arguments: .*lambda> cannot") as bad:
        handler(function=two, transaction=lambda _path: None)

    assert "transaction" == bad.value.field


class Pool(list[object]):
    """Begins transactions, in connections of which none is open yet."""

    def __call__(self) -> None:
        """Begin one."""


def test_transaction_may_be_an_empty_pool() -> None:
    """What is given counts, also where it has a length, which is 0."""
    assert handler(function=two, transaction=Pool()).transaction is not None


@pytest.mark.parametrize("expect", [lambda: None, lambda _one, _two: None])
def test_expectation_takes_a_notification(expect: Any) -> None:
    """What could never say what is expected is found where it is given."""
    with pytest.raises(ConfigurationError, match="expect takes a notification") as bad:
        handler(expect=expect)

    assert "expect" == bad.value.field


@pytest.mark.parametrize("expect", [lambda _: None, lambda _one, _two=2: None, max])
def test_expectation_may_take_more(expect: Any) -> None:
    """What has a default can be called; what does not say what it takes is left alone."""
    assert expect is handler(expect=expect).expect


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
        (handler("payment", name="shipped"), handler("payment", shipped)),
    ],
)
def test_two_of_one_name_are_refused(one: Handler, another: Handler) -> None:
    """What one has done would count as done by the other; the error says how to tell them apart."""
    with pytest.raises(ConfigurationError, match=r"two handlers are named \w+: .*Give one another name: on\(.*name="):
        check_distinct(another, [one])


def test_name_tells_two_apart() -> None:
    """Functions that are named alike may handle one event, each under a name of its own."""
    check_distinct(handler("payment", other, name="credit"), [handler("payment")])

    assert other.__qualname__ == paid.__qualname__


@pytest.mark.parametrize(
    ("one", "another"),
    [(handler("payment"), handler("refund")), (handler("payment"), handler("payment", shipped))],
)
def test_one_function_may_handle_several_kinds(one: Handler, another: Handler) -> None:
    """No event is of two kinds, so that one function does not meet itself."""
    check_distinct(another, [one])

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
    assert taking == select_handlers([PAYMENT, ANY, UNCONFIRMED, SUBSCRIPTION], notification(**facts))


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
    ending = select_handlers(handlers, notification(**facts))

    assert isinstance(ending, Transition)
    assert ("parked", True) == (ending.state, ending.reason.startswith(reason))
