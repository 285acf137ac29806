"""The thread that writes a file."""

import atexit
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Final, TypeAlias

Work: TypeAlias = Callable[[], object]


class WriterThread:
    """Runs functions in a thread, one after the other.

    The thread begins with the first function. It ends when it is closed, when nobody refers to this object any more, or
    with the interpreter, but always after the functions that it was given. Functions that come later run immediately,
    in the thread that brings them.

    Args:
        name: The thread's.
    """

    # Not a `ThreadPoolExecutor`: its futures and semaphores take as long as a third of a transaction of one write.

    def __init__(self, name: str) -> None:
        self._name = name
        self._works: Final[SimpleQueue[Work | None]] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False
        weakref.finalize(self, self._works.put, None).atexit = False
        _OPEN.add(self)

    def submit(self, work: Work) -> None:
        """Run a function, which raises nothing, after all earlier ones."""
        with self._lock:
            if not self._closed and self._start():
                self._works.put(work)
                return
        work()

    def close(self) -> None:
        """End the thread after the functions that it was given. This does not wait."""
        with self._lock:
            self._closed = True
            self._works.put(None)

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join()

    def _start(self) -> bool:
        if self._thread is None:
            # A daemon, because Python would wait for any other thread before it calls `_close_all`.
            thread = Thread(target=_run, args=(self._works,), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending
                self._closed = True
                return False
            self._thread = thread
        return True


def _run(works: "SimpleQueue[Work | None]") -> None:
    while (work := works.get()) is not None:
        work()
        del work  # it may hold the last reference to its `WriterThread`


_OPEN: Final[weakref.WeakSet[WriterThread]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Finish what was begun before the interpreter ends."""
    threads = list(_OPEN)
    for thread in threads:
        thread.close()
    for thread in threads:
        thread.join()
