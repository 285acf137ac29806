"""A verified event and one that a query has confirmed are one, if both say the same fact: a number and its state."""

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import enumerate as living_threads
from typing import Any, Final, Literal, cast

import pytest
from attrs import evolve

from payasync import Profile
from payasync.notifications import Notification
from payasync.notifications.transitions import QUERY_PAUSE
from tests.inside import until
from tests.journal.service import QUARANTINE, SAYS
from tests.notifications.databases import by_sqlite3, credited_in
from tests.notifications.merchant import CREDENTIALS, Clock, opened, shared
from tests.notifications.sender import DONE, ENDED, ORDER, REFUND, SHAPE, UNDER_WAY, UNSIGNED, Sender, Thing, sending
from tests.notifications.test_plain_handlers import Blocking

MINE: Final = {"merchantId": "M1"}
THINGS: Final = pytest.mark.parametrize("thing", [REFUND, ORDER], ids=str)
SHARED: Final = shared(SAYS)
BY_ID: Final = evolve(SHARED, notification=evolve(SHAPE, id={}))
"""The header of each message identifies its event."""
NAMELESS: Final = evolve(SAYS, states=evolve(SAYS.states, order={}, payment={}))
"""The profile knows no states of payments."""


async def ended(shop: Sender) -> list[str]:
    """Let time pass until no query is to be waited for, and return the states of all events."""
    await shop.later(QUERY_PAUSE, QUERY_PAUSE, QUERY_PAUSE)
    return await shop.states()


@THINGS
@pytest.mark.parametrize("says", [SHARED, BY_ID], ids=["number and state", "message"])
@pytest.mark.parametrize("word", [DONE, UNDER_WAY])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("first", [MINE, {}], ids=["verified first", "confirmed first"])
async def test_verified_and_confirmed_events_about_the_same_are_handled_once(
    thing: Thing, says: Profile, word: int, first: dict[str, str], *, together: bool, tmp_path: Path
) -> None:
    """With a key of all merchants, an event that names nobody is asked about, whatever state it names.

    Another merchant's event about the same number is such a one. If the response says what the merchant's own event
    says, the handler gets one of them.
    """
    async with sending(tmp_path, thing, UNDER_WAY, says=says, said=DONE) as shop:
        await shop.notify(DONE if first else word, **first)
        if not together:
            await ended(shop)
        await shop.notify(word if first else DONE, **({} if first else MINE))
        states = await ended(shop)

        assert ([thing.states[DONE]], {"done"}) == (shop.heard, set(states))


@THINGS
async def test_fact_stays_known_after_the_key_is_the_merchants(thing: Thing, tmp_path: Path) -> None:
    """If the profile says later that the key is this merchant's alone, a redelivery of a handled event is a copy."""
    async with sending(tmp_path, thing, UNDER_WAY, says=SHARED, said=DONE) as shop:
        await shop.notified(DONE)
        async with shop.restarted(shared(SAYS, "merchant")) as later:
            got = later.recording(thing.kind, name="record")
            await later.notified(DONE)

        assert (1, []) == (len(shop.heard), got)


@pytest.mark.parametrize("owner", ["", "merchant"])
async def test_what_a_key_made_a_hint_stays_one(owner: Literal["", "merchant"], tmp_path: Path) -> None:
    """After a receiver of another merchant with the key is closed, an event that came before is still asked about.

    It may be his. If the profile says that the key is this merchant's alone, it is his no more.
    """
    async with sending(tmp_path, ORDER, UNDER_WAY, said=UNDER_WAY) as shop:
        async with opened(tmp_path / "other", credentials=evolve(CREDENTIALS, merchant_id="M2")):
            before = await shop.notified(DONE)
        fresh = await shop.notified(DONE, serial=2)
        async with shop.restarted(shared(SAYS, owner)) as later:
            got = later.recording()
            await later.later(QUERY_PAUSE)

        assert (["pending", "pending"], []) == ([before.state, fresh.state], shop.heard)
        assert [True] * (owner == "merchant") == [each.verified for each in got]


