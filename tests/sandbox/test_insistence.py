"""Writes that are tried until they succeed."""

import asyncio

import pytest

from payasync.errors import ConfigurationError
from payasync.sandbox.insistence import Insistence
from payasync.sandbox.values import RefusedError
from tests.inside import turns


class Disk:
    """Is full until there is room."""

    def __init__(self) -> None:
        self.full = True
        self.tries = 0

    def write(self) -> str:
        """Write, where there is room."""
        self.tries += 1
        if self.full:
            raise RefusedError("busy", "full")
        return "written"


@pytest.fixture
def disk() -> Disk:
    """A disk that is full."""
    return Disk()


async def test_tried_again_by_itself(disk: Disk) -> None:
    """Nobody need ask: once there is room, it is written."""
    insistence = Insistence()
    writing = asyncio.create_task(insistence.done(disk.write))
    await insistence.failing()
    disk.full = False

    assert "written" == await writing
    insistence.check()


async def test_tried_again_when_asked(disk: Disk) -> None:
    """Each question is a try at once, and between two tries there is a pause."""
    insistence = Insistence()
    writing = asyncio.create_task(insistence.done(disk.write))
    for _ in range(3):
        await insistence.failing()
        with pytest.raises(ConfigurationError, match="db: full"):
            insistence.check()
        await turns(20)
        insistence.ask()
    disk.full = False

    assert "written" == await writing
    assert 4 == disk.tries
