"""The `payasync` command; each subcommand's module is loaded when the subcommand is named."""

import importlib
import signal
from difflib import get_close_matches
from typing import Any, Final

import click

from payasync import __version__, cli

COMMANDS: Final = {
    "demo": "Run a whole payment on a sandbox of its own.",
    "doctor": "Check configuration, open points and the connection.",
    "journal": "List and show writes; resolve those that need a person.",
    "listen": "Receive and show notifications on this machine.",
    "profile": "Write the profile of a service, or check one.",
    "reconcile": "Query the service about writes with unknown outcome.",
    "refund": "Refund many orders from a file.",
    "sandbox": "Run a stand-in for the service on this machine.",
    "verify-notification": "Check that a notification in a file is genuine.",
}
"""Each command with its line of `--help`; `refund` is in `refund_import.py`, the others in modules of their names."""


class Commands(click.Group):
    """Commands that Ctrl-C ends silently with exit code 130, unless they handle it themselves."""

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
        """Load the named command; only then may Ctrl-C raise an exception."""
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError as error:
            if close := get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"{error.message} Did you mean {close[0]}?", ctx) from error
            raise
        if signal.getsignal(signal.SIGINT) is cli.end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the named command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(cli.INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="payasync")
def payasync() -> None:
    """Pay, refund and subscribe: the client of a payment service, and its sandbox."""
