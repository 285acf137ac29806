"""`payasync demo`: a payment from its first call to its refund, on a sandbox of its own."""

import asyncio
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import click
from attrs import Factory, evolve, field, frozen
from rich.console import Console
from rich.panel import Panel
from rich.terminal_theme import MONOKAI
from rich.text import Text

from payasync.cli.terminal import Lines, Terminal, existing_folder
from payasync.credentials import Secret
from payasync.errors import AuthenticationError, PayasyncError
from payasync.sandbox import Sandbox
from payasync.sandbox.recording_receiver import RecordingReceiver
from payasync.session import Session
from payasync.settings import RetryPolicy

WIDTH: Final = 80
"""Columns of a picture, and the least width at which a step shows the name of its call."""

_STYLES: Final = {
    "paid": "bold green",
    "succeeded": "bold green",
    "refused": "bold magenta",
    "closed": "cyan",
    "cancelled": "cyan",
}


@click.command()
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=existing_folder,
    help="Also save what is shown as an SVG picture.",
)
def demo(save: Path | None) -> None:
    """Run a whole payment on a sandbox of its own.

    It runs from the first call to the refund. It needs no keys, and no network beyond this machine.

    \b
    Examples:
      payasync demo
      payasync demo --save demo.svg

    \b
    Exit codes:
      0    each response agrees with the sandbox's ledger
      1    a response disagrees, or a call failed
      2    an option is invalid
    """  # noqa: D301 - click does not wrap a paragraph after this character
    screen = DemoScreen(record=save is not None)
    try:
        holds = asyncio.run(run(screen))
    except PayasyncError as error:
        screen.failed(error)
        holds = False
    if save is not None:
        screen.save(save)
    sys.exit(0 if holds else 1)


class DemoScreen:
    """What a person sees of the demo, and optionally a picture of it.

    Args:
        record: Record the output, for `save`.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, record: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console or Terminal(record=record, width=WIDTH if record else None), strict=True)
        self._steps = 0

    def opened(self, url: str) -> None:
        """Show the title, and the address of the sandbox."""
        write = self._lines.write
        write()
        write(("payasync demo", "bold"), "  a whole payment, on a sandbox of its own")
        self._lines.paragraph((f"{url} · no keys, no network beyond this machine", "dim"))

    def step(self, title: str, call: str, state: str | None, detail: str) -> None:
        """Show a step, and its result; a narrow terminal leaves out the name of the call."""
        self._steps += 1
        shown = state or "-"
        self._lines.write(
            (f"{self._steps:2}  ", "dim"),
            f"{title:26}",
            (f"{call:22}" if self._lines.console.width >= WIDTH else "", "blue"),
            (f"{shown:11}", _STYLES.get(shown, "yellow")),
            (detail, "dim"),
        )

    def note(self, words: str, address: str) -> None:
        """Add a line below a step that ends in an address."""
        self._lines.write((f"    ↳ {words} ", "dim"), (address, "cyan"))

    def closed(self, facts: str) -> None:
        """Show what the ledger holds at the end."""
        self._panel("✓ every response agrees with the ledger", facts, "green")

    def broken(self, what: str) -> None:
        """Show what the ledger disagrees with."""
        self._panel("✗ a response disagrees with the ledger", what, "red")

    def failed(self, error: Exception) -> None:
        """Show the error that ended the story."""
        self._lines.write()
        self._lines.write(("✗ ", "bold red"), (type(error).__name__, "bold"), f": {error}")

    def _panel(self, headline: str, text: str, colour: str) -> None:
        words = Text.assemble((headline, f"bold {colour}"), f"\n{text}")
        self._lines.write()
        self._lines.print(Panel(words, border_style=colour, expand=False, padding=(0, 2)))

    def save(self, path: Path) -> None:
        """Save what was shown as an SVG picture, which asks no other host for a font."""
        picture = self._lines.console.export_svg(title="payasync demo", theme=MONOKAI)
        path.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL), encoding="utf-8")


TOTAL: Final = 450
REFUND: Final = 200
SECOND_REFUND: Final = 100
FORGED: Final = Secret("not the merchant's")
THANKS: Final = "https://shop.example/thanks"


class InvariantError(Exception):
    """A response does not say what the sandbox's ledger holds."""


