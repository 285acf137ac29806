"""What a run of the reconciler had begun when it was interrupted comes to its end, as far as that is near."""

import asyncio
import logging
from typing import Final

logger = logging.getLogger("payasync")

HELD: Final = 5.0
"""Seconds that a run which is interrupted waits for its journal, at most: as it keeps something, or claims it."""


class Interruptions:
    """What goes on after the runs that had begun it."""

    def __init__(self) -> None:
        self._left: set[asyncio.Task[None]] = set()

    async def outlast(self, task: asyncio.Task[None]) -> None:
        """Wait for a task, but not for long: it goes on by itself then, and what it fails of is logged."""
        self._left.add(task)
        task.add_done_callback(self._over)
        await asyncio.wait({task}, timeout=HELD)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._left.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.warning("what an interrupted run had begun has failed", exc_info=error)
