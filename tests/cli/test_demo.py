"""`payasync demo`: the story, its checks against the ledger, and what people see of it."""

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve
from click.testing import CliRunner
from rich.console import Console

from payasync.cli import demo
from payasync.cli.commands import payasync
from payasync.cli.demo import DemoScreen

OPERATIONS: Final = (
    "payments.create",
    "orders.place",
    "orders.query",
    "payments.status",
    "refunds.create",
    "refunds.status",
    "subscriptions.create",
    "subscriptions.update",
    "subscriptions.cancel",
    "orders.close",
)


def screen(width: int = 80) -> tuple[DemoScreen, io.StringIO]:
    """Return a screen, and what is written to it."""
    written = io.StringIO()
    return DemoScreen(console=Console(file=written, width=width, highlight=False)), written


async def test_the_story_shows_all_ten_endpoints() -> None:
    """Every endpoint has its line, the forged call is refused, and the ledger agrees."""
    shown, written = screen()

    holds = await demo.run(shown)

    assert holds
    assert [] == [name for name in OPERATIONS if name not in written.getvalue()]
    assert "SBX_BAD_SIGNATURE" in written.getvalue()
    assert "every response agrees with the ledger" in written.getvalue()


async def test_a_narrow_terminal_cuts_no_step() -> None:
    """In 80 columns no line is cut short, and none is longer, even with the longest port."""
    shown, written = screen(width=80)

    await demo.run(shown)
    lines = written.getvalue().splitlines()
    longest = [re.sub(r"(?<=127\.0\.0\.1:)[0-9]+", "65535", line) for line in lines]

    assert 14 == sum(line[:2].strip().isdigit() for line in lines)
    assert not [line for line in lines if "…" in line]
    assert not [line for line in longest if len(line) > 80]


async def test_a_ledger_that_disagrees_ends_the_story() -> None:
    """If a response differs from the ledger, the demo says so and fails."""
    shown, written = screen()

    async def lie(shop: demo.Shop) -> None:
        demo.agree("refunded", shop.sandbox.ledger.refunded(shop.order), 1)

    holds = await demo.run(shown, (demo.create_payment, lie))

    assert not holds
    assert "refunded: 1, but the ledger says 0" in written.getvalue()


async def test_a_forgery_that_is_not_refused_ends_the_story() -> None:
    """If a forged refund is accepted, the demo fails. Here the forger has the right key."""
    shown, written = screen()

    async def knowing_forger(shop: demo.Shop) -> None:
        order = await shop.sandbox.given.paid_order(total_amt=demo.TOTAL)
        key = shop.sandbox.credentials.signing_key
        assert key is not None
        await demo.forge(evolve(shop, order=order), key=key)

    holds = await demo.run(shown, (knowing_forger,))

    assert not holds
    assert "was not refused" in written.getvalue()


def test_the_command_ends_with_0_and_saves_its_picture(tmp_path: Path) -> None:
    """`payasync demo --save` exits with 0, and writes an SVG that loads nothing from other hosts."""
    picture = tmp_path / "demo.svg"

    result = CliRunner().invoke(payasync, ["demo", "--save", str(picture)])
    drawn = picture.read_text(encoding="utf-8")

    assert 0 == result.exit_code
    assert drawn.startswith("<svg")
    assert "url(http" not in drawn
    assert "SBX_BAD_SIGNATURE" in drawn


@pytest.mark.long
def test_the_process_says_nothing_on_standard_error() -> None:
    """`python -m payasync demo` writes nothing to standard error."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "payasync", "demo"]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, encoding="utf-8")

    assert (0, "") == (ended.returncode, ended.stderr)


def ascii_screen(width: int) -> tuple[DemoScreen, io.TextIOWrapper]:
    """Return a screen of a terminal that has ASCII letters only."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    return DemoScreen(console=Console(file=written, width=width, highlight=False)), written


async def test_an_ascii_terminal_shows_the_whole_story() -> None:
    """On a terminal without Unicode every step is shown in ASCII."""
    shown, written = ascii_screen(80)

    holds = await demo.run(shown)
    written.seek(0)
    text = written.read()

    assert holds
    assert text.isascii()
    assert [] == [name for name in OPERATIONS if name not in text]
    assert "+ every response agrees with the ledger" in text


@pytest.mark.parametrize("width", [20, 40, 60, 79])
async def test_a_very_narrow_terminal_does_without_the_calls(width: int) -> None:
    """Below 80 columns the names of calls are left out, and no step is folded."""
    shown, written = screen(width=width)

    await demo.run(shown)
    lines = written.getvalue().splitlines()
    steps = [line for line in lines if line[:2].strip().isdigit()]

    assert 14 == len(steps)
    assert [] == [line for line in steps if any(name in line for name in OPERATIONS)]
    assert any("Create a payment" in line and "USD 10.00" in line for line in steps)
    assert not [line for line in lines if "…" in line]


def test_a_picture_needs_its_folder(tmp_path: Path) -> None:
    """`--save` into a missing folder is refused in one line, before the demo begins."""
    result = CliRunner().invoke(payasync, ["demo", "--save", str(tmp_path / "nowhere" / "demo.svg")])

    assert 2 == result.exit_code
    assert "there is no folder" in result.output
    assert "nowhere" in result.output.replace("\n", "")
    assert "payasync demo" not in result.stdout
    assert [] == list(tmp_path.iterdir())


async def test_a_notification_that_does_not_come_ends_the_story() -> None:
    """If no notification arrives, the demo fails."""
    shown, written = screen()

    holds = await demo.run(shown, (demo.receive_notification,))

    assert not holds
    assert "no notification of the payment came" in written.getvalue()