@frozen
class DemoContext:
    """The merchant's side of the story.

    Attributes:
        pay: The session.
        sandbox: The service; its ledger is the truth.
        receiver: Receives notifications.
        screen: Shows each step.
        order: The number of the order that is paid.
    """

    pay: Session
    sandbox: Sandbox
    receiver: RecordingReceiver
    screen: DemoScreen
    order: str = field(default=Factory(lambda: f"T{secrets.randbelow(9000) + 1000}"))


Step: TypeAlias = Callable[[DemoContext], Awaitable[None]]


async def run(screen: DemoScreen, steps: Iterable[Step] | None = None) -> bool:
    """Run the story, and return whether every response agreed with the ledger.

    Args:
        screen: Shows it.
        steps: Run in place of the whole story.
    """
    started = time.perf_counter()
    async with Sandbox() as sandbox, sandbox.receiver() as receiver, sandbox.session() as pay:
        screen.opened(sandbox.url)
        context = DemoContext(pay, sandbox, receiver, screen)
        try:
            for step in STEPS if steps is None else steps:
                await step(context)
        except InvariantError as broken:
            screen.broken(str(broken))
            return False
        ledger, milliseconds = sandbox.ledger, (time.perf_counter() - started) * 1000
        screen.closed(
            f"paid CAD {_money(ledger.paid(context.order))} · refunded CAD {_money(ledger.refunded(context.order))} · "
            f"requests {len(ledger.calls())} · {milliseconds:.0f} ms"
        )
    return True


async def create_payment(context: DemoContext) -> None:
    """Endpoint 1."""
    before = context.sandbox.ledger.payments()
    payment = await context.pay.payments.create(amount=1000, currency="USD", description="Invoice 42")

    agree("payments made", 1, context.sandbox.ledger.payments() - before)
    agree("state of the payment", "pending", payment.state)
    context.screen.step("Create a payment", "payments.create", payment.state, "USD 10.00")


async def place_order(context: DemoContext) -> None:
    """Endpoint 2; its response has the address that the customer opens."""
    order = await context.pay.orders.place(
        subject="Coffee",
        body="Large coffee",
        total_amt=TOTAL,
        currency="CAD",
        scene_type="JSAPI",
        notify_url=context.receiver.url,
        return_url=THANKS,
        out_trade_no=context.order,
    )

    agree("state of the order", context.sandbox.ledger.order_state(context.order), order.state)
    context.screen.step("Place an order", "orders.place", order.state, f"{context.order} · CAD {_money(TOTAL)}")
    context.screen.note("to pay at", str(order.redirect_url))
    back = await context.sandbox.customer.authorize(order)

    agree("paid", TOTAL, context.sandbox.ledger.paid(context.order))
    context.screen.step("The customer authorizes", "gateway page", "paid", "not proven yet")
    context.screen.note("and is sent back to", str(back))


async def receive_notification(context: DemoContext) -> None:
    """The notification, then endpoints 3 and 6."""
    await context.sandbox.settle()
    if not context.receiver.received:
        raise InvariantError("no notification of the payment came")
    (received,) = context.receiver.received
    state = context.sandbox.ledger.order_state(context.order)

    agree("what is wrong with the notification", "", received.wrong)
    agree("the notified order", context.order, received.document["data"]["outTradeNo"])
    context.screen.step("The notification arrives", "webhook", "paid", received.document["type"])

    order = await context.pay.orders.query(context.order)
    payment = await context.pay.payments.status(context.order)

    agree("state by query", state, order.state)
    agree("state by status", state, payment.state)
    context.screen.step("Confirm by a query", "orders.query", order.state, "confirmed")
    context.screen.step("Check the payment", "payments.status", payment.state, context.order)


async def refund_some(context: DemoContext) -> None:
    """Endpoints 5 and 7."""
    refund = await context.pay.refunds.create(
        out_trade_no=context.order, out_refund_no="R1", total_amt=TOTAL, refund_amt=REFUND, refund_desc="cold"
    )
    context.screen.step("Refund a part", "refunds.create", refund.state, f"R1 · CAD {_money(REFUND)}")
    status = await context.pay.refunds.status("R1")

    agree("refunded", REFUND, context.sandbox.ledger.refunded(context.order))
    agree("state of the refund", "succeeded", status.state)
    context.screen.step("Follow the refund", "refunds.status", status.state, "R1")


