import pytest
from attrs import evolve

from payasync.sandbox import PROFILE
from tests.chaos.plan import MOMENTS, moments
from tests.chaos.run import Scale, run

SHORT = Scale(operations=240, kills=len(MOMENTS), seconds=120)
"""A kill for each step."""


async def test_new_numbers() -> None:
    """If the merchant retries under new numbers and without a journal, the run finds duplicates: the check works."""
    result = await run("naive", Scale(operations=60, kills=4, patient=True, seconds=300))

    assert [] == result.flaws()
    assert result.duplicates > 0


KEYED = Scale(operations=160, kills=len(moments("keyed")), seconds=120)


@pytest.mark.long
async def test_forgotten_keys() -> None:
    """If the service forgets idempotency keys, the run finds payments that were made twice: the check works."""
    result = await run("forgotten", KEYED)

    assert [] == result.flaws()
    assert result.duplicates > 0


@pytest.mark.long
async def test_keys() -> None:
    """Under idempotency keys, no payment is made twice or lost, at whatever step processes are killed."""
    result = await run("keyed", KEYED)

    assert [] == result.flaws()
    assert KEYED.kills == result.kills


@pytest.mark.long
async def test_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a SQLite journal, no refund or order is done twice or lost, at whatever step processes are killed.

    The run's orders do not expire, even if the sandbox's orders expire after a second.
    """
    monkeypatch.setattr("tests.chaos.run.PROFILE", evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, order_expiry=1)))
    result = await run("sqlite", SHORT)

    assert [] == result.flaws()
    assert SHORT.kills == result.kills


@pytest.mark.long
async def test_postgres(postgres_dsn: str) -> None:
    """With a PostgreSQL journal, no refund or order is done twice or lost, at whatever step processes are killed."""
    result = await run("postgres", SHORT, postgres_dsn)

    assert [] == result.flaws()
    assert SHORT.kills == result.kills
