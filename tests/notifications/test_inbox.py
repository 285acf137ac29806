"""Rules that every inbox keeps, in SQLite and in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, cast

import pytest

from payasync.errors import InvalidArgumentError, StorageError
from payasync.notifications.inbox import (
    ENDS,
    FORGET_BATCH,
    REPLAYABLE,
    STATES,
    Added,
    Claim,
    Inbox,
    InboxEvent,
    Received,
    State,
)
from payasync.notifications.postgres_inbox import PostgresInbox
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.storage import Backlog
from tests.journal.building import LEASE, START, Clock
from tests.notifications.inbox_building import received

NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)
NAIVE: Final = datetime(2027, 1, 1)  # noqa: DTZ001 - that is what is wrong with it
FACT: Final = "payment:paid:T1"
SECRET: Final = "letmein"
HALF_A_PAIR: Final = "\ud800"
"""What JSON can hold and UTF-8 cannot."""


@pytest.fixture(params=["journal", pytest.param("log", marks=pytest.mark.long), "postgres"])
async def inbox(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock
) -> AsyncIterator[Inbox]:
    """An empty inbox: in SQLite with a rollback journal or a write-ahead log, or in PostgreSQL."""
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", (3,) if request.param == "log" else (99,))
    inbox: Inbox
    if request.param == "postgres":
        inbox = PostgresInbox(request.getfixturevalue("postgres_dsn"), clock=clock)
    else:
        inbox = SqliteInbox(tmp_path / "inbox.db", clock=clock)
    yield inbox
    await inbox.aclose()


async def claimed(inbox: Inbox, **facts: Any) -> Claim:
    """Add an event, and return the lease on it."""
    await inbox.add(received(**facts))
    (claim,) = await inbox.claim(1, LEASE)
    return claim


async def only(inbox: Inbox) -> InboxEvent:
    """Return the inbox's only event."""
    (event,) = await inbox.events()
    return event


async def confirmed(inbox: Inbox, number: int = 1, key: str = "confirmed:1", fact: str | None = FACT) -> Claim:
    """Add a hint, lease it, and have a query confirm it as a fact."""
    hint = await claimed(inbox, key=f"hint:{number}", digest=str(number))
    await inbox.own(hint, key, fact=fact)
    return hint


async def test_event_is_stored_as_it_was_received(inbox: Inbox) -> None:
    """The inbox returns a notification's bytes and times exactly as they were received."""
    moment = datetime(2027, 1, 1, 12, 30, 15, 999_999, tzinfo=timezone(timedelta(hours=5)))
    facts: dict[str, Any] = {"key": 'payment:["T1","PAID"]', "digest": "d1", "weak": True, "kind": "payment"}
    facts |= {"event": "trade.paid", "verified": True, "raw": bytes(range(256)), "event_time": START, "sends": 2}
    facts |= {"headers": {"Webhook-Id": "é", "user-agent": "a\tb"}}
    added = await inbox.add(received(**facts, received_at=moment))

    expected = InboxEvent(id=1, state="pending", due=START, received_at=moment.astimezone(UTC), **facts)
    assert (Added.NEW, expected) == (added, await only(inbox))


async def test_concurrent_duplicates_are_stored_once(inbox: Inbox) -> None:
    """If 50 redeliveries are added together, the inbox has one event, and one `add` returns `NEW`.

    A closed inbox refuses to store a notification.
    """
    added = await asyncio.gather(*(inbox.add(received()) for _ in range(50)))

    assert [Added.AGAIN] * 49 + [Added.NEW] == sorted(added, key=lambda one: one is Added.NEW)
    assert 1 == len(await inbox.events())
    await inbox.aclose()
    with pytest.raises(StorageError, match="the inbox is closed"):
        await inbox.add(received())


