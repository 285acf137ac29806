"""Rules that every journal keeps, in SQLite and in PostgreSQL."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta, timezone
from itertools import product
from math import inf
from shlex import quote
from typing import Any, Final, cast

import pytest
from attrs import evolve

from payasync.cli.journal_status import status_of
from payasync.errors import ConfigurationError, IntentConflictError, InvalidArgumentError
from payasync.journal import Journal, Outcome
from payasync.journal.intents import END_STATES, STATES, TRANSITIONS, BeginResult, Draft, Intent, State, Step
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, NotificationShape
from payasync.resources.orders import CloseOrder, PlaceOrder
from payasync.resources.subscriptions import CancelSubscription
from payasync.storage import Backlog
from tests.journal.building import LEASE, MERCHANT, PAYMENT, SERVICE, START, Clock, draft, kept, refund
from tests.journal.conftest import both_stores

OUTCOME: Final = Outcome(status=200, body=b'{"state":"DONE"}')
OTHER_SERVICE: Final = "https://test.example"
HALF_A_PAIR: Final = "\ud800"
"""What JSON can hold and UTF-8 cannot."""
NAIVE: Final = datetime(2027, 1, 1)  # noqa: DTZ001 - that is what is wrong with it

pytestmark = both_stores


@pytest.fixture
def journal(store: Journal) -> Journal:
    """An empty journal."""
    return store


async def sending(journal: Journal, what: Draft | None = None) -> Intent:
    """Begin to send, and return the intent."""
    begun = await journal.begin(what or draft(), LEASE)
    assert Step.SEND is begun.step
    return begun.intent


async def in_state(journal: Journal, state: State, number: str = "R1") -> Intent:
    """Return an intent in a state, as it was when it was last claimed."""
    if state == "new":
        return await got(journal, await journal.add(refund(number), merchant=MERCHANT))
    intent = await sending(journal, draft(refund(number)))
    if state == "manual":
        await journal.settle(intent, "unknown")
        (intent,) = await journal.ask(1, LEASE)
    if state != "sending":
        await journal.settle(intent, state, reason="why")
    return intent


async def got(journal: Journal, intent_id: int) -> Intent:
    """Return an intent that must be there."""
    intent = await journal.get(intent_id)
    assert intent is not None
    return intent


async def test_merchants_writes_go_to_one_service(journal: Journal) -> None:
    """A journal binds each merchant to its first service. `bind` with another service raises `ConfigurationError`."""
    for _ in range(2):
        await journal.bind(MERCHANT, SERVICE)
    await journal.bind("M2", OTHER_SERVICE)
    with pytest.raises(ConfigurationError) as caught:
        await journal.bind(MERCHANT, OTHER_SERVICE)
    place, words = repr(journal).partition("(")[2].rstrip(")").strip("'"), caught.value.args[0]

    assert f"merchant 'M1' sent to {SERVICE}, and this session's service is {OTHER_SERVICE}: nothing was sent" in words
    assert words.endswith(f"payasync journal move {SERVICE} {OTHER_SERVICE} --journal {quote(place)}")
    assert "journal" == caught.value.field


async def test_sends_of_a_number(journal: Journal, clock: Clock) -> None:
    """The journal counts a number's sends that may have had an effect, and the seconds since the last of them ended.

    A send has not ended while it is in progress. If its process ended, it has ended with its lease at the latest.
    """
    found = list[tuple[int, float]]()
    for outcome, state in ((None, "rejected"), (OUTCOME, "rejected"), (None, "unknown")):
        intent = await sending(journal)
        await journal.settle(intent, cast("State", state), outcome=outcome)
        clock.advance(10)
        found.append(await journal.sends("refunds.create", "R1", merchant=MERCHANT))
    await sending(journal, draft(refund("R3")))
    for wait in (0, LEASE - 2, 5):
        clock.advance(wait)
        found.append(await journal.sends("refunds.create", "R3", merchant=MERCHANT))
    others = [("refunds.create", "R2", MERCHANT), ("refunds.create", "R1", "M2"), ("orders.place", "R1", MERCHANT)]
    found += [await journal.sends(operation, number, merchant=whose) for operation, number, whose in others]

    assert [(0, inf), (1, 10), (2, 10), (1, -1), (1, -1), (1, 3), *[(0, inf)] * 3] == found


async def test_write_to_another_service_is_none(journal: Journal) -> None:
    """If a write goes to another service, `begin` and `claim` raise `ConfigurationError` and store nothing."""
    queued = await journal.add(refund("R2"), merchant=MERCHANT)
    begun = await journal.begin(draft(), LEASE, service=SERVICE)
    await journal.settle(begun.intent, "succeeded", outcome=OUTCOME)
    before = await journal.list()
    for beginning in (
        journal.begin(draft(refund("R3")), LEASE, service=OTHER_SERVICE),
        journal.begin(draft(), LEASE, service=OTHER_SERVICE),
        journal.claim(queued, LEASE, service=OTHER_SERVICE),
    ):
        with pytest.raises(ConfigurationError, match=f"this session's service is {OTHER_SERVICE}"):
            await beginning

    assert before == await journal.list()


async def test_of_two_services_together_one_begins(journal: Journal) -> None:
    """If first writes to two services begin together, the journal accepts all writes to one and refuses the others."""
    services = [SERVICE, OTHER_SERVICE] * 5
    drafts = [draft(refund(f"R{number}")) for number in range(10)]
    writes = (journal.begin(each, LEASE, service=service) for each, service in zip(drafts, services, strict=True))
    ends = await asyncio.gather(*writes, return_exceptions=True)
    sent = [service for service, end in zip(services, ends, strict=True) if isinstance(end, BeginResult)]

    assert (1, 5) == (len({*sent}), len(sent))
    assert {BeginResult, ConfigurationError} == {type(each) for each in ends}


async def test_service_moves(journal: Journal) -> None:
    """`move` binds all merchants of an old address to the new one. Merchants of other services stay where they are."""
    for merchant in (MERCHANT, "M2"):
        await journal.bind(merchant, SERVICE)
    await journal.bind("M3", OTHER_SERVICE)

    assert [MERCHANT, "M2"] == await journal.move(f"{SERVICE}/", "https://new.example/")
    await journal.bind(MERCHANT, "https://new.example")
    await journal.bind("M3", OTHER_SERVICE)
    with pytest.raises(ConfigurationError, match=r"sent to https://new\.example"):
        await journal.bind("M2", SERVICE)


async def test_journal_leaves_the_sandbox_unused(journal: Journal) -> None:
    """If the sandbox has done no write of a merchant, `move` binds the merchant to the real service."""
    await journal.add(refund("R2"), merchant=MERCHANT)
    await journal.settle(await sending(journal), "rejected")
    await journal.bind(MERCHANT, "payasync-sandbox")
    with pytest.raises(ConfigurationError, match=f"nothing was done there, .* payasync journal move sandbox {SERVICE}"):
        await journal.bind(MERCHANT, SERVICE)

    assert [MERCHANT] == await journal.move("sandbox", SERVICE)
    await journal.bind(MERCHANT, SERVICE)


@pytest.mark.parametrize("state", ["sending", "accepted", "succeeded", "unknown", "manual"])
async def test_what_the_sandbox_has_done_no_service_has(journal: Journal, state: State) -> None:
    """If the sandbox has done a write, or may have, `move` refuses to bind its merchant to a real service."""
    intent = await in_state(journal, state)
    await journal.bind(MERCHANT, "payasync-sandbox")
    rule = "a real service, or a sandbox that has done no write"
    step = "Use a new journal for the real service"
    words = f"^old must be {rule}: intent {intent.id} was done there, or may have been. {step}$"
    with pytest.raises(InvalidArgumentError, match=words):
        await journal.move("sandbox", SERVICE)


async def test_first_is_sent(journal: Journal) -> None:
    """If an intent is new, the journal stores it as *sending* and leases it to its sender."""
    begun = await journal.begin(draft(), LEASE)
    expected = kept(
        hash=draft().hash,
        request={"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200},
        attempts=1,
        fence=1,
        lease=START + timedelta(seconds=LEASE),
        queued=True,
        tick=begun.intent.tick,
    )

    assert expected.tick
    assert BeginResult(Step.SEND, expected) == begun
    assert [expected] == await journal.list()


@pytest.mark.parametrize("by", ["key", "number"])
async def test_same_again(journal: Journal, clock: Clock, by: str) -> None:
    """If a write is repeated, the journal returns its result, sends it or refuses it, depending on its state.

    If a sender's lease has ended, its write is in doubt. If a reconciler's lease has, an accepted write stays so.
    """
    steps: dict[State, Step] = {
        **dict.fromkeys(("manual", "unknown"), Step.ASK),  # the first, because it is made by a query
        **dict.fromkeys(("new", "rejected"), Step.SEND),
        **dict.fromkeys(("accepted", "succeeded"), Step.ANSWER),
        "sending": Step.WAIT,
    }
    for state, step in steps.items():
        before = await got(journal, (await in_state(journal, state, state)).id)
        begun = await (journal.begin(draft(refund(state)), LEASE) if by == "key" else journal.claim(before.id, LEASE))
        after = await got(journal, before.id)

        assert (step, after) == (begun.step, begun.intent)
        assert (("sending", before.attempts + 1, before.fence + 1) if step is Step.SEND else None) == (
            None if after == before else (after.state, after.attempts, after.fence)
        )
    await journal.ask(9, LEASE)
    clock.advance(LEASE)
    late = [(await journal.begin(draft(refund(state)), LEASE)).step for state in ("sending", "accepted")]
    assert [Step.ASK, Step.ANSWER] == late


async def test_rejected_is_sent_anew(journal: Journal) -> None:
    """If a rejected write is sent again, its old outcome and reason are deleted. Its first sender cannot settle it."""
    first = await sending(journal)
    await journal.settle(first, "rejected", outcome=OUTCOME, reason="too late")
    second = await sending(journal)

    assert (None, "", 2, 2) == (second.outcome, second.reason, second.fence, second.attempts)
    assert not await journal.settle(first, "succeeded")
    assert await journal.settle(second, "succeeded")


async def test_same_key_is_sent_once(journal: Journal) -> None:
    """If 50 callers begin the same write together, the journal lets one of them send it."""
    begun = await asyncio.gather(*(journal.begin(draft(), LEASE) for _ in range(50)))

    assert [Step.SEND] + [Step.WAIT] * 49 == sorted((each.step for each in begun), key=lambda step: step.value)
    assert 1 == len(await journal.list())


@pytest.mark.parametrize("state", ["new", "unknown", "rejected", "succeeded"])
async def test_other_request_under_a_key_is_a_conflict(journal: Journal, state: State) -> None:
    """If a number stands for another request, `begin` and `add` refuse it, and change nothing."""
    before = await got(journal, (await in_state(journal, state)).id)
    begun = await journal.begin(draft(refund(refund_amt=201), intent="a"), LEASE)
    with pytest.raises(IntentConflictError, match="number R1 belongs to another request: intent 1") as caught:
        await journal.add(refund(refund_amt=1), merchant=MERCHANT, intent="a")

    assert (BeginResult(Step.CONFLICT, before), 1) == (begun, caught.value.intent_id)
    assert [before] == await journal.list()


async def test_keys_are_one_merchants(journal: Journal) -> None:
    """Two merchants can use the same refund number and the same intent key."""
    for merchant in ("M1", "M2"):
        await sending(journal, draft(merchant=merchant, intent="a"))
    again = [await journal.begin(draft(merchant=merchant), LEASE) for merchant in ("M1", "M2")]

    assert ["M1", "M2"] == [each.merchant for each in await journal.list()]
    assert [(Step.WAIT, "M1"), (Step.WAIT, "M2")] == [(each.step, each.intent.merchant) for each in again]


async def test_callers_own_key(journal: Journal) -> None:
    """An intent key names a write that has no number. Another request under that key is a conflict.

    Without an intent key, two identical payments are two intents.
    """
    first = await sending(journal, draft(PAYMENT, intent="invoice-42"))
    await journal.settle(first, "succeeded", outcome=OUTCOME)
    drafts = [draft(PAYMENT), draft(PAYMENT)]
    drafts += [draft(each, intent="invoice-42") for each in (PAYMENT, evolve(PAYMENT, amount=1001), refund())]
    steps = [(await journal.begin(each, LEASE)).step for each in drafts]

    assert [Step.SEND, Step.SEND, Step.ANSWER, Step.CONFLICT, Step.CONFLICT] == steps
    assert ["intent:invoice-42", None, None] == [each.key for each in await journal.list()]


async def test_number_and_intent_name_the_same(journal: Journal) -> None:
    """If a call gives an intent key for a known refund number, the key names that refund from then on.

    If the number and the key belong to two intents, `begin` returns a conflict and changes neither.
    """
    await in_state(journal, "unknown")
    await sending(journal, draft(refund("R2"), intent="b"))
    drafts = [draft(intent="complaint-7"), draft(refund("R3"), intent="complaint-7"), draft(intent="other")]
    steps = [(await journal.begin(each, LEASE)).step for each in drafts]
    first, second = before = await journal.list()
    begun = await journal.begin(draft(), LEASE)
    crossed = await journal.begin(draft(intent="b"), LEASE)

    assert [Step.ASK, Step.CONFLICT, Step.CONFLICT] == steps
    assert ("intent:complaint-7", first) == (first.key, begun.intent)
    assert crossed.step is Step.CONFLICT
    assert crossed.intent in (first, second)
    assert before == await journal.list()


OPEN: Final[tuple[State, ...]] = ("sending", "unknown", "accepted")
SETTLED: Final[list[tuple[State, State]]] = [(before, after) for before in OPEN for after in STATES]


async def test_result_follows_the_table(journal: Journal) -> None:
    """The holder of an intent can settle it to a state that the design's table allows. Others raise an error."""
    for before, after in SETTLED:
        intent = await sending(journal, draft(refund(f"{before} {after}")))
        if before != "sending":
            await journal.settle(intent, before)
            (intent,) = await journal.ask(1, LEASE)
        allowed = after != "sending" and after in TRANSITIONS[before]
        if allowed:
            assert await journal.settle(intent, after, reason="why", due=START + timedelta(days=1))
        else:
            with pytest.raises(InvalidArgumentError, match=f"state must be .*, not '{after}'") as caught:
                await journal.settle(intent, after)

            assert ("state", after) == (caught.value.field, caught.value.value)
        found = await got(journal, intent.id)

        assert (after if allowed else before, allowed, not allowed) == (
            found.state,
            found.reason == "why",
            bool(found.lease),
        )


