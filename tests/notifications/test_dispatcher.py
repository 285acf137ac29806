"""The dispatcher's loop, which claims and handles events under leases until it is closed."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import Credentials, InvalidArgumentError, SessionClosedError, SignedHeader, StorageError
from payasync.clocks import Clocks, use_clocks
from payasync.notifications import Claim, InboxEvent, Notification, SqliteInbox
from payasync.notifications.dispatcher import POLL_SECONDS
from payasync.notifications.ingest import build_received
from payasync.notifications.verification import verification_of
from tests.inside import turns, until
from tests.notifications.merchant import (
    CREDENTIALS,
    PAID,
    SIGNED,
    Clock,
    Shop,
    Tampered,
    notification,
    opened,
    received,
)

PLAIN: Final = SignedHeader(signature="X-Signature")
SENT: Final = SignedHeader(signature="X-Signature", timestamp="X-Sent", text="{timestamp}{body}")
FULL: Final = StorageError("the disk is full")


class Hanging:
    """A handler that hangs until it is let go."""

    def __init__(self, shop: Shop) -> None:
        self.open = asyncio.Event()
        self.running = 0
        self.ended = 0
        shop.receiver.on("*")(self.handle)

    async def handle(self, _: Notification) -> None:
        """Hang."""
        self.running += 1
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        self.ended += 1


async def begun(shop: Shop) -> Hanging:
    """Have an event's handler begin, and hang."""
    hanging = Hanging(shop)
    await shop.take()
    await until(lambda: hanging.running)
    return hanging


async def fill(inbox: SqliteInbox, count: int) -> None:
    """Add events to the inbox."""
    for number in range(count):
        await inbox.add(received(f"payment:{number}"))


async def left(shop: Shop) -> list[str]:
    """Return the states of all events of a receiver that is closed."""
    async with aclosing(SqliteInbox(shop.path)) as inbox:
        return [each.state for each in await inbox.events()]


class Suspended:
    """A machine that a test suspends: its clock that counts a suspension jumps."""

    def __init__(self) -> None:
        self.now = 0.0
        use_clocks(Clocks(boot=lambda: self.now))

    def suspend(self) -> None:
        """Let much time pass for nothing but this clock."""
        self.now = 1e12


@pytest.mark.parametrize("during", ["expect", "handler"])
@pytest.mark.parametrize("how", ["suspended", "cut off", "refused"])
async def test_no_handler_is_called_without_a_lease(during: str, how: str, tmp_path: Path) -> None:
    """If the lease is lost in `expect` or a handler, or cannot be extended after a suspension, no handler is called.

    Nothing is stored then: the next lease decides. The receiver may know of the loss by an extension that is refused.
    """
    machine = Suspended()
    async with (
        opened(tmp_path, lease=30) as shop,
        aclosing(SqliteInbox(shop.path, clock=lambda: shop.clock() + 31)) as other,
    ):
        called, before = list[str](), list[InboxEvent]()

        async def suspend() -> None:
            if how == "cut off":
                shop.inbox.errors["extend"] = FULL
            else:
                await other.claim(1, 30)
            if how == "refused":
                shop.clock.advance(10)
                await until(lambda: shop.clock.sleeping(10))
            else:
                machine.suspend()
            before.extend(await shop.receiver.events())

        async def expect(_: Notification) -> dict[str, Any]:
            if during == "expect":
                await suspend()
            return {}

        @shop.receiver.on("payment", expect=expect)
        async def fail(_: Notification) -> None:
            called.append("first")
            await suspend()
            raise ValueError("not now")

        @shop.receiver.on("payment", expect=expect)
        async def second(_: Notification) -> None:
            called.append("second")

        await shop.take()
        await until(lambda: before)
        await shop.receiver.settle()
        events = await shop.receiver.events()

    assert ["first"] * (during == "handler") == called
    assert ([1 if how == "cut off" else 2], before) == ([each.attempts for each in before], events)


async def test_lease_is_extended_before_a_handler(tmp_path: Path) -> None:
    """After a suspension that no other process has noticed, the lease is extended once, and the handlers are called."""
    machine = Suspended()
    async with opened(tmp_path, lease=30) as shop:

        def suspend(_: Notification) -> dict[str, Any]:
            machine.suspend()
            return {}

        got = [shop.recording(expect=suspend) for _ in range(2)]
        state = (await shop.handled()).state

        assert ("done", [1, 1], 1) == (state, [len(each) for each in got], shop.inbox.calls["extend"])


