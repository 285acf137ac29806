"""The catalogue of faults: what each one does, when it can happen, and the options that it takes."""

from collections.abc import Callable, Container, Mapping
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from payasync.settings import is_number
from payasync.wire.validators import invalid_argument

Phase: TypeAlias = Literal["before", "after"]
"""Before the commit nothing was done; after it everything was done and stored."""
RetryAfter: TypeAlias = int | timedelta | datetime | str | None

RETRY_AFTER: Final[Mapping[str, RetryAfter]] = {
    "absent": None,
    "date": timedelta(seconds=2),
    "past": timedelta(days=-1),
    "nonsense": "soon",
    "huge": "9" * 30,
}
"""Named values of Retry-After; a timedelta counts from the moment at which the fault fires."""

MAX_BYTES: Final = 1 << 30
"""The largest body that the sandbox sends, or that a gzip bomb unpacks to."""
MAX_SECONDS: Final = 300 * 86_400
"""How long a notification can be held back, by the sandbox's clock."""
ALWAYS: Final = "always"
"""What a form says for `times=None`."""


def is_count(value: object) -> bool:
    """Return whether a value is an integer of 1 or more, and not a bool."""
    return type(value) is int and value >= 1


def _is_retry_after(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isprintable()
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return value is None or isinstance(value, timedelta) or (type(value) is int and value >= 0)


def _is_address(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value)


@frozen
class Option:
    """An argument of a fault.

    Attributes:
        label: Its name in a form.
        rule: What it must be, in words.
        allows: Returns whether a value follows the rule.
        parse: Returns the value that a text of a form stands for.
        placeholder: What a form shows while nothing is entered.
    """

    label: str
    rule: str
    allows: Callable[[Any], bool]
    parse: Callable[[str], Any] = str
    placeholder: str = ""

    @property
    def mode(self) -> str:
        """The `inputmode` of its field in a form."""
        return "numeric" if self.parse is int else "decimal" if self.parse is float else "text"

    def check(self, name: str, value: object) -> None:
        """Check a value.

        Raises:
            InvalidArgumentError: It breaks the rule.
        """
        if not self.allows(value):
            raise invalid_argument(name, self.rule, value)

    def read(self, name: str, text: str) -> Any:
        """Return the value that a text stands for.

        Raises:
            InvalidArgumentError: The text cannot be read.
        """
        try:
            return self.parse(text.strip())
        except ValueError:
            raise invalid_argument(name, self.rule, text) from None


def _seconds(rule: str, most: float = inf, *, optional: bool = False) -> Option:
    def allows(value: object) -> bool:
        return (optional and value is None) or (is_number(value) and 0 < value <= most and value != inf)

    return Option("Seconds", f"a number of seconds above 0{rule}", allows, float)


def _count(label: str, rule: str, allowed: Container[int]) -> Option:
    return Option(label, rule, lambda value: is_count(value) and value in allowed, int)


_SECONDS: Final = _seconds("")
_UNTIL: Final = _seconds(", or None", optional=True)
_DELAY: Final = _seconds(f" and up to {MAX_SECONDS}", MAX_SECONDS)
_AGE: Final = _count("Seconds", f"an integer of seconds from 1 to {MAX_SECONDS}", range(1, MAX_SECONDS + 1))
_ERROR_STATUS: Final = _count("HTTP status", "a status from 500 to 599", range(500, 600))
_REDIRECT_STATUS: Final = _count("HTTP status", "301, 302, 303, 307 or 308", (301, 302, 303, 307, 308))
_SIZE: Final = _count("Bytes", f"an integer from 1 to {MAX_BYTES}", range(1, MAX_BYTES + 1))
_RETRY_AFTER_RULE: Final = (
    f"seconds, a timedelta, a datetime with a time zone, None, one of {', '.join(RETRY_AFTER)}, or the text of a header"
)
_RETRY_AFTER: Final = Option("Retry-After", _RETRY_AFTER_RULE, _is_retry_after)
_LOCATION: Final = Option("Location", "an address in ASCII without spaces", _is_address)


def _or_none(allows: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or allows(value)


TRIGGER_OPTIONS: Final[Mapping[str, Option]] = {
    "order": Option(
        "Only this number",
        "the number of an order, refund or subscription",
        _or_none(lambda value: isinstance(value, str) and value != ""),
        placeholder="any",
    ),
    "nth": Option("From the nth one", "an integer of 1 or more", is_count, int, "1"),
    "times": Option(
        "How often",
        "an integer of 1 or more, or None",
        _or_none(is_count),
        lambda text: None if text == ALWAYS else int(text),
        f"1, or {ALWAYS}",
    ),
    "probability": Option(
        "Probability",
        "a number above 0 and up to 1",
        _or_none(lambda value: is_number(value) and 0 < value <= 1),
        float,
        "0 to 1",
    ),
    "seed": Option("Seed", "an integer", _or_none(lambda value: type(value) is int), int),
}
"""The options that every fault takes."""


@frozen
class FaultKind:
    """A row of the catalogue.

    Attributes:
        name: Such as `reset_after_commit` or `notification.drop`.
        summary: What it does, in words.
        phases: When it can happen; the first is the default. A fault of a notification has none.
        options: Those that it takes beside `TRIGGER_OPTIONS`.
    """

    name: str
    summary: str
    phases: tuple[Phase, ...]
    options: Mapping[str, Option] = field(factory=dict)

    @property
    def of_notification(self) -> bool:
        """Whether a delivery meets it, and not a call."""
        return not self.phases

    def check(self, options: Mapping[str, Any]) -> None:
        """Check the names and values of options.

        Raises:
            InvalidArgumentError: This fault has no such option, or the value breaks its rule.
        """
        known = {**self.options, **TRIGGER_OPTIONS}
        for name, value in options.items():
            if name in known:
                known[name].check(name, value)
            elif name != "phase":
                raise invalid_argument("option", f"one of {', '.join(known)} for {self.name}", name)
        if options.get("probability") is None and options.get("seed") is not None:
            raise invalid_argument("seed", "given with a probability", options["seed"])
        phase = options.get("phase", next(iter(self.phases), None))
        if phase not in (self.phases or (None,)):
            rule = " or ".join(self.phases) or "left out: a notification is sent after the commit"
            raise invalid_argument("phase", f"{rule} for {self.name}", phase)

    def read(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the options that the texts of a form stand for; an empty text is left out.

        Raises:
            InvalidArgumentError: A text cannot be read.
        """
        known = {**self.options, **TRIGGER_OPTIONS}
        entered = {name: text for name, text in texts.items() if text.strip()}
        return {name: known[name].read(name, text) if name in known else text for name, text in entered.items()}


_BEFORE: Final[tuple[Phase, ...]] = ("before",)
_AFTER: Final[tuple[Phase, ...]] = ("after",)
_EITHER: Final[tuple[Phase, ...]] = ("before", "after")
_AFTER_OR_BEFORE: Final[tuple[Phase, ...]] = ("after", "before")

KINDS: Final[Mapping[str, FaultKind]] = {
    kind.name: kind
    for kind in (
        FaultKind("latency", "The response is late, in real time.", _EITHER, {"seconds": _SECONDS}),
        FaultKind("hang", "There is no response, and the connection stays open.", _EITHER),
        FaultKind("server_error", "The response is a 5xx.", _EITHER, {"status": _ERROR_STATUS}),
        FaultKind("rate_limited", "The response is a 429.", _EITHER, {"retry_after": _RETRY_AFTER}),
        FaultKind("refuse", "Connections are refused, also those of the dashboard.", _EITHER, {"seconds": _UNTIL}),
        FaultKind("reset_before", "The connection is reset, and nothing was done.", _BEFORE),
        FaultKind("reset_after_commit", "Everything was done, and the connection is reset.", _AFTER),
        FaultKind("truncated_body", "The connection closes after half of the body.", _AFTER_OR_BEFORE),
        FaultKind("malformed_json", "The body lacks its last bracket.", _AFTER_OR_BEFORE),
        FaultKind("wrong_content_type", "The response is right, but says text/html.", _AFTER),
        FaultKind("huge_body", "The response is right, and many spaces follow it.", _AFTER, {"size": _SIZE}),
        FaultKind("gzip_bomb", "The response unpacks to a thousand times its size.", _AFTER, {"size": _SIZE}),
        FaultKind("slow_drip", "The response arrives byte by byte.", _AFTER, {"seconds": _SECONDS}),
        FaultKind(
            "redirect",
            "The response redirects, by default to the same call.",
            _EITHER,
            {"status": _REDIRECT_STATUS, "location": _LOCATION},
        ),
        FaultKind("stale_keep_alive", "An idle connection closes at its next call.", _BEFORE),
        FaultKind("notification.before_answer", "Notifications of a call arrive before its response.", _AFTER),
        FaultKind("notification.drop", "The notification is lost, and sent again later.", ()),
        FaultKind("notification.duplicate", "The notification arrives twice.", ()),
        FaultKind("notification.reorder", "A later notification overtakes it.", (), {"seconds": _DELAY}),
        FaultKind("notification.delay", "The notification is late, by the sandbox's clock.", (), {"seconds": _DELAY}),
        FaultKind("notification.corrupt", "A character of its body changes after it was signed.", ()),
        FaultKind("notification.old_timestamp", "Its signed timestamp is old.", (), {"seconds": _AGE}),
    )
}
"""All faults, by name."""


def find_kind(name: str) -> FaultKind:
    """Return a row of the catalogue.

    Raises:
        InvalidArgumentError: There is no such fault.
    """
    if name not in KINDS:
        raise invalid_argument("kind", f"one of {', '.join(KINDS)}", name)
    return KINDS[name]
