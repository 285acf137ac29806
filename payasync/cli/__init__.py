"""The `payasync` command: extra `[cli]`."""

import sys


def main() -> None:
    """Run the command; without the extra, say how to get it."""
    try:
        from payasync.cli.commands import payasync  # noqa: PLC0415 - click and rich may be missing
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in {"click", "rich"}:
            raise
        sys.exit(f'payasync: the command needs {missing}: python -m pip install "payasync[cli]"')
    payasync()
