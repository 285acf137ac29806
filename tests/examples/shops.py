"""The example shops as processes of their own, started as README.md says."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from payasync.sandbox import Sandbox
from tests.cli.sandbox_process import environment, free_address

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NAMES: Final = ("aiohttp_shop", "fastapi_shop")
PASSWORD: Final = "open sesame"
READY: Final = ("unning on http", "waits a minute")
MINUTE: Final = """
import asyncio, os
sleep = asyncio.sleep

def wait(seconds, *given):
    if seconds != 60:
        return sleep(seconds, *given)
    print("waits a minute", flush=True)
    return sleep(float(os.environ["MINUTE"]), *given)

asyncio.sleep = wait
"""
"""Says when a shop has asked about all orders, and makes its minutes as long as a test wants."""


@frozen
class Place:
    """Where a shop lives: its program, its databases, and an address that no other test uses."""

    name: str
    folder: Path
    host: str
    port: str

    @classmethod
    def free(cls, name: str, folder: Path) -> "Place":
        """Return a place whose port nobody takes while the shop is dead."""
        return cls(name, folder, *free_address())

    @property
    def url(self) -> str:
        """The shop's address."""
        return f"http://{self.host}:{self.port}"

    def command(self) -> list[str]:
        """Return the command of README.md that starts the shop, for this address."""
        text = (EXAMPLES / self.name / "README.md").read_text(encoding="utf-8")
        (line,) = re.findall(r"^(?:python -m )?(.* shop:create_app.*)$", text, re.MULTILINE)
        words = line.replace("127.0.0.1", self.host).replace("8000", self.port).split()
        return [sys.executable, "-u", "-W", "error", "-m", *words]


@asynccontextmanager
async def serving(place: Place, sandbox: Sandbox, **variables: str) -> AsyncGenerator[Process]:
    """Run a shop until the block ends, unless it was killed; it must not complain.

    The block begins after the shop has asked about all orders for the first time: what a test then changes in the
    shop's database, no earlier question contradicts.
    """
    (place.folder / "sitecustomize.py").write_text(MINUTE, encoding="utf-8")
    settings = {
        "MINUTE": "60",
        "PYTHONPATH": os.pathsep.join([str(place.folder), os.environ.get("PYTHONPATH", "")]),
        "SHOP_URL": place.url,
        "SHOP_ADMIN_PASSWORD": PASSWORD,
        "SHOP_FOLDER": str(place.folder),
        "PYTHONSAFEPATH": "",
    }
    process = await asyncio.create_subprocess_exec(
        *place.command(),
        cwd=EXAMPLES / place.name,
        env={**environment(sandbox), **settings, **variables},
        stdout=PIPE,
        stderr=STDOUT,
    )
    said: list[str] = []
    ready = asyncio.Event()
    reading = asyncio.create_task(_read(process, said, ready))
    await ready.wait()
    assert _is_ready(said), "".join(said)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await reading
        await process.wait()
    assert "Traceback" not in "".join(said), "".join(said)


async def _read(process: Process, said: list[str], ready: asyncio.Event) -> None:
    """Read what a shop writes until its end, so that it never waits for a reader."""
    assert process.stdout
    async for line in process.stdout:
        said.append(line.decode())
        if _is_ready(said):
            ready.set()
    ready.set()


def _is_ready(said: list[str]) -> bool:
    """Return whether a shop has opened its port, and waits for the first time."""
    return all(any(sign in line for line in said) for sign in READY)
