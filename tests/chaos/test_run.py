from datetime import timedelta
from math import prod

import pytest

from chaos.run import Scale, arm, run
from payasync.sandbox import Sandbox, rules

pytestmark = pytest.mark.long

SHORT = Scale(operations=240, kills=13, seconds=60)
"""A kill for each step, and some more."""


async def test_new_numbers() -> None:
    """The control shows its duplicates: so the rule below can be broken."""
    result = await run("naive", Scale(operations=60, kills=4, seconds=60))

    assert [] == result.flaws()
    assert result.duplicates > 0


async def test_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a journal in a file, whatever fails and wherever processes are killed: nothing twice, nothing lost.

    That holds for a run of any length: no order expires in the midst of one, however short the time of an order is.
    """
    monkeypatch.setattr(rules, "EXPIRY", timedelta(seconds=1))
    result = await run("sqlite", SHORT)

    assert [] == result.flaws()
    assert SHORT.kills == result.kills


async def test_postgres(postgres_dsn: str) -> None:
    """With a journal in PostgreSQL likewise."""
    result = await run("postgres", SHORT, postgres_dsn)

    assert [] == result.flaws()
    assert SHORT.kills == result.kills


async def test_arm() -> None:
    """So many calls meet a fault as the scale says, however many kinds of faults share them."""
    async with Sandbox() as sandbox:
        armed = arm(sandbox, SHORT)
        sandbox.faults.clear()

    assert 0.2 == pytest.approx(1 - prod(1 - (each.aim.probability or 0) for each in armed))
    assert len(armed) == len({each.aim.seed for each in armed})