def test_headers_that_let_somebody_in_are_not_stored() -> None:
    """Only a few headers are stored, because others may hold secrets; and no `repr` shows them, or the body."""
    names = ("Authorization", "COOKIE", "Proxy-Authorization", "x-api-key", "X-Shop-Token", "Webhook-Signature")
    given: dict[str, Any] = {"key": "k", "raw": SECRET.encode(), "received_at": NOW}
    received = Received(digest="d", headers={**dict.fromkeys(names, SECRET), "Webhook-Id": "1"}, **given)
    event = InboxEvent(id=1, headers={"X-Customer": SECRET}, **given)

    assert {"Webhook-Id": "1"} == received.headers
    assert SECRET not in f"{received!r} {event!r}"


async def test_backlog_shows_what_is_undelivered_and_late(inbox: SqliteInbox | PostgresInbox, clock: Clock) -> None:
    """`backlog` counts events that wait or need a person. The age is that of the oldest undelivered event.

    Held events of other merchants are counted apart, because any merchant of the service can cause them.
    """
    empty = await inbox.backlog()
    for each in range(3):
        await inbox.add(received(f"merchant:{each}", held="it is another merchant's"))
    await inbox.replay(3)
    await inbox.finish((await inbox.claim(1, LEASE))[0], "dead")
    for state in STATES[2:]:
        await inbox.finish(await claimed(inbox, key=state), state)
    clock.advance(20)
    await claimed(inbox, key="leased", received_at=clock.now)
    await inbox.add(received("pending"))
    clock.advance(5)

    assert Backlog(counts=dict.fromkeys(empty.counts, 0), oldest=0, overdue=0) == empty
    assert (
        Backlog(
            counts={"pending": 1, "leased": 1, "dead": 2, "parked": 1, "held": 1, "another_merchant": 2},
            oldest=25,
            overdue=5,
        )
        == await inbox.backlog()
    )
    assert ["merchant:0", "merchant:1"] == [each.key for each in await inbox.events() if each.of_another]


async def test_event_that_is_held_again_releases_nothing_beside_a_done_one(inbox: Inbox) -> None:
    """After an event of a key is done, only a person gets another of them dispatched."""
    await inbox.finish(await claimed(inbox), "done")
    for digest in "bc":
        await inbox.add(received(digest=digest))
    await inbox.replay(2)
    (claim,) = await inbox.claim(1, LEASE)
    await inbox.finish(claim, "held")

    assert ["done", "held", "held"] == [event.state for event in await inbox.events()]


async def test_handlers_that_are_done_are_those_of_the_key(inbox: Inbox) -> None:
    """A claim names the handlers that are done for any event of its key, unless that event is done or superseded."""
    for number, state in enumerate(sorted(ENDS)):
        await inbox.finish(await claimed(inbox, key=state), state, handler="credit")
        await inbox.add(received(state, "b"))
        await inbox.replay(2 * number + 2)
        (second,) = await inbox.claim(1, LEASE)

        assert (state in REPLAYABLE) is ("credit" in second.event.handled), state


async def test_hint_that_waits_for_a_query_is_stored_again(inbox: Inbox) -> None:
    """While a hint waits for a query, the same one is no copy of it: it may be true of a later state."""
    await inbox.own(await claimed(inbox, key="hint:1"), "hint:1:1")

    assert Added.NEW == await inbox.add(received("hint:1"))


@pytest.mark.parametrize("verified", [True, False])
async def test_what_is_forgotten(inbox: Inbox, clock: Clock, *, verified: bool) -> None:
    """`forget` deletes old done and superseded events, and old unverified ones that ended. Others stay for a person.

    Anybody may send an unverified event, and must not fill the disk with it.
    """
    for state in ENDS:
        await inbox.finish(await claimed(inbox, key=state, verified=verified), state)
    await claimed(inbox, key="leased", verified=verified)
    await inbox.add(received("pending", verified=verified))
    now = clock.advance(1)
    forgotten = [await inbox.forget(START), await inbox.forget(now), await inbox.forget(now)]
    left = {event.key for event in await inbox.events()}

    stay = ENDS - {"done", "superseded"} if verified else set[State]()
    assert [0, len(ENDS - stay), 0] == forgotten
    assert {"leased", "pending", *stay} == left
    assert Added.NEW == await inbox.add(received("done"))