async def test_receivers_that_share_an_inbox_handle_each_event_once(tmp_path: Path) -> None:
    """If four receivers share an inbox, each event is handled once, and each receiver handles some."""
    async with AsyncExitStack() as stack:
        shops = [await stack.enter_async_context(opened(tmp_path, concurrency=4)) for _ in range(4)]
        got = [list[int | None]() for _ in shops]

        async def handle(notification: Notification, handled: list[int | None]) -> None:
            handled.append(notification.id)
            await until(lambda: all(got))

        for shop, handled in zip(shops, got, strict=True):
            shop.receiver.on("*")(partial(handle, handled=handled))
        await fill(shops[0].inbox, 60)
        await asyncio.gather(*(each.receiver.settle() for each in shops))
        events = await shops[0].inbox.events()

        assert list(range(1, 61)) == sorted(each or 0 for one in got for each in one)
        assert {("done", 1)} == {(each.state, each.attempts) for each in events}


async def test_event_begins_before_the_end_of_another_is_stored(tmp_path: Path) -> None:
    """A handler that has ended makes room for the next event, also while the inbox has yet to store its end."""
    async with opened(tmp_path, concurrency=1) as shop:
        got, gate = shop.recording(), shop.inbox.gates["finish"]
        await fill(shop.inbox, 3)
        settled = asyncio.create_task(shop.receiver.settle())
        await until(lambda: len(got) == 3)
        gate.set()
        await settled

        assert ["done"] * 3 == await shop.states()


async def test_what_another_process_stores_is_found(shop: Shop) -> None:
    """The inbox is read every few seconds, because another process may have stored something."""
    got = shop.recording()
    await shop.receiver.settle()
    await until(lambda: shop.clock.sleeping(POLL_SECONDS))
    await fill(shop.inbox, 1)
    await shop.clock.run(lambda: got)


async def test_retry_begins_by_itself(shop: Shop) -> None:
    """An event is dispatched when it is due, without any call."""
    got = shop.recording(fails=99)
    await shop.handled()
    await shop.clock.run(lambda: len(got) >= 3, 0.5)

    assert [1, 2, 3] == [each.attempt for each in got[:3]]


@pytest.mark.parametrize("fails", [False, True])
async def test_lease_lasts_as_long_as_its_handler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, fails: bool
) -> None:
    """While a handler runs, its lease is extended, also after one extension failed, so that nobody else gets it."""
    async with opened(tmp_path, lease=30) as shop:
        hanging = await begun(shop)
        if fails:
            shop.inbox.errors["extend"] = FULL
            shop.clock.advance(10)
            await until(lambda: "cannot be extended: StorageError" in caplog.text)
            shop.inbox.errors.clear()
            await until(lambda: shop.clock.sleeping(10))
        for _ in range(12):
            shop.clock.advance(10)
            await until(lambda: shop.clock.sleeping(10))
            assert [] == await shop.inbox.claim(1, 30)
        hanging.open.set()
        event = await shop.last()

        assert ("done", 1) == (event.state, event.attempts)


@pytest.mark.parametrize(("grace", "attempts"), [(0, 2), (60, 1)])
async def test_closing_gives_back_what_it_cuts_off(grace: float, attempts: int, tmp_path: Path) -> None:
    """Within the grace, handlers end; after it they are cancelled, and their events are due again immediately."""
    async with opened(tmp_path) as shop:
        hanging = await begun(shop)
        closing = asyncio.create_task(shop.receiver.aclose(grace=grace))
        await turns(100 if grace else 0)
        if grace:
            hanging.open.set()
        await closing
    async with opened(tmp_path) as next_one:
        next_one.recording()
        event = await next_one.last()

        assert (0, 2 - attempts) == (hanging.running, hanging.ended)
        assert ("done", attempts, 0) == (event.state, event.attempts, event.failures)


