"""The catalogue of faults: what each does, by which options, and when it can.

Decides nothing about connections: `wire` inflicts what stands here on calls, `passage` on notifications.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

from attrs import field, frozen

from payasync.sandbox.faults import checking

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
    seconds: float = field(default=1.0, validator=checking.SECONDS)


@frozen(kw_only=True)
class Hang(Effect):
    """No answer, and the connection stays."""

    kind: ClassVar[str] = "hang"


@frozen(kw_only=True)
class ServerError(Effect):
    """An answer of 5xx."""

    kind: ClassVar[str] = "server_error"
    status: int = field(default=503, validator=checking.ERROR)


@frozen(kw_only=True)
class RateLimited(Effect):
    """An answer of 429."""

    kind: ClassVar[str] = "rate_limited"
    retry_after: checking.RetryAfter = field(default=None, validator=checking.RETRIES)


@frozen(kw_only=True)
class Refuse(Effect):
    """Nobody listens."""

    kind: ClassVar[str] = "refuse"
    seconds: float | None = field(default=None, validator=checking.UNTIL)


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
    size: int = field(default=16 << 20, validator=checking.BYTES)


@frozen(kw_only=True)
class GzipBomb(Effect):
    """The right answer with blanks behind it, packed."""

    kind: ClassVar[str] = "gzip_bomb"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)
    size: int = field(default=200 << 20, validator=checking.BYTES)


@frozen(kw_only=True)
class SlowDrip(Effect):
    """The right answer, byte by byte."""

    kind: ClassVar[str] = "slow_drip"
    phases: ClassVar[tuple[Phase, ...]] = ("after",)
    seconds: float = field(default=0.1, validator=checking.SECONDS)


@frozen(kw_only=True)
class Redirect(Effect):
    """An answer that sends the client elsewhere."""

    kind: ClassVar[str] = "redirect"
    status: int = field(default=302, validator=checking.REDIRECTION)
    location: str | None = field(default=None, validator=checking.ADDRESS)


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
    seconds: float = field(default=60.0, validator=checking.SPAN)


@frozen(kw_only=True)
class Delay(OfNotification):
    """It is sent late, by the sandbox's clock."""

    kind: ClassVar[str] = "notification.delay"
    seconds: float = field(default=60.0, validator=checking.SPAN)


@frozen(kw_only=True)
class Corrupt(OfNotification):
    """A character of its body changes after it was signed."""

    kind: ClassVar[str] = "notification.corrupt"


@frozen(kw_only=True)
class OldTimestamp(OfNotification):
    """It is signed with a time that has passed."""

    kind: ClassVar[str] = "notification.old_timestamp"
    seconds: int = field(default=86_400, validator=checking.AGE)


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
