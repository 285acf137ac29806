"""Writes that nobody would ask for again: tried until they succeed, since a full disk does not stay full."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from payasync.errors import ConfigurationError
from payasync.sandbox.values import RefusedError

T = TypeVar("T")
PAUSE: Final = 0.25
"""Seconds between two tries, unless somebody asks for one before."""


class Insistence:
    """Tries writes until they succeed, and tells who asks whether one of them fails just now."""

    def __init__(self) -> None:
        self._why = ""
        self._failing = asyncio.Event()
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Have what failed tried again at once; until then it counts as not failing."""
        self._failing.clear()
        self._asked.set()
        self._asked = asyncio.Event()

    async def failing(self) -> None:
        """Return when a write fails."""
        await self._failing.wait()

    def check(self) -> None:
        """Do nothing, unless a write fails.

        Raises:
            ConfigurationError: The last try failed.
        """
        if self._failing.is_set():
            raise ConfigurationError(f"db: {self._why}", field="db")

    async def done(self, write: Callable[[], T]) -> T:
        """Return what a write returns, once it has succeeded.

        Args:
            write: All or nothing; refused where the database cannot be written.
        """
        while True:
            try:
                written = write()
            except RefusedError as refused:
                self._why = refused.message
                self._failing.set()
                await self._pause()
            else:
                self._failing.clear()
                return written

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await self._asked.wait()
