"""An event about a number that was sent more than once may be of an earlier send: a query decides, in time."""

import asyncio
from pathlib import Path
from threading import Event
from typing import Any, Final, cast

import pytest
from attrs import evolve

from payasync import Profile, Recovery
from payasync.notifications import Notification
from payasync.notifications.transitions import MAX_UNCONFIRMED, QUERY_PAUSE
from tests.inside import until
from tests.journal.service import QUARANTINE, SAYS
from tests.notifications.sender import DONE, ENDED, ORDER, REFUND, REFUSED, SHAPE, UNDER_WAY, UNSIGNED, Thing, sending

THINGS: Final = pytest.mark.parametrize("thing", [REFUND, ORDER], ids=str)


@THINGS
@pytest.mark.parametrize(
    ("named", "said", "state", "heard"),
    [
        (ENDED, ENDED, "done", True),
        (ENDED, UNDER_WAY, "pending", False),
        (ENDED, DONE, "done", False),
        (ENDED, "SBX_ODD", "pending", False),
        (UNDER_WAY, UNDER_WAY, "done", True),
        (UNDER_WAY, ENDED, "done", False),
        (UNDER_WAY, DONE, "done", False),
    ],
)
async def test_query_after_the_quarantine_decides(
    thing: Thing, named: int, said: int | str, state: str, *, heard: bool, tmp_path: Path
) -> None:
    """Of a number that was sent twice, an event of *ended* or *under way* waits for a query after the quarantine.

    The handler gets the signed event if the query says the same. A later state has an event of its own.
    """
    async with sending(tmp_path, thing, ENDED, UNDER_WAY, said=said) as shop:
        waiting = await shop.notified(named)
        early, asked = await shop.later(QUARANTINE - 1), shop.queries
        late = await shop.later(1)

        assert ("pending", "pending", 0) == (waiting.state, early.state, asked)
        assert "may be about an earlier send" in waiting.reason
        assert (state, 1, [thing.states[named]] * heard) == (late.state, shop.queries, shop.heard)
        assert [(True, None)] * heard == [(each.verified, each.confirmed) for each in shop.got]
        assert [thing.key(named, 2 if named == ENDED else 1)] * heard == [each.dedup_key for each in shop.got]


@THINGS
@pytest.mark.parametrize(
    ("words", "word"),
    [((UNDER_WAY,), ENDED), ((REFUSED, UNDER_WAY), ENDED), ((), ENDED), ((ENDED, UNDER_WAY), DONE)],
    ids=["once", "refused once", "never", "success"],
)
async def test_end_of_a_number_that_was_sent_once_counts_immediately(
    thing: Thing, words: tuple[int, ...], word: int, tmp_path: Path
) -> None:
    """A signature proves an event about a number of one send. A send that the service refused does not count.

    That money moved is true of any send.
    """
    async with sending(tmp_path, thing, *words) as shop:
        event = await shop.notified(word)

        assert ("done", [thing.states[word]], 0) == (event.state, shop.heard, shop.queries)
        assert [(thing.key(word), 1)] == await shop.sent()


@pytest.mark.parametrize("says", [SAYS, UNSIGNED], ids=["signed", "hint"])
async def test_without_a_quarantine_the_event_is_held(says: Profile, tmp_path: Path) -> None:
    """Without `recovery.quarantine`, no query tells the sends apart: a person decides."""
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, says=evolve(says, recovery=Recovery()), said=ENDED) as shop:
        event = await shop.notified()

        assert ("held", True, []) == (event.state, "set recovery.quarantine" in event.reason, shop.heard)


@THINGS
@pytest.mark.parametrize("more", [{}, {"serial": 2}], ids=["same body", "other body"])
async def test_second_genuine_failure_is_another_event(thing: Thing, more: dict[str, Any], tmp_path: Path) -> None:
    """The key of an event about an end holds the number of sends, from the second on. A redelivery has the same key."""
    async with sending(tmp_path, thing, ENDED) as shop:
        await shop.notified()
        await shop.send(UNDER_WAY)
        shop.say(ENDED)
        second = shop.sign({**thing.number, "status": thing.words[ENDED], **more}, thing.kind)
        for wait in (0, QUARANTINE, 0):
            await shop.receiver.receive(second.raw, second.headers)
            await shop.later(wait)

        assert {(thing.key(ENDED), 1), (thing.key(ENDED, 2), 2)} <= set(await shop.sent())
        assert [thing.key(ENDED), thing.key(ENDED, 2)] == [each.dedup_key for each in shop.got]
        assert [thing.states[ENDED]] * 2 == shop.heard


