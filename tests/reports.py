"""Error reports as an error tracker makes them: tracebacks with the local variables of every frame."""

import asyncio
import contextlib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import CoroutineType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from payasync import Secret


def frames_of(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of an error's traceback."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        yield frame


def chain(error: BaseException) -> list[BaseException]:
    """Return an error and all its causes and contexts, suppressed ones included."""
    found = [error]
    for each in found:
        behind = (each.__cause__, each.__context__, *getattr(each, "exceptions", ()))
        found += [other for other in behind if other is not None and all(other is not one for one in found)]
    return found


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame belongs to payasync or a library, not to the caller."""
    return not frame.f_globals.get("__name__", "").startswith("tests.")


def texts(value: object) -> Iterator[str]:
    """Yield all texts and bytes inside a value, deeper than any error tracker looks."""
    seen: dict[int, object] = {}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | asyncio.AbstractEventLoop | Secret):
            continue  # of a secret all that anybody sees is its masked form
        seen[id(each)] = each
        if isinstance(each, str | int):
            yield str(each)
        elif isinstance(each, bytes | bytearray):
            yield bytes(each).decode("latin-1")
        else:
            with contextlib.suppress(Exception):
                yield repr(each)
            waiting += _inside(each)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return [each for pair in list(value.items()) for each in pair]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, partial | MethodType):
        names = ("func", "args", "keywords", "__self__", "__func__")
        return [getattr(value, name) for name in names if hasattr(value, name)]
    if isinstance(value, FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if _full(cell)]
    if isinstance(value, CoroutineType):
        return list(value.cr_frame.f_locals.values()) if value.cr_frame else []
    return _attributes(value)


def _attributes(value: object) -> list[object]:
    names = {name for kind in type(value).__mro__ for name in _slots(kind)}
    attributes = dict(getattr(value, "__dict__", {}))
    return [*attributes.values(), *(getattr(value, name) for name in names if hasattr(value, name))]


def _full(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _slots(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return [slots] if isinstance(slots, str) else slots


def report(error: BaseException, *, deep: bool = True) -> str:
    """Return all that an error tracker could store of an error."""
    shown = []
    for each in chain(error):
        captured = traceback.TracebackException(type(each), each, each.__traceback__, capture_locals=True)
        shown += [*captured.format(), repr(each), repr(vars(each))]
        if deep:
            shown += [text for frame in frames_of(each) if is_ours(frame) for text in texts(frame.f_locals)]
    return "\n".join(shown)
