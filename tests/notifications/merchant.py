"""A merchant's receiver, with notifications that the service would send it, and a time that only tests move on."""

import asyncio
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from attrs import evolve

from payasync import Credentials, Profile, Session, SortedPairs
from payasync.notifications import Answer, InboxEvent, Notification, Pace, Received, Receiver, SqliteInbox
from payasync.sandbox import PROFILE, Sandbox
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


def tampering(name: str) -> Any:
    """Return a method that counts its calls, may wait or fail, and then does what the inbox's does."""
    method: Any = getattr(SqliteInbox, name)

    async def call(self: "Tampered", *args: Any, **given: Any) -> Any:
        self.calls[name] += 1
        if gate := self.gates.get(name):
            await gate.wait()
        if error := self.errors.get(name):
            raise error
        return await method(self, *args, **given)

    return call


class Tampered(SqliteInbox):
    """An inbox whose methods a test can have wait or fail.

    Attributes:
        calls: How often each method was called.
        gates: By the name of a method, what its calls wait for.
        errors: By the name of a method, what its calls raise.
    """

    add, claim, extend = map(tampering, ("add", "claim", "extend"))
    handled, own, finish = map(tampering, ("handled", "own", "finish"))

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        super().__init__(path, clock=clock)
        self.calls = Counter[str]()
        self.gates = defaultdict[str, asyncio.Event](asyncio.Event)
        self.errors = dict[str, Exception]()


def pace(clock: Clock) -> Pace:
    """Return a receiver's pace whose waits are as long as they can be."""
    return Pace(clock=clock, sleep=clock.sleep, jitter=lambda bound: bound)


class Got(list[Notification]):
    """The notifications that a handler has got."""

    @property
    def ids(self) -> list[int | None]:
        """Their events."""
        return [each.id for each in self]

    @property
    def numbers(self) -> list[str | None]:
        """The numbers of their orders."""
        return [each.out_trade_no for each in self]


class Shop:
    """A receiver of its own file, whose time stands still.

    Args:
        folder: Holds the inbox; it is made if it is missing.
        settings: Any of `Receiver`.
    """

    _ids: Final = itertools.count(1)

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.clock: Clock = settings.pop("clock", None) or Clock()
        self.path = folder / "inbox.db"
        folder.mkdir(exist_ok=True)
        self.profile: Profile = settings.pop("profile", SIGNED)
        self.credentials: Credentials = settings.pop("credentials", CREDENTIALS)
        self.inbox: Any = settings.pop("inbox", None) or Tampered(self.path, self.clock)
        self.receiver = Receiver(
            profile=self.profile, credentials=self.credentials, inbox=self.inbox, pace=pace(self.clock), **settings
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

    async def received(self, raw: bytes, headers: Any = {}, kind: str | None = None) -> InboxEvent:  # noqa: B006 - read
        """Have the receiver accept a body, dispatch it, and return its event."""
        assert 200 == (await self.receiver.receive(raw, headers, kind)).status
        return await self.last()

    async def last(self) -> InboxEvent:
        """Dispatch all that is due, and return the newest event."""
        await self.receiver.settle()
        return (await self.receiver.events())[-1]

    async def later(self, *waits: float) -> InboxEvent:
        """Let time pass, dispatch what is due after each wait, and return the newest event."""
        for wait in waits:
            self.clock.advance(wait)
            await self.receiver.settle()
        return await self.last()

    async def states(self) -> list[str]:
        """Return the states of all events."""
        return [each.state for each in await self.receiver.events()]

    async def keys(self) -> list[str]:
        """Return the keys of all events."""
        return [each.key for each in await self.receiver.events()]

    async def verified(self) -> list[bool]:
        """Return which events are verified."""
        return [each.verified for each in await self.receiver.events()]

    def recording(self, kind: str = "*", *, fails: int = 0, error: BaseException | None = None, **settings: Any) -> Got:
        """Register a handler that records its notifications, and whose first calls fail, and return the list."""
        got = Got()

        async def record(notification: Notification) -> None:
            got.append(notification)
            if len(got) <= fails:
                raise error or OSError("not now")

        settings.setdefault("name", f"recording_{next(self._ids)}")
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


def shared(profile: Profile, owner: Literal["", "shared", "merchant"] = "shared") -> Profile:
    """Return a profile that says whose the service's key is."""
    assert isinstance(profile.scheme, SortedPairs)
    return evolve(profile, signature=evolve(profile.scheme, service_key=owner))


class Hinted(Shop):
    """A receiver of notifications that the service, which is the sandbox here, has to confirm."""

    sandbox: Sandbox
    pay: Session

    async def send(self, data: dict[str, Any], kind: str = "payment") -> None:
        """Have the receiver accept a hint, which anybody may send."""
        raw = json.dumps({"type": self.profile.notification.kinds[kind][0], "data": data}).encode()
        assert 200 == (await self.receiver.receive(raw, {})).status

    async def hint(self, data: dict[str, Any], kind: str = "payment") -> InboxEvent:
        """Have the receiver accept a hint, dispatch what is due, and return the newest event."""
        await self.send(data, kind)
        return await self.last()

    async def failed_order(self) -> str:
        """Return the number of an order that was declined three times, and can still be closed."""
        order: str = await self.sandbox.given.pending_order()
        for _ in range(3):
            await self.sandbox.customer.decline(order)
        return order

    def asked(self, operation: str = "orders.query") -> int:
        """Return how often the service was asked."""
        return len(self.sandbox.ledger.calls(operation))


@asynccontextmanager
async def hinted(folder: Path, profile: Profile = UNSIGNED, **settings: Any) -> AsyncGenerator[Hinted]:
    """Return such a receiver, closed at the end."""
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        shop = Hinted(folder, **{"profile": profile, "credentials": sandbox.credentials, "session": pay, **settings})
        shop.sandbox, shop.pay = sandbox, pay
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