@pytest.mark.parametrize(("kinds", "count"), [({"refund": ("refund.ended",)}, 2), (None, 1)], ids=["first", "never"])
async def test_kind_that_a_person_says_names_the_second_send(kinds: Any, count: int, tmp_path: Path) -> None:
    """A second "failed" without an event name, replayed with its kind, gets the key that it would have had."""
    says = evolve(SAYS, notification=evolve(SHAPE, kinds={**SHAPE.kinds, **kinds} if kinds else {}))
    async with sending(tmp_path, REFUND, ENDED, says=says) as shop:
        if kinds:
            await shop.notified()
        await shop.send(UNDER_WAY)
        shop.say(ENDED)
        held = await shop.handled({**REFUND.number, "status": REFUND.words[ENDED], "serial": 2}, cast("Any", None))
        await shop.receiver.replay(held.id, kind="refund")
        await shop.later(QUARANTINE)

        assert ("held", None) == (held.state, held.kind)
        assert [REFUND.key(ENDED), REFUND.key(ENDED, 2)][-count:] == [each.dedup_key for each in shop.got]
        assert ["failed"] * count == shop.heard


async def test_handled_event_supersedes_its_late_copy(tmp_path: Path) -> None:
    """If a late "failed" of the second send comes again in time and is handled, no held copy of it is left."""
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, said=ENDED) as shop:
        await shop.take({**REFUND.number, "status": REFUND.words[ENDED]}, "refund", time=0)
        await shop.notified()
        await shop.later(QUARANTINE)

        assert (["superseded", "done"], ["failed"]) == (await shop.states(), shop.heard)


async def test_late_copy_of_a_handled_event_is_not_stored(tmp_path: Path) -> None:
    """If an event was handled, a late copy of it is no event, which would wait for a person."""
    async with sending(tmp_path, REFUND, ENDED) as shop:
        await shop.notified()
        await shop.take({**REFUND.number, "status": REFUND.words[ENDED]}, "refund", time=0)

        assert ["done"] == await shop.states()


@pytest.mark.parametrize("more", [{}, {"serial": 2}], ids=["same body", "other body"])
async def test_event_of_an_earlier_send_takes_no_key(more: dict[str, Any], tmp_path: Path) -> None:
    """While "failed" of the first send waits, a genuine "failed" of the second send arrives: it is handled once."""
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, said=UNDER_WAY) as shop:
        await shop.notified()
        await shop.later(QUARANTINE)
        shop.say(ENDED)
        await shop.notified(**more)
        await shop.later(QUARANTINE)

        assert (["failed"], ["done", "done"]) == (shop.heard, await shop.states())


@pytest.mark.parametrize("word", [ENDED, UNDER_WAY])
async def test_copies_of_one_event_cost_neither_rows_nor_queries(word: int, tmp_path: Path) -> None:
    """While an event waits for a query, the inbox has no more copies of it than there were sends, but other bodies."""
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, said="SBX_ODD") as shop:
        for _ in range(10):
            await shop.notified(word)
        await shop.later(QUARANTINE)
        for _ in range(10):
            await shop.notified(word)
        most = 2 if word == ENDED else 1
        found = await shop.states(), shop.queries
        other = await shop.notified(word, serial=2)

        assert (["pending"] * most, 1) == found
        assert (most + 1, "pending") == (other.id, other.state)


async def test_genuine_event_is_asked_about_for_days(tmp_path: Path) -> None:
    """Unlike a hint, a signed event is not given up after an hour: its write may still be under way."""
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, said=UNDER_WAY) as shop:
        await shop.notified()
        states = [(await shop.later(MAX_UNCONFIRMED)).state for _ in range(3)]
        shop.say(ENDED)
        last = await shop.later(MAX_UNCONFIRMED)

        assert (["pending"] * 3, "done", ["failed"]) == (states, last.state, shop.heard)


async def test_key_with_the_events_own_number_stays(tmp_path: Path) -> None:
    """A key with more than number and state differs in each event, so that it needs no number of sends."""
    ids = {**SHAPE.id, "refund": ("outRefundNo", "status", "event")}
    says = evolve(SAYS, notification=evolve(SHAPE, id=ids))
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, says=says, said=ENDED) as shop:
        await shop.notified(event="E1")
        await shop.later(QUARANTINE)

        assert ['refund:["R1","SBX_REFUND_FAILED","E1"]'] == [key for key, _ in await shop.sent()]
        assert ["failed"] == shop.heard


