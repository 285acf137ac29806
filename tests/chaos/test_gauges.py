import asyncio
import gc
import os
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable, Generator
from contextlib import ExitStack
from mmap import PAGESIZE, mmap
from typing import Any

import pytest

from chaos.gauges import Before, measured
from payasync import Secret

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it under /proc")

BYTES = 1 << 24
FEW = ("files", "sockets", "tasks", "threads", "ours")


@pytest.fixture
def tracing() -> Generator[None]:
    """Memory is traced."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


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


async def test_memory() -> None:
    """Pages that are held are seen; of its own, so that none that was let go of stands in for them."""
    before = measured(1).resident
    with mmap(-1, BYTES) as held:
        for page in range(0, BYTES, PAGESIZE):
            held[page] = 1
        during = measured(2).resident

    assert BYTES == pytest.approx(during - before, rel=0.5)


async def test_blocks() -> None:
    """What is no container is seen, too."""
    before = measured(1).blocks
    held = [f"{number:100}" for number in range(10_000)]
    during = measured(2).blocks

    assert 10_000 == pytest.approx(during - before, rel=0.2)
    assert 10_000 == len(held)


async def test_objects() -> None:
    """A container is an object, whoever made it."""
    before = measured(1).objects
    held: list[list[int]] = [[] for _ in range(1000)]
    during = measured(2).objects

    assert 1000 == pytest.approx(during - before, rel=0.2)
    assert 1000 == len(held)


class Knot:
    """Holds on to itself."""

    def __init__(self) -> None:
        self.itself = self


async def test_garbage() -> None:
    """What nobody can reach any more is not held, whether it was collected by then or not."""
    before = measured(1).objects
    with ExitStack() as stack:
        stack.callback(gc.enable)
        gc.disable()
        for _ in range(1000):
            Knot()
        after = measured(2).objects

    assert after - before < 500


def test_what_there_is_more_of() -> None:
    """Who searches for a leak is told its class."""
    held = [Secret(f"{number}") for number in range(3000)]
    before = Before()
    held += [Secret(f"{number}") for number in range(1000)]

    assert ["payasync.secret.Secret: +1,000"] == [line for line in before.more() if "Secret" in line]
    assert 4000 == len(held)


@pytest.mark.usefixtures("tracing")
def test_lines_that_made_it() -> None:
    """Where memory is traced, the line is told, too."""
    before = Before()
    held = [Secret(f"{number}") for number in range(1000)]

    assert [] != [line for line in before.more() if "test_gauges.py" in line]
    assert 1000 == len(held)
