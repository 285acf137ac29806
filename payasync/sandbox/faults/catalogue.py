"""The catalogue of faults: what each does, by which options, and when it can."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from attrs import field, frozen

from payasync.errors import InvalidArgumentError

if TYPE_CHECKING:
    from attrs import Attribute

RetryAfter: TypeAlias = int | timedelta | datetime | str | None

RETRY_AFTER: Final[Mapping[str, RetryAfter]] = MappingProxyType(
    {
        "absent": None,
        "date": timedelta(seconds=2),
        "past": timedelta(days=-1),
        "nonsense": "soon",
        "huge": "9" * 30,
    }
)
"""Kinds of Retry-After that have a name; a date is reckoned from the moment at which the fault fires."""

MOST_BYTES: Final = 1 << 30
"""What the sandbox itself sends at most, or has a bomb become: larger ones prove no more."""

LONGEST: Final = 300 * 86_400
"""Seconds by the sandbox's clock that a notification may be held back."""


def wrong(name: str, rule: str, value: object) -> InvalidArgumentError:
    """Return the error about an argument of a fault."""
    return InvalidArgumentError(f"{name} must be {rule}, not {value!r}", field=name, rule=rule, value=value)


def must(rule: str, holds: Callable[[Any], bool]) -> Callable[[object, "Attribute[Any]", Any], None]:
    """Return a field's check.

    Args:
        rule: What the value must be, in words.
        holds: Whether it is.
    """

    def check(_: object, attribute: "Attribute[Any]", value: Any) -> None:
        if not holds(value):
            raise wrong(attribute.name, rule, value)

    return check


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_retry_after(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isprintable()
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return value is None or isinstance(value, timedelta) or (type(value) is int and value >= 0)


def _is_address(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value)


SECONDS: Final = must("a number of seconds above 0", lambda value: _number(value) and 0 < value < inf)
SPAN: Final = must(
    f"a number of seconds above 0, {LONGEST} at most", lambda value: _number(value) and 0 < value <= LONGEST
)
UNTIL: Final = must(
    "a number of seconds above 0, or none", lambda value: value is None or (_number(value) and 0 < value < inf)
)
AGE: Final = must(
    f"an integer of seconds from 1 to {LONGEST}", lambda value: type(value) is int and 1 <= value <= LONGEST
)
BYTES: Final = must(f"an integer from 1 to {MOST_BYTES}", lambda value: type(value) is int and 1 <= value <= MOST_BYTES)
ERROR: Final = must("a status from 500 to 599", lambda value: type(value) is int and 500 <= value < 600)  # noqa: PLR2004 - 5xx
REDIRECTION: Final = must("301, 302, 303, 307 or 308", lambda value: value in (301, 302, 303, 307, 308))
RETRIES: Final = must(
    f"seconds, a timedelta, a datetime with a time zone, none, one of {', '.join(RETRY_AFTER)}, or a header's text",
    _is_retry_after,
)
ADDRESS: Final = must("an address in ASCII without blanks", _is_address)


Phase: TypeAlias = Literal["before", "after"]
"""Before: nothing is done; after: all is done, and committed."""


@frozen(kw_only=True)
class Effect:
    """What a fault does; each class of them is a kind of fault.

    Attributes:
        kind: Its name.
        phases: When it can happen; the first one unless it is said. A notification has none.
    """

    kind: ClassVar[str]
    phases: ClassVar[tuple[Phase, ...]] = ("before", "after")


@frozen(kw_only=True)
class Latency(Effect):
    """The answer comes late."""

    kind: ClassVar[str] = "latency"
    seconds: float = field(default=1.0, validator=SECONDS)


@frozen(kw_only=True)
class Hang(Effect):
    """No answer, and the connection stays."""

    kind: ClassVar[str] = "hang"


@frozen(kw_only=True)
class ServerError(Effect):
    """An answer of 5xx."""

    kind: ClassVar[str] = "server_error"
    status: int = field(default=503, validator=ERROR)


@frozen(kw_only=True)
class RateLimited(Effect):
    """An answer of 429."""

    kind: ClassVar[str] = "rate_limited"
    retry_after: RetryAfter = field(default=None, validator=RETRIES)


@frozen(kw_only=True)
class Refuse(Effect):
    """Nobody listens."""

    kind: ClassVar[str] = "refuse"
    seconds: float | None = field(default=None, validator=UNTIL)


@frozen(kw_only=True)
class ResetBefore(Effect):
    """A reset in place of the call."""

    kind: ClassVar[str] = "reset_before"
    phases: ClassVar[tuple[Phase, ...]] = ("before",)


@frozen(kw_only=True)
class ResetAfterCommit(Effect):
    """A reset in place of the answer."""

    kind: ClassVar[str] = "reset_after_commit"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)


