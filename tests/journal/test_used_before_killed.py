"""A process that is killed by SIGKILL after "used before": what the service said then is not lost with it."""

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from payasync import OutcomeUnknownError
from payasync.journal import Journal
from tests.chaos.forked import Forked
from tests.foreign.recorder import SILENT
from tests.journal.building import Clock
from tests.journal.service import ABSENT, LOST, QUARANTINE, SAYS, USED, serving

PROGRAM: Final = Path(__file__).with_name("sending_process.py")
HOUR: Final = 3600.0


@pytest.fixture
def place(request: pytest.FixtureRequest, store: Journal, path: Path) -> str:
    """Where the journal is."""
    postgres = "Postgres" in type(store).__name__
    return str(request.getfixturevalue("postgres_dsn") if postgres else path)


async def test_killed_as_it_asks(store: Journal, clock: Clock, place: str, tmp_path: Path) -> None:
    """The first send was lost, the second is called used: "absent" sends no third one, and rejects nothing."""
    profile = tmp_path / "service.toml"
    profile.write_text(SAYS.to_toml(), encoding="utf-8")
    async with serving(store, clock, LOST) as service:
        await service.called()
        assert "rejected" == (await service.reconciled(QUARANTINE)).state
        began, before = service.sends, service.questions
        service.say(USED, SILENT)
        arguments = (place, str(clock()), service.recorder.url, str(profile))
        with Forked(PROGRAM, *arguments, environment=dict(os.environ)) as process:
            while service.questions == before:
                await asyncio.to_thread(service.recorder.wait_for_request)
            process.kill()
            process.wait()
        service.say(query=ABSENT)
        found = [await service.reconciled(HOUR) for _ in range(12)]
        again = await service.called()
        sends = service.sends - began

    states = [each.state for each in found]
    assert ["unknown"] * states.count("unknown") + ["manual"] * states.count("manual") == states
    assert "manual" == states[-1]
    assert "and it said before that the number was used" in found[-1].reason
    assert (OutcomeUnknownError, 1) == (type(again), sends)