async def test_result_stores_what_the_service_said(journal: Journal, clock: Clock) -> None:
    """`settle` stores the outcome, the reason and the time. A later `settle` without an outcome leaves the first."""
    intent = await sending(journal)
    now = clock.advance(1)
    await journal.settle(intent, "accepted", outcome=OUTCOME, reason=f"on\nits {HALF_A_PAIR} way")
    accepted = await got(journal, 1)
    (asked,) = await journal.ask(1, LEASE)
    await journal.settle(asked, "succeeded")
    succeeded = await got(journal, 1)

    assert (OUTCOME, "on its \\ud800 way", now, START) == (
        accepted.outcome,
        accepted.reason,
        accepted.updated,
        accepted.created,
    )
    assert (OUTCOME, "") == (succeeded.outcome, succeeded.reason)


@pytest.mark.parametrize("state", ["new", "accepted", "unknown", "overtaken"])
async def test_lease_ends_with_its_result(journal: Journal, clock: Clock, state: Any) -> None:
    """If a holder has settled its intent, or lost it after the lease, it can neither settle nor postpone it.

    Nor can a sender postpone. If nobody else has claimed the intent, its holder can settle it even after the lease.
    """
    held = await sending(journal)
    assert not await journal.postpone(held, START)
    assert held == await got(journal, held.id)
    clock.advance(10 * LEASE)
    if state == "overtaken":
        await journal.ask(1, LEASE)
    else:
        assert await journal.settle(held, state)
    before = await got(journal, held.id)
    still = [await journal.settle(held, "succeeded"), await journal.postpone(held, START)]

    assert ([False, False], before) == (still, await got(journal, held.id))


