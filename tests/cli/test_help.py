"""The help of each command: examples that work, and exit codes."""

import asyncio
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from payasync.cli.commands import payasync
from payasync.cli.verify_notification import HttpMessage
from payasync.journal import SqliteJournal
from payasync.notifications import SqliteInbox
from payasync.sandbox import PROFILE, ThreadedSandbox
from payasync.testing import sign_notification
from tests.cli.conftest import in_journal, variables
from tests.journal.building import refund

WIDTH: Final = 80
ROOT: Final = Path(__file__).parents[2]
SERVING: Final = ("payasync sandbox", "payasync listen")
"""Commands that wait for a person; a test only reads their options."""
CODES: Final = {
    # The order is paid, and there is neither a refund R1 nor a subscription S1.
    "payasync order close T1": 1,
    "payasync refund status R1 --out-trade-no T1": 1,
    "payasync subscription cancel S1": 1,
    "payasync subscription update S1 --amount 1000": 1,
    'payasync verify-notification body.json -H "webhook-id: 1" --kind payment': 1,  # without a signature
    "payasync profile init service.toml": 2,  # the file exists
    # The queued refund was not sent.
    "payasync journal": 3,
    "payasync journal --journal pay.db": 3,
    "payasync journal --journal pay.db --inbox inbox.db": 3,
    "payasync journal status --journal pay.db --json": 3,
    "payasync reconcile --journal pay.db": 3,
}
"""The exit codes that are not 0."""


def paths(command: click.Command = payasync, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command and subcommand."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from paths(found, (*path, name))


def help_of(path: tuple[str, ...]) -> str:
    """Return the help of a command on a terminal of 80 columns."""
    return CliRunner().invoke(payasync, [*path, "--help"], prog_name="payasync", env={"COLUMNS": str(WIDTH)}).output


PATHS: Final = tuple(paths())
HELP: Final = {" ".join(path): help_of(path) for path in PATHS}


def examples_of(text: str) -> list[str]:
    """Return the examples in a help, without the words that explain them."""
    joined = re.sub(r" \\\n +", " ", text)
    return [re.split(r" {2,}", line)[0] for line in re.findall(r"^    (payasync.*)", joined, re.MULTILINE)]


def test_help_has_examples_and_exit_codes() -> None:
    """Each help has an example and the exit codes, or a list of commands, and fits a terminal of 80 columns.

    The page about the command line names each command.
    """
    page = (ROOT / "docs/how-to/command-line.md").read_text()
    for name, text in HELP.items():
        assert re.search(r"^  Examples?\b.*:$", text, re.MULTILINE), name
        assert re.search(r"^(  Exit codes\b.*|Commands):$", text, re.MULTILINE), name
        assert examples_of(text), name
        assert [] == [line for line in text.splitlines() if len(line) > WIDTH], name
        assert not name or "Commands:" in text or re.search(rf"`(payasync )?{name}`", page), name


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Go to a folder with the files that the examples name; the environment is that of a sandbox with an order."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("PAYASYNC_"):
            monkeypatch.delenv(name)
    with ThreadedSandbox() as sandbox:
        sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        for name, value in {**variables(sandbox), "PAYASYNC_JOURNAL": "pay.db"}.items():
            monkeypatch.setenv(name, value)
        asyncio.run(fill(tmp_path / "pay.db", sandbox.credentials.merchant_id))
        service = (ROOT / "payasync/profile/sandbox.toml").read_text()
        (tmp_path / "service.toml").write_text(service)
        rows = "out_trade_no,out_refund_no,total_amt,refund_amt\nT1,R9,450,100\n"
        (tmp_path / "refunds.csv").write_text(rows)
        paid = {"outTradeNo": "T1", "status": "SBX_PAID"}
        genuine = sign_notification(paid, profile=PROFILE, credentials=sandbox.credentials, kind="payment")
        (tmp_path / "body.json").write_bytes(genuine.raw)
        whole = HttpMessage(genuine.raw, tuple(genuine.headers.items()))
        (tmp_path / "notification.http").write_bytes(whole.to_bytes())
        yield tmp_path


async def fill(path: Path, merchant: str) -> None:
    """Store a queued refund, which a worker should have sent long ago, and make an inbox beside it."""
    async with aclosing(SqliteInbox(path.with_name("inbox.db"))) as inbox:
        await inbox.backlog()
    async with SqliteJournal(path, clock=lambda: 0.0) as journal:
        await journal.add(refund("R1"), merchant=merchant)


@pytest.mark.parametrize("example", sorted({each for text in HELP.values() for each in examples_of(text)}))
def test_example_works(prepared: Path, example: str) -> None:
    """Each example ends with the exit code that fits the prepared folder; those that wait for a person are read."""
    _, *arguments = shlex.split(example)
    if " move " in example:
        in_journal(prepared / "pay.db", lambda journal: journal.bind("M1", "https://a.example"))
    if example.startswith(SERVING) or "--watch" in arguments:
        arguments.append("--help")
    # Without a terminal, a write is sent only with --yes.
    confirmed = ["--yes"] if "--yes" in HELP.get(" ".join(arguments[:2]), "") else []
    ended = CliRunner().invoke(payasync, [*arguments, *confirmed], input="y\n")

    assert CODES.get(example, 0) == ended.exit_code, ended.output
    assert "Traceback" not in ended.output
