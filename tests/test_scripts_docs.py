"""docs/how-to/scripts.md: the cells of its notebook; tests/test_readme.py runs its programs."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any, Final

import pytest

from payasync.cli.sandbox import environment_of
from payasync.sandbox import Sandbox

PAGE: Final = Path(__file__).parents[1].joinpath("docs/how-to/scripts.md").read_text(encoding="utf-8")


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
