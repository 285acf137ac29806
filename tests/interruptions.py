"""Exceptions that come at any moment of the main thread, as those of a signal do."""

import dis
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any, Final, TypeAlias

Tracer: TypeAlias = Callable[[FrameType, str, Any], Any]

LOOKS: Final = ("CALL", "JUMP_BACKWARD", "RESUME")
"""The beginnings of the names of the instructions after which Python looks whether a signal has come."""


class Interrupted(Exception):  # noqa: N818 - as Celery names its own
    """What the handler of a signal raises, for example at Celery's soft time limit."""


@contextmanager
def interruption(number: int, file: str = "") -> Generator[list[str]]:
    """Interrupt what this thread does inside, at one of the moments at which Python looks whether a signal has come.

    Args:
        number: How many such moments pass before, in functions that begin inside.
        file: The end of the name of the only file whose functions count.

    Yields:
        A list with the name of the interrupted function; empty as long as nothing is interrupted.
    """
    left, where = iter(range(number)), list[str]()
    last = dict[FrameType, str]()

    def trace(frame: FrameType, event: str, _: Any) -> Tracer | None:  # noqa: ARG001 - Python calls it so
        if where or not frame.f_code.co_filename.endswith(file):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return interrupt

    def interrupt(frame: FrameType, event: str, _: Any) -> Tracer:
        if event == "opcode" and not where:
            looks = last.get(frame, "").startswith(LOOKS)
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if looks and next(left, None) is None:
                where.append(frame.f_code.co_qualname)
                raise Interrupted
        return interrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(before)
        last.clear()


def moments(interrupt: Callable[[int], object]) -> int:
    """Call a function with 0, 1, 2 … until nothing is interrupted any more, so that it returns nothing true.

    Returns:
        At how many moments something was interrupted.
    """
    return next(number for number in count() if not interrupt(number))
