from datetime import timedelta

import pytest

from payasync.sandbox import rules
from tests.chaos.plan import MOMENTS
from tests.chaos.run import Scale, run

SHORT = Scale(operations=240, kills=len(MOMENTS), seconds=120)
"""A kill for each step."""


async def test_new_numbers() -> None:
    """The control shows its duplicates: so the rule below can be broken."""
    result = await run("naive", Scale(operations=60, kills=4, seconds=60))

    assert [] == result.flaws()
    assert result.duplicates > 0


@pytest.mark.long
async def test_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a journal in a file, whatever fails and wherever processes are killed: nothing twice, nothing lost.

    That holds for a run of any length: no order expires in the midst of one, however short the time of an order is.
    """
    monkeypatch.setattr(rules, "EXPIRY", timedelta(seconds=1))
    result = await run("sqlite", SHORT)

    assert [] == result.flaws()
    assert SHORT.kills == result.kills


@pytest.mark.long
async def test_postgres(postgres_dsn: str) -> None:
    """With a journal in PostgreSQL likewise."""
    result = await run("postgres", SHORT, postgres_dsn)

    assert [] == result.flaws()
    assert SHORT.kills == result.kills
