"""Calls in threads of their own, which `asyncio.to_thread` of the program cannot fill."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def call_in_thread(name: str, work: Callable[[], T]) -> "asyncio.Future[Future[T]]":
    """Begin to call a function in a daemon thread, which a program that ends does not wait for.

    Args:
        name: The thread's.
        work: The function.

    Returns:
        A future of the running loop, done when the function has ended. `(await called).result()` returns its result,
        or raises its error. Do not cancel the future: `asyncio.wait` and `asyncio.shield` leave it alone.
    """
    loop = asyncio.get_running_loop()
    called: asyncio.Future[Future[T]] = loop.create_future()

    def run() -> None:
        outcome = Future[T]()
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - passed on
            outcome.set_exception(error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(called.set_result, outcome)

    Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return called


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, in a thread without a loop, and return its result.

    Raises:
        RuntimeError: It suspends.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine cannot wait for something in a thread without an event loop")
