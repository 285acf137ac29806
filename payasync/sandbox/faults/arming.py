"""`sandbox.faults`: a method for each kind of fault that a call or a notification can meet."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Unpack

from attrs import fields_dict

from payasync.errors import ConfigurationError
from payasync.profile.schema import HttpCodes
from payasync.sandbox.faults.armed_faults import Armoury
from payasync.sandbox.faults.catalogue import (
    KINDS,
    BeforeAnswer,
    Corrupt,
    Delay,
    Drop,
    Duplicate,
    Effect,
    GzipBomb,
    Hang,
    HugeBody,
    Latency,
    MalformedJson,
    OldTimestamp,
    RateLimited,
    Redirect,
    Refuse,
    Reorder,
    ResetAfterCommit,
    ResetBefore,
    RetryAfter,
    ServerError,
    SlowDrip,
    StaleKeepAlive,
    TruncatedBody,
    WrongContentType,
    wrong,
)
from payasync.sandbox.faults.trigger import ANY, Aiming, Fault, Options
from payasync.sandbox.server import Server

_ENDLESS: Final = "always"


def _times(text: str) -> int | None:
    return None if text == _ENDLESS else int(text)


_READ: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "order": (str, "a number"),
    "nth": (int, "an integer"),
    "times": (_times, f"an integer, or {_ENDLESS}"),
    "probability": (float, "a number"),
    "seed": (int, "an integer"),
    "phase": (str, "before or after"),
    "seconds": (float, "a number"),
    "status": (int, "an integer"),
    "retry_after": (str, "a text"),
    "size": (int, "an integer"),
    "location": (str, "a text"),
}
_ON: Final = "on"


def options_of(kind: str) -> tuple[str, ...]:
    """Return the names of the options that a kind of fault takes, in the order of a form.

    Raises:
        InvalidArgumentError: There is no such kind.
    """
    effect = _effect(kind)
    aim = [name for name in Options.__annotations__ if name != "phase" or len(effect.phases) > 1]
    return (_ON, *fields_dict(effect), *aim)


def _effect(kind: str) -> type[Effect]:
    if kind not in KINDS:
        raise wrong("kind", f"one of {', '.join(KINDS)}", kind)
    return KINDS[kind]


def read_fault(kind: str, options: Mapping[str, str]) -> tuple[Effect, str | None, Options]:
    """Return what a fault does, what it is on, if that is said, and how it is aimed.

    Args:
        kind: Its name, such as `reset_after_commit` or `notification.drop`.
        options: By name; an empty text is none.

    Raises:
        InvalidArgumentError: There is no such kind, it has no such option, or the option cannot be that.
    """
    effect, given = _effect(kind), {name: text.strip() for name, text in options.items() if text.strip()}
    allowed = options_of(kind)
    for name in given:
        if name not in allowed and name != "phase":
            raise wrong("option", f"one of {', '.join(allowed)} for {kind}", name)
    read_in = {name: _read(name, text) for name, text in given.items() if name != _ON}
    own = {name: read_in.pop(name) for name in fields_dict(effect) if name in read_in}
    if effect is Refuse and not own:
        raise wrong("seconds", "given: nobody could end it, for the door is shut to all", "")
    aim: Options = read_in  # type: ignore[assignment] # `options_of` has no other names
    return effect(**own), given.get(_ON), aim


def _read(name: str, text: str) -> Any:
    convert, rule = _READ[name]
    try:
        value = convert(text)
    except ValueError:
        pass
    else:
        return int(value) if isinstance(value, float) and value.is_integer() else value
    raise wrong(name, rule, text)


class NotificationFaults:
    """Arms faults of notifications.

    Each method takes what the notification is about, `"payment"`, `"refund"`, `"subscription"`, or `"*"` for any,
    and the options of `Faults` without `phase`. What counts is the attempt to deliver: a redelivery is one more,
    and one that was held back is not counted again.

    Args:
        armoury: The sandbox's.
    """

    def __init__(self, armoury: Armoury) -> None:
        self._armoury = armoury

    def drop(self, about: str = ANY, **aim: Unpack[Aiming]) -> Fault:
        """Lose it on its way: the attempt has failed, and it is sent again when its next one is due."""
        return self._armoury.arm(Drop(), about, aim)

    def duplicate(self, about: str = ANY, **aim: Unpack[Aiming]) -> Fault:
        """Deliver it twice."""
        return self._armoury.arm(Duplicate(), about, aim)

    def reorder(self, about: str = ANY, *, seconds: float = 60.0, **aim: Unpack[Aiming]) -> Fault:
        """Hold it back until another one has been attempted, or so many seconds of the sandbox's clock have passed."""
        return self._armoury.arm(Reorder(seconds=seconds), about, aim)

    def delay(self, about: str = ANY, *, seconds: float = 60.0, **aim: Unpack[Aiming]) -> Fault:
        """Send it so many seconds later, by the sandbox's clock."""
        return self._armoury.arm(Delay(seconds=seconds), about, aim)

    def corrupt(self, about: str = ANY, **aim: Unpack[Aiming]) -> Fault:
        """Change one character of its body after it was signed: the signature is no longer right."""
        return self._armoury.arm(Corrupt(), about, aim)

    def old_timestamp(self, about: str = ANY, *, seconds: int = 86_400, **aim: Unpack[Aiming]) -> Fault:
        """Sign it, rightly, with a time so many seconds ago."""
        return self._armoury.arm(OldTimestamp(seconds=seconds), about, aim)

    def before_answer(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Deliver what a call has to tell before the call itself is answered.

        Args:
            operation: The call's, such as `refunds.create`; not a kind of notification.
            aim: As for all.
        """
        return self._armoury.arm(BeforeAnswer(), operation, aim)


class Faults:
    """Arms faults of the service.

    Each method arms one kind, and returns it. All take the operation that it is aimed at, such as
    `"refunds.create"`, or `"*"` for any, and these options by keyword:

    - `order`: only calls that name this order, refund or subscription;
    - `nth`: from the nth matching call on, counted from 1 as it is armed (default 1);
    - `times`: so often at most; `None`: without end (default 1, or `None` with a probability);
    - `probability`: above 0 and up to 1, drawn at each matching call, with `seed` to draw the same again; without a
      seed one is drawn, and can be read from the fault;
    - `phase`: `before`, nothing is done, or `after`, all is done and committed; where a kind has both, the one
      that its method names first is the default.

    A call meets one fault: the first that was armed. Leaving `async with Sandbox()` while a fault was armed and never
    fired raises `FaultNeverFiredError`. Faults outlive the sandbox's end and its next start.

    Args:
        http: What the profile says that statuses mean: no fault contradicts it.

    Attributes:
        notifications: Arms the faults of notifications.
        armoury: What is armed: calls and notifications meet it.

    Raises:
        InvalidArgumentError: By each method: an operation that there is not, or an option that cannot be so.
    """

    def __init__(self, http: HttpCodes | None = None) -> None:
        self._refused_first = http is not None and http.rate_limit_precedes_execution
        self.armoury: Final = Armoury()
        self._door: Server | None = None
        self.notifications: Final = NotificationFaults(self.armoury)

    def armed(self) -> list[Fault]:
        """Return the faults that may still happen, in the order in which they were armed."""
        return self.armoury.armed()

    def clear(self) -> None:
        """Disarm all."""
        self.armoury.clear()

    def check(self) -> None:
        """Check that every fault has happened, those aside that were disarmed.

        Raises:
            FaultNeverFiredError: One has not; it is named.
        """
        self.armoury.check()

    def latency(self, operation: str = ANY, *, seconds: float = 1.0, **aim: Unpack[Options]) -> Fault:
        """Answer late, in real time; the wait is before the commit, or after it."""
        return self._arm(Latency(seconds=seconds), operation, aim)

    def hang(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Never answer, before or after the commit; the connection stays open until the sandbox ends."""
        return self._arm(Hang(), operation, aim)

    def server_error(self, operation: str = ANY, *, status: int = 503, **aim: Unpack[Options]) -> Fault:
        """Answer 5xx in the shape of all refusals, before or after the commit."""
        return self._arm(ServerError(status=status), operation, aim)

    def rate_limited(self, operation: str = ANY, *, retry_after: RetryAfter = None, **aim: Unpack[Options]) -> Fault:
        """Answer 429 in the shape of all refusals, before or after the commit.

        Before it only, where the profile says `http.rate_limit_precedes_execution`: a client that goes by that
        rightly sends again, and a fault after the commit would have it pay twice.

        Args:
            operation: As for all.
            retry_after: Seconds; a timedelta or a datetime, sent as a date; `None`, no such header; `absent`, `date`,
                `past`, `nonsense` or `huge`; any other text is sent as it stands.
            aim: As for all.
        """
        return self._arm(RateLimited(retry_after=retry_after), operation, aim)

    def refuse(self, operation: str | None = None, *, seconds: float | None = None, **aim: Unpack[Options]) -> Fault:
        """Listen no more: the kernel itself refuses connections, and those that are idle are closed.

        Nobody can say whether somebody was refused: the fault has fired as soon as the door is shut.

        Args:
            operation: The call at which this happens, before or after its commit; it gets a reset. `None`: at once.
            seconds: Until it listens again, in real time; `None`: until the fault is disarmed. While another fault of
                this kind goes on, it does not.
            aim: As for all, where there is an operation.

        Raises:
            ConfigurationError: At once, where the sandbox does not run.
        """
        effect = Refuse(seconds=seconds)
        if operation is not None or aim:
            return self._arm(effect, operation or ANY, aim)
        if self._door is None:
            raise ConfigurationError("the sandbox does not run: nobody listens")
        fault = self._arm(effect, ANY, aim)
        fault.fire()
        self._door.shut(seconds, by=fault)
        return fault

    def reset_before(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Send a TCP reset in place of doing anything."""
        return self._arm(ResetBefore(), operation, aim)

    def reset_after_commit(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Do what is asked, commit it, and send a TCP reset in place of the answer."""
        return self._arm(ResetAfterCommit(), operation, aim)

    def truncated_body(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Send half of the body that Content-Length promises, and close; after or before the commit."""
        return self._arm(TruncatedBody(), operation, aim)

    def malformed_json(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Send a whole body that lacks its last bracket; after or before the commit."""
        return self._arm(MalformedJson(), operation, aim)

    def wrong_content_type(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Send the right answer as `text/html`."""
        return self._arm(WrongContentType(), operation, aim)

    def huge_body(self, operation: str = ANY, *, size: int = 16 << 20, **aim: Unpack[Options]) -> Fault:
        """Send the right answer with blanks behind it: so many bytes in all, 1 GiB at most."""
        return self._arm(HugeBody(size=size), operation, aim)

    def gzip_bomb(self, operation: str = ANY, *, size: int = 200 << 20, **aim: Unpack[Options]) -> Fault:
        """Send, packed to a thousandth, the right answer with blanks behind it: unpacked, so many bytes at least."""
        return self._arm(GzipBomb(size=size), operation, aim)

    def slow_drip(self, operation: str = ANY, *, seconds: float = 0.1, **aim: Unpack[Options]) -> Fault:
        """Send the right answer byte by byte, so many seconds of real time apart."""
        return self._arm(SlowDrip(seconds=seconds), operation, aim)

    def redirect(
        self, operation: str = ANY, *, status: int = 302, location: str | None = None, **aim: Unpack[Options]
    ) -> Fault:
        """Answer 301, 302, 303, 307 or 308, before or after the commit.

        Args:
            operation: As for all.
            status: Which.
            location: Where to; `None`: to the very address of the call, so that who follows a 307 does it again.
            aim: As for all.
        """
        return self._arm(Redirect(status=status, location=location), operation, aim)

    def stale_keep_alive(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Close a connection that was kept open, as the next call comes over it; first calls do not count."""
        return self._arm(StaleKeepAlive(), operation, aim)

    def arm(self, kind: str, options: Mapping[str, str] | None = None) -> Fault:
        """Arm a fault that is written in texts.

        Args:
            kind: The method's name, such as `reset_after_commit`, or `notification.` and that of a notification's.
            options: `on`, which is the operation or the kind of notification, and the method's options; an empty
                text is none, and `times` may be `always`. `options_of(kind)` lists them.

        Raises:
            InvalidArgumentError: There is no such kind, it has no such option, or the option cannot be so.
            ConfigurationError: As for `refuse`.
        """
        effect, on, aim = read_fault(kind, {} if options is None else options)
        if isinstance(effect, Refuse):
            return self.refuse(on, seconds=effect.seconds, **aim)
        return self._arm(effect, on or ANY, aim)

    def serve(self, door: Server | None) -> None:
        """Say where the sandbox listens now, if anywhere."""
        self._door = door

    def _arm(self, effect: Effect, on: str, aim: Aiming) -> Fault:
        if self._refused_first and isinstance(effect, RateLimited) and aim.get("phase") == "after":
            rule = "before for rate_limited, where the profile says http.rate_limit_precedes_execution"
            raise wrong("phase", rule, "after")
        return self.armoury.arm(effect, on, aim, self._ended)

    def _ended(self, fault: Fault) -> None:
        if isinstance(fault.effect, Refuse) and self._door:
            self._door.reopen(fault)
