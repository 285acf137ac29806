"""Notifications to the merchant's servers: the outbox, and every attempt to deliver what is in it (spec: Events)."""

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
import socket
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import aiohttp
from attrs import asdict, evolve, field, frozen

from payasync.credentials import Secret
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import NotificationShape
from payasync.sandbox import statements
from payasync.sandbox.clock import Happened, Insistence, Timepiece
from payasync.sandbox.database import Database
from payasync.sandbox.faults.armed_faults import UNALTERED, ArmedFaults, DeliveryPlan, iterate_strings
from payasync.sandbox.model import BEGINNING, instant, instant_if_any
from payasync.sandbox.response_signing import Seal
from payasync.sandbox.timeline import Entry, line
from payasync.transport.send import phrase

NotificationState = Literal["waiting", "delivered", "dead"]

REDELIVERIES: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
)
"""How long after each attempt that was not acknowledged the next one is due; after the last it is a dead letter.

The sandbox's own choice (spec: Events, 5).
"""


@frozen(kw_only=True)
class Notification:
    """A notification: a row of the outbox.

    Attributes:
        notification_id: Names it to the receiver, in every attempt.
        event: What is told, such as `payment.paid`.
        reference: The number of the order, refund or subscription.
        url: Where it goes.
        body: What is sent, signed as it stands.
        created: When what it tells of happened.
        state: Whether it waits for an attempt, was acknowledged, or is given up (a dead letter).
        due: When the next attempt is due; `None` where there is none.
        tries: The attempts since it was last put into the outbox.
        resends: How often it was put there by hand: what became of an earlier attempt does not count then.
        seq: Its place in the outbox.
    """

    notification_id: str
    event: str = ""
    reference: str = ""
    url: str
    body: str
    created: datetime = field(default=BEGINNING, converter=instant)
    state: NotificationState = "waiting"
    due: datetime | None = field(default=BEGINNING, converter=instant_if_any)
    tries: int = 0
    resends: int = 0
    seq: int = 0


@frozen(kw_only=True)
class Attempt:
    """One attempt to deliver a notification.

    Attributes:
        notification_id: Which one.
        url: Where it went.
        at: When it ended, by the sandbox's time.
        status: The HTTP status of the answer, or `None` where none came.
        error: Why none came, or why the answer does not acknowledge; empty where it does.
        answer: How the answer's body begins.
        acknowledged: The receiver took it.
    """

    notification_id: str
    url: str
    at: datetime = field(default=BEGINNING, converter=instant)
    status: int | None
    error: str
    answer: str = ""
    acknowledged: bool = field(converter=bool)


def delivered(notification: Notification, attempt: Attempt) -> Notification:
    """Return a notification after an attempt: delivered, due again, or dead; what was taken once stays so."""
    tries = notification.tries + 1
    if attempt.acknowledged or notification.state == "delivered":
        return evolve(notification, state="delivered", due=None, tries=tries)
    if tries > len(REDELIVERIES):
        return evolve(notification, state="dead", due=None, tries=tries)
    return evolve(notification, due=attempt.at + REDELIVERIES[tries - 1], tries=tries)


