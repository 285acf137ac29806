"""What this process holds: memory, objects, descriptors and tasks, measured on Linux by /proc."""

import asyncio
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from payasync import Call, Reply, Send
from tests.chaos.growth import Sample

PROC: Final = Path("/proc/self")


def measured(operations: int) -> Sample:
    """Return what this process holds now, in one turn of the loop."""
    gc.collect()
    classes = census()
    opened = list(descriptors())
    sockets = sum(each.startswith("socket:") for each in opened)
    return {
        "operations": operations,
        "resident": int((PROC / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "blocks": sys.getallocatedblocks(),
        "objects": classes.total(),
        "ours": sum(count for name, count in classes.items() if name.startswith("payasync.")),
        "sockets": sockets,
        "files": len(opened) - sockets,
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
    }


def census() -> Counter[str]:
    """Return how many objects there are of each class, of those that the garbage collector knows."""
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, gc.get_objects()))


def descriptors() -> Iterator[str]:
    """Yield what each open descriptor stands for."""
    for each in (PROC / "fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            yield str(each.readlink())


PER_DESCRIPTOR: Final = 100
"""After so many calls, one more descriptor stays open."""
PER_TASK: Final = 25
SHOWN_BY: Final = ("blocks", "ours", "files", "tasks")
"""The gauges that must show it."""


class Leaks:
    """A leak for the control: it stores every reply, and now and then a descriptor and a task."""

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
