"""The profile's words: each point that it leaves open is as the sandbox's own profile has it."""

from collections.abc import Mapping
from typing import Final

from attrs import evolve, fields_dict

from payasync.operations import QUERY_PAYMENT, QUERY_REFUND, Operation
from payasync.profile import Profile
from payasync.sandbox.values import Kind, Why
from payasync.sandbox_profile import PROFILE
from payasync.shapes import AnswerShape, Code, NotificationShape, Parameter

_NOT_EXECUTED: Final[tuple[Why, ...]] = ("invalid", "unauthenticated", "bad_signature", "nonce_used", "wrong_state")
"""In the order in which the sandbox's own profile lists its codes of this meaning."""

_OTHERS: Final[Mapping[Why, str]] = {"duplicate": "duplicate", "absent": "absent", "busy": "retryable"}


class Vocabulary:
    """Names, values and places of one profile, with no point open.

    Args:
        profile: The service's.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile: Final = profile
        self.answer: Final = _filled(profile.answer)
        self.notification: Final[NotificationShape] = (
            profile.notification if profile.notification.verification else PROFILE.notification
        )
        self.fields: Final[Mapping[str, str]] = {**PROFILE.fields, **_given(profile.fields)}
        self.date_format: Final[str] = profile.formats.get("start_date") or PROFILE.formats["start_date"]

    def parameter(self, operation: Operation) -> Parameter | None:
        """Return how endpoints 6 and 7 take their identifier; `None` for the others."""
        if operation is QUERY_PAYMENT:
            return self.profile.payment_status or PROFILE.payment_status
        if operation is QUERY_REFUND:
            return self.profile.refund_status or PROFILE.refund_status
        return None

    def wire_name(self, argument: str, point: str) -> str:
        """Return an argument's wire name: the document's, or where it shows none the profile's."""
        return self.fields[point] if point else camel(argument)

    def state(self, thing: str, state: str) -> Code:
        """Return the service's value for one of our states of an order, payment, refund or subscription."""
        values = getattr(self.profile.states, thing).get(state) or getattr(PROFILE.states, thing)[state]
        value: Code = values[0]
        return value

    def code(self, why: Why) -> Code:
        """Return the service's result code for a refusal."""
        if why in _OTHERS:
            return self._codes(_OTHERS[why])[0]
        codes = self._codes("not_executed")
        return codes[min(_NOT_EXECUTED.index(why), len(codes) - 1)]

    def event(self, kind: Kind, name: str) -> str:
        """Return the service's name of an event."""
        own = PROFILE.notification.kinds[kind]
        names = self.notification.kinds.get(kind) or own
        return names[min(own.index(f"{kind}.{name}"), len(names) - 1)]

    def _codes(self, meaning: str) -> tuple[Code, ...]:
        codes: tuple[Code, ...] = getattr(self.profile.codes, meaning) or getattr(PROFILE.codes, meaning)
        return codes


def camel(name: str) -> str:
    """Return the wire name of an argument that the document shows: `total_amt` is `totalAmt`."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _given(table: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in table.items() if value}


def _filled(given: AnswerShape) -> AnswerShape:
    """Return a shape whose open points are filled; an empty `data` means the document, an empty `signature` none."""
    empty = {
        name: getattr(PROFILE.answer, name)
        for name in fields_dict(AnswerShape)
        if name not in {"data", "signature"} and not getattr(given, name)
    }
    return evolve(given, **empty)
