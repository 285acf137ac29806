"""A merchant's receiver, with notifications that the service would send it, and a time that only tests move on."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from payasync import Credentials, Profile
from payasync.notifications import (
    Added,
    Answer,
    Claim,
    InboxEvent,
    Notification,
    Pace,
    Received,
    Receiver,
    SqliteInbox,
)
from payasync.sandbox import PROFILE
from payasync.testing import Signed, sign_notification
from tests.inside import until

SIGNED: Final = PROFILE
UNSIGNED: Final = evolve(PROFILE, notification=evolve(PROFILE.notification, verification="none"))
CREDENTIALS: Final = Credentials(
    "M1",
    secret_key="sk_1",
    signing_key="signing key of M1",
    notification_keys="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
)
NOW: Final = 1_800_000_000.0
PAID: Final = {"outTradeNo": "T1", "status": "SBX_PAID", "totalAmt": 450, "currency": "CAD"}
REFUNDED: Final = {"outRefundNo": "R1", "status": "SBX_SUCCEEDED"}
RENEWED: Final = {"subscriptionId": "S1", "period": "2027-01", "status": "SBX_ACTIVE"}


class Clock:
    """Seconds since 1970, which stand still until a test moves them on."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now
        self._sleeping: set[tuple[float, asyncio.Future[None]]] = set()

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Wait until a test has moved the time on so far."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self.now + seconds, end)
        self._sleeping.add(entry)
        try:
            await end
        finally:
            self._sleeping.discard(entry)

    def sleeping(self, seconds: float) -> bool:
        """Return whether somebody sleeps until so many seconds from now."""
        return any(wakes == self.now + seconds and not end.done() for wakes, end in self._sleeping)

    def advance(self, seconds: float) -> None:
        """Move the time on, and wake who has slept long enough."""
        self.now += seconds
        for wakes, end in self._sleeping:
            if wakes <= self.now and not end.done():
                end.set_result(None)

    async def run(self, there: Callable[[], object], step: float = 1.0) -> None:
        """Let time pass until something is there."""

        def passed() -> object:
            self.advance(step)
            return there()

        await until(passed)


class Tampered(SqliteInbox):
    """An inbox whose methods a test can have wait or fail.

    Attributes:
        calls: How often each method was called.
        gates: By the name of a method, what its calls wait for.
        errors: By the name of a method, what its calls raise.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        super().__init__(path, clock=clock)
        self.calls = Counter[str]()
        self.gates = dict[str, asyncio.Event]()
        self.errors = dict[str, Exception]()

    async def add(self, received: Received) -> Added:
        """Store a notification."""
        await self._pass("add")
        return await super().add(received)

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease events."""
        await self._pass("claim")
        return await super().claim(limit, lease)

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Extend a lease."""
        await self._pass("extend")
        return await super().extend(claim, lease)

    async def handled(self, claim: Claim, handler: str, **given: Any) -> bool | None:
        """Remember a handler."""
        await self._pass("handled")
        return await super().handled(claim, handler, **given)

    async def own(self, claim: Claim, key: str, **given: Any) -> bool:
        """Give an event another key."""
        await self._pass("own")
        return await super().own(claim, key, **given)

    async def finish(self, claim: Claim, *args: Any, **given: Any) -> bool:
        """End a lease."""
        await self._pass("finish")
        return await super().finish(claim, *args, **given)

    async def _pass(self, name: str) -> None:
        self.calls[name] += 1
        if gate := self.gates.get(name):
            await gate.wait()
        if error := self.errors.get(name):
            raise error


def pace(clock: Clock) -> Pace:
    """Return a receiver's pace whose waits are as long as they can be."""
    return Pace(clock=clock, sleep=clock.sleep, jitter=lambda bound: bound)


class Shop:
    """A receiver of its own file, whose time stands still.

    Args:
        folder: Holds the inbox.
        settings: Any of `Receiver`.
    """

    _ids: Final = itertools.count(1)

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.clock: Clock = settings.pop("clock", None) or Clock()
        self.path = folder / "inbox.db"
        self.profile: Profile = settings.pop("profile", SIGNED)
        self.credentials: Credentials = settings.pop("credentials", CREDENTIALS)
        inbox = settings.pop("inbox", None) or SqliteInbox(self.path, clock=self.clock)
        self.receiver = Receiver(
            profile=self.profile, credentials=self.credentials, inbox=inbox, pace=pace(self.clock), **settings
        )

    def sign(self, data: Mapping[str, Any] = PAID, kind: str | None = "payment", **settings: Any) -> Signed:
        """Return a notification as the service would send it now."""
        given: dict[str, Any] = {"time": self.clock.now, "id": f"msg_{next(self._ids)}", **settings}
        return sign_notification(data, profile=self.profile, credentials=self.credentials, kind=kind, **given)

    async def take(self, data: Mapping[str, Any] = PAID, kind: str | None = "payment", **settings: Any) -> Answer:
        """Have the receiver accept such a notification."""
        signed = self.sign(data, kind, **settings)
        return await self.receiver.receive(signed.raw, signed.headers)

    async def handled(self, data: Mapping[str, Any] = PAID, kind: str = "payment", **settings: Any) -> InboxEvent:
        """Accept a notification, dispatch it, and return its event."""
        await self.take(data, kind, **settings)
        return await self.last()

    async def last(self) -> InboxEvent:
        """Dispatch all that is due, and return the newest event."""
        await self.receiver.settle()
        return (await self.receiver.events())[-1]

    async def states(self) -> list[str]:
        """Return the states of all events."""
        return [each.state for each in await self.receiver.events()]

    def recording(self, kind: str = "*", **settings: Any) -> list[Notification]:
        """Register a handler that records its notifications, and return the list."""
        got = list[Notification]()

        async def record(notification: Notification) -> None:
            got.append(notification)

        record.__qualname__ = f"recording_{next(self._ids)}"
        self.receiver.on(kind, **settings)(record)
        return got


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncGenerator[Shop]:
    """Open a shop, and close it at the end."""
    shop = Shop(folder, **settings)
    try:
        yield shop
    finally:
        await shop.receiver.aclose(grace=0)


def notification(data: Mapping[str, Any] = PAID, **facts: Any) -> Notification:
    """Return a notification that nobody has sent."""
    given: dict[str, Any] = {
        "kind": "payment",
        "event": None,
        "data": data,
        "document": data,
        "raw": b"{}",
        "headers": {},
        "dedup_key": "payment:1",
        "weak": False,
        "digest": "d1",
        "verified": True,
        "received_at": datetime.fromtimestamp(NOW, UTC),
        **facts,
    }
    return Notification(**given)


def received(key: str = "payment:1", **facts: Any) -> Received:
    """Return the inbox's record of a notification."""
    given: dict[str, Any] = {
        "key": key,
        "digest": f"digest of {key}",
        "kind": "payment",
        "verified": True,
        "raw": b'{"type":"payment.paid","data":{"outTradeNo":"T1"}}',
        "received_at": datetime.fromtimestamp(NOW, UTC),
        **facts,
    }
    return Received(**given)
