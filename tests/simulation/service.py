"""A payment service that never de-duplicates, unless a life says so, and what it has really done.

It shares no code with the sandbox.
"""

import asyncio
import base64
import hmac
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field, frozen

from tests.simulation.exchange import Connection, Hop, Request, Response, post, say
from tests.simulation.exchange import Habits as HopHabits
from tests.simulation.network import Address
from tests.simulation.world import EPOCH, World

ADDRESS: Final = ("127.0.0.1", 8080)
RECEIVER: Final[Address] = ("127.0.0.1", 9000)
"""Where the merchant receives notifications."""
MERCHANT: Final = "M1"
ANOTHER: Final = "M2"
KEY: Final = b"a key of the simulated service"
SECRET: Final = f"whsec_{base64.b64encode(KEY).decode()}"
PLACE, QUERY, CLOSE = "/payment/unifiedorder", "/payment/orderquery", "/payment/closeorder"
REFUND, STATUS, PAY = "/payment/refund", "/payment/refund/status", "/v1/payments"
WAITS: Final = (2.0, 10.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds between two deliveries of a notification; the last is that between all later ones."""
DELIVERIES: Final = 60
"""Deliveries after which a notification that nobody acknowledges is given up."""
EVENTS: Final = {
    "SUCCEEDED": "refund.succeeded",
    "REFUND_FAILED": "refund.failed",
    "PAID": "payment.paid",
    "FAILED": "payment.failed",
    "CLOSED": "payment.closed",
    "EXPIRED": "payment.expired",
}
EXPIRY: Final = 400.0
"""Seconds after which an order that nobody paid or closed expires."""
LIVE: Final = frozenset({"PENDING", "PAID"})
"""States of an order that a customer may pay, or has paid."""


@define
class Habits:
    """How the service behaves, by probability or in seconds.

    Attributes:
        late: The most seconds from the receipt of a write to its commit.
        stale: Seconds by which the replica that is queried may be behind.
        declines: How probable it is that a write is declined.
        silent: How probable it is that a response is lost after the commit.
        broken: How probable it is that a request is refused with 503 before anything is done.
        busy: How probable it is that a request is refused with 429 before anything is done.
        processing: The most seconds for which a refund is under way.
        keys: Whether it carries out a write once for each idempotency key.
        notifies: Whether it sends notifications.
        doubles: How probable it is that a notification is sent again though it was acknowledged.
        forges: How many notifications strangers send.
        shared: Whether its key signs for all merchants.
        refuses: Whether it refuses all keys.
        deaf: Whether it receives no writes.
    """

    late: float = 0.0
    stale: float = 0.0
    declines: float = 0.0
    silent: float = 0.0
    broken: float = 0.0
    busy: float = 0.0
    processing: float = 0.0
    keys: bool = False
    notifies: bool = False
    doubles: float = 0.0
    forges: int = 0
    shared: bool = False
    refuses: bool = False
    deaf: bool = False


@frozen
class Event:
    """An event about a thing, such as `("R1", "SUCCEEDED")`, and when it happened."""

    number: str
    state: str
    at: float


@define
class Ledger:
    """What the service has done.

    Attributes:
        effects: The moments at which each thing was made, by names such as `refund R1`.
        states: By the same names, each state and when it began.
        doubles: Things that were made again while the first one was there, and when.
        events: What merchants are notified of.
        received: How often each thing was asked for.
    """

    effects: dict[str, list[float]] = field(factory=dict)
    states: dict[str, list[tuple[float, str]]] = field(factory=dict)
    doubles: list[tuple[str, float]] = field(factory=list)
    events: list[Event] = field(factory=list)
    received: Counter[str] = field(factory=Counter)

    def state(self, thing: str, at: float) -> str | None:
        """Return what a thing was at a moment: a refund that was made once stays made."""
        seen = [state for since, state in self.states.get(thing, ()) if since <= at]
        return "SUCCEEDED" if "SUCCEEDED" in seen else seen[-1] if seen else None


class Service:
    """Serves orders, refunds, payments and queries, and sends notifications.

    Args:
        world: The world.
        habits: How it behaves.
        hops: How the hops before it behave.

    Attributes:
        habits: How it behaves.
        hop: What stands before it.
        ledger: What it has done.
        sending: How many notifications are not acknowledged yet.
    """

    def __init__(self, world: World, habits: Habits, hops: HopHabits) -> None:
        self.habits: Final = habits
        self.ledger: Final = Ledger()
        self.sending = 0
        self._world = world
        self._process = world.machine("service").process("the service")
        self._nonces = set[str]()
        self._keys = dict[str, asyncio.Task[Response]]()
        self._ids = 0
        self.hop: Final = Hop(world, hops, self.serve, self._serve_another)
        loop = self._process.loop
        self._tasks = [
            self._process.start(loop.create_server(lambda: Connection(world, self.hop.serve), *ADDRESS)),
            *(self._process.start(self._forge(each)) for each in range(habits.forges)),
        ]

    async def serve(self, request: Request) -> Response | None:
        """Return the response to a request, or `None` if it gets none."""
        habits, path = self.habits, request.path
        nonce = str(request.fields.get("nonceStr", ""))
        if nonce in self._nonces:
            return say(200, {"code": "SBX_NONCE_USED"})
        if nonce:
            self._nonces.add(nonce)
        if self._happens(f"the service is broken at {path}", habits.broken):
            return say(503, {})
        if self._happens(f"the service is busy at {path}", habits.busy):
            return Response(429, b'{"code":"SBX_BUSY"}', (("Content-Type", "application/json"), ("Retry-After", "2")))
        if habits.refuses:
            return say(401, {"code": "SBX_BAD_SIGNATURE"})
        if path in {STATUS, QUERY}:
            kind, name = ("refund", "outRefundNo") if path == STATUS else ("order", "outTradeNo")
            return self._say_state(kind, str(request.fields[name]), request.fields)
        return None if habits.deaf else await self._serve_write(request)

    async def _serve_write(self, request: Request) -> Response | None:
        habits, path = self.habits, request.path
        key = request.headers.get("idempotency-key", "") if habits.keys else ""
        write = self._keys.get(key) or asyncio.ensure_future(self._write(path, request.fields))
        if key:
            self._keys[key] = write
        response = await asyncio.shield(write)
        return None if self._happens(f"a response of {path} is lost", habits.silent) else response

    async def _write(self, path: str, fields: Mapping[str, Any]) -> Response:
        world, ledger = self._world, self.ledger
        kind, number = {
            PLACE: ("order", fields.get("outTradeNo")),
            CLOSE: ("order", fields.get("outTradeNo")),
            REFUND: ("refund", fields.get("outRefundNo")),
            PAY: ("payment", fields.get("description")),
        }[path]
        thing = f"{kind} {number}"
        ledger.received[f"{path} {number}"] += 1
        world.note(f"the service receives {path} {number}")
        await asyncio.sleep(world.between(0, self.habits.late, f"commit of {thing}"))
        if path == CLOSE:
            if ledger.state(thing, world.now) == "PENDING":
                self._enter(thing, "CLOSED")
            return self._say_state(kind, str(number), fields, seen=world.now)
        if self._happens(f"{thing} is declined", self.habits.declines):
            self._enter(thing, "REFUND_FAILED" if kind == "refund" else "FAILED")
        else:
            self._make(kind, thing)
        return self._say_state(kind, str(number), fields, seen=world.now)

    def _make(self, kind: str, thing: str) -> None:
        world, ledger = self._world, self.ledger
        made = ledger.effects.setdefault(thing, [])
        if made and (kind != "order" or ledger.state(thing, world.now) in LIVE):
            ledger.doubles.append((thing, world.now))
        made.append(world.now)
        world.note(f"the service makes {thing}")
        if kind == "refund" and self.habits.processing:
            self._enter(thing, "PROCESSING")
            seconds = world.between(0, self.habits.processing, f"processing of {thing}")
            world.after(seconds, lambda: self._enter(thing, "SUCCEEDED"))
        elif kind == "refund":
            self._enter(thing, "SUCCEEDED")
        else:
            self._enter(thing, "PAID" if kind == "payment" else "PENDING")
        if kind == "order":
            paid = world.happens(f"{thing} is paid", 0.4)
            seconds, state = (world.between(1, 200, f"payment of {thing}"), "PAID") if paid else (EXPIRY, "EXPIRED")
            world.after(seconds, lambda: self._end_order(thing, state))

    def _end_order(self, thing: str, state: str) -> None:
        if self.ledger.state(thing, self._world.now) == "PENDING":
            self._enter(thing, state)

    def _enter(self, thing: str, state: str) -> None:
        """Give a thing a state, and notify the merchant of it."""
        now, (kind, _, number) = self._world.now, thing.partition(" ")
        self.ledger.states.setdefault(thing, []).append((now, state))
        self._world.note(f"at the service, {thing} is {state}")
        if self.habits.notifies and state in EVENTS and kind != "payment":
            event = Event(number, state, now)
            self.ledger.events.append(event)
            self.sending += 1
            self._tasks.append(self._process.start(self._notify(event)))

    def _say_state(self, kind: str, number: str, fields: Mapping[str, Any], seen: float | None = None) -> Response:
        if seen is None:
            seen = self._world.now - self._world.between(0, self.habits.stale, f"replica for {number}")
        state = self.ledger.state(f"{kind} {number}", seen)
        if state is None:
            return say(404, {"code": "SBX_NOT_FOUND", "merchantId": MERCHANT, **self._numbers(kind, number, fields)})
        return say(200, self._about(kind, number, state, fields, MERCHANT))

    @staticmethod
    def _numbers(kind: str, number: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "refund":
            return {"outTradeNo": fields.get("outTradeNo", number.replace("R", "T")), "outRefundNo": number}
        return {"outTradeNo": number}

    def _about(self, kind: str, number: str, state: str, fields: Mapping[str, Any], merchant: str) -> dict[str, Any]:
        about = {"code": "SBX_OK", "status": f"SBX_{state}", "merchantId": merchant}
        if kind == "payment":
            return {**about, "paymentId": f"at the service {number}", "amount": fields.get("amount", 450)}
        amounts = {"totalAmt": 450, "refundAmt": 200} if kind == "refund" else {"totalAmt": 450, "currency": "CAD"}
        address = {"redirectUrl": "https://pay.example/"} if kind == "order" and state == "PENDING" else {}
        return {**about, **self._numbers(kind, number, fields), **amounts, **address}

    def _serve_another(self, request: Request) -> Response | None:
        """Return what another merchant would be told of a thing of the same number."""
        if request.path == PAY:
            return None
        kind = "refund" if "outRefundNo" in request.fields else "order"
        number = str(request.fields["outRefundNo" if kind == "refund" else "outTradeNo"])
        states = ("SUCCEEDED", "REFUND_FAILED") if kind == "refund" else ("PAID", "CLOSED")
        state = self._world.choose(states, "state of another")
        return say(200, self._about(kind, number, state, request.fields, ANOTHER))

    async def _notify(self, event: Event) -> None:
        """Deliver an event until it is acknowledged."""
        world, number = self._world, event.number
        self._ids += 1
        identity, sent = f"event-{self._ids}", 0
        await asyncio.sleep(world.between(0, 100, f"notification of {number}"))
        while sent < DELIVERIES:
            status = await self._deliver(identity, event, MERCHANT, KEY)
            if status // 100 == 2 and not self._happens(f"{identity} is sent again", self.habits.doubles):
                break
            await asyncio.sleep(WAITS[min(sent, len(WAITS) - 1)])
            sent += 1
        self.sending -= 1

    async def _deliver(self, identity: str, event: Event, merchant: str, key: bytes, *, late: float = 0.0) -> int:
        kind = "refund" if event.number.startswith("R") else "order"
        data = self._about(kind, event.number, event.state, {}, merchant)
        body = json.dumps({"type": EVENTS[event.state], "data": data}).encode()
        time = str(int(EPOCH + self._world.now - late))
        digest = hmac.digest(key, f"{identity}.{time}.".encode() + body, "sha256")
        signature = f"v1,{base64.b64encode(digest).decode()}"
        headers = {"webhook-id": identity, "webhook-timestamp": time, "webhook-signature": signature}
        path = "/notify/refund" if kind == "refund" else "/notify/payment"
        return await post(self._process, RECEIVER, path, headers, body)

    async def _forge(self, nth: int) -> None:
        """Send what no service of the merchant's sends: signed by nobody's key, or about another merchant's thing."""
        world = self._world
        await asyncio.sleep(world.between(1, 400, f"forgery {nth}"))
        number = world.choose(["R1", "R2", "T1", "T2", "R9", "T9"], f"number of forgery {nth}")
        event = Event(number, "SUCCEEDED" if number.startswith("R") else "PAID", world.now)
        if world.happens(f"forgery {nth} about {number}"):
            world.note(f"a stranger says that {number} is {event.state}")
            if self.habits.shared and world.draw(f"key of forgery {nth}") < 0.5:
                await self._deliver(f"event-of-another-{nth}", event, ANOTHER, KEY)
            else:
                await self._deliver(f"event-{nth}", event, MERCHANT, b"a stranger's key")

    def _happens(self, what: str, probability: float) -> bool:
        return self._world.network.fails(what, probability)
