"""The profiles that a story is told with, and the databases that its books are kept in."""

import os
from pathlib import Path

import pytest

from tests.notifications.databases import IN_A_FILE, IN_POSTGRES, Database
from tests.notifications.shop import WAYS, profiles


@pytest.fixture(params=[*IN_A_FILE, *IN_POSTGRES], ids=lambda driver: driver.__name__)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A merchant's database, by each driver."""
    in_a_file = request.param in IN_A_FILE
    made: Database = request.param(tmp_path / "shop.db" if in_a_file else request.getfixturevalue("postgres_dsn"))
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tell each story with the sandbox's own profile, and with a scrambled one of a seed that its id shows.

    `PAYASYNC_SCRAMBLED_SEEDS=17,18` sets the seeds; else it is that of pytest-randomly, which is new each time.
    """
    if "profile" not in metafunc.fixturenames or not metafunc.definition.path.name.startswith("test_story"):
        return
    drawn = str(metafunc.config.getoption("randomly_seed", 0))
    seeds = os.environ.get("PAYASYNC_SCRAMBLED_SEEDS", drawn).split(",")
    told = {each.name: each for seed in seeds for each in profiles(seed)}
    if "fatal" in metafunc.fixturenames:  # a process is dear: the scrambled one is verified in one way alone
        told = {name: told[name] for number, name in enumerate(told) if number <= len(WAYS)}
    metafunc.parametrize("profile", told.values(), ids=told)
