"""A line between a session and the sandbox that loses an answer on demand, as networks do."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from yarl import URL


class LossyLine:
    """Passes bytes on, both ways, until it is told to lose the next answer.

    Args:
        url: The sandbox's.
    """

    def __init__(self, url: str) -> None:
        self._to = URL(url)
        self._losing = False
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self.lost = 0

    def lose_next_answer(self) -> None:
        """Deliver the next request, and cut the connection in place of its answer."""
        self._losing = True

    @property
    def url(self) -> str:
        """Where a session finds the line."""
        assert self._server is not None  # noqa: S101 - the context manager opened it
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        """Listen on a free port of this machine."""
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)

    async def close(self) -> None:
        """Cut everything."""
        if self._server is not None:
            self._server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _pass_on(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, out = await asyncio.open_connection(self._to.host, self._to.port)
        both = {asyncio.ensure_future(self._requests(near, out)), asyncio.ensure_future(self._answers(far, back))}
        self._passing |= both
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for writer in (out, back):
            writer.close()
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        self._passing -= both

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while part := await reader.read(65536):
                writer.write(part)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while part := await reader.read(65536):
                if self._losing:
                    self._losing = False
                    self.lost += 1
                    return
                writer.write(part)


@asynccontextmanager
async def lossy_line(url: str) -> AsyncGenerator[LossyLine]:
    """Open a line to the sandbox, and cut it at the end."""
    line = LossyLine(url)
    await line.open()
    try:
        yield line
    finally:
        await line.close()
