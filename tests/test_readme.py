"""README.md and docs/: snippets run, and lists are complete."""

import os
import re
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import RetryPolicy, Session, Timeouts

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS: Final = (ROOT / "docs" / "how-to" / "settings.md").read_text(encoding="utf-8")
UNUSED: Final = ("cacheprovider", "faker", "hypothesispytest", "randomly")
"""Plugins that no snippet is about, and that take seconds to import; ours is found as a user's pytest finds it."""
SUITE: Final = [
    *("-m", "pytest", "-q", *(option for name in UNUSED for option in ("-p", f"no:{name}"))),
    *("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"),
]
ENVIRONMENT: Final = {
    "PAYASYNC_BASE_URL": "http://127.0.0.1:8402",
    "PAYASYNC_PROFILE": "sandbox",
    "PAYASYNC_MERCHANT_ID": "M1",
    "PAYASYNC_SECRET_KEY": "sk_1",
    "PAYASYNC_SIGNING_KEY": "signing key of M1",
    "PAYASYNC_NOTIFICATION_KEYS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}
"""Such as `payasync sandbox` prints."""
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """Return the fenced blocks of a language, each with the line that it starts in."""
    fences = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, fence.start(1)) + 1, fence[1]) for fence in fences]


def snippets() -> list[Any]:
    """Return the Python snippets of all pages, named by page and line; daily is the first."""
    shown = [(page, *block) for page in PAGES for block in blocks(page.read_text(encoding="utf-8"), "python")]
    return [
        pytest.param(*each, id=f"{each[0].relative_to(ROOT).as_posix()}:{each[1]}", marks=[pytest.mark.long] * (at > 0))
        for at, each in enumerate(shown)
    ]


def output_of(page: Path, code: str) -> str | None:
    """Return the output that a page shows directly below a program."""
    below = page.read_text(encoding="utf-8").partition(f"{code}```\n\n```text\n")[2]
    return below.partition("```\n")[0] or None


def section(title: str) -> str:
    """Return the text under a heading of README.md."""
    _, _, below = README.partition(f"\n## {title}\n")

    assert below, f"README.md has no section {title!r}"
    return below.partition("\n## ")[0]


@pytest.mark.parametrize(("page", "line", "code"), snippets())
def test_snippet_runs(page: Path, line: int, code: str, tmp_path: Path) -> None:
    """Every Python snippet is a program, or a suite of tests, that runs with warnings as errors.

    It prints what the page shows below it. It runs a second time in the same folder, too, and leaves no file there.
    """
    script = tmp_path / "test_snippet.py"
    # So many empty lines that a traceback names the page's own line.
    script.write_text("\n" * (line - 1) + code, encoding="utf-8")
    runner = SUITE if "def test_" in code else []

    first, again = (
        subprocess.run(
            [sys.executable, "-W", "error", *runner, script],
            cwd=tmp_path,
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for _ in range(2)
    )

    assert first.returncode == 0, f"{page.name}, line {line}:\n{first.stdout}{first.stderr}"
    assert output_of(page, code) in {None, first.stdout}
    assert again.returncode == 0, f"{page.name}, line {line}, run again:\n{again.stdout}{again.stderr}"
    assert [script] == [path for path in tmp_path.iterdir() if path.name != "__pycache__"]


def test_readme_gives_the_two_commands() -> None:
    """The first block of each section is the one command by which a newcomer starts."""
    commands = {"Try it": 'python -m pip install ".[cli]" && payasync demo'}
    commands["Work on it"] = "python -m pip install nox && nox -s tests"

    for title, command in commands.items():
        assert [f"{command}\n"] == [block for _, block in blocks(section(title), "bash")][:1]


def test_readme_lists_every_extra() -> None:
    """The tables of extras name exactly the extras of pyproject.toml, and README.md their packages."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras: dict[str, list[str]] = tomllib.load(file)["project"]["optional-dependencies"]
    expected = {name: {re.split(r"[<>=!~\[; ]", one)[0] for one in brought} for name, brought in extras.items()}

    rows = re.findall(r"^\| `\[([a-z-]+)\]` \| ([^|]*) \|", README, re.MULTILINE)
    listed = {name: set(re.findall(r"[\w-]+", brings)) for name, brings in rows}

    assert expected == listed
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert set(extras) == set(re.findall(r"^\| `\[([a-z-]+)\]` \|", index, re.MULTILINE))


def test_settings_list_every_argument() -> None:
    """The page of the settings has a row for each argument, with its default."""
    rows = dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \|", SETTINGS, re.MULTILINE))
    shown = {repr(Timeouts()): "Timeouts()", repr(RetryPolicy()): "RetryPolicy()"}
    for settings in (Session, Timeouts, RetryPolicy):
        arguments = signature(settings).parameters.values()
        defaults = {each.name: "required" if each.default is each.empty else repr(each.default) for each in arguments}

        expected = {name: shown.get(default, default) for name, default in defaults.items()}
        assert expected == {name: rows.get(name) for name in defaults}


class Asked(dict[str, str]):
    """An environment that records the names that were looked up."""

    names: set[str]

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name).removesuffix("_FILE"))
        return super().__contains__(name)


def test_settings_list_every_variable() -> None:
    """The table of the environment names exactly the variables that a session reads."""
    environ = Asked(ENVIRONMENT)
    environ.names = set()
    Session.from_env(environ)
    rows = re.findall(r"^\| `(PAYASYNC_[A-Z_]+)` \|", SETTINGS, re.MULTILINE)

    assert sorted(environ.names) == sorted(rows)
