"""`payasync demo`: its steps, its checks against the ledger, and its output."""

import io
import re
from pathlib import Path
from typing import Final

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


async def shown_by(*steps: demo.Step) -> tuple[bool, str]:
    """Run the demo, or some of its steps. Return whether it succeeds, and its output."""
    written = io.StringIO()
    shown = DemoScreen(console=Console(file=written, width=80, highlight=False))
    return await demo.run(shown, *([steps] if steps else [])), written.getvalue()


async def test_it_shows_all_ten_endpoints() -> None:
    """Every endpoint has its line, the forged call is refused, and the ledger agrees. In 80 columns nothing is cut."""
    holds, text = await shown_by()
    longest = [re.sub(r"(?<=127\.0\.0\.1:)[0-9]+", "65535", line) for line in text.splitlines()]
    words = *OPERATIONS, "SBX_BAD_SIGNATURE", "every response agrees with the ledger"

    assert (True, []) == (holds, [each for each in words if each not in text])
    assert 14 == sum(line[:2].strip().isdigit() for line in longest)
    assert not [line for line in longest if "…" in line or len(line) > 80]


async def lie(context: demo.DemoContext) -> None:
    """Expect a value that the ledger does not have."""
    demo.agree("refunded", context.sandbox.ledger.refunded(context.order), 1)


async def knowing_forger(context: demo.DemoContext) -> None:
    """Forge a refund with the right key."""
    order = await context.sandbox.given.paid_order(total_amt=demo.TOTAL)
    key = context.sandbox.credentials.signing_key
    assert key is not None
    await demo.forge(evolve(context, order=order), key=key)


async def test_a_check_that_fails_ends_it() -> None:
    """If the ledger disagrees, a forgery is accepted or no notification arrives, the demo says so and fails."""
    cases: dict[str, tuple[demo.Step, ...]] = {
        "refunded: 1, but the ledger says 0": (demo.create_payment, lie),
        "was not refused": (knowing_forger,),
        "no notification of the payment came": (demo.receive_notification,),
    }
    for why, steps in cases.items():
        holds, text = await shown_by(*steps)

        assert (False, True) == (holds, why in text)


def test_the_command_ends_with_0_and_saves_its_picture(tmp_path: Path) -> None:
    """`payasync demo --save` exits with 0, and writes an SVG that loads nothing from other hosts."""
    picture = tmp_path / "demo.svg"
    result = CliRunner().invoke(payasync, ["demo", "--save", str(picture)])
    drawn = picture.read_text(encoding="utf-8")

    assert (0, True) == (result.exit_code, drawn.startswith("<svg"))
    assert (False, True) == ("url(http" in drawn, "SBX_BAD_SIGNATURE" in drawn)


async def test_an_ascii_terminal_shows_each_step() -> None:
    """On a terminal without Unicode every step is shown in ASCII."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    holds = await demo.run(DemoScreen(console=Console(file=written, width=80, highlight=False)))
    written.seek(0)
    text = written.read()

    assert (True, []) == (holds, [name for name in OPERATIONS if name not in text])
    assert text.isascii()
    assert "+ every response agrees with the ledger" in text
