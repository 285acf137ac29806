"""A transaction, statement by statement, without a database."""

from payasync.journal.intents import Intents, Step
from payasync.journal.transactions import ADD, MATCHING, Query, begin, run_transaction
from tests.journal.building import LEASE, START, draft, kept


async def test_key_that_is_deleted_at_that_moment() -> None:
    """A key that was there as its row was written, and is gone as it is read, is written once more."""
    found: list[Intents] = [[], [], [kept()]]
    asked: list[str] = []

    async def answer(one: Query) -> Intents:
        asked.append(one.statement)
        return found[len(asked) - 1]

    begun = await run_transaction(begin(draft(), None, START, LEASE), answer)

    assert begun.step is Step.SEND
    assert [ADD, MATCHING, ADD] == asked