@frozen(kw_only=True)
class TruncatedBody(Effect):
    """Half of the body that the headers promise."""

    kind: ClassVar[str] = "truncated_body"
    phases: ClassVar[tuple[Phase, ...]] = ("after", "before")


@frozen(kw_only=True)
class MalformedJson(Effect):
    """A whole body that is no JSON."""

    kind: ClassVar[str] = "malformed_json"
    phases: ClassVar[tuple[Phase, ...]] = ("after", "before")


@frozen(kw_only=True)
class WrongContentType(Effect):
    """The right answer, called a web page."""

    kind: ClassVar[str] = "wrong_content_type"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)


@frozen(kw_only=True)
class HugeBody(Effect):
    """The right answer, with blanks behind it."""

    kind: ClassVar[str] = "huge_body"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)
    size: int = field(default=16 << 20, validator=BYTES)


@frozen(kw_only=True)
class GzipBomb(Effect):
    """The right answer with blanks behind it, packed."""

    kind: ClassVar[str] = "gzip_bomb"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)
    size: int = field(default=200 << 20, validator=BYTES)


@frozen(kw_only=True)
class SlowDrip(Effect):
    """The right answer, byte by byte."""

    kind: ClassVar[str] = "slow_drip"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)
    seconds: float = field(default=0.1, validator=SECONDS)


@frozen(kw_only=True)
class Redirect(Effect):
    """An answer that sends the client elsewhere."""

    kind: ClassVar[str] = "redirect"
    status: int = field(default=302, validator=REDIRECTION)
    location: str | None = field(default=None, validator=ADDRESS)


@frozen(kw_only=True)
class StaleKeepAlive(Effect):
    """A connection that was kept is closed as its next call comes."""

    kind: ClassVar[str] = "stale_keep_alive"
    phases: ClassVar[tuple[Phase, ...]] = ("before",)


@frozen(kw_only=True)
class BeforeAnswer(Effect):
    """The notifications of a call arrive before its answer."""

    kind: ClassVar[str] = "notification.before_answer"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)


@frozen(kw_only=True)
class OfNotification(Effect):
    """What befalls a notification on its way."""

    phases: ClassVar[tuple[Phase, ...]] = ()


@frozen(kw_only=True)
class Drop(OfNotification):
    """It is lost."""

    kind: ClassVar[str] = "notification.drop"


@frozen(kw_only=True)
class Duplicate(OfNotification):
    """It arrives twice."""

    kind: ClassVar[str] = "notification.duplicate"


@frozen(kw_only=True)
class Reorder(OfNotification):
    """A later one overtakes it."""

    kind: ClassVar[str] = "notification.reorder"
    seconds: float = field(default=60.0, validator=SPAN)


@frozen(kw_only=True)
class Delay(OfNotification):
    """It is sent late, by the sandbox's clock."""

    kind: ClassVar[str] = "notification.delay"
    seconds: float = field(default=60.0, validator=SPAN)


@frozen(kw_only=True)
class Corrupt(OfNotification):
    """A character of its body changes after it was signed."""

    kind: ClassVar[str] = "notification.corrupt"


@frozen(kw_only=True)
class OldTimestamp(OfNotification):
    """It is signed with a time that has passed."""

    kind: ClassVar[str] = "notification.old_timestamp"
    seconds: int = field(default=86_400, validator=AGE)


KINDS: Final[Mapping[str, type[Effect]]] = MappingProxyType(
    {
        effect.kind: effect
        for effect in (
            Latency,
            Hang,
            ServerError,
            RateLimited,
            Refuse,
            ResetBefore,
            ResetAfterCommit,
            TruncatedBody,
            MalformedJson,
            WrongContentType,
            HugeBody,
            GzipBomb,
            SlowDrip,
            Redirect,
            StaleKeepAlive,
            BeforeAnswer,
            Drop,
            Duplicate,
            Reorder,
            Delay,
            Corrupt,
            OldTimestamp,
        )
    }
)
"""By name."""
