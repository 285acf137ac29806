"""What a forked shop runs: the command of its README.md, with minutes as long as a test wants.

It says on standard output when the shop has asked about all orders.
"""

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

MINUTE: Final = float(os.environ["MINUTE"])
sleep = asyncio.sleep


def wait(seconds: float, *given: Any) -> Any:
    """Sleep as `asyncio.sleep` does."""
    if seconds != 60:
        return sleep(seconds, *given)
    sys.stdout.write("waits a minute\n")
    sys.stdout.flush()
    return sleep(MINUTE, *given)


if __name__ == "__main__":
    os.dup2(1, 2)  # one stream for all that it says
    sys.path.insert(0, str(Path.cwd()))
    asyncio.sleep = wait  # type: ignore[assignment]
    program, *arguments = sys.argv[1:]
    import_module(program).main(arguments)
