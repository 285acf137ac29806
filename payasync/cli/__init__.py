"""The `payasync` command: extra `[cli]`, and the exit codes that several subcommands have."""

import os
import signal
import sys
from types import FrameType
from typing import IO, Final

CANNOT: Final = 2
"""The command cannot begin; nothing was done."""
NEEDS_A_PERSON: Final = 3
"""Something may have been done, and a person must look."""
FAILED: Final = 70
"""An error that no command expects, or output that cannot be written. A write may have been sent."""
INTERRUPTED: Final = 130
"""Ctrl-C or SIGTERM came before the command was through."""


def main() -> None:
    """Run the command; without the extra, say how to install it."""
    # A program that was started to ignore a signal goes on ignoring it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
    try:
        from payasync.cli.commands import payasync  # noqa: PLC0415 - click may be missing

        payasync()
    except SystemExit as ended:
        sys.exit(_flush(ended.code))
    except ImportError as error:
        if lacks_extra(error):
            missing = str(error.name).partition(".")[0]
            sys.exit(f'payasync: the command needs {missing}: python -m pip install "payasync[cli]"')
        again = "python -m pip install --force-reinstall payasync"
        sys.exit(f"payasync: cannot be loaded: {error}. Install it again: {again}")
    except OSError as error:
        sys.exit(_report(error))


def _flush(code: str | int | None) -> str | int | None:
    """Write what was not written yet, and return the exit code. Python would do so at exit, and report each failure."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not code:
            return _report(error)
        discard(sys.stdout)
    return code


def _report(error: OSError) -> int:
    discard(sys.stdout)
    sys.stderr.write(f"payasync: cannot write: {error.strerror}\n")
    return FAILED


def discard(stream: IO[str] | None) -> None:
    """Write nothing more to a stream. Otherwise Python would report at exit that it cannot write the rest."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def lacks_extra(error: Exception) -> bool:
    """Return whether an error says that the extra `[cli]` is not installed."""
    return isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in {"click", "rich"}


def end(_number: int, _frame: FrameType | None) -> None:
    """End on a signal before a command begins: an exception would be shown, or lost, inside an import."""
    os._exit(INTERRUPTED)


def raise_on_signals() -> None:
    """From now on, raise `KeyboardInterrupt` on Ctrl-C and SIGTERM, unless the program ignores them."""
    if signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is end:
        signal.signal(signal.SIGTERM, _act_as_on_ctrl_c)


def _act_as_on_ctrl_c(number: int, frame: FrameType | None) -> None:
    # asyncio.run replaces the handler of Ctrl-C alone: the present one must also end the command on SIGTERM.
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(number, frame)
