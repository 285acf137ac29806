"""`payasync subscription`: creates, updates and cancels recurring payments."""

import click

from payasync.cli.calls import call_command
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription


@click.group()
def subscription() -> None:
    """Create, update and cancel recurring payments.

    \b
    Examples:
      payasync subscription update S1 --amount 1000
      payasync subscription cancel S1
    """  # noqa: D301 - click does not wrap a paragraph after this character


@call_command(subscription, CreateSubscription)
def create() -> None:
    r"""Start a recurring payment.

    The service gives the subscription a number. With --journal and --intent, the request is sent only once,
    even if you repeat the command.

    Example:
      payasync subscription create --frequency monthly --amount 900 \
        --start-date 2027-01-31 --customer email=a@example.com
    """


@call_command(subscription, UpdateSubscription)
def update() -> None:
    """Change the subscription NUMBER. Options that you leave out change nothing.

    Example:
      payasync subscription update S1 --amount 1000
    """


@call_command(subscription, CancelSubscription)
def cancel() -> None:
    """End the subscription NUMBER.

    Example:
      payasync subscription cancel S1
    """
