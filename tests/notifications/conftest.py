"""The profiles of the stories, and the databases of a merchant."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from payasync.notifications import verification
from payasync.storage import sqlite
from tests.journal.building import Clock
from tests.notifications.databases import IN_A_FILE, IN_POSTGRES, Database
from tests.notifications.merchant import Shop, opened
from tests.notifications.shop import WAYS, profiles


@pytest.fixture(autouse=True)
def alone() -> None:
    """Forget receivers that other tests have left open: with one of their keys, a signature would prove less."""
    verification._receiving.clear()  # pyright: ignore[reportPrivateUsage] - no name tells how many are open


@pytest.fixture(params=[*IN_A_FILE, *IN_POSTGRES], ids=lambda driver: driver.__name__)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A merchant's database, by each driver."""
    in_a_file = request.param in IN_A_FILE
    made: Database = request.param(tmp_path / "shop.db" if in_a_file else request.getfixturevalue("postgres_dsn"))
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each story with the sandbox's profile, and with a scrambled one whose seed is in the test's id.

    `PAYASYNC_SCRAMBLED_SEEDS=17,18` sets the seeds; else it is that of pytest-randomly, which is new each time.
    """
    if "profile" not in metafunc.fixturenames or not metafunc.definition.path.name.startswith("test_story"):
        return
    drawn = str(metafunc.config.getoption("randomly_seed", 0))
    seeds = os.environ.get("PAYASYNC_SCRAMBLED_SEEDS", drawn).split(",")
    found = {each.name: each for seed in seeds for each in profiles(seed)}
    if "fatal" in metafunc.fixturenames:  # a process is dear: the scrambled one is verified in one way alone
        found = {name: found[name] for number, name in enumerate(found) if number <= len(WAYS)}
    daily = WAYS[:3] if metafunc.definition.path.stem == "test_story" else WAYS[:1]
    marks = {True: [], False: [pytest.mark.long]}
    metafunc.parametrize(
        "profile",
        [
            pytest.param(each, id=name, marks=marks[each.notification.verification in daily])
            for name, each in found.items()
        ],
    )


@pytest.fixture(autouse=True)
def undurable(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not wait for the disk. Other tests check durability."""
    durable = sqlite.journaling
    monkeypatch.setattr(sqlite, "journaling", lambda version: (durable(version)[0], "OFF"))


@pytest.fixture
def clock() -> Clock:
    """A clock that the test moves."""
    return Clock()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver of signed notifications, whose time stands still."""
    async with opened(tmp_path) as shop:
        yield shop
