"""The `payasync` command: extra `[cli]`, and the exit codes that several subcommands have."""

import os
import signal
import sys
from types import FrameType
from typing import Final

CANNOT: Final = 2
"""The command cannot begin; nothing was done."""
NEEDS_A_PERSON: Final = 3
"""Something may have been done, and a person must look."""
INTERRUPTED: Final = 130
"""Ctrl-C or SIGTERM came before the command was through."""


def main() -> None:
    """Run the command; without the extra, say how to install it."""
    # A program that was started to ignore Ctrl-C goes on ignoring it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    try:
        from payasync.cli.commands import payasync  # noqa: PLC0415 - click may be missing

        payasync()
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in {"click", "rich"}:
            raise
        sys.exit(f'payasync: the command needs {missing}: python -m pip install "payasync[cli]"')


def end(_number: int, _frame: FrameType | None) -> None:
    """End on Ctrl-C before a command begins: an exception would be shown, or lost, inside an import."""
    os._exit(INTERRUPTED)
