"""The soak's control: a layer that holds on to what it should let go of."""

import asyncio
import os
from typing import Final

from payasync import Call, Reply, Send

PER_DESCRIPTOR: Final = 100
"""After so many calls, one more descriptor stays open."""
PER_TASK: Final = 25
SHOWN_BY: Final = ("blocks", "ours", "files", "tasks")
"""The gauges that must show it."""


class Leaks:
    """Keeps every reply, and now and then a descriptor and a task."""

    def __init__(self) -> None:
        self._calls = 0
        self._replies: list[Reply] = []
        self._tasks: list[asyncio.Task[bool]] = []

    async def layer(self, call: Call, send: Send) -> Reply:
        """Pass a call on."""
        self._calls += 1
        if self._calls % PER_DESCRIPTOR == 0:
            os.open(os.devnull, os.O_RDONLY)
        if self._calls % PER_TASK == 0:
            self._tasks.append(asyncio.create_task(asyncio.Event().wait()))
        reply = await send(call)
        self._replies.append(reply)
        return reply
