import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from payasync import Secret
from tests.chaos.gauges import measured

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it under /proc"),
]

FEW = ("files", "sockets", "tasks", "threads", "ours")


def a_file(stack: ExitStack) -> None:
    """Open a file."""
    stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def a_socket(stack: ExitStack) -> None:
    """Open a socket."""
    stack.enter_context(socket.socket())


def a_task(stack: ExitStack) -> None:
    """Begin a task."""
    stack.callback(asyncio.create_task(asyncio.Event().wait()).cancel)


def a_thread(stack: ExitStack) -> None:
    """Begin a thread."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    stack.callback(thread.join)
    stack.callback(ended.set)


def an_object(stack: ExitStack) -> None:
    """Make an object of one of our classes."""
    stack.enter_context(ExitStack()).callback(str, Secret("k"))


@pytest.mark.parametrize(
    ("gauge", "make"),
    [("files", a_file), ("sockets", a_socket), ("tasks", a_task), ("threads", a_thread), ("ours", an_object)],
)
async def test_each_gauge_sees_one_more(gauge: str, make: Callable[[ExitStack], Any]) -> None:
    """One more of each is one more, and of nothing else; one that has ended is none."""
    before = measured(1)
    with ExitStack() as stack:
        make(stack)
        during = measured(2)
    await asyncio.sleep(0)
    after = measured(3)

    assert {name: int(name == gauge) for name in FEW} == {
        name: getattr(during, name) - getattr(before, name) for name in FEW
    }
    assert getattr(before, gauge) == getattr(after, gauge)