async def test_interrupted_is_asked_about_when_its_lease_is_over(journal: Journal, clock: Clock) -> None:
    """If a sender's lease ends, `ask` returns its intent as *unknown* since its start. `sent_at` is now."""
    await sending(journal)
    over = START + timedelta(seconds=LEASE)
    before = (await journal.ask(1, LEASE), await journal.next_due())
    now = clock.advance(10 * LEASE)
    (asked,) = await journal.ask(1, LEASE)

    assert ([], over) == before
    assert ("unknown", now, 1, 2, 1) == (asked.state, asked.sent_at, asked.asked, asked.fence, asked.attempts)
    assert ("its sender was interrupted", START) == (asked.reason, asked.updated)
    assert now + timedelta(seconds=LEASE) == asked.lease == await journal.next_due()
    assert [] == await journal.ask(1, LEASE)


@pytest.mark.parametrize("state", ["unknown", "accepted"])
async def test_open_ones_are_asked_about_when_they_are_due(journal: Journal, clock: Clock, state: State) -> None:
    """An open intent is due immediately, or at the time that `settle` gave. The journal counts each query."""
    first, second = await sending(journal), await sending(journal, draft(refund("R2")))
    due = START + timedelta(seconds=5)
    await journal.settle(first, state, due=due)
    await journal.settle(second, state)
    now = [each.id for each in await journal.ask(9, LEASE)]
    clock.advance(5)
    (later,) = await journal.ask(9, LEASE)

    assert ([2], 1) == (now, later.id)
    assert (state, 1, None, START) == (later.state, later.asked, later.due, later.sent_at)
    assert (START if state == "unknown" else None) == (await got(journal, 1)).sent_at


