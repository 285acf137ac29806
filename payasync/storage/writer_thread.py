"""The thread that writes a file."""

import os
import sys
import threading
import weakref
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread, main_thread
from typing import Final, Protocol, TypeAlias

Work: TypeAlias = Callable[[], object]


class Executor(Protocol):
    """Runs functions one after the other, as `WriterThread` does."""

    def submit(self, work: Work) -> None:
        """Run a function, which raises nothing, after all earlier ones. This does not wait."""

    def close(self) -> None:
        """End after the functions that it was given. This does not wait."""


class WriterThread:
    """Runs functions in a thread, one after the other.

    The thread begins with the first function. It ends when it is closed, when nobody refers to this object any more, or
    with the program, but always after the functions that it was given. Functions that come later run after its end, in
    the thread that brings them. After a fork, the child needs another one.

    Args:
        name: The thread's.
    """

    # Not a `ThreadPoolExecutor`: with its futures and semaphores, a lone refund takes 4 % more instructions.

    def __init__(self, name: str) -> None:
        self._name = name
        self._works: Final[SimpleQueue[Work | None]] = SimpleQueue()
        self._starting = Lock()
        self._thread: Thread | None = None
        self._closed = False
        weakref.finalize(self, self._works.put, None).atexit = False

    def submit(self, work: Work) -> None:
        """Run a function, which raises nothing, after all earlier ones.

        A signal may raise an exception anywhere in here, in the main thread. Then nothing stays locked, and the next
        call starts the thread if there is none.
        """
        if self._thread is None and not self._closed:
            self._start()
        self._works.put(work)
        if self._closed or self._thread is None:
            self._run_rest()

    def close(self) -> None:
        """End the thread after the functions that it was given. This does not wait."""
        self._closed = True
        self._works.put(None)

    def _start(self) -> None:
        """Start the thread. A program that ends, or has too many threads, starts none."""
        # Another thread does it, in which no signal raises: `threading` remembers wrong things when it is interrupted.
        started: SimpleQueue[None] = SimpleQueue()
        try:
            start_new_thread(self._start_here, (started,))
        except RuntimeError:
            return
        started.get()

    def _start_here(self, started: "SimpleQueue[None]") -> None:
        try:
            with self._starting, suppress(RuntimeError):
                if self._thread is None and _EXIT.close_later(self):
                    # Otherwise it would be a daemon, as this thread is.
                    thread = Thread(target=_run, args=(self._works,), name=self._name, daemon=False)
                    thread.start()
                    self._thread = thread
        finally:
            started.put(None)

    def _run_rest(self) -> None:
        """Run here what the thread does not run any more."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._works.put(None)  # in case that `close` was interrupted
            self._thread.join()
        with suppress(Empty):
            while True:
                if work := self._works.get_nowait():
                    work()


def _run(works: "SimpleQueue[Work | None]") -> None:
    while (work := works.get()) is not None:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a defect of ours: the file can be closed at least
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        del work  # it may hold the last reference to its `WriterThread`


class _Exit:
    """Closes all threads when the main thread has ended.

    Python waits for the writer threads then. The functions of `atexit` would be too late, and the children of
    multiprocessing call none of them.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the threads: after a fork they are the parent's."""
        self._lock = Lock()
        self._writers: weakref.WeakSet[WriterThread] = weakref.WeakSet()
        self._watcher: Thread | None = None
        self._ended = False

    def close_later(self, writer: WriterThread) -> bool:
        """Close a thread at the end. Return `False` if the end has come.

        Raises:
            RuntimeError: The program has too many threads.
        """
        with self._lock:
            self._ended = self._ended or not main_thread().is_alive()
            if not self._ended and self._watcher is None:
                # A daemon: a program may wait for all threads but daemons, and Python waits for the writers anyway.
                watcher = Thread(target=self._watch, name="payasync-exit", daemon=True)
                watcher.start()
                self._watcher = watcher
            self._writers.add(writer)
            return not self._ended

    def _watch(self) -> None:
        main_thread().join()
        with self._lock:
            self._ended = True
            writers = list(self._writers)
        for writer in writers:
            writer.close()


_EXIT: Final = _Exit()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_EXIT.forget)
