"""Numbers that the sandbox gives, and things that a number must name."""

import re
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from payasync.errors import InvalidArgumentError
from payasync.profile import Profile
from payasync.sandbox import paths
from payasync.sandbox.strict import encodable
from payasync.sandbox.values import RefusedError

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
