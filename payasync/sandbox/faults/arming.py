"""`sandbox.faults`: a method for each fault of the catalogue."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict, Unpack

from payasync.errors import ConfigurationError
from payasync.profile.schema import HttpCodes
from payasync.sandbox.faults.armed_faults import ANY, ArmedFaults, Fault
from payasync.sandbox.faults.catalogue import KINDS, Phase, RetryAfter, find_kind
from payasync.sandbox.server import Server
from payasync.wire.validators import invalid_argument


class TriggerOptions(TypedDict, total=False):
    """The options of every fault; `Faults` describes them."""

    order: str | None
    nth: int
    times: int | None
    probability: float | None
    seed: int | None


class CallOptions(TriggerOptions, total=False):
    """What triggers a fault of a call, and when it happens."""

    phase: Phase


class NotificationFaults:
    """Arms faults of notifications.

    Each method takes the kind of notification, `"payment"`, `"refund"`, `"subscription"` or `"*"` for any, and the
    options of `Faults` without `phase`. Attempts to deliver are counted. A redelivery is one more attempt; an
    attempt that was held back is not counted again.

    Args:
        arm: Arms a fault of the catalogue.
    """

    def __init__(self, arm: Callable[[str, str, Mapping[str, Any]], Fault]) -> None:
        self._arm = arm

    def drop(self, about: str = ANY, **options: Unpack[TriggerOptions]) -> Fault:
        """Lose it: the attempt fails, and the notification is sent again when its next attempt is due."""
        return self._arm("notification.drop", about, options)

    def duplicate(self, about: str = ANY, **options: Unpack[TriggerOptions]) -> Fault:
        """Deliver it twice."""
        return self._arm("notification.duplicate", about, options)

    def reorder(self, about: str = ANY, *, seconds: float = 60.0, **options: Unpack[TriggerOptions]) -> Fault:
        """Hold it back until another one was attempted, or for `seconds` of the sandbox's clock."""
        return self._arm("notification.reorder", about, {"seconds": seconds, **options})

    def delay(self, about: str = ANY, *, seconds: float = 60.0, **options: Unpack[TriggerOptions]) -> Fault:
        """Send it `seconds` later, by the sandbox's clock."""
        return self._arm("notification.delay", about, {"seconds": seconds, **options})

    def corrupt(self, about: str = ANY, **options: Unpack[TriggerOptions]) -> Fault:
        """Change one character of its body after it was signed, so that the signature is wrong."""
        return self._arm("notification.corrupt", about, options)

    def old_timestamp(self, about: str = ANY, *, seconds: int = 86_400, **options: Unpack[TriggerOptions]) -> Fault:
        """Sign it correctly, with a time that is `seconds` ago."""
        return self._arm("notification.old_timestamp", about, {"seconds": seconds, **options})

    def before_answer(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Deliver the notifications of a call before the call is answered.

        Args:
            operation: The call's, such as `refunds.create`; not a kind of notification.
            options: As for all faults.
        """
        return self._arm("notification.before_answer", operation, options)


class Faults(ArmedFaults):
    """Arms faults of the service.

    Each method arms one fault and returns it. It takes the operation, such as `"refunds.create"` or `"*"` for any,
    and these options by keyword:

    - `order`: only calls that name this order, refund or subscription;
    - `nth`: from the nth matching call on, counted from 1 after arming (default 1);
    - `times`: how often at most; `None` is no limit (default 1, or `None` with a probability);
    - `probability`: above 0 and up to 1, drawn at each matching call. `seed` repeats the draws; without it a seed is
      drawn, and can be read from the fault;
    - `phase`: `before`, nothing was done, or `after`, everything was done and committed. If a fault has both
      phases, its method names the default first.

    A call meets one fault: the one that was armed first. Leaving `async with Sandbox()` while a fault was armed and
    never fired raises `FaultNeverFiredError`. Faults survive the end of a sandbox and its next start.

    Args:
        http: What the profile says about statuses: no fault contradicts it.

    Attributes:
        notifications: Arms the faults of notifications.

    Raises:
        InvalidArgumentError: By each method: the operation is unknown, or an option breaks its rule.
    """

    def __init__(self, http: HttpCodes | None = None) -> None:
        super().__init__()
        self._rate_limit_first = http is not None and http.rate_limit_precedes_execution
        self._server: Server | None = None
        self.notifications: Final = NotificationFaults(self._arm)

    def arm(self, kind: str, on: str | None = None, **options: Any) -> Fault:
        """Arm a fault by its name in the catalogue.

        Args:
            kind: The method's name, such as `reset_after_commit`; `notification.drop` for one of a notification.
            on: The method's first argument; `None` is its default.
            options: The method's options.

        Raises:
            InvalidArgumentError: There is no such fault or option, or an option breaks its rule.
            ConfigurationError: As for `refuse`.
        """
        group, _, name = find_kind(kind).name.rpartition(".")
        method = getattr(self.notifications if group else self, name)
        fault: Fault = method(**options) if on is None else method(on, **options)
        return fault

    def latency(self, operation: str = ANY, *, seconds: float = 1.0, **options: Unpack[CallOptions]) -> Fault:
        """Respond late, in real time; the delay is before or after the commit."""
        return self._arm("latency", operation, {"seconds": seconds, **options})

    def hang(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Never respond, before or after the commit; the connection stays open until the sandbox ends."""
        return self._arm("hang", operation, options)

    def server_error(self, operation: str = ANY, *, status: int = 503, **options: Unpack[CallOptions]) -> Fault:
        """Respond with a 5xx in the shape of all refusals, before or after the commit."""
        return self._arm("server_error", operation, {"status": status, **options})

    def rate_limited(
        self, operation: str = ANY, *, retry_after: RetryAfter = None, **options: Unpack[CallOptions]
    ) -> Fault:
        """Respond with 429 in the shape of all refusals, before or after the commit.

        If the profile says `http.rate_limit_precedes_execution`, only before the commit is allowed. A client may rely
        on that setting and send again, so a fault after the commit would make it pay twice.

        Args:
            operation: As for all faults.
            retry_after: Seconds; a timedelta or datetime, sent as a date; `None` for no such header; `absent`,
                `date`, `past`, `nonsense` or `huge`. Any other text is sent as it is.
            options: As for all faults.
        """
        return self._arm("rate_limited", operation, {"retry_after": retry_after, **options})

    def refuse(
        self, operation: str | None = None, *, seconds: float | None = None, **options: Unpack[CallOptions]
    ) -> Fault:
        """Stop listening: the kernel refuses connections, and idle ones are closed.

        The fault has fired as soon as the sandbox stops listening, whether or not a connection was refused.

        Args:
            operation: The call at which this happens, before or after its commit; that call is reset. `None` is
                immediately.
            seconds: Until it listens again, in real time; `None` is until the fault is disarmed. The sandbox listens
                again when no other fault of this kind goes on.
            options: As for all faults, if there is an operation.

        Raises:
            ConfigurationError: The sandbox does not run, or in another event loop, and it should stop listening
                immediately.
        """
        if operation is not None or options:
            return self._arm("refuse", operation or ANY, {"seconds": seconds, **options})
        KINDS["refuse"].check({"seconds": seconds})
        if self._server is None:
            raise ConfigurationError("the sandbox does not run, so it cannot refuse connections: start it first")
        fault = self._arm("refuse", ANY, {"seconds": seconds})
        fault.fired += 1
        self._server.stop_listening(seconds, by=fault)
        return fault

    def reset_before(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Do nothing, and reset the TCP connection."""
        return self._arm("reset_before", operation, options)

    def reset_after_commit(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Execute and commit the request, then reset the TCP connection instead of responding."""
        return self._arm("reset_after_commit", operation, options)

    def truncated_body(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Send half of the body that Content-Length promises, and close; after or before the commit."""
        return self._arm("truncated_body", operation, options)

    def malformed_json(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Send a body without its last bracket; after or before the commit."""
        return self._arm("malformed_json", operation, options)

    def wrong_content_type(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Send the right response as `text/html`."""
        return self._arm("wrong_content_type", operation, options)

    def huge_body(self, operation: str = ANY, *, size: int = 16 << 20, **options: Unpack[CallOptions]) -> Fault:
        """Send the right response, followed by spaces up to `size` bytes, at most 1 GiB."""
        return self._arm("huge_body", operation, {"size": size, **options})

    def gzip_bomb(self, operation: str = ANY, *, size: int = 200 << 20, **options: Unpack[CallOptions]) -> Fault:
        """Send the right response and spaces, compressed to a thousandth; it unpacks to `size` bytes or more."""
        return self._arm("gzip_bomb", operation, {"size": size, **options})

    def slow_drip(self, operation: str = ANY, *, seconds: float = 0.1, **options: Unpack[CallOptions]) -> Fault:
        """Send the right response byte by byte, with `seconds` of real time between them."""
        return self._arm("slow_drip", operation, {"seconds": seconds, **options})

    def redirect(
        self, operation: str = ANY, *, status: int = 302, location: str | None = None, **options: Unpack[CallOptions]
    ) -> Fault:
        """Respond with 301, 302, 303, 307 or 308, before or after the commit.

        Args:
            operation: As for all faults.
            status: The HTTP status.
            location: Where to; `None` is the address of the call itself, so that following a 307 repeats it.
            options: As for all faults.
        """
        return self._arm("redirect", operation, {"status": status, "location": location, **options})

    def stale_keep_alive(self, operation: str = ANY, **options: Unpack[CallOptions]) -> Fault:
        """Close an idle keep-alive connection when its next call arrives; first calls do not count."""
        return self._arm("stale_keep_alive", operation, options)

    def serve(self, server: Server | None) -> None:
        """Set where the sandbox listens now, if it does."""
        self._server = server

    def _arm(self, kind: str, on: str, options: Mapping[str, Any]) -> Fault:
        if self._rate_limit_first and kind == "rate_limited" and options.get("phase") == "after":
            rule = "before for rate_limited, because the profile says http.rate_limit_precedes_execution"
            raise invalid_argument("phase", rule, "after")
        return self.add(KINDS[kind], on, options)

    def remove(self, fault: Fault) -> None:
        """Remove a fault that was disarmed; if it is a `refuse`, the sandbox may listen again."""
        super().remove(fault)
        if fault.kind == "refuse" and self._server:
            self._server.reopen(fault)