class Outbox:
    """Reads and writes notifications and attempts.

    Args:
        database: Holds them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, notification: Notification) -> None:
        """Put a notification into the outbox."""
        self._database.changed(statements.ADD_NOTIFICATION, asdict(notification))

    def notification(self, notification_id: str) -> Notification | None:
        """Return the notification with this number."""
        return self._database.first(Notification, statements.NOTIFICATION, notification_id=notification_id)

    def notifications(self) -> list[Notification]:
        """Return all notifications, oldest first."""
        return self._database.read(Notification, statements.ALL_NOTIFICATIONS)

    def next(self, after: datetime) -> Notification | None:
        """Return the notification whose attempt is due first, after a moment."""
        return self._database.first(Notification, statements.NEXT_NOTIFICATION, after=after)

    def due(self, now: datetime, busy: Collection[str]) -> Notification | None:
        """Return the notification that has been due for longest.

        Args:
            now: By which time.
            busy: Addresses that are not asked for.
        """
        return self._database.first(Notification, statements.DUE_NOTIFICATION, now=now, busy=json.dumps([*busy]))

    def move(self, notification: Notification) -> None:
        """Keep what became of a notification."""
        self._database.changed(statements.MOVE_NOTIFICATION, asdict(notification))

    def add_attempt(self, attempt: Attempt) -> None:
        """Keep the record of an attempt."""
        self._database.changed(statements.ADD_ATTEMPT, asdict(attempt))

    def attempts(self) -> list[Attempt]:
        """Return all attempts, oldest first."""
        return self._database.read(Attempt, statements.ALL_ATTEMPTS)

    def attempts_of(self, notification_id: str) -> list[Attempt]:
        """Return the attempts to deliver one notification, oldest first."""
        return self._database.read(Attempt, statements.ATTEMPTS_OF, notification_id=notification_id)


MOST: Final = 80
"""Characters of an address that are told."""


@frozen(kw_only=True)
class Delivery:
    """An attempt that has ended; without what was sent.

    Attributes:
        event: What is told, such as `payment.paid`.
        reference: The number of the order, refund or subscription.
        status: The HTTP status of the answer, or `None` where none came.
        where: Its address, in short.
        error: Why it was not acknowledged; empty where it was.
        state: What has become of the notification.
        tries: How often it was attempted.
        wait: Seconds until the next attempt, in wall time; `None` where there is none, or the sandbox's time stands.
    """

    event: str
    reference: str
    status: int | None
    where: str
    error: str
    state: NotificationState
    tries: int
    wait: float | None

    @classmethod
    def of(cls, attempt: Attempt, notification: Notification, wait: float | None) -> Self:
        """Return what is told of an attempt.

        Args:
            attempt: It.
            notification: As it is now.
            wait: Seconds until its next attempt.
        """
        return cls(
            event=notification.event,
            reference=notification.reference,
            status=attempt.status,
            where=address(attempt.url),
            error=attempt.error,
            state=notification.state,
            tries=notification.tries,
            wait=wait,
        )

    @property
    def entry(self) -> Entry:
        """The same as in the timeline."""
        outcome = "" if self.status is None else "not acknowledged" if self.error else "acknowledged"
        return Entry(
            kind="delivery",
            name=self.event,
            reference=self.reference,
            status=self.status,
            outcome=outcome,
            reason=self.error,
        )


def address(url: str) -> str:
    """Return where a notification goes, in short, and without a password or a query, which may open something."""
    parts = urlsplit(url)
    text = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{'?…' if parts.query else ''}"
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


SECONDS: Final = 5.0
"""How long a receiver may take."""


class ElsewhereError(OSError):
    """The address is not on this machine."""

    def __str__(self) -> str:
        return "the address is not on this machine: the sandbox notifies loopback addresses only"


def explain_failure(failure: Exception) -> str:
    """Return why no answer came; never with the address, which may hold what opens something."""
    cause = getattr(failure, "os_error", failure)
    if isinstance(cause, ElsewhereError):
        return str(cause)
    if isinstance(failure, aiohttp.ConnectionTimeoutError):
        return f"no connection within {SECONDS:g} seconds"
    if isinstance(failure, TimeoutError):
        return f"no answer within {SECONDS:g} seconds"
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return "its certificate cannot be trusted"
    return "the address cannot be used" if isinstance(failure, ValueError) else phrase(failure)


MAX_ANSWER: Final = 64 * 1024
MOST_KEPT: Final = 1024
"""Characters of an answer that are kept with the attempt."""


@frozen(kw_only=True)
class Acknowledgement:
    """The answer by which a receiver takes a notification.

    Attributes:
        status: The HTTP status; `None`: any 2xx.
        body: The body; empty: any.
        bare: Whether an empty body does, too, which is all that a 204 can have.
    """

    status: int | None
    body: str
    bare: bool = False

    @classmethod
    def of(cls, shape: NotificationShape, given: NotificationShape) -> Self:
        """Return what acknowledges: a status and a body that the profile names, exactly these.

        Where it names no status, or is the sandbox's own, any 2xx does; where the body is the sandbox's own, an
        empty one does, too.

        Args:
            shape: The profile's, with what it leaves open as in the sandbox's own.
            given: The profile's.
        """
        own = given == PROFILE.notification
        status = None if own else given.ack_status
        return cls(status=status, body=shape.ack_body, bare=own or not given.ack_body)

    def missing(self, status: int, body: str) -> str:
        """Return what an answer lacks to acknowledge; nothing where it does."""
        taken = status == self.status if self.status else status // 100 == 2  # noqa: PLR2004 - any 2xx
        if not taken:
            return f"answered {status}, which does not acknowledge"
        if self.body and not (self.bare and not body) and not _same(self.body, body):
            return f"answered a body that does not acknowledge: it must be {self.body}"
        return ""


def _same(expected: str, body: str) -> bool:
    if expected.strip() == body.strip():
        return True
    try:
        return bool(json.loads(expected) == json.loads(body))
    except (ValueError, RecursionError):
        return False


def signed_headers(notification: Notification, secret: Secret, timestamp: int) -> dict[str, str]:
    """Return a notification's headers by Standard Webhooks.

    Args:
        notification: Whose body is signed as it is sent.
        secret: `whsec_` and the key in base64.
        timestamp: Seconds of wall time, which verifiers compare with theirs.
    """
    key = base64.b64decode(secret.reveal().removeprefix("whsec_"))
    text = f"{notification.notification_id}.{timestamp}.{notification.body}"
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return {
        "Content-Type": "application/json",
        "webhook-id": notification.notification_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


class Notifier:
    """Attempts to deliver notifications; to loopback only, unless allowed.

    Args:
        secret: Signs.
        acknowledgement: What counts as taken.
        seal: Signs what carries its signature in its body.
        allow_remote: Deliver beyond loopback, too.
    """

    def __init__(self, secret: Secret, acknowledgement: Acknowledgement, seal: Seal, *, allow_remote: bool) -> None:
        self._seal = seal
        self._secret = secret
        self._acknowledgement = acknowledgement
        self._http = outgoing_client(allow_remote=allow_remote)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._http.close()

    @property
    def timed(self) -> bool:
        """Whether notifications carry a time."""
        return self._seal.timed

    async def attempt(self, notification: Notification, plan: DeliveryPlan = UNALTERED) -> Attempt:
        """Send a notification once, and return what came of it.

        Args:
            notification: Which.
            plan: What a fault makes of it.
        """
        status, answer, error = None, "", f"lost on its way: {plan.fault}"
        if not plan.lost:
            status, answer, error = await self._sent(notification, plan)
        return Attempt(
            notification_id=notification.notification_id,
            url=notification.url,
            status=status,
            error=error,
            answer=answer[:MOST_KEPT],
            acknowledged=not error,
        )

    async def _sent(self, notification: Notification, plan: DeliveryPlan) -> tuple[int | None, str, str]:
        """Return the status and the body of the answer, and why it does not acknowledge, or why there is none."""
        try:
            body, headers = await self._signed(notification, plan.age)
        except Exception as failure:  # noqa: BLE001 - the profile's signature may be anybody's code
            return None, "", f"{type(failure).__name__}: {failure}"
        try:
            status, answer = await self._post(notification.url, plan.body(body), headers)
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            return None, "", explain_failure(failure)
        return status, answer, self._acknowledgement.missing(status, answer)

    async def _signed(self, notification: Notification, age: int) -> tuple[str, dict[str, str]]:
        body = await self._seal.notification(notification.body, age)
        if self._seal.in_headers:
            return body, signed_headers(evolve(notification, body=body), self._secret, int(time.time()) - age)
        return body, {"Content-Type": "application/json"}

    async def _post(self, url: str, body: str, headers: dict[str, str]) -> tuple[int, str]:
        async with self._http.post(url, data=body.encode(), headers=headers, allow_redirects=False) as answer:
            received = await _start(answer.content)
            return answer.status, received.decode(errors="replace")


async def _start(content: aiohttp.StreamReader) -> bytes:
    received = bytearray()
    async for chunk in content.iter_any():
        received += chunk
        if len(received) > MAX_ANSWER:
            break
    return bytes(received[:MAX_ANSWER])


def outgoing_client(*, allow_remote: bool) -> aiohttp.ClientSession:
    """Return a client that sends no cookies, uses no proxy, and connects to loopback only, unless allowed."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=_socket if allow_remote else loopback_socket, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=SECONDS),
        auto_decompress=False,
    )


