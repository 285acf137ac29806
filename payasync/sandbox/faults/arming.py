"""`sandbox.faults`: a method for each kind of fault that a call can meet."""

from collections.abc import Mapping
from typing import Final, Unpack

from payasync.errors import ConfigurationError
from payasync.sandbox.door import Door
from payasync.sandbox.faults import effects, text
from payasync.sandbox.faults.aim import ANY, Aiming, Fault, Options
from payasync.sandbox.faults.armoury import Armoury
from payasync.sandbox.faults.checking import RetryAfter, wrong
from payasync.sandbox.faults.notifications import NotificationFaults
from payasync.shapes import HttpCodes


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
        self._door: Door | None = None
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
        return self._arm(effects.Latency(seconds=seconds), operation, aim)

    def hang(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Never answer, before or after the commit; the connection stays open until the sandbox ends."""
        return self._arm(effects.Hang(), operation, aim)

    def server_error(self, operation: str = ANY, *, status: int = 503, **aim: Unpack[Options]) -> Fault:
        """Answer 5xx in the shape of all refusals, before or after the commit."""
        return self._arm(effects.ServerError(status=status), operation, aim)

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
        return self._arm(effects.RateLimited(retry_after=retry_after), operation, aim)

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
        effect = effects.Refuse(seconds=seconds)
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
        return self._arm(effects.ResetBefore(), operation, aim)

    def reset_after_commit(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Do what is asked, commit it, and send a TCP reset in place of the answer."""
        return self._arm(effects.ResetAfterCommit(), operation, aim)

    def truncated_body(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Send half of the body that Content-Length promises, and close; after or before the commit."""
        return self._arm(effects.TruncatedBody(), operation, aim)

    def malformed_json(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Send a whole body that lacks its last bracket; after or before the commit."""
        return self._arm(effects.MalformedJson(), operation, aim)

    def wrong_content_type(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Send the right answer as `text/html`."""
        return self._arm(effects.WrongContentType(), operation, aim)

    def huge_body(self, operation: str = ANY, *, size: int = 16 << 20, **aim: Unpack[Options]) -> Fault:
        """Send the right answer with blanks behind it: so many bytes in all, 1 GiB at most."""
        return self._arm(effects.HugeBody(size=size), operation, aim)

    def gzip_bomb(self, operation: str = ANY, *, size: int = 200 << 20, **aim: Unpack[Options]) -> Fault:
        """Send, packed to a thousandth, the right answer with blanks behind it: unpacked, so many bytes at least."""
        return self._arm(effects.GzipBomb(size=size), operation, aim)

    def slow_drip(self, operation: str = ANY, *, seconds: float = 0.1, **aim: Unpack[Options]) -> Fault:
        """Send the right answer byte by byte, so many seconds of real time apart."""
        return self._arm(effects.SlowDrip(seconds=seconds), operation, aim)

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
        return self._arm(effects.Redirect(status=status, location=location), operation, aim)

    def stale_keep_alive(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Close a connection that was kept open, as the next call comes over it; first calls do not count."""
        return self._arm(effects.StaleKeepAlive(), operation, aim)

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
        effect, on, aim = text.read(kind, {} if options is None else options)
        if isinstance(effect, effects.Refuse):
            return self.refuse(on, seconds=effect.seconds, **aim)
        return self._arm(effect, on or ANY, aim)

    def serve(self, door: Door | None) -> None:
        """Say where the sandbox listens now, if anywhere."""
        self._door = door

    def _arm(self, effect: effects.Effect, on: str, aim: Aiming) -> Fault:
        if self._refused_first and isinstance(effect, effects.RateLimited) and aim.get("phase") == "after":
            rule = "before for rate_limited, where the profile says http.rate_limit_precedes_execution"
            raise wrong("phase", rule, "after")
        return self.armoury.arm(effect, on, aim, self._ended)

    def _ended(self, fault: Fault) -> None:
        if isinstance(fault.effect, effects.Refuse) and self._door:
            self._door.reopen(fault)
