"""Notifications to the merchant's servers: every attempt to deliver the outbox.

See docs/reference/service.md#notifications.
"""

import asyncio
import ipaddress
import json
import socket
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import aiohttp
from attrs import define, evolve, field, frozen

from payasync.endpoints import PLACE_ORDER
from payasync.profile.sandbox_profile import PROFILE
from payasync.sandbox.arguments import read_url
from payasync.sandbox.clock import Clock, ClockEvent
from payasync.sandbox.dialect import WireNames
from payasync.sandbox.faults.armed_faults import UNALTERED, ArmedFaults, DeliveryPlan, iterate_strings
from payasync.sandbox.model import Attempt, Entry, Notification, NotificationState
from payasync.sandbox.signatures import ServiceSigner
from payasync.sandbox.store import Store
from payasync.sandbox.timeline import LOGGER, format_entry
from payasync.strict_json import ABSENT, loads
from payasync.transport.send import describe_failure

TIMEOUT_SECONDS: Final = 5.0
"""How long a receiver may take."""
MAX_ADDRESS: Final = 80
"""Characters of an address that are shown."""
MAX_READ: Final = 64 * 1024
MAX_STORED: Final = 1024
"""Characters of a response that are stored with the attempt."""
MAX_CONCURRENT: Final = 32
"""Concurrent deliveries, each to another address: a slow receiver delays only itself."""


def after_attempt(notification: Notification, attempt: Attempt, waits: Sequence[float]) -> Notification:
    """Return a notification after an attempt: delivered, due again, or dead; once acknowledged, it stays delivered.

    Args:
        notification: The notification.
        attempt: How it ended.
        waits: Seconds after each unacknowledged attempt until the next one (docs/reference/service.md#notifications).
    """
    tries = notification.tries + 1
    if attempt.acknowledged or notification.state == "delivered":
        return evolve(notification, state="delivered", due=None, tries=tries)
    if tries > len(waits):
        return evolve(notification, state="dead", due=None, tries=tries)
    return evolve(notification, due=attempt.at + timedelta(seconds=waits[tries - 1]), tries=tries)


@frozen(kw_only=True)
class Delivery:
    """An attempt that has ended, without what was sent.

    Attributes:
        entry: The same as in the timeline, without its time.
        where: The address, shortened.
        state: The notification's state now.
        tries: How often it was attempted.
        wait: Wall-time seconds until the next attempt, or `None` if no attempt is due or the sandbox's clock is frozen.
    """

    entry: Entry
    where: str
    state: NotificationState
    tries: int
    wait: float | None


def shorten_address(url: str) -> str:
    """Return an address shortened, without its password and query, which may be secrets."""
    scheme, host, port, path, query, _ = read_url(url)
    text = f"{scheme}://{host}{port and f':{port}'}{path}{'?…' if query else ''}"
    return text if len(text) <= MAX_ADDRESS else f"{text[: MAX_ADDRESS - 1]}…"


class ElsewhereError(OSError):
    """The address is not on this machine."""


def explain_failure(failure: Exception) -> str:
    """Return why there was no response; never with the address, which may hold secrets."""
    cause = getattr(failure, "os_error", failure)
    if isinstance(cause, ElsewhereError):
        return str(cause)
    if isinstance(failure, TimeoutError):
        return f"no response within {TIMEOUT_SECONDS:g} seconds"
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return "its certificate cannot be trusted"
    return "the address cannot be used" if isinstance(failure, ValueError) else describe_failure(failure)


def explain_refusal(names: WireNames, status: int, body: str) -> str:
    """Return why a response does not acknowledge a notification; empty if it does.

    The status and the body that the profile names acknowledge. If it names no status, or is the sandbox's own, any 2xx
    does. If it names no body, or is the sandbox's own, an empty body does, too: a 204 can have no other.
    """
    given = names.profile.notification
    own = given == PROFILE.notification
    expected_status, expected = None if own else given.ack_status, names.notification.ack_body
    if status != expected_status if expected_status else status // 100 != 2:  # noqa: PLR2004 - any 2xx
        return f"answered {status}, which does not acknowledge"
    if not expected or (not body and (own or not given.ack_body)) or _is_same_document(expected, body):
        return ""
    return f"answered a body that does not acknowledge: it must be {expected}"


def _is_same_document(expected: str, body: str) -> bool:
    document = loads(body.encode())
    return expected.strip() == body.strip() or (document is not ABSENT and document == loads(expected.encode()))