@pytest.mark.parametrize("fails", [0, 1], ids=["other event", "same event"])
@pytest.mark.parametrize("says", [UNSIGNED, SHARED], ids=["unsigned", "shared"])
async def test_two_words_for_one_state_are_one_fact(says: Profile, fails: int, tmp_path: Path) -> None:
    """If the service has several words for a state, and says another one later, the fact stays the same.

    If one handler fails, and the service then says the other word, only that handler is called.
    """
    words = evolve(says.states, order={**says.states.order, "paid": ("SBX_PAID", "SBX_FINISHED")})
    async with sending(tmp_path, ORDER, UNDER_WAY, says=evolve(says, states=words)) as shop:
        mailed = shop.recording("payment", fails=fails)
        shop.say(DONE)
        await shop.notified(DONE)
        shop.say("SBX_FINISHED")
        await (ended(shop) if fails else shop.notified(DONE))
        states = await ended(shop)

        assert (["done"] * (2 - fails), ["paid"]) == (states, shop.heard)
        assert [1, 2][: 1 + fails] == [each.attempt for each in mailed]


@pytest.mark.parametrize("then", [SAYS, NAMELESS], ids=["fact", "none"])
async def test_handlers_that_ended_before_the_key_was_shared_have_ended(then: Profile, tmp_path: Path) -> None:
    """A verified event that is asked about, because the key is shared since, calls the rest of its handlers only.

    It has no fact if its state was unknown then, or if it is of an earlier version.
    """
    async with sending(tmp_path, ORDER, UNDER_WAY, said=DONE) as shop:
        async with shop.restarted(then) as first:
            got = [first.recording("payment", name="credit"), first.recording("payment", name="mail", fails=1)]
            before = await first.notified(DONE)
        async with shop.restarted(SHARED) as second:
            got += [second.recording("payment", name="credit"), second.recording("payment", name="mail")]
            after = await second.later(QUERY_PAUSE, QUERY_PAUSE, QUERY_PAUSE)

        assert ("pending", "done") == (before.state, after.state)
        assert [1, 1, 0, 1] == [len(each) for each in got]


@THINGS
@pytest.mark.parametrize("says", [SHARED, BY_ID], ids=["number and state", "message"])
async def test_held_event_is_replayed_without_handlers_after_a_confirmed_one(
    thing: Thing, says: Profile, tmp_path: Path
) -> None:
    """If a query has confirmed what a held event says, a replay of that event does not call the handlers again."""
    expected: list[dict[str, Any] | None] = [None]
    async with sending(tmp_path, thing, UNDER_WAY, says=says, expect=lambda _: expected[0], said=DONE) as shop:
        held = await shop.notified(DONE, **MINE)
        expected[0] = {}
        await shop.notified(DONE)
        await ended(shop)
        replayed = await shop.receiver.replay_all("held"), await shop.receiver.replay(held.id)

        await shop.receiver.settle()

        assert ("held", (1, False), ["done", "done"]) == (held.state, replayed, await shop.states())
        assert [thing.states[DONE]] == shop.heard


@pytest.mark.parametrize("fails", [0, 1], ids=["credited as verified", "credited as a hint"])
async def test_key_that_is_shared_for_a_while_calls_no_handler_again(fails: int, tmp_path: Path) -> None:
    """If an event is verified, then asked about because the key is shared, then verified again, it is one event.

    The next message about the same number and state is another event, as ever.
    """
    called, states = Counter[str](), list[str]()
    async with sending(tmp_path, ORDER, UNDER_WAY, said=DONE) as shop:
        for owner, new in (("merchant", True), ("shared", False), ("merchant", False), ("merchant", True)):
            async with shop.restarted(shared(BY_ID, cast("Any", owner))) as each:

                @each.receiver.on("payment", name="credit")
                async def credit(_: Notification) -> None:
                    called["credit"] += 1
                    if called["credit"] <= fails:
                        raise OSError

                @each.receiver.on("payment", name="mail")
                async def mail(_: Notification) -> None:
                    called["mail"] += 1
                    if called["mail"] < 3:
                        raise OSError

                states.append((await (each.notified(DONE) if new else each.last())).state)
                shop.clock.advance(QUERY_PAUSE)

        assert ["pending", "pending", "done", "done"] == states
        assert {"credit": 2 + fails, "mail": 4} == called