async def test_what_was_confirmed_is_never_forgotten(inbox: Inbox, clock: Clock) -> None:
    """The key of a confirmed event stays, because the same hint may come and be confirmed again at any time."""
    for number, state in enumerate(sorted(ENDS)):
        for key in (f"confirmed:{number}", f"hint:payment:a:{number}", f"payment:{number}"):
            await inbox.finish(await claimed(inbox, key=key), state)
    forgotten, events = await inbox.forget(clock.advance(1)), await inbox.events()

    assert (2 * len(ENDS), [f"confirmed:{number}" for number in range(5)]) == (forgotten, [each.key for each in events])
    assert {"done", "superseded"} == {each.state for each in events if each.raw == b""}


@pytest.mark.parametrize("prefix", ["", "held:"])
@pytest.mark.parametrize("state", sorted(REPLAYABLE))
async def test_done_event_stays_beside_one_that_can_be_replayed(
    inbox: Inbox, clock: Clock, state: State, prefix: str
) -> None:
    """A done event is stored as long as another of its key can be replayed: a replay of all must not handle that one.

    An event that was held before its key was known has `held:` before the key.
    """
    await inbox.finish(await claimed(inbox), "done")
    await inbox.add(received(f"{prefix}payment:1", "b", verified=True))
    await inbox.replay(2)
    (other,) = await inbox.claim(1, LEASE)
    await inbox.finish(other, state)
    forgotten = [await inbox.forget(clock.advance(1))]
    await inbox.replay(2)
    await inbox.finish((await inbox.claim(1, LEASE))[0], "superseded")
    forgotten.append(await inbox.forget(clock.advance(1)))

    assert [0, 2] == forgotten


@pytest.mark.long
async def test_forgetting_much_goes_in_parts(inbox: Inbox, clock: Clock) -> None:
    """One call of `forget` deletes all old events, even if they are more than one transaction deletes."""
    many = FORGET_BATCH + 1
    await asyncio.gather(*(inbox.add(received(str(number))) for number in range(many)))
    for claim in await inbox.claim(many, LEASE):
        await asyncio.gather(inbox.handled(claim, "shop:paid"), inbox.finish(claim, "done"))

    assert many == await inbox.forget(clock.advance(1))
    assert [] == await inbox.events()


async def test_texts_that_are_no_utf8_are_stored(inbox: Inbox) -> None:
    """Half a surrogate pair, in JSON or in an error, is stored as its escape."""
    added = await inbox.add(received("k" + HALF_A_PAIR, event=HALF_A_PAIR, headers={"date": HALF_A_PAIR}))
    (claim,) = await inbox.claim(1, LEASE)
    await inbox.handled(claim, HALF_A_PAIR)
    await inbox.finish(claim, "dead", f"ValueError: {HALF_A_PAIR}")
    event = await only(inbox)

    assert Added.NEW == added
    assert ("k\\ud800", "\\ud800", {"date": HALF_A_PAIR}) == (event.key, event.event, event.headers)
    assert (frozenset({"\\ud800"}), "ValueError: \\ud800") == (event.handled, event.reason)


async def test_numbers_are_checked(inbox: Inbox) -> None:
    """If a number is invalid, the inbox raises an error that names it."""
    wrong: tuple[Any, ...] = (-1, True, 1.0, "1", None, 2**63)
    for each in wrong:
        asked = {"event_id": inbox.replay(each), "limit": inbox.events(limit=each), "after": inbox.events(after=each)}
        for field, asking in asked.items():
            with pytest.raises(InvalidArgumentError, match="must be an integer of 0 or more") as caught:
                await asking

            assert field == caught.value.field


async def test_states_and_moments_are_checked(inbox: Inbox) -> None:
    """A state that does not exist or ends no lease is refused by its name, and so is a time without an offset."""
    claim, no_state, leased = await claimed(inbox), cast("Any", "lost"), cast("Any", "leased")
    for asking in (inbox.events(no_state), inbox.finish(claim, no_state), inbox.finish(claim, leased)):
        with pytest.raises(InvalidArgumentError, match=r"state must be .*pending, .*dead.*, not '(lost|leased)'"):
            await asking
    asked = {"before": inbox.forget(NAIVE), "received_at": inbox.add(received("b", received_at=NAIVE))}
    for field, moment in asked.items():
        with pytest.raises(InvalidArgumentError, match="a moment with its offset from UTC") as caught:
            await moment

        assert field == caught.value.field