async def test_query_without_news_is_postponed(journal: Journal, clock: Clock) -> None:
    """If a query brings nothing new, `postpone` releases the intent until `due`. Its state and query count stay."""
    await in_state(journal, "unknown")
    (asked,) = await journal.ask(1, LEASE)
    due = (START + timedelta(seconds=5)).astimezone(timezone(timedelta(hours=5)))
    postponed = await journal.postpone(asked, due, "HTTP 503")
    found, next_due = await got(journal, asked.id), await journal.next_due()
    before = await journal.ask(1, LEASE)
    clock.advance(5)
    (again,) = await journal.ask(1, LEASE)

    assert (True, "unknown", "HTTP 503", None) == (postponed, found.state, found.reason, found.lease)
    assert due == found.due == next_due
    assert ([], 2, START) == (before, again.asked, again.updated)


async def test_backlog_shows_what_is_open_and_late(journal: Journal, clock: Clock) -> None:
    """`backlog` counts open intents by state. Ages count from the first doubt about a write, and from what is due."""
    states: tuple[State, ...] = ("manual", "accepted", "unknown", "unknown", "new", "succeeded", "rejected")
    empty = await journal.backlog()
    for number, state in enumerate(states):
        await in_state(journal, state, f"R{number}")
        clock.advance(5)

    needs_person = {"new": 0, "accepted": 0, "unknown": 0, "manual": 1}

    assert {"new": 0, "accepted": 0, "unknown": 0, "manual": 0} == empty.needs_person
    assert Backlog(counts=dict.fromkeys(empty.counts, 0), oldest=0, overdue=0, needs_person=empty.needs_person) == empty
    assert (
        Backlog(
            counts={"new": 1, "sending": 0, "accepted": 1, "unknown": 2, "manual": 1},
            oldest=25,
            overdue=30,
            needs_person=needs_person,
        )
        == await journal.backlog()
    )


async def test_backlog_counts_what_a_person_must_look_at(journal: Journal, clock: Clock) -> None:
    """`needs_person` counts what `payasync journal` shows to a person, at each moment."""
    news: list[tuple[int, datetime | None]] = [(7, None), (8, None), (0, START)]
    for number, (denied, silent_since) in enumerate(news):
        await in_state(journal, "accepted", f"A{number}")
        (asked,) = await journal.ask(1, LEASE)
        await journal.postpone(asked, START + timedelta(days=2), denied=denied, silent_since=silent_since)
    await in_state(journal, "manual", "M1")
    tries = {"Q1": "", "Q2": "no key"}
    for queued in tries:
        await in_state(journal, "new", queued)
    clock.advance(60)
    for queued, reason in tries.items():
        await journal.settle(await sending(journal, draft(refund(queued))), "new", reason=reason)
    found = list[list[tuple[int, int]]]()
    for seconds in (0, 239, 1, 59, 1, 86_039, 1):
        clock.advance(seconds)
        status, counts = status_of(await journal.list(), [], clock.now), (await journal.backlog()).needs_person
        found.append([(len(status.unsent), len(status.manual)), (counts["new"], counts["accepted"] + counts["manual"])])

    assert [[each] * 2 for each in ((0, 2), (0, 2), (1, 2), (1, 2), (2, 2), (2, 2), (2, 3))] == found


@pytest.mark.parametrize("state", ["unknown", "sending"])
async def test_backlog_counts_what_nothing_can_settle(journal: Journal, clock: Clock, state: State) -> None:
    """`needs_person` counts an unknown write if the reconciler can neither query it nor send it again."""
    payment = evolve(draft(PAYMENT), queued=False)
    writes = {
        "refund": draft(),
        "order": draft(CloseOrder(out_trade_no="T1")),
        "payment": payment,
        "payment with key": evolve(payment, idempotency_key="k"),
        "queued payment": evolve(payment, queued=True),
        "queued payment with key": evolve(payment, queued=True, idempotency_key="k"),
        "queued subscription": draft(CancelSubscription(subscription_id="S1")),
        "queued subscription with key": evolve(draft(CancelSubscription(subscription_id="S1")), idempotency_key="k"),
    }
    begun = {name: await sending(journal, write) for name, write in writes.items()}
    if state == "unknown":
        begun["answered payment"] = await sending(journal, payment)
        for name, each in begun.items():
            await journal.settle(each, "unknown", outcome=OUTCOME if name == "answered payment" else None)
    before = (await journal.backlog()).needs_person["unknown"]
    clock.advance(LEASE)
    names = {each.id: name for name, each in begun.items()}
    manual = [names[each.id] for each in status_of(await journal.list(), [], clock.now).manual]

    assert ["payment", "payment with key", "queued payment", "queued subscription"] == manual
    assert (4 if state == "unknown" else 0, 4) == (before, (await journal.backlog()).needs_person["unknown"])


async def test_what_is_due_is_asked_about(journal: Journal, clock: Clock) -> None:
    """`ask` leases what is due longest first, up to `limit`, and leaves out what came due after `before`."""
    for number in "abcd":
        await journal.settle(await sending(journal, draft(refund(number))), "unknown")
        clock.advance(1)
    limits: list[tuple[int, datetime | None]] = [
        (9, START - timedelta(seconds=1)),
        (2, clock.now),
        (9, START + timedelta(seconds=2)),
        (9, START + timedelta(days=1)),
        (9, None),
    ]
    found = [[each.reference for each in await journal.ask(limit, LEASE, before=by)] for limit, by in limits]

    assert [[], ["a", "b"], ["c"], ["d"], []] == found


async def test_one_merchant_s_are_asked_about(journal: Journal) -> None:
    """`ask` and `next_due` with a merchant leave out the intents of other merchants."""
    for merchant in ("M1", "M2"):
        await journal.settle(await sending(journal, draft(refund(), merchant=merchant)), "unknown")
    nobody = await journal.ask(9, LEASE, merchant="M3"), await journal.next_due("M3")
    (asked,) = await journal.ask(9, LEASE, merchant="M2")

    assert ([], None) == nobody
    assert "M2" == asked.merchant
    assert (asked.lease, START) == (await journal.next_due("M2"), await journal.next_due("M1"))