async def test_closing_gives_back_what_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that were claimed to begin later are due for others immediately, also while a handler may still end."""
    monkeypatch.setattr("payasync.notifications.dispatcher.QUICK_SECONDS", float("inf"))
    async with opened(tmp_path, concurrency=2) as shop, aclosing(SqliteInbox(shop.path, clock=shop.clock)) as other:
        hanging, let_go = list[int | None](), asyncio.Event()

        @shop.receiver.on("payment")
        async def hang_when_many_wait(notification: Notification) -> None:
            if (await shop.states()).count("leased") > 20:
                hanging.append(notification.id)
                await let_go.wait()

        await fill(other, 90)
        async with shop.receiver:
            await until(lambda: len(hanging) == 2)
            closing = asyncio.create_task(shop.receiver.aclose(grace=3600))
            leased = await other.events("leased")
            for _ in range(1000):
                leased = await other.events("leased") if len(leased) > 2 else leased
            let_go.set()
            await closing

        assert set(hanging) == {each.id for each in leased}


async def test_end_that_is_cut_off_is_stored(tmp_path: Path) -> None:
    """If a shutdown cancels the storing of a handler's success, it is stored all the same, and not called again."""
    async with opened(tmp_path) as shop:
        got, gate = shop.recording(), shop.inbox.gates["finish"]
        await shop.take()
        await until(lambda: shop.inbox.calls["finish"])
        closing = asyncio.create_task(shop.receiver.aclose(grace=0))
        await until(lambda: shop.inbox.calls["finish"] == 2)
        gate.set()
        await closing

    assert (1, ["done"]) == (len(got), await left(shop))


class Late(Tampered):
    """An inbox whose claims of events that were leased before return late, or all claims.

    Attributes:
        claimed: Some events were leased.
        go_on: Lets the claims return.
        attempts: Of the events.
    """

    def __init__(self, path: Path, clock: Clock, attempts: int) -> None:
        super().__init__(path, clock)
        self.claimed, self.go_on, self.attempts = asyncio.Event(), asyncio.Event(), attempts

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease, and return late."""
        claims = await SqliteInbox.claim(self, limit, lease)
        if any(each.event.attempts >= self.attempts for each in claims):
            self.claimed.set()
            await self.go_on.wait()
        return claims


async def test_closing_begins_nothing_more(tmp_path: Path) -> None:
    """An event that is claimed while the receiver closes is given back, and no handler is called."""
    clock = Clock()
    inbox = Late(tmp_path / "inbox.db", clock, 1)
    await fill(inbox, 2)
    async with opened(tmp_path, inbox=inbox, clock=clock) as shop:
        got = shop.recording()
        async with shop.receiver:
            await inbox.claimed.wait()
            closing = asyncio.create_task(shop.receiver.aclose(grace=0))
            await turns(100)
            inbox.go_on.set()
            await closing

    assert ([], ["pending", "pending"]) == (got, await left(shop))


async def test_handler_that_will_not_end_is_left(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that swallows its cancellation does not keep a server from ending."""
    monkeypatch.setattr("payasync.notifications.dispatcher.CANCELLATION_SECONDS", 0.01)
    running, let_go, swallowed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @shop.receiver.on("payment")
    async def stubborn(_: Notification) -> None:
        running.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                swallowed.set()

    await shop.take()
    await running.wait()
    await asyncio.wait_for(shop.receiver.aclose(grace=0), 30)
    let_go.set()

    assert swallowed.is_set()


async def test_handler_may_close_its_receiver(shop: Shop) -> None:
    """If a handler closes its receiver, `aclose` does not wait for that handler."""
    closed = asyncio.Event()

    @shop.receiver.on("payment")
    async def stop(_: Notification) -> None:
        await shop.receiver.aclose(grace=3600)
        closed.set()

    await shop.take()
    await asyncio.wait_for(closed.wait(), 30)


async def test_settling_that_is_given_up_harms_nobody(shop: Shop) -> None:
    """If a call of `settle` is cancelled, the events are handled all the same."""
    hanging = Hanging(shop)
    await shop.take()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shop.receiver.settle(), 0.01)
    hanging.open.set()

    assert "done" == (await shop.last()).state


