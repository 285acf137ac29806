"""Numbers that the sandbox gives, and things that a number must name."""

import secrets
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from payasync.errors import InvalidArgumentError
from payasync.sandbox import paths
from payasync.sandbox.strict import encodable
from payasync.sandbox.values import RefusedError

T = TypeVar("T")


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
        text = named if isinstance(named, str) else paths.found(document, place) if place else None
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


def new_number(kind: str) -> str:
    """Return a number that names nothing yet; capitals and digits only: profiles narrow what a number may be."""
    return f"{kind}{secrets.randbelow(10**20):020}"
