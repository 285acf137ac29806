"""A merchant's shop with a journal, and a service whose responses and events a test chooses."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, Final

from attrs import evolve, frozen

from payasync import PayasyncError, PlaceOrder, Profile, Session
from payasync.clocks import Clocks, use_clocks
from payasync.journal import SqliteJournal
from payasync.notifications import Answer as Reply
from payasync.notifications import InboxEvent, Notification
from payasync.wire.request import Request
from tests.foreign.recorder import Answer, Recorder, answer
from tests.inside import until
from tests.journal.building import refund
from tests.journal.service import QUICK, SAYS
from tests.matrix.cells import session
from tests.notifications.merchant import CREDENTIALS, Clock, Shop

SHAPE: Final = SAYS.notification
UNSIGNED: Final = evolve(SAYS, notification=evolve(SHAPE, verification="none"))
UNDER_WAY, ENDED, DONE, REFUSED = range(4)


@frozen
class Thing:
    """What may be sent twice.

    Attributes:
        kind: Of its events.
        request: Sends it.
        paths: Of the write and of the query.
        number: What its responses and its events name.
        words: The service's words for *under way*, *ended* and *done*.
        states: Our names of them.
    """

    kind: str
    request: Request[Any]
    paths: tuple[str, str]
    number: dict[str, Any]
    words: tuple[str, ...]
    states: tuple[str, ...]

    def __str__(self) -> str:
        return self.kind

    def key(self, word: int, sends: int = 1) -> str:
        """Return the key of an event."""
        number = self.number.get("outRefundNo", "T1")
        return f'{self.kind}:["{number}","{self.words[word]}"]' + (f"#{sends}" if sends > 1 else "")


REFUND: Final = Thing(
    "refund",
    refund(),
    ("/payment/refund", "/payment/refund/status"),
    {"outTradeNo": "T1", "outRefundNo": "R1", "refundAmt": 200},
    ("SBX_PROCESSING", "SBX_REFUND_FAILED", "SBX_SUCCEEDED"),
    ("processing", "failed", "succeeded"),
)
ORDER: Final = Thing(
    "payment",
    PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD"),
    ("/payment/unifiedorder", "/payment/orderquery"),
    {"outTradeNo": "T1"},
    ("SBX_PENDING", "SBX_CLOSED", "SBX_PAID"),
    ("pending", "closed", "paid"),
)


class Sender(Shop):
    """A shop with a journal, and a service whose responses a test chooses.

    Attributes:
        thing: What is sent.
        responses: By path, what the service says.
        recorder: Has the requests.
        pay: The session.
        journal: The session's.
        got: The notifications that the handler got.
    """

    thing: Thing
    responses: dict[str, Answer]
    recorder: Recorder
    pay: Session
    journal: SqliteJournal
    got: list[Notification]

    def say(self, word: int | str, *headers: tuple[str, str], path: int = 1, after: Event | None = None) -> None:
        """Respond to queries so from now on, or to writes."""
        if word == REFUSED:
            said = answer(400, b'{"code":"SBX_INVALID"}', after=after)
        else:
            state = word if isinstance(word, str) else self.thing.words[word]
            facts = {"code": "SBX_OK", "merchantId": "M1", "totalAmt": 450, "status": state, **self.thing.number}
            said = answer(200, json.dumps(facts).encode(), *headers, after=after)
        self.responses[self.thing.paths[path]] = said

    async def send(self, *words: int, after: Event | None = None) -> None:
        """Send the thing, once for each word of the service."""
        for word in words:
            self.say(word, path=0, after=after)
            with suppress(PayasyncError):
                await self.pay.send(self.thing.request)

    @asynccontextmanager
    async def refusing(self) -> AsyncGenerator[None]:
        """Have the thing be sent a second time within the block, and refused at its end."""
        refused = Event()
        repeat = asyncio.create_task(self.send(REFUSED, after=refused))
        await until(lambda: 2 == sum(each.path == self.thing.paths[0] for each in self.recorder.requests))
        yield
        refused.set()
        await repeat

    async def notify(self, word: int = ENDED, **more: Any) -> Reply:
        """Have the receiver accept an event about the thing, or a hint."""
        data = {**self.thing.number, "status": self.thing.words[word], **more}
        shape = self.profile.notification
        if shape.verification != "none":
            return await self.take(data, self.thing.kind)
        body = {"type": shape.kinds[self.thing.kind][0], "data": data}
        return await self.receiver.receive(json.dumps(body).encode(), {})

    async def notified(self, word: int = ENDED, **more: Any) -> InboxEvent:
        """Have the receiver accept such an event and dispatch it, and return it."""
        await self.notify(word, **more)
        return await self.last()

    @property
    def queries(self) -> int:
        """How often the service was asked."""
        return sum(each.path == self.thing.paths[1] for each in self.recorder.requests)

    @property
    def heard(self) -> list[str | None]:
        """The states that the handler got."""
        return [each.state for each in self.got]

    async def sent(self) -> list[tuple[str, int]]:
        """Return the keys of all events, with the number of sends."""
        return [(each.key, each.sends) for each in await self.receiver.events()]

    @asynccontextmanager
    async def restarted(self, says: Profile, **settings: Any) -> AsyncGenerator["Sender"]:
        """Close the receiver, and open another one with the same inbox, by a profile."""
        await self.receiver.aclose(grace=0)
        given = {"credentials": CREDENTIALS, "session": self.pay, "clock": self.clock, **settings}
        shop = Sender(self.path.parent, profile=says, **given)
        shop.thing = self.thing
        yield shop
        await shop.receiver.aclose(grace=0)


@asynccontextmanager
async def sending(
    folder: Path, thing: Thing, *words: int, said: int | str | None = None, says: Profile = SAYS, **settings: Any
) -> AsyncGenerator[Sender]:
    """Open such a shop, and send the thing, once for each word of the service; `said` is its response to queries."""
    clock, responses = Clock(), dict.fromkeys(thing.paths, answer())
    use_clocks(Clocks(wall=clock, boot=clock, tick=lambda: round(clock() * 1e9)))
    with Recorder(by_path=responses) as recorder:
        async with (
            SqliteJournal(folder / "pay.db") as journal,
            session(recorder, says, journal=journal, retry=QUICK) as pay,
        ):
            shop = Sender(folder, profile=says, credentials=CREDENTIALS, session=pay, clock=clock, **settings)
            shop.thing, shop.responses, shop.recorder, shop.pay, shop.journal = thing, responses, recorder, pay, journal
            shop.got = shop.recording(thing.kind, name="record")
            try:
                await shop.send(*words)
                if said is not None:
                    shop.say(said)
                yield shop
            finally:
                await shop.receiver.aclose(grace=0)
