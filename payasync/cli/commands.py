"""The `payasync` command; each subcommand's module is loaded when the subcommand is named."""

import importlib
from difflib import get_close_matches
from typing import Any, Final, NoReturn

import click
from click.exceptions import Exit, NoArgsIsHelpError
from click.shell_completion import CompletionItem

from payasync import __version__, cli

COMMANDS: Final = {
    "demo": "Run a whole payment on a sandbox of its own.",
    "doctor": "Check configuration, open points and the connection.",
    "journal": "List and show writes; resolve those that need a person.",
    "listen": "Receive and show notifications on this machine.",
    "order": "Place, query and close orders; wait until one is paid.",
    "payment": "Create payments, and show their state.",
    "profile": "Write the profile of a service, or check one.",
    "reconcile": "Query the service about writes with an unknown outcome.",
    "refund": "Refund orders, one or many from a file.",
    "sandbox": "Run a stand-in for the service on this machine.",
    "subscription": "Create, update and cancel recurring payments.",
    "verify-notification": "Check that a notification in a file is genuine, and that a receiver can use it.",
}
"""Each command with its line of `--help`; it is in the module of its name."""


class Commands(click.Group):
    """Commands that Ctrl-C or SIGTERM ends silently with exit code 130, unless they handle it themselves."""

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
        command: click.Command = getattr(importlib.import_module(f"payasync.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of `--help` without loading a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the named command; only then may a signal raise an exception."""
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError as error:
            if close := get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"{error.message} Did you mean {close[0]}?", ctx) from error
            raise
        cli.raise_on_signals()
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the named command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(cli.INTERRUPTED)
        except click.Abort as aborted:
            if isinstance(aborted.__context__, KeyboardInterrupt):
                ctx.exit(cli.INTERRUPTED)
            raise
        except click.UsageError as error:
            _fail(error, ctx)
        except Exception as error:
            if isinstance(error, click.ClickException | Exit | BrokenPipeError) or cli.lacks_extra(error):
                raise
            from payasync.cli.terminal import print_unexpected  # noqa: PLC0415 - few need it

            print_unexpected(error)
            ctx.exit(cli.FAILED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options of all commands."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _fail(error, ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin so, without loading a command."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=words) for name, words in COMMANDS.items() if name.startswith(incomplete)]


def _fail(error: click.UsageError, ctx: click.Context) -> NoReturn:
    """Say in one line which option is wrong, and end with exit code 2; without any argument, show the help."""
    if isinstance(error, NoArgsIsHelpError):
        raise error
    from payasync.cli.terminal import fail  # noqa: PLC0415 - few need it

    path, words = (error.ctx or ctx).command_path.rstrip(), error.format_message()
    fail(path.partition(" ")[2], f"{words}{'' if words.endswith(('.', '?')) else '.'} See {path} --help")


EXIT_CODES: Final = """
\b
Exit codes of all commands; each command explains its others:
  0    done
  2    it cannot begin, and has sent nothing
  3    a write may have been done, and a person must look
  70   an unexpected error, or the result cannot be written: look at the
       journal before you repeat a write
  130  interrupted by Ctrl-C or SIGTERM
"""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(__version__, prog_name="payasync")
@click.option(
    "--debug", is_flag=True, envvar="PAYASYNC_DEBUG", show_envvar=True, help="Show where an error comes from."
)
def payasync(*, debug: bool) -> None:
    """Pay, refund and subscribe: the client of a payment service, and its sandbox.

    \b
    Examples:
      payasync demo         runs a whole payment; it needs no keys
      payasync sandbox      serves a stand-in, and prints settings to paste
      payasync journal      shows which writes are in doubt, and what to do
      payasync journal -h   explains a command
    """  # noqa: D301 - click does not wrap a paragraph after this character
    if not debug:
        from payasync.cli.terminal import log_in_single_lines  # noqa: PLC0415 - `--help` needs no rich

        log_in_single_lines()