async def test_inbox_that_cannot_be_read_is_read_again(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """If the inbox cannot be read, `settle` raises the error. The loop goes on, and handles the events later."""
    got = shop.recording()
    shop.inbox.errors["claim"] = FULL
    await shop.take()
    with pytest.raises(StorageError, match="disk is full"):
        await shop.receiver.settle()
    shop.inbox.errors.clear()
    await shop.clock.run(lambda: got)

    assert "cannot be read: StorageError" in caplog.text


async def test_end_that_cannot_be_written_comes_with_the_lease(tmp_path: Path) -> None:
    """If the inbox cannot store that an event is done, the event has a second attempt after the lease."""
    async with opened(tmp_path, lease=30) as shop:
        shop.recording()
        shop.inbox.errors |= {"finish": FULL, "extend": FULL}
        await shop.handled()
        shop.inbox.errors.clear()
        event = await shop.later(31)

        assert ("done", 2) == (event.state, event.attempts)


async def lose_lease(shop: Shop) -> None:
    """Let a lease end, and the receiver lease the event again."""
    before = (await shop.receiver.events())[0].attempts
    shop.inbox.errors["extend"] = FULL
    while (await shop.receiver.events())[0].attempts == before:
        shop.clock.advance(31)
    shop.inbox.errors.clear()


async def test_each_of_several_handlers_is_called_once_though_the_lease_was_lost(tmp_path: Path) -> None:
    """If the lease is lost while the first handler runs, its success counts, and the others are called after it."""
    async with opened(tmp_path, lease=30) as shop:
        first, others = Hanging(shop), [shop.recording(), shop.recording()]
        await shop.take()
        await until(lambda: first.running)
        await lose_lease(shop)
        first.open.set()
        event = await shop.last()

        assert ("done", 3, 1) == (event.state, len(event.handled), first.ended)
        assert [1, 1] == [len(got) for got in others]


async def test_handler_that_ends_while_its_event_is_leased_again_is_not_called_again(tmp_path: Path) -> None:
    """If a handler ends before the receiver learns that it has leased the event again, its success counts, too."""
    clock = Clock()
    inbox = Late(tmp_path / "inbox.db", clock, 2)
    async with opened(tmp_path, inbox=inbox, clock=clock, lease=30) as shop:
        hanging = await begun(shop)
        await lose_lease(shop)
        hanging.open.set()
        await until(lambda: inbox.calls["finish"])
        await shop.states()
        await turns(100)
        inbox.go_on.set()

        assert ("done", 1) == ((await shop.last()).state, hanging.ended)


async def test_event_that_no_handler_got_before_the_lease_was_lost_is_handled(tmp_path: Path) -> None:
    """If the lease is lost before a handler is called, what was found without a lease does not count."""
    async with opened(tmp_path, lease=30) as shop:
        got = shop.recording()
        await shop.handled(time=shop.clock.now - 3600)
        gate = shop.inbox.gates["own"]
        await shop.receiver.replay(1)
        await until(lambda: shop.inbox.calls["own"])
        await lose_lease(shop)
        gate.set()

        assert ("done", 1) == ((await shop.last()).state, len(got))


async def test_done_events_are_forgotten_after_the_retention(shop: Shop) -> None:
    """Done events are deleted after the retention; parked ones stay."""
    shop.recording("payment")
    await shop.take()
    await shop.handled({"outRefundNo": "R1"}, "refund")
    await shop.later(30 * 86400)
    before = await shop.states()
    await shop.later(3601)

    assert (["done", "parked"], ["parked"]) == (before, await shop.states())


async def test_event_without_a_signed_time_is_known_for_ever(tmp_path: Path) -> None:
    """If a genuine notification has no time, its redelivery months later is still a duplicate.

    Its payload is deleted after the retention all the same.
    """
    shape = evolve(SIGNED.notification, verification="body", signature="data.sign", time="")
    credentials = Credentials("M1", service_keys="a key of the service")
    async with opened(tmp_path, profile=evolve(SIGNED, notification=shape), credentials=credentials) as shop:
        got, signed = shop.recording("payment"), shop.sign(PAID)
        for _ in range(3):
            await shop.received(signed.raw, signed.headers)
            await shop.later(31 * 86400)
        (event,) = await shop.receiver.events()

        assert (1, "done", 'payment:["T1","SBX_PAID"]') == (len(got), event.state, event.key)
        assert (b"", {}) == (event.raw, event.headers)
        assert not await shop.receiver.replay(event.id, kind="payment")


def test_what_bounds_how_late_it_comes() -> None:
    """Only a signed time limits how late a notification can arrive. A custom verifier does not."""
    keys = Credentials("M1", service_keys="of the service", notification_keys=CREDENTIALS.notification_keys)
    cases: tuple[tuple[dict[str, Any], bool], ...] = (
        ({"verification": "standard-webhooks"}, False),
        ({"verification": "none"}, False),
        ({"verification": "body", "signature": "data.sign", "time": "data.at"}, False),
        ({"verification": "body", "signature": "data.sign", "time": "timestamp", "event_time": ""}, True),
        ({"verification": "body", "signature": "data.sign", "time": ""}, True),
        ({"verification": "header", "time": "", "header": PLAIN}, True),
        ({"verification": "header", "time": "data.at", "header": PLAIN}, False),
        ({"verification": "header", "time": "", "header": SENT}, False),
    )
    for changes, lasting in cases:
        profile = evolve(SIGNED, notification=evolve(SIGNED.notification, **changes))
        found = verification_of(profile, keys)
        stored = build_received(notification(verified=found.proves), profile, timed=found.timed)

        assert lasting is stored.lasting, changes
        assert not verification_of(profile, keys, lambda _raw, _headers: True).timed


async def test_closed_receiver_says_so(shop: Shop) -> None:
    """`settle` and `async with` fail on a receiver that is closed, or closes. A second `aclose` does nothing."""
    await begun(shop)
    settling = asyncio.create_task(shop.receiver.settle())
    await turns(10)
    await shop.receiver.aclose(grace=0)
    await shop.receiver.aclose()
    for use in (lambda: settling, shop.receiver.settle, shop.receiver.__aenter__):
        with pytest.raises(SessionClosedError, match="Make a new one"):
            await use()


async def test_grace_is_a_number_of_seconds(shop: Shop) -> None:
    """A wrong grace is refused, and the receiver is left open."""
    shop.recording()
    wrong: tuple[Any, ...] = (-1, float("nan"), "5", None, True)
    for grace in wrong:
        with pytest.raises(InvalidArgumentError, match="grace must be"):
            await shop.receiver.aclose(grace)

    assert 200 == (await shop.take()).status


def test_loop_that_ends_gives_back_what_it_cuts_off(tmp_path: Path) -> None:
    """If a script ends without closing its receiver, interrupted events are due again immediately."""
    shop = Shop(tmp_path)

    async def come_back() -> list[str]:
        hanging.open.set()
        await shop.receiver.settle()
        states = await shop.states()
        await shop.receiver.aclose()
        return states

    hanging = asyncio.run(begun(shop))

    assert (["done"], 1) == (asyncio.run(come_back()), hanging.ended)


async def test_program_that_cancels_all_tasks_begins_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a program ends by cancelling all tasks, no handler begins with an event that is given back then."""
    monkeypatch.setattr("payasync.notifications.dispatcher.QUICK_SECONDS", float("inf"))
    before = asyncio.all_tasks()
    async with opened(tmp_path, concurrency=1) as shop:
        began, hanging = list[int | None](), list[int | None]()

        @shop.receiver.on("payment")
        async def hang_when_many_wait(notification: Notification) -> None:
            began.append(notification.id)
            if (await shop.states()).count("leased") > 2:
                hanging.append(notification.id)
                await asyncio.Event().wait()

        await fill(shop.inbox, 30)
        settling = asyncio.create_task(shop.receiver.settle())
        await until(lambda: hanging)
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await until(lambda: asyncio.all_tasks() == before)

        assert settling.done()
        assert hanging == began[-1:]
        assert "leased" not in await shop.states()


async def test_event_has_no_variables_of_another(tmp_path: Path) -> None:
    """What the user's code sets in a context variable for one event, no other event sees."""
    number: ContextVar[int | None] = ContextVar("number", default=None)
    seen = list[int | None]()

    def expect(notification: Notification) -> dict[str, object]:
        seen.append(number.get())
        number.set(notification.id)
        return {}

    async with opened(tmp_path, concurrency=1, expect=expect) as shop:
        got = shop.recording()
        await fill(shop.inbox, 30)
        await shop.receiver.settle()

    assert ([None] * 30, 30) == (seen, len(got))