async def known(inbox: Inbox, key: str, fact: str | None = FACT) -> dict[str | None, bool]:
    """Add a verified event, lease it, and return who is known to have got its fact."""
    return dict((await claimed(inbox, key=key, verified=True, fact=fact)).known)


async def test_handlers_of_a_fact_are_known(inbox: Inbox) -> None:
    """A lease says which handlers have got the event's fact, and whether they got it from a verified event.

    An empty name stands for all handlers of an event that is done.
    """
    hint = await confirmed(inbox)
    for name in ("credit confirmed:1", "mail confirmed:1"):
        await inbox.handled(hint, name)
    await inbox.finish(hint, "dead")
    first = await claimed(inbox, key="webhook:1", verified=True, fact=FACT)
    await inbox.handled(first, "mail")
    before = await known(inbox, "webhook:2")
    await inbox.finish(first, "done")

    assert {"credit": False, "mail": False} == first.known
    assert {"credit": False, "mail": True} == before
    assert {**before, "": True} == await known(inbox, "webhook:6")
    assert {} == await known(inbox, "webhook:3", "payment:paid:T3") == await known(inbox, "webhook:4", None)


async def test_one_verified_event_is_the_copy_of_a_confirmed_one(inbox: Inbox) -> None:
    """Of verified events that were leased together after a confirmed one of their fact, one is its copy."""
    await inbox.finish(await confirmed(inbox), "done", handler="credit confirmed:1")
    first, second, third = [await claimed(inbox, key=f"webhook:{each}", verified=True, fact=FACT) for each in range(3)]
    await inbox.finish(third, "pending")
    copies = [await inbox.handled(each, "credit", as_copy=True) for each in (third, first, second, third)]
    handled = [each.handled for each in await inbox.events(after=1)]

    assert ([False, True, None, False], [["credit"], [], []]) == (copies, [list(each) for each in handled])


@pytest.mark.parametrize("interrupted", [False, True])
async def test_one_of_two_events_of_a_fact_waits(inbox: Inbox, *, interrupted: bool) -> None:
    """If a verified event and a confirmed one are leased together, only one waits, until the other one has ended.

    The confirmed one is first if it was interrupted, because it may have had its effect.
    """
    await inbox.finish(await confirmed(inbox), "pending", wait=None if interrupted else 0)
    await inbox.add(received("webhook:1", verified=True, fact=FACT))
    claims = {each.event.id: each for each in await inbox.claim(2, LEASE)}
    together = [list(claims[number].known) for number in (1, 2)]
    await inbox.finish(claims[2], "pending", wait=0, failed=False)
    hint = await inbox.read(claims[1])
    await inbox.finish(hint, "pending", wait=60)
    (alone,) = await inbox.claim(2, LEASE)

    assert [[None], [None] * interrupted] == together
    assert ({}, {}) == (hint.known, alone.known)


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "in reverse"])
async def test_first_confirmed_event_of_a_fact_waits(inbox: Inbox, order: int) -> None:
    """While an event that a query has confirmed is not done, no later one of its fact is confirmed."""
    claims = [await claimed(inbox, key=f"hint:{number}") for number in (1, 2)]
    owned = {each.event.id: await inbox.own(each, f"confirmed:{each.event.id}", fact=FACT) for each in claims[::order]}
    barred = await inbox.own(claims[1], "confirmed:1:2", fact=FACT)
    await inbox.finish(claims[0], "dead")

    assert ({1: True, 2: order < 0}, False) == (owned, barred)
    assert await inbox.own(claims[1], "confirmed:1:2", fact=FACT)


