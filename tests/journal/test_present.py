"""Programs that work through one journal know whether they are the only one."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from payasync.journal import Journal, PostgresJournal


async def test_programs_know_of_each_other(another: Callable[[], Journal]) -> None:
    """A program is alone until another one is present, and again when that one has ended."""
    async with another() as first, another() as other, first.present() as is_alone:
        before = await is_alone(), await is_alone()
        async with AsyncExitStack() as stack:
            other_is_alone = await stack.enter_async_context(other.present())
            during = await is_alone(), await other_is_alone()
        after = await is_alone()

    assert ((True, True), (False, False), True) == (before, during, after)


async def test_pooler_keeps_no_lock(pooled_dsn: str, postgres_dsn: str) -> None:
    """Behind a pooler, a program sees those that have direct connections, and leaves nothing on the server."""
    async with PostgresJournal(pooled_dsn) as pooled, PostgresJournal(postgres_dsn) as direct:
        async with pooled.present() as is_alone, direct.present() as direct_is_alone:
            found = await is_alone(), await direct_is_alone()
        async with direct.present() as direct_is_alone:
            after = await direct_is_alone()

    assert (False, True, True) == (*found, after)