async def test_holder_sends_the_unknown_again(journal: Journal) -> None:
    """Only the holder with the current fence can claim an unknown write to send it again, once, and while it holds."""
    for number in ("R1", "R2"):
        await in_state(journal, "unknown", number)
    asked, ended = await journal.ask(2, LEASE)
    await journal.settle(ended, "accepted")
    steps = [(await journal.claim(asked.id, LEASE, fence=asked.fence + more)).step for more in (-1, 0, 0)]
    steps.append((await journal.claim(ended.id, LEASE, fence=ended.fence)).step)
    again = await got(journal, asked.id)

    assert [Step.WAIT, Step.SEND, Step.WAIT, Step.WAIT] == steps
    assert ("sending", 2, 0, START) == (again.state, again.attempts, again.asked, again.sent_at)
    assert again.fence > asked.fence


@pytest.mark.parametrize("state", STATES)
async def test_added_again_is_the_same(journal: Journal, clock: Clock, state: State) -> None:
    """If a write is added twice, the journal has one intent. A rejected one becomes *new* again."""
    before = await got(journal, (await in_state(journal, state)).id)
    now = clock.advance(1)
    again = await journal.add(refund(), merchant=MERCHANT, intent="a")
    expected = evolve(before, queued=True, intent="a")
    if state == "rejected":
        expected = evolve(expected, state="new", reason="", updated=now)

    assert (before.id, expected) == (again, evolve(await got(journal, again), request=before.request))


async def test_why_it_cannot_be_sent_is_stored(journal: Journal, clock: Clock) -> None:
    """`note` stores a new reason with an intent that is *new*. It leaves other states and its `updated` time alone."""
    first, second = [await journal.add(refund(number), merchant="M1") for number in ("R1", "R2")]
    await journal.claim(second, LEASE)
    before = await journal.get(first)
    clock.advance(1)
    changed = [await journal.note(each, why) for each in (first, second) for why in ("too\nlong", "too long", "other")]
    after = [await journal.get(each) for each in (first, second)]

    assert before
    assert [True, False, True, False, False, False] == changed
    assert [evolve(before, reason="other"), ""] == [after[0], after[1] and after[1].reason]


async def test_person_ends_what_nobody_knows(journal: Journal, clock: Clock) -> None:
    """`resolve` ends an intent with a person's reason, an interrupted one after its lease."""
    states: list[State] = ["manual", "unknown", "accepted", "new", "sending"]
    for state, as_ in product(states, END_STATES):
        intent = await in_state(journal, state, f"{state} {as_}")
        now = clock.advance(LEASE)
        ended = await journal.resolve(intent.id, as_=as_, reason="seen in\nthe back office")

        assert (as_, "seen in the back office", now) == (ended.state, ended.reason, ended.updated)
        assert (None, None) == (ended.due, ended.lease)
        assert ended == await got(journal, intent.id)
        assert state != "sending" or now == ended.sent_at


@pytest.mark.parametrize("state", ["sending", "succeeded", "rejected"])
async def test_person_ends_nothing_else(journal: Journal, state: State) -> None:
    """`resolve` refuses an intent that has ended, or whose sender still has a lease."""
    intent = await in_state(journal, state)
    held = f", and held by a process until {START + timedelta(seconds=LEASE):%Y-%m-%d %H:%M:%S} UTC at the latest"
    words = f"^intent {intent.id} is {state}{held if state == 'sending' else ' already'}; only new, accepted, unknown"
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        await journal.resolve(intent.id, as_="succeeded", reason="seen")

    assert "intent_id" == caught.value.field
    assert state == (await got(journal, intent.id)).state


