"""What the sandbox keeps: orders, refunds, subscriptions, and what it responded."""

import json
import math
import re
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

from attrs import asdict

from payasync.errors import InvalidArgumentError
from payasync.profile.profile import Profile
from payasync.sandbox import statements
from payasync.sandbox.database import Database
from payasync.sandbox.model import Answered, Charge, Order, Refund, RefundState, RefusedError, Subscription


def value_at(document: object, path: str) -> object:
    """Return what stands at a dotted path; `None` where nothing does."""
    for part in path.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def set_at(document: dict[str, Any], path: str, value: object) -> None:
    """Set a value at a dotted path, objects on the way included.

    An empty path is the document itself: an object goes into it, and anything else has no place.
    """
    if not path:
        document.update(value if isinstance(value, dict) else {})
        return
    above, _, name = path.rpartition(".")
    table_at(document, above)[name] = value


def table_at(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the object at a dotted path, made where there is none; an empty path is the document itself."""
    for part in path.split(".") if path else ():
        inner = document.get(part)
        if not isinstance(inner, dict):
            inner = document[part] = {}
        document = inner
    return document


def overlaps(one: str, other: str) -> bool:
    """Return whether two paths are one, or one of them leads through the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def under(path: str, place: str) -> str | None:
    """Return the rest of a path below a place, or `None` where it stands elsewhere."""
    if not place:
        return path
    return path.removeprefix(f"{place}.") if path.startswith(f"{place}.") else None


def join_path(*parts: str) -> str:
    """Return the path that leads through all of these, of which some may be empty."""
    return ".".join(filter(None, parts))


def sibling_path(path: str, name: str) -> str:
    """Return the path of a name in the object that holds a path."""
    above, dot, _ = path.rpartition(".")
    return f"{above}{dot}{name}"


MAX_DEPTH: Final = 32


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a request's body holds.

    Raises:
        RefusedError: It is no JSON in UTF-8, no object, it has a name twice, more than 32 levels, a number
            that is none, or a text with a lone surrogate.
    """
    try:
        document = json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise _malformed(f"the body has more than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise _malformed(f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise _malformed("the body must be a JSON object")
    _check_values(document)
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return document


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too great")
    return number


def _check_values(document: object) -> None:
    level: list[object] = [document]
    for _ in range(MAX_DEPTH):
        for value in level:
            if isinstance(value, str):
                _check_text(value)
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise _malformed(f"the body has more than {MAX_DEPTH} levels")


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return _names_and_values(value)
    return value if isinstance(value, list) else ()


def _names_and_values(value: dict[str, Any]) -> Iterator[object]:
    yield from value
    yield from value.values()


def _check_text(text: str) -> None:
    if not encodable(text):
        raise _malformed("the body holds a lone surrogate")


def encodable(text: str) -> bool:
    """Return whether a text is valid Unicode: no lone surrogate stands in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _malformed(message: str) -> RefusedError:
    return RefusedError("invalid", message, status=400)


T = TypeVar("T")
_COMING_BACK: Final = ("out_trade_no", "identifier", "subscription_id")
"""The arguments by which a merchant names what the sandbox has numbered."""
_SIZES: Final = (*range(21, 1, -1), *range(22, 65))
"""Characters of a number, the most welcome first: where it may be long, none is drawn twice by chance."""
_TRIES: Final = 100


class Telling(Protocol):
    """An answer of the service, such as that of `orders.place`."""

    @property
    def document(self) -> Any: ...  # noqa: D102 - its JSON


Named: TypeAlias = Telling | str
"""What names an order, a refund or a subscription: its number, or an answer that tells it."""


class Numbers:
    """Finds the number that a test means, who may give the answer that tells it in its place.

    Args:
        places: Where an answer tells something: paths into its document, by our names such as `out_trade_no`.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def told(self, name: str, named: object) -> str | None:
        """Return a text as it is, or what an answer tells; `None` where it is neither.

        Args:
            name: What an answer is asked for.
            named: The text, or the answer.
        """
        place, document = self._places.get(name), getattr(named, "document", None)
        text = named if isinstance(named, str) else value_at(document, place) if place else None
        return text if isinstance(text, str) and text and encodable(text) else None

    def of(self, name: str, named: object) -> str:
        """Return a number.

        Args:
            name: Of what: `out_trade_no`, `out_refund_no` or `subscription_id`.
            named: The number itself, or an answer.

        Raises:
            InvalidArgumentError: It is neither.
        """
        number = self.told(name, named)
        if number is None:
            rule = "a number as a text, or an answer of this sandbox that tells it"
            raise InvalidArgumentError(f"{name} must be {rule}, not {named!r}", field=name, rule=rule, value=named)
        return number


def known(found: T | None, thing: str, argument: str) -> T:
    """Return what was found.

    Raises:
        RefusedError: There is none.
    """
    if found is None:
        raise RefusedError("absent", f"there is no such {thing}", argument=argument)
    return found


class Numbering:
    """Gives numbers that a profile's merchants may send back: of its form, and not too long.

    Args:
        profile: The service's.
    """

    def __init__(self, profile: Profile) -> None:
        lengths = profile.accept.length
        self._pattern: Final = re.compile(profile.identifier)
        self._most: Final = min((lengths[name] for name in _COMING_BACK if name in lengths), default=max(_SIZES))

    def new(self, kind: str, taken: Callable[[str], object]) -> str:
        """Return a number that names nothing yet; where none of the profile's is found, it is of our own form.

        Args:
            kind: The capital that it begins with, where the profile allows that.
            taken: Says whether a number names something.
        """
        drawn = (number for _ in range(_TRIES) for number in _drawn(kind))
        return next((number for number in drawn if self._fits(number) and not taken(number)), _plain(kind))

    def _fits(self, number: str) -> bool:
        return len(number) <= self._most and self._pattern.fullmatch(number) is not None


def _drawn(kind: str) -> Iterator[str]:
    yield _plain(kind)
    yield str(uuid.uuid4())
    for size in _SIZES:
        digits = _digits(size - 1)
        yield from (kind + digits, kind.lower() + digits, _digits(size))


def _plain(kind: str) -> str:
    return kind + _digits(_SIZES[0] - 1)


def _digits(size: int) -> str:
    # None begins with 0: a profile may mean numbers that are counted.
    least = 10 ** (size - 1)
    return str(least + secrets.randbelow(9 * least))


class Store(Database):
    """Reads and writes what the sandbox keeps; whoever changes something does it in one `transaction`."""

    def add_order(self, order: Order) -> bool:
        """Keep a new order; `False` where its number is taken."""
        return self.changed(statements.ADD_ORDER, asdict(order))

    def order(self, out_trade_no: str) -> Order | None:
        """Return the order with this number."""
        return self.first(Order, statements.ORDER, key=out_trade_no)

    def order_by_payment(self, payment_id: str) -> Order | None:
        """Return the order with this payment number."""
        return self.first(Order, statements.ORDER_BY_PAYMENT, key=payment_id)

    def order_named(self, number: str) -> Order | None:
        """Return the order with this number, or else that with this payment number."""
        return self.order(number) or self.order_by_payment(number)

    def order_by_token(self, token: str) -> Order | None:
        """Return the order whose gateway page this token names."""
        return self.first(Order, statements.ORDER_AT_GATEWAY, key=token)

    def move_order(self, before: Order, after: Order) -> bool:
        """Change an order's state; `False` where it is no longer as it was."""
        values = {**asdict(after), "was": before.state, "declined": before.declines}
        return self.changed(statements.MOVE_ORDER, values)

    def reserve(self, out_trade_no: str, amount: int) -> bool:
        """Set aside what a refund gives back; `False` where the order has less left, or is not paid."""
        return self.changed(statements.RESERVE, {"out_trade_no": out_trade_no, "amount": amount})

    def release(self, out_trade_no: str, amount: int) -> None:
        """Give back what was set aside for a refund that failed."""
        self.changed(statements.RELEASE, {"out_trade_no": out_trade_no, "amount": amount})

    def count_orders(self, origin: str) -> int:
        """Count what one of the endpoints 1 (`payment`) and 2 (`order`) made."""
        return self.number(statements.COUNT_ORDERS, origin=origin)

    def add_refund(self, refund: Refund) -> None:
        """Keep a new refund."""
        self.changed(statements.ADD_REFUND, asdict(refund))

    def refund(self, out_refund_no: str) -> Refund | None:
        """Return the refund with this number."""
        return self.first(Refund, statements.REFUND, key=out_refund_no)

    def move_refund(self, out_refund_no: str, was: RefundState, state: RefundState) -> bool:
        """Change a refund's state; `False` where it is no longer as it was."""
        return self.changed(statements.MOVE_REFUND, {"out_refund_no": out_refund_no, "was": was, "state": state})

    def refunded(self, out_trade_no: str) -> int:
        """Sum up what of an order was given back."""
        return self.number(statements.REFUNDED, out_trade_no=out_trade_no)

    def refunds_of(self, out_trade_no: str) -> list[Refund]:
        """Return an order's refunds, in no order."""
        return self.read(Refund, statements.REFUNDS_OF, out_trade_no=out_trade_no)

    def count_refunds(self) -> int:
        """Count all refunds."""
        return self.number(statements.ALL_REFUNDS)

    def add_subscription(self, subscription: Subscription) -> None:
        """Keep a new subscription."""
        self.changed(statements.ADD_SUBSCRIPTION, asdict(subscription))

    def subscription(self, subscription_id: str) -> Subscription | None:
        """Return the subscription with this number."""
        return self.first(Subscription, statements.SUBSCRIPTION, key=subscription_id)

    def move_subscription(self, before: Subscription, after: Subscription) -> bool:
        """Change a subscription; `False` where it is no longer as it was."""
        values = {**asdict(after), "was": before.state, "before": before.period}
        return self.changed(statements.MOVE_SUBSCRIPTION, values)

    def add_charge(self, charge: Charge) -> None:
        """Keep what a period was billed; there is one charge to a period."""
        self.changed(statements.ADD_CHARGE, asdict(charge))

    def charges(self, subscription_id: str) -> list[Charge]:
        """Return what a subscription was billed, period by period."""
        return self.read(Charge, statements.CHARGES, subscription_id=subscription_id)

    def burn(self, merchant_id: str, nonce: str) -> bool:
        """Use up a nonce; `False` where it was used before (spec: Authentication, 3)."""
        return self.changed(statements.BURN, {"merchant_id": merchant_id, "nonce": nonce})

    def kept(self, name: str, draw: Callable[[], str]) -> str:
        """Return the key that is kept by a name, or one that is drawn now and kept from now on."""
        with self.transaction():
            if found := self.read(dict[str, str], statements.KEY, name=name):
                return found[0]["text"]
            drawn = draw()
            self.changed(statements.ADD_KEY, {"name": name, "text": drawn})
            return drawn

    def add_call(self, call: Answered) -> None:
        """Keep the record of a call that is about to be answered.

        Where the database cannot be written it is lost: the call was done, or refused, all the same.
        """
        with suppress(RefusedError), self.transaction():
            self.changed(statements.ADD_CALL, asdict(call))

    def calls(self, operation: str | None) -> list[Answered]:
        """Return the calls of one operation, or all, oldest first."""
        if operation is None:
            return self.read(Answered, statements.ALL_CALLS)
        return self.read(Answered, statements.CALLS, operation=operation)