def loopback_socket(address: Any) -> socket.socket:
    """Return a socket for an address that a name has been resolved to.

    Here, and not before the resolution: a name may change its address in between.

    Raises:
        ElsewhereError: The address is not a loopback one.
    """
    host = address[4][0]
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise ElsewhereError
    return _socket(address)


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    return made


LOGGER: Final = logging.getLogger("payasync.sandbox")
MOST_AT_ONCE: Final = 32
"""Deliveries under way, each to another address: a slow receiver holds up nobody but itself."""


class Deliveries:
    """Has due notifications delivered, and keeps what became of each attempt.

    Args:
        database: Holds the transactions.
        outbox: What is due.
        notifier: Makes the attempts.
        timepiece: The sandbox's time.
        armed_faults: The faults that notifications meet.
    """

    def __init__(
        self,
        database: Database,
        outbox: Outbox,
        notifier: Notifier,
        timepiece: Timepiece,
        armed_faults: ArmedFaults,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._notifier = notifier
        self._timepiece = timepiece
        self._armed_faults = armed_faults
        self._busy = set[str]()
        self._held = set[str]()
        self._overtaken = list[Notification]()

    @property
    def under_way(self) -> bool:
        """Whether an attempt has begun that has not ended."""
        return bool(self._busy)

    def next(self, after: datetime) -> datetime | None:
        """Return when the next attempt is due after a moment."""
        notification = self._outbox.next(after)
        return notification.due if notification else None

    def begin(
        self, group: asyncio.TaskGroup, by: datetime, insistence: Insistence, ended: Callable[[Happened], object]
    ) -> None:
        """Begin the attempts that are due, as far as their addresses are free.

        Args:
            group: Holds their tasks.
            by: They were due then, or before.
            insistence: Keeps what became of each: what was sent is not sent again because the disk was full.
            ended: Called as each has ended and is kept.
        """
        while len(self._busy) < MOST_AT_ONCE and (notification := self._outbox.due(by, self._busy)):
            self._busy.add(notification.url)
            delivering = self._deliver(notification, insistence, ended)
            group.create_task(delivering, name="payasync sandbox delivery")

    async def _deliver(
        self, notification: Notification, insistence: Insistence, ended: Callable[[Happened], object]
    ) -> None:
        plan = self._plan_delivery(notification)
        try:
            if plan.later:
                became = await self._hold_back(notification, plan, insistence)
            else:
                after = notification
                for _ in range(plan.copies):
                    after = await self._attempt(after, plan, insistence)
                became = _became(after)
                await self._let_go(insistence)
        finally:
            self._busy.discard(notification.url)
        ended(Happened(self._timepiece.now(), f"{notification.event} {became}", notification.reference))

    def _plan_delivery(self, notification: Notification) -> DeliveryPlan:
        if notification.notification_id in self._held:
            self._held.discard(notification.notification_id)
            return UNALTERED
        numbers = {notification.reference, *iterate_strings(json.loads(notification.body))}
        kind = notification.event.partition(".")[0]
        return self._armed_faults.plan_delivery(kind, numbers, timed=self._notifier.timed)

    async def _attempt(self, notification: Notification, plan: DeliveryPlan, insistence: Insistence) -> Notification:
        attempt = evolve(await self._notifier.attempt(notification, plan), at=self._timepiece.now())
        after, kept = await insistence.done(lambda: self._keep(notification, attempt))
        self._tell(attempt, kept)
        return after

    def _tell(self, attempt: Attempt, notification: Notification) -> None:
        wait = self._timepiece.seconds_until(notification.due) if notification.due else None
        delivery = Delivery.of(attempt, notification, wait)
        LOGGER.info("%s", line(delivery.entry), extra={"delivery": delivery})

    async def _hold_back(self, notification: Notification, plan: DeliveryPlan, insistence: Insistence) -> str:
        self._held.add(notification.notification_id)
        later = evolve(notification, due=self._timepiece.now() + plan.later)
        await insistence.done(lambda: self._move(notification, later))
        if plan.overtaken:
            self._overtaken.append(later)
        return f"held back by {plan.fault}"

    async def _let_go(self, insistence: Insistence) -> None:
        """Have what was to be overtaken attempted, now that another one was."""
        while self._overtaken:
            held = self._overtaken.pop(0)
            now = evolve(held, due=self._timepiece.now())
            await insistence.done(partial(self._move, held, now))

    def _move(self, before: Notification, after: Notification) -> None:
        with self._database.transaction():
            if self._outbox.notification(before.notification_id) == before:
                self._outbox.move(after)

    def _keep(self, notification: Notification, attempt: Attempt) -> tuple[Notification, Notification]:
        """Return the notification after this attempt, and as it is kept."""
        after = delivered(notification, attempt)
        with self._database.transaction():
            self._outbox.add_attempt(attempt)
            kept = self._outbox.notification(notification.notification_id)
            # Asked for once more while it was under way, it stays due.
            if kept == notification:
                self._outbox.move(after)
                kept = after
        return after, kept or after


def _became(after: Notification) -> str:
    return {"waiting": "not acknowledged", "delivered": "delivered", "dead": "given up"}[after.state]