@define(eq=False)
class Deliveries:
    """Delivers the notifications that are due, and records each attempt.

    Attributes:
        store: The outbox.
        clock: The sandbox's time.
        faults: The faults that notifications meet.
        signer: Signs them, as the profile says.
        names: The profile's, which say what acknowledges.
        http: Sends them.
    """

    store: Store
    clock: Clock
    faults: ArmedFaults
    signer: ServiceSigner
    names: WireNames
    http: aiohttp.ClientSession
    _busy: set[str] = field(init=False, factory=set[str])
    _delayed: set[str] = field(init=False, factory=set[str])
    _overtaken: list[Notification] = field(init=False, factory=list[Notification])

    @property
    def under_way(self) -> bool:
        """Whether an attempt has begun that has not ended."""
        return bool(self._busy)

    def next(self, after: datetime) -> datetime | None:
        """Return when the next attempt is due after a time."""
        notification = self.store.next_notification(after)
        return notification.due if notification else None

    def begin(self, group: asyncio.TaskGroup, by: datetime, ended: Callable[[ClockEvent], object]) -> None:
        """Begin the attempts that are due and whose addresses are free.

        Args:
            group: Holds their tasks.
            by: They were due at this time or before.
            ended: Called when one has ended and is recorded.
        """
        while len(self._busy) < MAX_CONCURRENT and (notification := self.store.due_notification(by, self._busy)):
            self._busy.add(notification.url)
            group.create_task(self._deliver(notification, ended), name="payasync sandbox delivery")

    async def _deliver(self, notification: Notification, ended: Callable[[ClockEvent], object]) -> None:
        plan = self._plan(notification)
        try:
            if plan.later:
                became = self._delay(notification, plan)
            else:
                after = notification
                for _ in range(plan.copies):
                    after = await self._attempt(after, plan)
                became = {"waiting": "not acknowledged", "delivered": "delivered", "dead": "given up"}[after.state]
                while self._overtaken:
                    delayed = self._overtaken.pop(0)
                    self._move(delayed, evolve(delayed, due=self.clock.now()))
        finally:
            self._busy.discard(notification.url)
        ended(ClockEvent(self.clock.now(), f"{notification.event} {became}", notification.reference))

    def _plan(self, notification: Notification) -> DeliveryPlan:
        """Return what a fault does to this delivery; one that was held back meets no second one."""
        if notification.notification_id in self._delayed:
            self._delayed.discard(notification.notification_id)
            return UNALTERED
        numbers = {notification.reference, *iterate_strings(json.loads(notification.body))}
        return self.faults.plan_delivery(notification.event.partition(".")[0], numbers, timed=self.signer.timed)

    def _delay(self, notification: Notification, plan: DeliveryPlan) -> str:
        self._delayed.add(notification.notification_id)
        later = evolve(notification, due=self.clock.now() + plan.later)
        self._move(notification, later)
        if plan.overtaken:
            self._overtaken.append(later)
        return f"held back by {plan.fault}"

    def _move(self, before: Notification, after: Notification) -> None:
        with self.store.transaction():
            self.store.move(before, after)

    async def _attempt(self, notification: Notification, plan: DeliveryPlan) -> Notification:
        """Send a notification once, record the attempt, and return the notification after it."""
        status, answer, error = None, "", f"lost on its way: {plan.fault}"
        if not plan.lost:
            status, answer, error = await self._send(notification, plan)
        attempt = Attempt(
            notification_id=notification.notification_id,
            url=notification.url,
            at=self.clock.now(),
            status=status,
            error=error,
            answer=answer[:MAX_STORED],
            acknowledged=not error,
        )
        stored = after = after_attempt(notification, attempt, self.names.profile.sandbox.redelivery)
        with self.store.transaction():
            self.store.add(attempt)
            # If it was resent during this attempt, it stays due.
            if not self.store.move(notification, after):
                stored = self.store.find(Notification, notification_id=notification.notification_id) or after
        self._log(attempt, stored)
        return after

    def _log(self, attempt: Attempt, notification: Notification) -> None:
        entry = Entry(
            kind="delivery",
            name=notification.event,
            reference=notification.reference,
            status=attempt.status,
            outcome="" if attempt.status is None else "not acknowledged" if attempt.error else "acknowledged",
            reason=attempt.error,
        )
        delivery = Delivery(
            entry=entry,
            where=shorten_address(attempt.url),
            state=notification.state,
            tries=notification.tries,
            wait=self.clock.seconds_until(notification.due) if notification.due else None,
        )
        LOGGER.info("%s", format_entry(entry), extra={"event_name": "sandbox.delivery", "delivery": delivery})

    async def _send(self, notification: Notification, plan: DeliveryPlan) -> tuple[int | None, str, str]:
        """Return the response's status and body, and why it is missing or does not acknowledge."""
        try:
            number, event = notification.notification_id, notification.event
            body, headers = await self.signer.sign_notification(number, notification.body, plan.age, event)
        except Exception as failure:  # noqa: BLE001 - the profile's signature may be anybody's code
            return None, "", f"{type(failure).__name__}: {failure}"
        data = plan.body(body, self.names.name(PLACE_ORDER.name, "nonce")).encode()
        try:
            async with self.http.post(notification.url, data=data, headers=headers, allow_redirects=False) as response:
                answer = (await _read_start(response.content)).decode(errors="replace")
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            return None, "", explain_failure(failure)
        return response.status, answer, explain_refusal(self.names, response.status, answer)


async def _read_start(content: aiohttp.StreamReader) -> bytes:
    received = bytearray()
    async for chunk in content.iter_any():
        received += chunk
        if len(received) > MAX_READ:
            break
    return bytes(received[:MAX_READ])


def outgoing_client(*, allow_remote: bool) -> aiohttp.ClientSession:
    """Return a client that sends no cookies, uses no proxy, and connects to loopback only, unless allowed."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=None if allow_remote else loopback_socket, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
        auto_decompress=False,
    )


def loopback_socket(address: Any) -> socket.socket:
    """Return a socket for an address that a name has been resolved to.

    Here, and not before the resolution: a name may change its address in between.

    Raises:
        ElsewhereError: The address is not a loopback one.
    """
    family, kind, protocol, _, (host, *_) = address
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise ElsewhereError("the address is not on this machine: the sandbox notifies loopback addresses only")
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    return made
