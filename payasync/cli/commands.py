"""The `payasync` command; each subcommand's module is loaded when the subcommand is named."""

import importlib
import signal
from typing import Any, Final

import click

from payasync import __version__, cli

COMMANDS: Final = {
    "demo": "Run the whole story on a sandbox of its own.",
    "doctor": "Tell what is configured, what is open, and whether the service can be reached.",
    "journal": "See what a journal keeps, and end what needs a person.",
    "listen": "Receive notifications on this machine, and show them.",
    "reconcile": "Ask the service what became of unknown writes.",
    "refund": "Refund many orders from a file.",
    "sandbox": "Serve the whole service on this machine.",
    "verify-notification": "Tell whether a notification in a file is from the service.",
}
"""Each command with its line of `--help`; `refund` is in `refund_import.py`, the others in modules of their names."""


class Commands(click.Group):
    """Commands that Ctrl-C ends without a word, with exit code 130, unless they handle it themselves."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"payasync.cli.{'refund_import' if name == 'refund' else name}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of `--help` without loading a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the command that was named; only then may Ctrl-C raise an exception."""
        found = super().resolve_command(ctx, args)
        if signal.getsignal(signal.SIGINT) is cli.end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(cli.INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="payasync")
def payasync() -> None:
    """Pay, refund and subscribe: the client of a payment service, and its sandbox."""
