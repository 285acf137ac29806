"""Exceptions that come at any moment of the main thread, as those of a signal do."""

import gc
import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any, Final

LOOKS: Final = frozenset({"call", "c_return"})
"""When Python looks whether a signal has come: at the beginning of a function, and after one that is written in C."""


class Interrupted(Exception):  # noqa: N818 - as Celery names its own
    """What the handler of a signal raises, for example at Celery's soft time limit."""


class Interruption:
    """Interrupts what this thread does inside: `with Interruption(0) as where`.

    `where` is a list with the name of the interrupted function; it is empty as long as nothing is interrupted.

    Args:
        number: How many moments pass before, at which Python looks whether a signal has come.
        file: The end of the name of the only file whose functions count.
    """

    def __init__(self, number: int, file: str = "") -> None:
        self._left = iter(range(number))
        self._file = file
        self._where: list[str] = []

    def __enter__(self) -> list[str]:
        self._before, self._collects = sys.getprofile(), gc.isenabled()
        gc.disable()  # an exception in a callback of the collector would only be printed
        sys.setprofile(self._look)
        return self._where

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)
        if self._collects:
            gc.enable()

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        counts = event in LOOKS and name != __file__ and name.endswith(self._file)
        if counts and not self._where and next(self._left, None) is None:
            self._where.append(frame.f_code.co_qualname)
            raise Interrupted


def moments(interrupt: Callable[[int], object]) -> int:
    """Call a function with 0, 1, 2 … until nothing is interrupted any more, so that it returns nothing true.

    Returns:
        At how many moments something was interrupted.
    """
    return next(number for number in count() if not interrupt(number))
