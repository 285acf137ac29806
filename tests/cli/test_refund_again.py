from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from payasync.cli.refund_file import Again, Row, read, sent_again, was_told
from payasync.journal import Journal, Outcome, SqliteJournal
from payasync.journal.intents import Intent
from tests.journal.building import LEASE, MERCHANT, Clock, draft, refund

FAILED: Final = "the refund's state is failed"
DECLINED: Final = Outcome(status=200, body=b'{"code":"SBX_OK","status":"SBX_REFUND_FAILED"}')
TEXT: Final = "out_trade_no,out_refund_no,total_amt,refund_amt\nT1,R1,450,200\nT1,R2,450,200"


@pytest.fixture
async def journal(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteJournal]:
    """An empty journal."""
    async with SqliteJournal(tmp_path / "pay.db", clock=clock) as journal:
        yield journal


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


def rows(text: str = TEXT) -> tuple[Row, ...]:
    """Return rows of two refunds of 200 each."""
    return read(text, lambda _: None)


async def sent(journal: Journal) -> Intent:
    """Send a refund, as far as the journal knows."""
    return (await journal.begin(evolve(draft(), queued=False), LEASE)).intent


async def asked(journal: Journal) -> Intent:
    """Claim what is due, to ask about it."""
    (held,) = await journal.ask(1, LEASE)
    return held


async def declined_at_once(journal: Journal) -> None:
    """The service takes it, and declines it in the same answer."""
    await journal.settle(await sent(journal), "rejected", outcome=DECLINED, reason=FAILED)


async def declined_later(journal: Journal) -> None:
    """A question finds out that what was accepted was declined."""
    await journal.settle(await sent(journal), "accepted", outcome=Outcome(status=200))
    await journal.settle(await asked(journal), "rejected", outcome=DECLINED, reason="the refund's state is failed")


async def notified(journal: Journal) -> None:
    """A notification says so of what was accepted, and had no answer that is kept."""
    await journal.settle(await sent(journal), "accepted")
    await journal.told("refunds.create", "R1", "failed", {}, merchant=MERCHANT)


async def never_arrived(journal: Journal) -> None:
    """A question finds out that what was in doubt was not done."""
    await journal.settle(await sent(journal), "unknown")
    await journal.settle(await asked(journal), "rejected", reason="never arrived")


async def given_up_in_doubt(journal: Journal) -> None:
    """A person says that what was in doubt was not done."""
    held = await sent(journal)
    await journal.settle(held, "unknown")
    await journal.resolve(held.id, as_="rejected", reason="asked the bank")


async def given_up_after_a_contradiction(journal: Journal) -> None:
    """A person says that what the service refused, and told to be done later, was not done."""
    held = await sent(journal)
    await journal.settle(held, "rejected", reason="no such order")
    await journal.told("refunds.create", "R1", "succeeded", {}, merchant=MERCHANT)
    await journal.resolve(held.id, as_="rejected", reason="asked the bank")


async def given_up_unsent(journal: Journal) -> None:
    """A person says that nobody is to send what was queued."""
    intent_id = await journal.add(refund(), merchant=MERCHANT)
    await journal.resolve(intent_id, as_="rejected", reason="paid in cash")


async def refused(journal: Journal) -> None:
    """The service refuses it."""
    await journal.settle(await sent(journal), "rejected", reason="no such order")


async def refused_twice(journal: Journal) -> None:
    """The service refuses it, again and again."""
    await refused(journal)
    await refused(journal)


async def not_sent(journal: Journal) -> None:
    """It never left."""
    await journal.settle(await sent(journal), "rejected", reason="no connection")


async def accepted(journal: Journal) -> None:
    """It is not sent again."""
    await journal.settle(await sent(journal), "accepted", outcome=Outcome(status=200))


Way = Callable[[Journal], Awaitable[None]]


@pytest.mark.parametrize(
    "way",
    [
        declined_at_once,
        declined_later,
        notified,
        never_arrived,
        given_up_in_doubt,
        given_up_after_a_contradiction,
        given_up_unsent,
    ],
)
async def test_whoever_heard_of_it_is_warned(journal: SqliteJournal, way: Way) -> None:
    """However a refund came to be known as not done, its row is told, with why, and no other row is."""
    await way(journal)
    (kept,) = await journal.find("refunds.create", "R1")
    (found,) = await sent_again(journal, MERCHANT, rows())

    assert was_told(kept)
    assert (2, kept.reason) == (found.row.line, found.why)


@pytest.mark.parametrize("way", [refused, refused_twice, not_sent, accepted])
async def test_nobody_is_warned_of_what_its_own_call_has_told(journal: SqliteJournal, way: Way) -> None:
    """A refusal, and what never left, is tried again without a word: whoever began it was told at once."""
    await way(journal)

    assert not await sent_again(journal, MERCHANT, rows())


@pytest.mark.parametrize(
    "text",
    [TEXT.replace("T1,R1,450,200", "T1,R1,450,100"), TEXT.replace("T1,R1,450", "T2,R1,450"), TEXT.replace("R1", "R3")],
)
async def test_what_is_not_sent_is_not_told(journal: SqliteJournal, text: str) -> None:
    """A number that stands for another refund is refused later; another number was not heard of."""
    await declined_later(journal)

    assert not await sent_again(journal, MERCHANT, rows(text))
    assert not await sent_again(journal, "M2", rows())


async def test_they_are_told_in_the_order_of_the_file(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the journal is, and in which order it was sent."""
    monkeypatch.setattr("payasync.cli.refund_file.PAGE", 1)
    for number in ("R2", "R1"):
        begun = await journal.begin(draft(refund(number)), LEASE)
        await journal.settle(begun.intent, "rejected", outcome=DECLINED, reason=FAILED)

    expected = [Again(row, FAILED) for row in rows()]

    assert expected == list(await sent_again(journal, MERCHANT, rows()))
