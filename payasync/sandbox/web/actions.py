"""What can be done at the admin door, each by its name below `/admin`, from texts to a sentence that tells of it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from attrs import frozen

from payasync.sandbox.clock import Happened
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.model import Decision, RefusedError
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store

Fields: TypeAlias = Mapping[str, str]
Action: TypeAlias = Callable[[Fields], Awaitable[str]]
Ended = Literal["succeeded", "failed"]

T = TypeVar("T")
UNITS: Final = ("days", "hours", "minutes", "seconds")
MOST_DIGITS: Final = 7
_DECISIONS: Final[Mapping[str, Decision]] = {decision: decision for decision in get_args(Decision)}
_ENDS: Final[Mapping[str, Ended]] = {end: end for end in get_args(Ended)}


@frozen(kw_only=True)
class Actions:
    """Does what the controls ask for.

    Attributes:
        service: Moves orders and refunds.
        store: Holds the transaction around it.
        faults: Arms faults.
        advance: Moves the sandbox's time on by so many of a unit, and returns what fell due.
        resend: Sends a notification again, by its number.
    """

    service: Service
    store: Store
    faults: Faults
    advance: Callable[..., Awaitable[Iterable[Happened]]]
    resend: Callable[[str], object]

    def by_name(self) -> dict[str, Action]:
        """Return what can be done, by its name."""
        return {
            "orders/decide": self._decide,
            "refunds/settle": self._settle,
            "notifications/resend": self._resend,
            "clock/advance": self._advance,
            "faults/arm": self._arm,
            "faults/disarm": self._disarm,
        }

    async def _decide(self, fields: Fields) -> str:
        number, decision = _text(fields, "out_trade_no"), _one_of(fields, "decision", _DECISIONS)
        with self.store.transaction():
            order = self.service.decide(self.service.order(number), decision)
        return f"Order {number} is {order.state}."

    async def _settle(self, fields: Fields) -> str:
        number, state = _text(fields, "out_refund_no"), _one_of(fields, "state", _ENDS)
        with self.store.transaction():
            self.service.settle_refund(self.service.refund(number), state)
        return f"Refund {number} has {state}."

    async def _resend(self, fields: Fields) -> str:
        number = _text(fields, "notification_id")
        with self.store.transaction():
            self.resend(number)
        return f"Notification {number} is sent again."

    async def _advance(self, fields: Fields) -> str:
        unit = _one_of(fields, "unit", {unit: unit for unit in UNITS})
        amount = _whole(fields, "amount")
        happened = await self.advance(**{unit: amount})
        return f"The clock was advanced by {amount} {unit}. {_told(happened)}"

    async def _arm(self, fields: Fields) -> str:
        kind = _text(fields, "kind")
        options = {name: text for name, text in fields.items() if name != "kind"}
        return f"Armed: {self.faults.arm(kind, options)}."

    async def _disarm(self, fields: Fields) -> str:
        text = _text(fields, "fault")
        found = next((fault for fault in self.faults.armed() if str(fault) == text), None)
        if found is None:
            raise RefusedError("absent", "there is no such fault any more")
        found.disarm()
        return f"Disarmed: {text}."


def _text(fields: Fields, name: str) -> str:
    if text := fields.get(name, ""):
        return text
    raise RefusedError("invalid", f"{name} is missing", field=name)


def _one_of(fields: Fields, name: str, values: Mapping[str, T]) -> T:
    value = values.get(_text(fields, name))
    if value is None:
        raise RefusedError("invalid", f"{name} must be {' or '.join(values)}", field=name)
    return value


def _whole(fields: Fields, name: str) -> int:
    text = _text(fields, name)
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and int(text)):
        raise RefusedError("invalid", f"{name} must be a whole number from 1 to {10**MOST_DIGITS - 1}", field=name)
    return int(text)


def _told(happened: Iterable[Happened]) -> str:
    counted = Counter(each.what for each in happened)
    if not counted:
        return "Nothing fell due."
    return f"Fell due: {', '.join(f'{what} ({count})' for what, count in counted.items())}."
