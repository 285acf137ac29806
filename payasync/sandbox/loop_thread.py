"""A thread whose event loop holds something open, and what is called in it from any other."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any


class LoopThread:
    """A thread whose event loop holds something open.

    Args:
        held: Entered in the loop by `start`, and left by `close`.
        name: The thread's.
    """

    def __init__(self, held: AbstractAsyncContextManager[object], name: str) -> None:
        self._held = held
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        """Start the thread; what keeps it from starting is raised here."""
        self._thread.start()
        self._loop = self._ready.result()

    def close(self) -> None:
        """End what is held, and then the thread; what goes wrong in it is raised here."""
        if self._stop:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._ended.result()

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function in the loop's thread, and return what it returns; its errors cross as they are.

        A coroutine function is waited for; called in a running loop, it gives an awaitable instead, and that
        loop goes on meanwhile.
        """
        running = _running_loop()
        if running is self._loop:
            return function(*args, **named)
        future = asyncio.run_coroutine_threadsafe(_called(function, args, named), self._loop)
        if running is not None and inspect.iscoroutinefunction(function):
            return asyncio.wrap_future(future)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        try:
            asyncio.run(self._hold())
        except BaseException as error:  # noqa: BLE001 - it is raised again, by who waits
            first = self._ended if self._ready.done() else self._ready
            first.set_exception(error)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _hold(self) -> None:
        async with self._held:
            self._stop = asyncio.Event()
            self._ready.set_result(asyncio.get_running_loop())
            await self._stop.wait()


async def _called(function: Callable[..., Any], args: Any, named: Any) -> Any:
    result = function(*args, **named)
    return await result if inspect.isawaitable(result) else result


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
