"""The profile's words: each point that it leaves open is as the sandbox's own profile has it."""

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, fields_dict

from payasync.coverage import COMPARED
from payasync.operations import QUERY_PAYMENT, QUERY_REFUND, Operation
from payasync.profile import SIGN, Profile
from payasync.sandbox.arguments import Argument
from payasync.sandbox.paths import joined, overlaps
from payasync.sandbox.values import Kind, RefusedError, Why
from payasync.sandbox_profile import PROFILE
from payasync.shapes import AnswerShape, Code, NotificationShape, Parameter
from payasync.signing import SignatureScheme, SortedPairs

_NOT_EXECUTED: Final[tuple[Why, ...]] = ("invalid", "unauthenticated", "bad_signature", "nonce_used", "wrong_state")
"""In the order in which the sandbox's own profile lists its codes of this meaning."""

STATUSES: Final[Mapping[Why, int]] = {
    "invalid": 422,
    "unauthenticated": 401,
    "bad_signature": 401,
    "nonce_used": 403,
    "wrong_state": 409,
    "duplicate": 409,
    "absent": 404,
    "busy": 503,
}
"""The sandbox's own choice (spec: Errors, gaps)."""

_OTHERS: Final[Mapping[Why, str]] = {"duplicate": "duplicate", "absent": "absent", "busy": "retryable"}


_LIKE: Final[Mapping[str, str]] = {"started": "renewed"}
"""Events that a profile with fewer names tells by another one."""


class Vocabulary:
    """Names, values and places of one profile, with no point open.

    Args:
        profile: The service's.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile: Final = profile
        self.answer: Final = _filled(profile.answer)
        self.notification: Final = _complete(profile.notification)
        self.fields: Final[Mapping[str, str]] = {**PROFILE.fields, **_given(profile.fields)}
        self.date_format: Final[str] = profile.formats.get("start_date") or PROFILE.formats["start_date"]

    def parameter(self, operation: Operation) -> Parameter | None:
        """Return how endpoints 6 and 7 take their identifier; `None` for the others."""
        if operation is QUERY_PAYMENT:
            return self.profile.payment_status or PROFILE.payment_status
        if operation is QUERY_REFUND:
            return self.profile.refund_status or PROFILE.refund_status
        return None

    @property
    def title(self) -> str:
        """What people call the profile, and what they must know of it."""
        name = self.profile.name or "unnamed"
        if isinstance(self.signature, SortedPairs):
            return name
        return f"{name}: signatures are made and checked by its own {type(self.signature).__name__}, by nothing else"

    @property
    def signature(self) -> SignatureScheme:
        """The scheme, with the algorithm and the encoding of the sandbox's own where they are open."""
        scheme, own = self.profile.signature or SortedPairs(), PROFILE.signature
        if isinstance(scheme, SortedPairs) and isinstance(own, SortedPairs):
            return evolve(scheme, algorithm=scheme.algorithm or own.algorithm, encoding=scheme.encoding or own.encoding)
        return scheme

    def argument_name(self, operation: Operation, argument: Argument) -> str:
        """Return the wire name of an argument of an operation."""
        parameter = self.parameter(operation)
        return parameter.name if parameter else self.wire_name(argument.name, argument.point)

    def wire_name(self, argument: str, point: str) -> str:
        """Return an argument's wire name: the document's, or where it shows none the profile's."""
        return self.fields[point] if point else camel(argument)

    def state(self, thing: str, state: str) -> Code:
        """Return the service's value for one of our states of an order, payment, refund or subscription."""
        values = getattr(self.profile.states, thing).get(state) or getattr(PROFILE.states, thing)[state]
        value: Code = values[0]
        return value

    def about(self, name: str, thing: str = "") -> str:
        """Return the path at which answers name one of the things that they are compared in; it may be switched off."""
        path: str | None = getattr(self.answer, name)
        return path or ("amount" if (name, thing) == ("total_amt", "payment") else camel(name))

    def code(self, why: Why) -> Code:
        """Return the service's result code for a refusal."""
        if why in _OTHERS:
            return self._codes(_OTHERS[why])[0]
        codes = self._codes("not_executed")
        return codes[min(_NOT_EXECUTED.index(why), len(codes) - 1)]

    def status(self, why: Why) -> int:
        """Return the HTTP status of a refusal; "used before" is told by one that the profile reads so."""
        usual, duplicate = STATUSES[why], self.profile.http.duplicate
        return duplicate[0] if why == "duplicate" and duplicate and usual not in duplicate else usual

    def said(self, refused: RefusedError) -> str:
        """Return the service's message for a refusal: words, or where the profile has codes in messages, its code."""
        answer, meaning = self.profile.answer, _OTHERS.get(refused.why, "not_executed")
        if answer.message and not answer.code and getattr(self.profile.codes, meaning):
            return str(self.code(refused.why))
        # What it is, none but the merchant may read.
        hint = "; the sandbox's dashboard shows the text to sign" if refused.expected else ""
        return f"{refused.message}{hint}"

    def event(self, kind: Kind, name: str) -> str | None:
        """Return the service's name of an event; `None` where it has no such event.

        The profile's names are taken in the order of the sandbox's own, and the last stands for the rest; but of
        orders and payments only what has a name is told: `trade.paid` must not stand for one that has expired.
        """
        own = PROFILE.notification.kinds[kind]
        names = self.notification.kinds.get(kind) or own
        told = f"{kind}.{name}" if len(names) >= len(own) else f"{kind}.{_LIKE.get(name, name)}"
        position = own.index(told)
        if kind == "payment" and position >= len(names):
            return None
        return names[min(position, len(names) - 1)]

    def _codes(self, meaning: str) -> tuple[Code, ...]:
        codes: tuple[Code, ...] = getattr(self.profile.codes, meaning) or getattr(PROFILE.codes, meaning)
        return codes