@pytest.mark.parametrize(("seen", "now"), [("new", "accepted"), ("new", "unknown"), ("unknown", "manual")])
async def test_decision_of_a_person_is_about_what_was_seen(journal: Journal, seen: State, now: State) -> None:
    """If the state or the number of sends is no longer what was seen, `resolve` raises an error and changes nothing."""
    before = await in_state(journal, now)
    for facts, words in (
        ({"seen": seen}, f"seen must be the state of intent 1, which is now {now}"),
        ({"seen": now, "attempts": 0}, "attempts must be the number of sends of intent 1, which is now 1"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            await journal.resolve(1, as_="rejected", reason="not wanted", **cast("Any", facts))
    left = await got(journal, 1)

    assert (now, before.queued) == (left.state, left.queued)
    assert "rejected" == (await journal.resolve(1, as_="rejected", reason="not wanted", seen=now, attempts=1)).state


async def test_what_a_person_has_ended(journal: Journal) -> None:
    """A write that a person rejected is sent again by its caller. One that was done by other means is never sent."""
    rejected, done = await in_state(journal, "manual"), await in_state(journal, "new", "R2")
    await journal.resolve(rejected.id, as_="rejected", reason="not in the back office")
    await journal.resolve(done.id, as_="succeeded", reason="refunded in cash")
    again = await sending(journal)
    await journal.add(refund("R2"), merchant=MERCHANT)
    steps = [(await journal.claim(done.id, LEASE)).step, (await journal.begin(draft(refund("R2")), LEASE)).step]

    assert (rejected.id, 2, START) == (again.id, again.attempts, again.sent_at)
    assert [Step.ANSWER, Step.ANSWER] == steps
    assert "succeeded" == (await got(journal, done.id)).state


async def test_decision_of_a_person_and_a_worker_together(journal: Journal) -> None:
    """If a worker claims a write while a person rejects it, exactly one of them succeeds."""
    numbers = [await journal.add(refund(f"R{number}"), merchant=MERCHANT) for number in range(20)]
    work = []
    for number in numbers:
        claim = journal.claim(number, LEASE)
        word = journal.resolve(number, as_="rejected", reason="not wanted", seen="new")
        work += [claim, word] if number % 2 else [word, claim]
    ends = await asyncio.gather(*work, return_exceptions=True)
    states = Counter(each.state for each in await journal.list())

    assert {BeginResult: states["sending"], Intent: states["rejected"], InvalidArgumentError: 20} == Counter(
        map(type, ends)
    )
    assert 20 == states["sending"] + states["rejected"]
    assert 0 < states["sending"] < 20


REJECTIONS: Final = [
    *(("person", state) for state in ("new", "unknown", "accepted", "manual")),
    *((by, state) for by in ("notification", "query") for state in ("unknown", "accepted")),
    ("response", "sending"),
]


@pytest.mark.parametrize(("by", "state"), REJECTIONS)
async def test_what_was_not_done_no_worker_sends(journal: Journal, by: str, state: State) -> None:
    """If a queued write was rejected and the rejection reported, a worker sends it only after it is added again."""
    intent_id = await journal.add(refund(), merchant=MERCHANT)
    held = await in_state(journal, state) if state == "new" else (await journal.claim(intent_id, LEASE)).intent
    if state in {"unknown", "accepted", "manual"}:
        await journal.settle(held, state)
    if by == "person":
        await journal.resolve(intent_id, as_="rejected", reason="refunded by hand")
    elif by == "notification":
        await journal.told("refunds.create", "R1", "failed", {}, merchant=MERCHANT)
    elif by == "query":
        (held,) = await journal.ask(1, LEASE)
        await journal.settle(held, "rejected")
    else:
        await journal.settle(held, "rejected", outcome=OUTCOME)
    with pytest.raises(InvalidArgumentError, match="rejected since it was added: repeat the call") as caught:
        await journal.claim(intent_id, LEASE)
    left = await got(journal, intent_id)
    again = await journal.add(refund(), merchant=MERCHANT)

    assert ("intent_id", "rejected", False) == (caught.value.field, left.state, left.queued)
    assert (intent_id, Step.SEND) == (again, (await journal.claim(intent_id, LEASE)).step)


async def test_what_the_service_refuses_a_worker_sends_again(journal: Journal) -> None:
    """If a queued write was rejected without an outcome, a worker can claim it again by its number."""
    begun = await journal.claim(await journal.add(refund(), merchant=MERCHANT), LEASE)
    await journal.settle(begun.intent, "rejected")

    assert Step.SEND is (await journal.claim(begun.intent.id, LEASE)).step


UNCHANGED: Final = {each: each for each in ("sending", "new", "manual")}
WORDS: Final[dict[str | None, dict[str, str]]] = {
    "succeeded": {**dict.fromkeys(("accepted", "unknown", "interrupted"), "succeeded"), **UNCHANGED},
    "failed": {**dict.fromkeys(("accepted", "unknown", "rejected"), "rejected"), "succeeded": "succeeded"},
    "processing": {"accepted": "accepted"},
    None: {"accepted": "accepted"},
}
"""By the word of a notification, and by the state before: the state afterwards."""


@pytest.mark.parametrize(
    ("state", "word", "expected"),
    [(state, word, after) for word, states in WORDS.items() for state, after in states.items()],
)
async def test_service_s_own_word_ends_what_is_open(
    journal: Journal, clock: Clock, state: Any, word: str | None, expected: State
) -> None:
    """A genuine notification ends an unknown, accepted or interrupted write, and no other. Its old holder loses it."""
    held = await in_state(journal, "sending" if state == "interrupted" else state)
    if state == "interrupted":
        clock.advance(LEASE)
    ended = await journal.told("refunds.create", "R1", word, {}, merchant=MERCHANT)
    now = await got(journal, held.id)

    assert (expected, [now] if expected != state else []) == (now.state, ended)
    if ended:
        assert (f"the service reported: {word}", None) == (now.reason, now.due)
        assert now.fence > held.fence


async def test_what_was_done_the_first_time_is_not_sent_again(journal: Journal) -> None:
    """If a rejected write was added again, a late "succeeded" notification ends it, and a late "failed" does not."""
    await in_state(journal, "rejected")
    intent_id = await journal.add(refund(), merchant=MERCHANT)
    about: Any = {"data": {"refundAmt": 200}, "merchant": MERCHANT}
    assert [] == await journal.told("refunds.create", "R1", "failed", **about)
    (ended,) = await journal.told("refunds.create", "R1", "succeeded", **about)

    assert ("succeeded", Step.ANSWER) == (ended.state, (await journal.claim(intent_id, LEASE)).step)


@pytest.mark.parametrize(
    ("state", "end", "expected"),
    [
        ("manual", "succeeded", None),
        ("new", "succeeded", None),
        ("manual", "rejected", OUTCOME),
        ("accepted", "succeeded", OUTCOME),
    ],
)
async def test_refusal_is_no_response_to_what_was_done_after_all(
    journal: Journal, state: State, end: State, expected: Outcome | None
) -> None:
    """If a rejected write turns out to have succeeded, `resolve` deletes the stored refusal."""
    await journal.settle(await sending(journal), "accepted" if state == "accepted" else "rejected", outcome=OUTCOME)
    if state == "new":
        await journal.add(refund(), merchant=MERCHANT)
    if state == "manual":
        await journal.told("refunds.create", "R1", "succeeded", {}, merchant=MERCHANT)
    (found,) = await journal.list()
    resolved = await journal.resolve(found.id, as_=end, reason="the bank's list")

    assert (state, end, expected) == (found.state, resolved.state, resolved.outcome)


async def test_report_is_about_one_thing(journal: Journal) -> None:
    """A notification changes no intent of another merchant, number or operation."""
    await in_state(journal, "accepted")
    for about in (("refunds.create", "R2", MERCHANT), ("refunds.create", "R1", "M2"), ("orders.close", "R1", MERCHANT)):
        operation, reference, merchant = about
        assert [] == await journal.told(operation, reference, "succeeded", {}, merchant=merchant)
    with pytest.raises(InvalidArgumentError, match=r"operation must be one of payments\.create"):
        await journal.told("refunds.query", "R1", "succeeded", {}, merchant=MERCHANT)

    assert ["accepted"] == [each.state for each in await journal.list()]


REPORTS: Final[dict[str, tuple[Profile | None, list[Any], dict[str, Any]]]] = {
    "a field that is present must match": (
        None,
        [{"merchantId": "M2"}, {"refundAmt": 201}, {"outRefundNo": "R2"}, {"currency": "CAD", "refundAmt": "2.00"}],
        {"refundAmt": "200", "totalAmt": 450, "merchantId": MERCHANT},
    ),
    "the names of the write count, and the general ones, as in a query": (
        Profile(fields={"refunds.create": {"refund_amt": "amount.value", "out_refund_no": "refund.no"}}, signed=()),
        [{"amount": {"value": 201}}, {"refundAmt": 201}, {"outRefundNo": "R2"}],
        {"amount": {"value": 200}, "refundAmt": 200, "outRefundNo": "R1"},
    ),
    "amounts are in the unit of the profile": (
        Profile(answer=AnswerShape(amounts="major")),
        [{"merchantId": "M2"}, {"refundAmt": "200", "currency": "CAD"}, {"refundAmt": 2, "merchantId": 3}],
        {"refundAmt": "200.00", "totalAmt": 450, "currency": "JPY", "merchantId": MERCHANT},
    ),
    "the merchant of a notification has its own path": (
        Profile(answer=AnswerShape(merchant_id="merchantId"), notification=NotificationShape(merchant_id="shop.id")),
        [{"shop": {"id": "M2"}}],
        {"shop": {"id": MERCHANT}, "merchantId": "sub-merchant"},
    ),
    "a notification names no merchant": (
        Profile(answer=AnswerShape(merchant_id="merchantId"), notification=NotificationShape(merchant_id="")),
        [{"outRefundNo": "R2"}],
        {"merchantId": "sub-merchant"},
    ),
    "a notification has its own unit": (
        Profile(answer=AnswerShape(amounts="major"), notification=NotificationShape(amounts="as sent")),
        [{"refundAmt": "2.00"}],
        {"refundAmt": 200},
    ),
    "the paths of responses and of notifications count": (
        Profile(
            answer=AnswerShape(out_refund_no="refund.no", refund_amt=""),
            notification=NotificationShape(out_refund_no="event.no", out_trade_no="event.order"),
        ),
        [
            {"refund": {"no": "R9"}, "outRefundNo": "R1"},
            {"totalAmt": 451},
            {"event": {"no": "R9"}},
            {"event": {"order": "T9"}},
        ],
        {"refund": {"no": "R1"}, "refundAmt": 1, "outRefundNo": "R9", "event": {"no": "R1", "order": "T1"}},
    ),
}
"""By rule: a profile, reports about another refund, and one about the refund."""


@pytest.mark.parametrize("rule", REPORTS)
async def test_report_is_compared_with_the_write(journal: Journal, rule: str, caplog: pytest.LogCaptureFixture) -> None:
    """A report that names another refund, merchant, amount or unit changes nothing, wherever the profile locates it.

    It is logged.
    """
    profile, wrong, right = REPORTS[rule]
    await in_state(journal, "accepted")
    for data in (*wrong, right):
        ended = await journal.told("refunds.create", "R1", "succeeded", data, merchant=MERCHANT, profile=profile)

        assert ([] if data is not right else ["succeeded"]) == [each.state for each in ended], data
    assert len(wrong) == caplog.text.count(" in the response, and ")


async def test_report_against_what_was_rejected(journal: Journal) -> None:
    """If a notification says that a rejected write succeeded, the intent becomes *manual*, and no caller sends it."""
    await in_state(journal, "rejected")
    told = await journal.told("refunds.create", "R1", "succeeded", {"refundAmt": "200"}, merchant=MERCHANT)
    again = await journal.told("refunds.create", "R1", "succeeded", {}, merchant=MERCHANT)
    begun = await journal.begin(draft(refund()), LEASE)
    resolved = await journal.resolve(1, as_="succeeded", reason="the back office has it")

    assert [("manual", "rejected, and the service reported: succeeded")] == [(each.state, each.reason) for each in told]
    assert ([], Step.ASK, "succeeded") == (again, begun.step, resolved.state)


async def test_order_that_ends_without_its_close_is_no_contradiction(journal: Journal) -> None:
    """If the service rejected a close and the order expires later, the close stays rejected."""
    begun = await journal.begin(draft(CloseOrder(out_trade_no="T1")), LEASE)
    await journal.settle(begun.intent, "rejected")

    assert [] == await journal.told("orders.close", "T1", "expired", {"outTradeNo": "T1"}, merchant=MERCHANT)


@pytest.mark.parametrize("end", ["reported", "settled", "sent"])
async def test_odd_and_silent_queries_count_until_it_ends(journal: Journal, end: str) -> None:
    """`postpone` adds to `odd` and `silent`, and sets `denied` and `silent_since`. An end or a send clears the last."""
    await in_state(journal, "unknown")
    found = list[tuple[int, int, int, int, datetime | None]]()
    for odd, silent, denied, since in ((1, 0, 1, START), (0, 1, 7, None), (0, 1, 7, START), (0, 0, 7, START)):
        (held,) = await journal.ask(1, LEASE)
        await journal.postpone(held, START, odd=odd, silent=silent, denied=denied, silent_since=since)
        after = await got(journal, held.id)
        found.append((after.asked, after.odd, after.silent, after.denied, after.silent_since))
    (held,) = await journal.ask(1, LEASE)
    if end == "settled":
        await journal.settle(held, "accepted")
    elif end == "sent":
        await journal.claim(held.id, LEASE, fence=held.fence)
    else:
        await journal.told("refunds.create", "R1", "succeeded", {}, merchant=MERCHANT)
    last = await got(journal, held.id)

    assert [(1, 1, 0, 1, START), (2, 1, 1, 7, None), (3, 1, 2, 7, START), (4, 1, 2, 7, START)] == found
    assert None is last.silent_since
    assert end == "reported" or last.denied == 0
    assert ((0, 0, 0) if end == "sent" else (5, 1, 2)) == (last.asked, last.odd, last.silent)


async def test_only_ends_are_pruned(journal: Journal, clock: Clock) -> None:
    """`prune` deletes only intents that ended before its time. The journal never uses their ids again."""
    late = await sending(journal, draft(refund("late")))
    for state in reversed(STATES):
        await in_state(journal, state, state)
    now = clock.advance(1)
    await journal.settle(late, "succeeded")
    pruned = [await journal.prune(moment) for moment in (START, now, now, clock.advance(1))]
    again = await journal.add(refund("again"), merchant=MERCHANT)

    assert [0, 2, 0, 1] == pruned
    assert set(STATES) - END_STATES == {each.state for each in await journal.list()}
    assert (len(STATES) + 2, None) == (again, await journal.get(late.id))


async def test_list_and_find(journal: Journal, clock: Clock) -> None:
    """`list` combines its filters, and finds an order's close and refunds by its number. `find` takes one number."""
    order = PlaceOrder(out_trade_no="B20", subject="Tea", total_amt=450, currency="CAD")
    refunds = [refund(number, out_trade_no=about) for number, about in (("Z1", "B20"), ("R1", "T1"), ("Z2", "B20"))]
    for each in (order, *refunds[:2], CloseOrder(out_trade_no="B20"), refunds[2]):
        await sending(journal, draft(each))
        clock.advance(60)
    await journal.settle(await got(journal, 1), "succeeded")
    await journal.add(refund("R1"), merchant="M2")
    minutes = [START + timedelta(minutes=minutes) for minutes in range(5)]
    filters: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"limit": 2}, [1, 2]),
        ({"limit": 2, "after": 4}, [5, 6]),
        ({"state": "sending", "limit": 1}, [2]),
        ({"state": "sending", "after": 3}, [4, 5]),
        ({"state": "manual"}, []),
        ({"order": "B20"}, [1, 2, 4, 5]),
        ({"order": "B20", "limit": 2, "after": 1}, [2, 4]),
        ({"order": "B20", "state": "succeeded"}, [1]),
        ({"order": "B20", "since": minutes[3]}, [4, 5]),
        ({"order": "Z1"}, []),
        ({"order": "T1", "merchant": "M2"}, [6]),
        ({"since": minutes[1], "until": minutes[3]}, [2, 3]),
        ({"state": "sending", "until": minutes[2]}, [2]),
        ({"merchant": "M2"}, [6]),
        ({"merchant": MERCHANT, "after": 3}, [4, 5]),
        ({"state": "new", "merchant": MERCHANT}, []),
    ]
    for given, expected in filters:
        assert expected == [each.id for each in await journal.list(**given)], given
    for operation, number, merchant, expected in (
        ("refunds.create", "R1", None, [3, 6]),
        ("refunds.create", "R1", "M2", [6]),
        ("orders.place", "R1", None, []),
    ):
        assert expected == [each.id for each in await journal.find(operation, number, merchant=merchant)]
    counted = [await journal.count_unsent(*each) for each in (("M2", clock.now), ("M2", START), ("M1", clock.now))]
    assert [1, 0, 0] == counted