@pytest.mark.parametrize("hint", [False, True])
@pytest.mark.parametrize("together", [False, True])
async def test_one_hint_takes_the_place_of_one_event(tmp_path: Path, *, hint: bool, together: bool) -> None:
    """Of several events of one fact under keys of their own, each is handled, and a confirmed hint is one of them."""
    async with sending(tmp_path, ORDER, UNDER_WAY, says=BY_ID, said=DONE) as shop:
        if hint:
            await shop.notified(DONE)
        for serial in range(3):
            await (shop.notify if together else shop.notified)(DONE, serial=serial, **MINE)
        await shop.receiver.settle()
        states = await ended(shop)

        assert (["done"] * (3 + hint), ["paid"] * 3) == (states, shop.heard)


async def test_number_of_the_service_is_no_order(tmp_path: Path) -> None:
    """A payment without an order is no fact about an order with the number that the service gave the payment."""
    async with sending(tmp_path, ORDER, UNDER_WAY, says=BY_ID, said=DONE) as shop:
        await shop.notified(DONE)
        await shop.handled({"paymentId": "T1", "status": ORDER.words[DONE], **MINE})

        assert ["paid", "paid"] == shop.heard


@pytest.mark.parametrize("first", [True, False], ids=["verified first", "confirmed first"])
async def test_state_that_the_profile_learns_is_a_fact(tmp_path: Path, *, first: bool) -> None:
    """If a verified event came before the profile knew its state, it is compared with confirmed ones when it is due."""
    async with sending(tmp_path, ORDER, UNDER_WAY, says=BY_ID) as shop:
        async with shop.restarted(evolve(BY_ID, states=NAMELESS.states)) as before:
            before.recording("payment", name="record", fails=1)
            event = await before.notified(DONE, **MINE)
        shop.say(DONE)
        async with shop.restarted(BY_ID) as later:
            got = later.recording()
            shop.clock.advance(QUERY_PAUSE * first)
            await later.notified(DONE)
            await later.later(QUERY_PAUSE, QUERY_PAUSE, QUERY_PAUSE)

        assert ((None, "pending"), [first]) == ((event.fact, event.state), [each.verified for each in got])


@pytest.mark.parametrize("first", [MINE, {}], ids=["verified first", "confirmed first"])
@pytest.mark.parametrize("ends", [1, 2], ids=["dead", "held"])
async def test_handler_that_is_done_stays_done_after_the_event_stopped(
    first: dict[str, str], ends: int, tmp_path: Path
) -> None:
    """If an event is dead or held after one handler is done, an event of its fact calls the other one."""
    expected: list[dict[str, Any] | None] = [{}]
    settings: dict[str, Any] = {"says": BY_ID, "attempts": ends, "expect": lambda _: expected[0]}
    async with sending(tmp_path, ORDER, UNDER_WAY, **settings) as shop:
        mailed = shop.recording("payment", fails=1)
        shop.say(DONE)
        await shop.notified(DONE, **first)
        expected[0] = None
        stopped = await shop.later(QUERY_PAUSE)
        expected[0] = {}
        await shop.notified(DONE, serial=2, **({} if first else MINE))
        await ended(shop)

        assert ("dead" if ends == 1 else "held", ["paid"], [1, 2]) == (stopped.state, shop.heard, mailed.ids)


