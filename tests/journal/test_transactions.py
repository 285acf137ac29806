"""A transaction, statement by statement, without a database."""

from payasync.journal.intents import Intents, Step
from payasync.journal.transactions import ADD, SQL, Begin, Query, run_transaction
from tests.journal.building import LEASE, START, draft, kept


async def test_key_that_is_deleted_at_that_moment() -> None:
    """If a row disappears between the insert and the read of its key, the transaction inserts it again."""
    found: list[Intents] = [[], [], [kept()]]
    asked: list[str] = []

    async def answer(one: Query) -> Intents:
        asked.append(one.statement)
        return found[len(asked) - 1]

    begun = await run_transaction(Begin(draft(), None, LEASE).transaction(START), answer)

    assert begun.step is Step.SEND
    assert [ADD, SQL["matching"], ADD] == asked