INTEGER: Final = "must be an integer of 0 or more"
STATE: Final = "must be one of new, sending"
MOMENT: Final = "a moment with its offset from UTC"
HELD: Final = {"intent": kept()}
TOLD: Final = {"operation": "refunds.create", "reference": "R1", "state": "failed", "data": {}, "merchant": MERCHANT}
RESOLVED: Final = {"intent_id": 1, "as_": "rejected", "reason": "seen"}
CHECKED: Final[list[tuple[str, str, list[Any], dict[str, dict[str, Any]]]]] = [
    (
        "intent_id",
        INTEGER,
        [-1, True, 1.0, "1", None, 2**63],
        {"get": {}, "claim": {"lease": 1.0}, "resolve": RESOLVED},
    ),
    ("intent_id", "the number of an intent in the journal, not 7", [7], {"claim": {"lease": 1.0}}),
    ("limit", INTEGER, [-1, True, None], {"ask": {"lease": 1.0}, "list": {}}),
    ("after", INTEGER, [-1], {"list": {}}),
    ("lease", "a number of seconds", ["5", -1, None], {"ask": {"limit": 1}, "begin": {"draft": draft()}}),
    ("lease", "a number of seconds", ["5", -1, None], {"claim": {"intent_id": 1}}),
    ("state", STATE, ["lost", [], {}, 7], {"list": {}, "settle": HELD}),
    ("state", "must be", [[], {}, 7], {"told": TOLD}),
    ("operation", r"must be one of payments\.create", [[], {}, 7], {"told": TOLD}),
    ("as_", "one of rejected, succeeded", [*sorted(set(STATES) - END_STATES), "lost", None, []], {"resolve": RESOLVED}),
    ("seen", STATE, ["lost", [], {}, 7], {"resolve": RESOLVED}),
    ("reason", "a text that says how you know", ["", " \n", None, 7], {"resolve": RESOLVED}),
    ("due", MOMENT, [NAIVE, 1.0, "2027-01-01"], {"settle": {**HELD, "state": "unknown"}, "postpone": HELD}),
    ("silent_since", MOMENT, [NAIVE, "2027-01-01"], {"postpone": {**HELD, "due": START}}),
    ("before", MOMENT, [NAIVE, "2027-01-01"], {"prune": {}}),
    ("since", MOMENT, [NAIVE, "2027-01-01"], {"list": {}}),
    ("until", MOMENT, [NAIVE, "2027-01-01"], {"list": {}}),
    ("order", "the number of an order", [20, b"B20"], {"list": {}}),
]


@pytest.mark.parametrize(("field", "rule", "wrongs", "methods"), CHECKED)
async def test_arguments_are_checked(
    journal: Any, field: str, rule: str, wrongs: list[Any], methods: dict[str, dict[str, Any]]
) -> None:
    """If an argument is invalid, a journal's method raises an error with its name and rule, and changes nothing."""
    await in_state(journal, "manual")
    before = await journal.list()
    for method, others in methods.items():
        for wrong in wrongs:
            with pytest.raises(InvalidArgumentError, match=rule) as caught:
                await getattr(journal, method)(**{**others, field: wrong})

            assert field == caught.value.field
    assert before == await journal.list()


async def test_request_comes_back_as_it_was_stored(journal: Journal) -> None:
    """Long numbers, other letters and nested values of a request are stored as they were given."""
    values: list[object] = [2**64 - 1, -(2**63), "é\u2028\U0001f600", "\x01", {"a": [None, True, {}]}]
    for value in values:
        intent_id = await journal.add(refund(str(value), extra={"note": value}), merchant=MERCHANT)

        assert {"note": value} == (await got(journal, intent_id)).request["extra"]