async def test_event_that_waits_for_its_handler_is_overtaken_by_a_repeat(tmp_path: Path) -> None:
    """If a number is sent again before the handler succeeds, the event of the first send is believed no more."""
    async with sending(tmp_path, REFUND, ENDED) as shop:
        got = shop.recording("refund", fails=1)
        await shop.notified()
        await shop.send(UNDER_WAY)
        shop.say(DONE)
        waiting, ended = await shop.later(1), await shop.later(QUARANTINE)

        assert (1, "pending", "done") == (len(got), waiting.state, ended.state)


async def test_journal_that_cannot_be_read(tmp_path: Path) -> None:
    """If the journal cannot be read, the service shall repeat an event about an end; any other is accepted.

    An event that was accepted before has failed when it is dispatched, and is tried again.
    """
    async with sending(tmp_path, REFUND, UNDER_WAY) as shop:
        await shop.notify(serial=1)
        await shop.journal.aclose()
        refused = await shop.notify()
        events = await shop.sent()
        waiting = await shop.last()
        others = [(await shop.notify(word)).status for word in (DONE, UNDER_WAY)]

        assert ((503, "5"), 1) == ((refused.status, refused.headers["Retry-After"]), len(events))
        assert ("pending", 1, []) == (waiting.state, waiting.failures, shop.heard)
        assert waiting.reason.startswith("StorageError")
        assert [200, 200] == others


async def test_repeat_that_is_in_flight_may_still_arrive(tmp_path: Path) -> None:
    """The quarantine begins with the end of the last send. While it is in flight, the event waits."""
    async with sending(tmp_path, REFUND, ENDED, said=ENDED) as shop:
        responded = Event()
        repeat = asyncio.create_task(shop.send(UNDER_WAY, after=responded))
        await until(lambda: len(shop.recorder.requests) == 2)
        await shop.notify()
        await shop.later(QUARANTINE)
        responded.set()
        await repeat
        early, asked = await shop.later(QUARANTINE - 1), shop.queries
        late = await shop.later(2)

        assert ("pending", 0, "done") == (early.state, asked, late.state)


@pytest.mark.parametrize("says", [SAYS, UNSIGNED], ids=["signed", "hint"])
async def test_age_of_the_response_counts(says: Profile, tmp_path: Path) -> None:
    """A response out of a cache is as old as the cache says."""
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, says=says) as shop:
        shop.clock.advance(QUARANTINE)
        shop.say(ENDED, ("Age", "20"))
        early = await shop.notified()
        late = await shop.later(20)

        assert ("pending", "done", ["failed"]) == (early.state, late.state, shop.heard)


async def test_hint_is_confirmed_by_a_query_in_time(tmp_path: Path) -> None:
    """A service that signs nothing: each "failed" is handled, if a query after the quarantine says so."""
    async with sending(tmp_path, REFUND, ENDED, says=UNSIGNED, said=ENDED) as shop:
        await shop.notified()
        await shop.later(QUERY_PAUSE)
        await shop.send(UNDER_WAY)
        early = await shop.notified()
        late = await shop.later(QUARANTINE)
        key = 'confirmed:refund:["R1","SBX_REFUND_FAILED"]'

        assert ("pending", "done") == (early.state, late.state)
        assert ([key, f"{key}#2"], ["failed", "failed"]) == ([each.dedup_key for each in shop.got], shop.heard)


async def test_response_from_before_the_repeat_confirms_no_hint(tmp_path: Path) -> None:
    """A hint that shares the response to an earlier query does not get it, if the number was sent since."""
    async with sending(tmp_path, ORDER, ENDED, says=UNSIGNED, concurrency=1) as shop:

        @shop.receiver.on("payment")
        async def repeat(notification: Notification) -> None:
            if notification.state == "expired":
                await shop.send(UNDER_WAY)

        shop.say(ENDED)
        await shop.notified()
        shop.say("SBX_EXPIRED")
        await shop.notified(serial=2)
        await shop.notified(serial=3)
        waiting = await shop.later(QUERY_PAUSE)

        assert (["closed", "expired"], 2, ["done", "done", "pending"]) == (
            shop.heard,
            shop.queries,
            await shop.states(),
        )
        assert "may be about an earlier send" in waiting.reason


async def test_query_that_cannot_be_made_leaves_the_event_to_a_person(tmp_path: Path) -> None:
    """If the profile cannot ask about a refund, a genuine event that needs a query is held, with the reason."""
    says = evolve(SAYS, refund_status=None)
    async with sending(tmp_path, REFUND, ENDED, UNDER_WAY, says=says) as shop:
        shop.clock.advance(QUARANTINE)
        event = await shop.notified()

        assert ("held", True) == (event.state, "refund_status" in event.reason)
