"""Rows about what starts: imports, and the command line."""

from collections.abc import Iterator
from typing import Final

from benchmarks.counting import MEASURED, program_cost, program_time
from benchmarks.rows import Figure, Run

NO_AIOHTTP: Final = "import sys, payasync; sys.exit('aiohttp' in sys.modules)"
SESSION: Final = "import payasync; payasync.Session"
PROGRAM: Final = "from payasync import Credentials, Profile, Session"
"""What a program that calls the service imports."""
CLI: Final = ("-m", "payasync")


def imports(_: Run) -> Iterator[Figure]:
    """What `import payasync` costs. The first program fails if it imports aiohttp."""
    extra = (program_time("-c", NO_AIOHTTP) - program_time("-c", "pass")) * 1e3
    yield Figure("import payasync, over bare Python", extra, "ms", most=30, measured="CPU time")
    bare = program_cost("-c", "pass")
    session, program, aiohttp = (program_cost("-c", code) - bare for code in (SESSION, PROGRAM, "import aiohttp"))
    yield Figure("payasync.Session to import aiohttp", session / aiohttp, most=1.15, measured=MEASURED)
    yield Figure("Credentials, Profile, Session to import aiohttp", program / aiohttp, measured=MEASURED)


def cli(_: Run) -> Iterator[Figure]:
    """What the command line costs before it does anything."""
    baseline = program_cost("-c", "import click, rich")
    for option in ("--version", "--help"):
        ratio = program_cost(*CLI, option) / baseline
        yield Figure(f"payasync {option} to import click, rich", ratio, most=2.0, measured=MEASURED)
