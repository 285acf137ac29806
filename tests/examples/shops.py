"""The example shops as processes of their own, started by the commands of their README.md."""

import asyncio
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from payasync.sandbox import Sandbox
from tests.chaos.forked import Forked
from tests.cli.sandbox_process import environment, free_address

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NAMES: Final = ("aiohttp_shop", "fastapi_shop")
PASSWORD: Final = "open sesame"
READY: Final = ("unning on http", "waits a minute")
PROGRAM: Final = Path(__file__).with_name("shop_process.py")


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
        words: list[str] = line.replace("127.0.0.1", self.host).replace("8000", self.port).split()
        return words


@asynccontextmanager
async def serving(place: Place, sandbox: Sandbox, **variables: str) -> AsyncGenerator[Forked]:
    """Run a shop until the block ends, unless it was killed; it must not complain.

    The block begins after the shop has asked about all orders for the first time: what a test then changes in the
    shop's database, no earlier question contradicts.

    Args:
        place: Where the shop lives.
        sandbox: The service that it pays at.
        variables: More of its environment.
    """
    environ = {
        **environment(sandbox),
        "MINUTE": "60",
        "SHOP_URL": place.url,
        "SHOP_ADMIN_PASSWORD": PASSWORD,
        "SHOP_FOLDER": str(place.folder),
        **variables,
    }
    said: list[str] = []
    ready = asyncio.Event()
    with Forked(PROGRAM, *place.command(), environment=environ, folder=EXAMPLES / place.name) as process:
        reading = asyncio.create_task(asyncio.to_thread(_read, process, said, asyncio.get_running_loop(), ready))
        await ready.wait()
        assert _is_ready(said), "".join(said)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            await reading
    assert "Traceback" not in "".join(said), "".join(said)


def _read(process: Forked, said: list[str], loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> None:
    """Read what a shop writes until its end, so that it never waits for a reader."""
    for line in process.stdout:
        said.append(line)
        if _is_ready(said):
            loop.call_soon_threadsafe(ready.set)
    loop.call_soon_threadsafe(ready.set)


def _is_ready(said: list[str]) -> bool:
    """Return whether a shop has opened its port, and waits for the first time."""
    return all(any(sign in line for line in said) for sign in READY)