@pytest.mark.parametrize(("state", "fact"), [("held", FACT), ("held", None), ("dead", FACT), ("parked", FACT)])
async def test_last_event_that_a_query_confirmed_stays(
    inbox: Inbox, clock: Clock, state: State, fact: str | None
) -> None:
    """Of events that a query confirmed with one fact or key, the last one waits for a person: strangers leave one."""
    for number in (1, 2, 3):
        hint = await confirmed(inbox, number, f"confirmed:1:{number}" if fact else "confirmed:1", fact)
        await inbox.finish(hint, state, "why")
    states = [each.state for each in await inbox.events()]
    await inbox.forget(clock.advance(3600))

    assert ["superseded", "superseded", state] == states
    assert [3] == [each.id for each in await inbox.events()]


async def test_event_gets_a_fact_beside_another_of_its_key(inbox: Inbox) -> None:
    """An event that keeps its key gets a fact, also if another event of the key is done: a person replayed it."""
    await inbox.finish(await claimed(inbox, key="webhook:1"), "done")
    await inbox.add(received("webhook:1", "other"))
    await inbox.replay(2)
    (claim,) = await inbox.claim(1, LEASE)

    assert await inbox.own(claim, "webhook:1", fact=FACT)
    assert FACT == (await inbox.read(claim)).event.fact


async def test_fact_outlives_the_event_that_a_query_confirmed(inbox: Inbox, clock: Clock) -> None:
    """Which handlers have got a fact is known when a query has confirmed it, and no such event has it any more."""
    hint = await confirmed(inbox)
    await inbox.handled(hint, "credit")
    await inbox.own(hint, "hint:1:1", fact=None)
    await inbox.finish(hint, "done")
    before = await claimed(inbox, key="webhook:1", verified=True, fact=FACT)
    await inbox.finish(before, "done", handler="mail")
    await inbox.forget(clock.advance(3600))

    assert {"credit": False} == before.known
    assert {"credit": False, "mail": True} == await known(inbox, "webhook:2")


async def test_facts_are_forgotten_with_the_events(inbox: Inbox, clock: Clock) -> None:
    """What a query has confirmed is known for ever, and so is its copy.

    Another fact is known as long as its events can come again, or wait for a person.
    """
    await inbox.finish(await confirmed(inbox), "done", handler="credit")
    for number, lasting, end in ((2, True, "done"), (3, False, "done"), (4, False, "dead")):
        fact = f"payment:paid:T{number}"
        claim = await claimed(inbox, key=fact, verified=True, fact=fact, lasting=lasting)
        await inbox.finish(claim, cast("State", end), handler="credit")
    copy = await claimed(inbox, key="webhook:0", verified=True, fact=FACT)
    await inbox.handled(copy, "credit", as_copy=True)
    await inbox.finish(copy, "done")
    await inbox.forget(clock.advance(3600))

    assert {"credit": True} == await known(inbox, "webhook:5", "payment:paid:T4")
    assert {"credit": True, "": False} == await known(inbox, "webhook:1")
    assert {"": True} == await known(inbox, "webhook:2", "payment:paid:T2")
    assert {} == await known(inbox, "webhook:3", "payment:paid:T3")


@pytest.mark.parametrize("state", ["pending", "dead", "parked", "held"])
async def test_done_event_stays_while_another_of_its_fact_is_not_done(inbox: Inbox, clock: Clock, state: State) -> None:
    """An event that waits, or that a person can replay, finds out that another one of its fact was handled."""
    await inbox.finish(await claimed(inbox, key="webhook:1", verified=True, fact=FACT), "done", handler="credit")
    other = await claimed(inbox, key="webhook:2", verified=True, fact=FACT)
    await inbox.finish(other, state, wait=None if state != "pending" else 7200)
    await inbox.forget(clock.advance(3600))
    kept = [each.id for each in await inbox.events()]
    if state == "pending":
        clock.advance(7200)
    else:
        await inbox.replay(2)
    (again,) = await inbox.claim(1, LEASE)
    await inbox.finish(again, "done")
    await inbox.forget(clock.advance(3600))

    assert [1, 2] == kept
    assert {"": True} == again.known
    assert [] == await inbox.events()