async def test_event_that_is_held_takes_no_place(tmp_path: Path) -> None:
    """After a confirmed event, a verified one that contradicts `expect` is held. The next one is the duplicate."""
    async with sending(tmp_path, ORDER, UNDER_WAY, says=BY_ID, expect=lambda _: {"totalAmt": 450}, said=DONE) as shop:
        await shop.notified(DONE)
        await shop.notified(DONE, totalAmt=1, **MINE)
        await shop.notified(DONE, totalAmt=450, **MINE)

        assert (["done", "held", "done"], ["paid"]) == (await shop.states(), shop.heard)


@pytest.mark.parametrize("first", [MINE, {}], ids=["verified first", "confirmed first"])
async def test_handler_with_a_new_name_does_not_get_an_old_fact(first: dict[str, str], tmp_path: Path) -> None:
    """After a deployment that renames or adds a handler, no event of a fact that was handled before calls it."""
    async with sending(tmp_path, ORDER, UNDER_WAY, says=BY_ID, said=DONE) as shop:
        await shop.notified(DONE, **first)
        async with shop.restarted(BY_ID) as later:
            got = later.recording("payment", name="renamed")
            shop.clock.advance(QUERY_PAUSE)
            await later.notified(DONE, **({} if first else MINE))

        assert (["paid"], []) == (shop.heard, got)


async def test_effect_is_committed_once_though_the_word_changes(tmp_path: Path) -> None:
    """If a process ends after its commit, and the service then has another word for the state, the mark is the same."""
    words = evolve(UNSIGNED.states, order={**UNSIGNED.states.order, "paid": ("SBX_PAID", "SBX_SETTLED")})
    says, database = evolve(UNSIGNED, states=words), by_sqlite3(tmp_path / "shop.db")
    async with sending(tmp_path, ORDER, UNDER_WAY, says=says) as shop:
        for word in (DONE, "SBX_SETTLED"):
            shop.say(word)
            async with shop.restarted(says, clock=Clock()) as each:
                each.receiver.on("payment", name="credit", transaction=database.begin)(credited_in(database))
                await each.notified(DONE)
            each.path.unlink()

        assert 1 == database.count()


async def test_thread_of_the_same_fact_is_waited_for(tmp_path: Path) -> None:
    """If a thread outlives its receiver, the same event calls the function after it, also if it is a hint by then."""
    handler = Blocking()
    async with sending(tmp_path, ORDER, UNDER_WAY, said=DONE) as shop:
        async with shop.restarted(shared(SAYS, "merchant"), lease=30) as before:
            before.receiver.on("payment", name="credit")(handler)
            await before.notify(DONE)
            await until(lambda: handler.now)
        async with shop.restarted(SHARED, lease=30) as later:
            later.receiver.on("payment", name="credit")(handler)
            shop.clock.advance(31)
            async with later.receiver:
                await until(
                    lambda: handler.now == 2 or any(each.name == "payasync-handler" for each in living_threads())
                )
                handler.go.set()
                event = await later.last()

        assert ("done", 2, 1) == (event.state, handler.calls, handler.most)


@pytest.mark.parametrize("says", [SAYS, SHARED, BY_ID], ids=["own key", "number and state", "message"])
async def test_second_failure_is_another_fact(says: Profile, tmp_path: Path) -> None:
    """If a refund fails again, each handler hears of it, though the first "failed" was under way with one of them."""
    async with sending(tmp_path, REFUND, ENDED, says=says) as shop:
        mailed = shop.recording("refund", fails=1)
        await shop.notified(ENDED, **MINE)
        await shop.send(UNDER_WAY)
        shop.say(ENDED)
        await shop.later(QUARANTINE + QUERY_PAUSE)
        await shop.notified(serial=2)
        await ended(shop)
        await shop.later(QUARANTINE)

        assert ["failed", "failed"] == shop.heard
        assert mailed.ids[:2] == [1, 1]


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("says", [SHARED, BY_ID], ids=["number and state", "message"])
async def test_failure_beside_a_send_that_is_refused_is_handled_once(
    says: Profile, tmp_path: Path, *, confirmed: bool
) -> None:
    """If a refund is sent again, and refused, an event that came in between is about the first send.

    A hint about that, before it or after it, is the same.
    """
    async with sending(tmp_path, REFUND, ENDED, says=says, said=ENDED) as shop:
        if confirmed:
            await shop.notified()
            await ended(shop)
        async with shop.refusing():
            waiting = await shop.notified(ENDED, **MINE)
        await ended(shop)
        if not confirmed:
            await shop.notified()
        await ended(shop)

        assert ("pending", ["failed"]) == (waiting.state, shop.heard)


