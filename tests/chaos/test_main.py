from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.chaos.__main__ import main
from tests.chaos.properties import LONG, PROPERTIES

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments", [["--kills", "0"], ["--journal", "none", "--kills", "0"], ["kills", "--kills", "0"]]
)
def test_options_alone_are_those_of_the_kills(arguments: list[str]) -> None:
    """Options without the name of a part go to the kills, as they always did."""
    result = CliRunner().invoke(main, arguments)

    assert 2 == result.exit_code
    assert " kills [OPTIONS]" in result.output


def test_no_name_is_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name all parts run, whatever comes of one, and it is told which of them is not well."""
    ran = list[str]()

    def run(name: str, *_: Any) -> list[str]:
        ran.append(name)
        return ["it grew"] if name == "soak" else []

    # The parts themselves take an hour.
    monkeypatch.setattr("tests.chaos.__main__.tried", run)
    monkeypatch.setattr("tests.chaos.__main__.soaked", partial(run, "soak"))
    monkeypatch.setattr("tests.chaos.__main__.killed", partial(run, "kills"))
    result = CliRunner().invoke(main, [])

    assert [LONG, "models", "soak", "kills"] == ran
    assert 1 == result.exit_code
    assert result.output.endswith("FAILED soak: it grew\n")


@pytest.mark.parametrize("path", PROPERTIES)
def test_properties_are_there(path: str) -> None:
    """What is tried at length is there, and is a property."""
    assert "\n@given(" in (ROOT / path).read_text(encoding="utf-8")
