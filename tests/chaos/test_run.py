import pytest
from attrs import evolve

from payasync.sandbox import PROFILE
from tests.chaos.plan import Strategy
from tests.chaos.run import Scale, run

SHORT = Scale(operations=240, kills=11, seconds=120)


@pytest.mark.long
async def test_new_numbers() -> None:
    """If the merchant retries under new numbers and without a journal, the run finds duplicates: the check works."""
    result = await run("naive", Scale(operations=40, kills=2, seconds=300))

    assert [] == result.flaws()
    assert result.duplicates > 0


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["sqlite", "postgres"])
async def test_journal(strategy: Strategy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a journal, no refund or order is done twice or lost, whenever processes are killed.

    The run's orders do not expire, even if the sandbox's orders expire after a second.
    """
    monkeypatch.setattr("tests.chaos.run.PROFILE", evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, order_expiry=1)))
    dsn = request.getfixturevalue("postgres_dsn") if strategy == "postgres" else ""
    result = await run(strategy, SHORT, dsn)

    assert [] == result.flaws()
    assert SHORT.kills == result.kills