@pytest.mark.parametrize(("before", "after"), [(UNSIGNED, UNSIGNED), (SAYS, SHARED)], ids=["hint", "verified"])
async def test_event_of_an_earlier_version_stays_handled(before: Profile, after: Profile, tmp_path: Path) -> None:
    """What an earlier version has handled has no fact. Its key says that it was handled."""
    async with sending(tmp_path, ORDER, UNDER_WAY, says=before, said=DONE) as shop:
        await shop.notified(DONE)
        await shop.receiver.aclose()
        with closing(sqlite3.connect(shop.path, isolation_level=None)) as db:
            db.executescript("UPDATE events SET fact = NULL; DELETE FROM facts;")
        async with shop.restarted(after) as later:
            got = later.recording("payment")
            shop.clock.advance(QUERY_PAUSE)
            await later.notify(DONE)
            await later.later(0, QUERY_PAUSE, QUERY_PAUSE)
            states = await later.states()

        assert (["paid"], [], ["done", "done"]) == (shop.heard, got, states)


async def test_event_that_a_handler_did_not_get_takes_no_place(tmp_path: Path) -> None:
    """If a response of an old replica ends a confirmed event before a handler is done, that handler gets the next one.

    The other handler, which was done, does not.
    """
    async with sending(tmp_path, ORDER, UNDER_WAY, says=UNSIGNED) as shop:
        failing, mailed = list[bool](), list[str | None]()

        @shop.receiver.on("payment", name="mail")
        async def mail(notification: Notification) -> None:
            if failing:
                raise OSError
            mailed.append(notification.state)

        for word, fails in ((ENDED, []), (DONE, [True])):
            failing[:] = fails
            shop.say(word)
            await shop.notified(word)
            await shop.later(*[QUERY_PAUSE] * (not fails))
        failing.clear()
        shop.say(ENDED)
        await ended(shop)
        shop.say(DONE)
        await shop.notified(DONE, serial=2)

        assert {"done"} == set(await ended(shop))
        assert (["closed", "paid"], ["closed", "paid"]) == (shop.heard, mailed)


async def test_event_waits_while_another_of_its_fact_is_handled(tmp_path: Path) -> None:
    """While a handler has a confirmed event, a verified one of the same fact waits, and calls no handler afterwards."""
    async with sending(tmp_path, ORDER, UNDER_WAY, says=BY_ID, said=DONE) as shop:
        going, calls = asyncio.Event(), list[bool]()

        @shop.receiver.on("payment", name="slow")
        async def slow(notification: Notification) -> None:
            calls.append(notification.verified)
            await going.wait()

        await shop.notify(DONE)
        await until(lambda: calls)
        await shop.notify(DONE, **MINE)
        await until(lambda: shop.inbox.calls["finish"])
        (waiting,) = await shop.receiver.events("pending")
        going.set()
        states = await ended(shop)

        assert "another event about the same is handled" == waiting.reason
        assert (["done", "done"], [False]) == (states, calls)


async def test_redelivery_beside_a_send_that_is_refused_is_a_copy(tmp_path: Path) -> None:
    """If a handled event comes again while its refund is sent again, and that send is refused, it calls no handler."""
    async with sending(tmp_path, REFUND, ENDED) as shop:
        await shop.notified()
        async with shop.refusing():
            waiting = await shop.notified()
        await ended(shop)

        assert ("pending", ["done", "superseded"]) == (waiting.state, await shop.states())
        assert ["failed"] == shop.heard