def camel(name: str) -> str:
    """Return the wire name of an argument that the document shows: `total_amt` is `totalAmt`."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _given(table: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in table.items() if value}


NO_PATHS: Final = frozenset({"ok", "refusals_signed"})
"""Points of an answer that are no paths."""
_ALL_THINGS: Final = frozenset({"order", "payment", "refund", "subscription"})
TELLING: Final[Mapping[str, frozenset[str]]] = {
    "payment_id": frozenset({"order", "payment"}),
    "payment_status": frozenset({"payment"}),
    "redirect_url": frozenset({"order", "payment"}),
    "order_status": frozenset({"order"}),
    "refund_status": frozenset({"refund"}),
    "subscription_id": frozenset({"subscription"}),
    "subscription_status": frozenset({"subscription"}),
    "out_trade_no": frozenset({"order", "payment", "refund"}),
    "out_refund_no": frozenset({"refund"}),
    "total_amt": frozenset({"order", "payment", "refund"}),
    "refund_amt": frozenset({"refund"}),
    "currency": _ALL_THINGS,
    "merchant_id": _ALL_THINGS,
}
"""Of which things an answer's points tell; those that are not named here stand in every answer."""


def place(answer: AnswerShape, point: str) -> str:
    """Return the whole path of a point of an answer; nothing where it stands in none."""
    path: str = getattr(answer, point)
    if not path or path.startswith("header:"):
        return ""
    return joined(answer.data, path) if point in TELLING else path


def _filled(given: AnswerShape) -> AnswerShape:
    """Return a shape whose open points are filled; an empty `data` means the document, an empty `signature` none.

    A point that would fall onto one that the profile answers stays untold.
    """
    points = [name for name in fields_dict(AnswerShape) if name not in NO_PATHS]
    answered = [name for name in points if getattr(given, name)]
    # A compared point that is open has its wire name.
    unanswered = [name for name in points if name not in answered and name not in COMPARED]
    own: dict[str, Any] = {name: getattr(PROFILE.answer, name) for name in unanswered}
    filled = evolve(given, ok=given.ok or PROFILE.answer.ok, **own)
    untold: dict[str, Any] = {
        name: "" for name in unanswered if any(_collide(filled, name, other) for other in answered)
    }
    return evolve(filled, **untold)


def _collide(answer: AnswerShape, one: str, other: str) -> bool:
    if other == "data":
        return f"{answer.data}.".startswith(f"{place(answer, one)}.")
    together = TELLING.get(one, _ALL_THINGS) & TELLING.get(other, _ALL_THINGS)
    return bool(together) and overlaps(place(answer, one), place(answer, other))


def _complete(given: NotificationShape) -> NotificationShape:
    """Return a shape whose open points are as in the sandbox's own; where its kind is given, empty means absent."""
    if not given.verification:
        own = PROFILE.notification
        return evolve(
            given, **{name: getattr(own, name) for name in fields_dict(NotificationShape) if not getattr(given, name)}
        )
    if given.verification == "body" and not given.signature:
        return evolve(given, signature=joined(given.data, SIGN))
    return given
