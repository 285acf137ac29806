import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from chaos.__main__ import main
from chaos.properties import LONG, PROPERTIES, tried

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CONFTEST = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
PLUGINS = "-p hypothesispytest -p randomly -p xdist"
"""Those whose options the command has: to import all that are installed takes seconds."""
SUITE = """
from hypothesis import settings

def test_profile():
    assert {} == settings().max_examples
"""


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
    monkeypatch.setattr("chaos.__main__.tried", run)
    monkeypatch.setattr("chaos.__main__.soaked", partial(run, "soak"))
    monkeypatch.setattr("chaos.__main__.killed", partial(run, "kills"))
    result = CliRunner().invoke(main, [])

    assert [LONG, "models", "soak", "kills"] == ran
    assert 1 == result.exit_code
    assert result.output.endswith("FAILED soak: it grew\n")


@pytest.mark.parametrize("path", PROPERTIES)
def test_properties_are_there(path: str) -> None:
    """What is tried at length is there, and is a property."""
    assert "\n@given(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(("examples", "flaws"), [(6_000, []), (6_001, ["pytest ended with 1"])])
def test_tried(examples: int, flaws: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says with which seed it runs, tests run with the profile, and what does not pass is a flaw."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where `tests.` is found
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", PLUGINS)
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE.format(examples), encoding="utf-8")
    said = io.StringIO()

    assert flaws == tried("models", ["test_suite.py"], 7, Console(file=said))
    assert "--hypothesis-seed=7" in said.getvalue()
