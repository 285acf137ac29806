"""docs/how-to/: the cells of a notebook, and a script for the night; tests/test_readme.py runs the other programs."""

import ast
import inspect
import os
import re
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from payasync.cli.sandbox import environment_of
from payasync.notifications import SqliteInbox
from payasync.sandbox import Sandbox
from tests.notifications.inbox_building import received
from tests.test_readme import ENVIRONMENT

GUIDES: Final = Path(__file__).parents[1] / "docs" / "how-to"
PAGE: Final = GUIDES.joinpath("scripts.md").read_text(encoding="utf-8")


async def test_cells_of_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cells run one after the other in a running event loop, as Jupyter runs them."""
    cells = re.findall(r'^```python title="\w+ cells?"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    async with Sandbox() as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        monkeypatch.chdir(tmp_path)
        for name, value in environment_of(sandbox).items():
            monkeypatch.setenv(name, value)
        for cell in cells:
            code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if inspect.isawaitable(running := eval(code, names)):  # noqa: S307 - the cells are ours
                await running

    assert (3, "paid\n") == (len(cells), capsys.readouterr().out)


async def test_script_for_the_night(tmp_path: Path) -> None:
    """The script shows what needs a person with its body, replays what is named, and says why if it cannot."""
    page = GUIDES.joinpath("notifications.md").read_text(encoding="utf-8")
    (code,) = re.findall(r'^```python title="stopped.py"\n(.*?)^```$', page, re.DOTALL | re.MULTILINE)
    script = tmp_path / "stopped.py"
    script.write_text(code, encoding="utf-8")

    def ran(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-W", "error", str(script), *arguments]
        environ = {**os.environ, **ENVIRONMENT}
        ended = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        return ended.returncode, ended.stdout, ended.stderr

    missing = ran()
    async with aclosing(SqliteInbox(tmp_path / "inbox.db")) as inbox:
        states: tuple[Any, ...] = ("dead", "done", "parked")
        for state in states:
            body = b'{"data":{"outTradeNo":"T1"}}' if state == "parked" else b"\x1b"
            await inbox.add(received(f"payment:{state}", raw=body, kind=None if state == "parked" else "payment"))
            await inbox.finish((await inbox.claim(1, 60))[0], state, f"why it is {state}")
    listed, wrong = ran(), ran("1", "17:money")
    replayed = ran("1:refund", "1", "2", "3:payment", "4")
    async with aclosing(SqliteInbox(tmp_path / "inbox.db")) as inbox:
        found = {each.id: (each.state, each.kind, each.received_at) for each in await inbox.events()}

    assert (1, "", True) == (*missing[:2], "inbox.db" in missing[2])
    assert 0 == listed[0], listed[2]
    assert f"1 dead payment payment:dead {found[1][2]}" in listed[1].splitlines()
    assert ["why it is dead", r"'\x1b'", "why it is parked", '\'{"data":{"outTradeNo":"T1"}}\''] == re.findall(
        "^    (.*)$", listed[1], re.MULTILINE
    )
    assert (1, "", True) == (*wrong[:2], wrong[2].startswith("give numbers of events, such as 17"))
    assert [
        "1 cannot be replayed: raw must be a JSON object in UTF-8, not other bytes",
        "1 is due again: run this script once more in a minute",
        "2 cannot be replayed: its state is done",
        "3 is due again: run this script once more in a minute",
        "4 does not exist",
    ] == replayed[1].splitlines()[:5], replayed[2]
    assert [("pending", "payment"), ("done", "payment"), ("pending", "payment")] == [
        each[:2] for each in found.values()
    ]