async def lose_a_response(context: DemoContext) -> None:
    """Endpoint 5 again: its response is lost after the refund was made, so it is queried, and made once."""
    lost = context.sandbox.faults.reset_after_commit("refunds.create", order="R2")
    pay = context.pay.with_options(retry=RetryPolicy(base_delay=0.01))
    refund = await pay.refunds.create(
        out_trade_no=context.order, out_refund_no="R2", total_amt=TOTAL, refund_amt=SECOND_REFUND
    )

    agree("responses lost", 1, lost.fired)
    agree("refunded after the lost response", REFUND + SECOND_REFUND, context.sandbox.ledger.refunded(context.order))
    agree("whether a query settled it", True, refund.recovered)  # noqa: FBT003 - what is agreed on
    context.screen.step("Lose the response", "refunds.create", refund.state, f"R2 · CAD {_money(SECOND_REFUND)}")
    context.screen.note("queried as R2;", f"made once, in {refund.attempts} attempts")


async def subscribe(context: DemoContext) -> None:
    """Endpoints 8, 9 and 10."""
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    made = await context.pay.subscriptions.create(
        frequency="monthly", amount=900, start_date=tomorrow, customer={"email": "a@example.com"}
    )
    number = str(made.subscription_id)
    agree("the start of the subscription", "scheduled", made.state)
    agree("state of the subscription", context.sandbox.ledger.subscription_state(number), made.state)
    context.screen.step("Start a subscription", "subscriptions.create", made.state, "CAD 9.00 monthly")

    updated = await context.pay.subscriptions.update(number, amount=1000)
    agree("what the subscription bills", 1000, context.sandbox.ledger.subscription_amount(number))
    context.screen.step("Change its amount", "subscriptions.update", updated.state, "CAD 10.00 monthly")

    cancelled = await context.pay.subscriptions.cancel(number)
    agree("state of the subscription", context.sandbox.ledger.subscription_state(number), cancelled.state)
    agree("the end of the subscription", "cancelled", cancelled.state)
    context.screen.step("Cancel it", "subscriptions.cancel", cancelled.state, "before it began")


async def close_unpaid(context: DemoContext) -> None:
    """Endpoint 4, for an order that nobody paid."""
    number = f"{context.order}-2"
    await context.pay.orders.place(total_amt=TOTAL, currency="CAD", out_trade_no=number)
    closed = await context.pay.orders.close(number)

    agree("state of the unpaid order", "closed", context.sandbox.ledger.order_state(number))
    agree("state in the response to close", "closed", closed.state)
    context.screen.step("Close an unpaid order", "orders.close", closed.state, number)


async def forge(context: DemoContext, key: Secret = FORGED) -> None:
    """A call that is signed with another key is refused, and moves nothing."""
    refunded = context.sandbox.ledger.refunded(context.order)
    forger = context.pay.for_merchant(evolve(context.sandbox.credentials, signing_key=key))
    try:
        await forger.refunds.create(out_trade_no=context.order, out_refund_no="R2", total_amt=TOTAL, refund_amt=TOTAL)
    except AuthenticationError as refused:
        agree("refunded after the forgery", refunded, context.sandbox.ledger.refunded(context.order))
        context.screen.step("Forge a signature", "refunds.create", "refused", str(refused.code))
    else:
        raise InvariantError("a refund with a forged signature was not refused")


STEPS: Final[tuple[Step, ...]] = (
    create_payment,
    place_order,
    receive_notification,
    refund_some,
    lose_a_response,
    subscribe,
    close_unpaid,
    forge,
)


def agree(what: str, truth: object, response: object) -> None:
    """Compare a response with the ledger.

    Raises:
        InvariantError: They differ.
    """
    if truth != response:
        raise InvariantError(f"{what}: {response!r}, but the ledger says {truth!r}")


def _money(minor: int) -> str:
    return f"{minor // 100}.{minor % 100:02}"
