"""Bytes that nobody asked for: what stands on a connection before its request begins is no answer to it.

A duplicate or late answer, a 408 before an idle close, or the close itself: a request that is written then could be
taken for answered, or be lost without anybody knowing. Seen before the first byte leaves, each is provably unsent.
"""

import select
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import ref

_readable: Final[dict["ref[Any]", Callable[[], object]]] = {}
"""By connection that carried a request, while it lives: whether the kernel holds anything of it to read."""


def stray(protocol: Any) -> bool:
    """Return whether a connection holds anything to read, in its parser or still in the kernel.

    Args:
        protocol: aiohttp's, of the connection on which a request is about to begin.
    """
    if protocol.should_close or protocol.transport is None:
        return True
    readable = _readable.get(ref(protocol))
    if readable is None:
        readable = _readable[ref(protocol, _readable.pop)] = _looking(protocol.transport)
        if protocol.transport.get_extra_info("ssl_object") is not None:
            return False  # on a fresh TLS connection the service's session tickets may wait to be read
    return bool(readable())


def _looking(transport: Any) -> Callable[[], object]:
    connection = transport.get_extra_info("socket")
    if connection is None:
        return bool
    if not hasattr(select, "poll"):
        return lambda: select.select([connection.fileno()], [], [], 0)[0]
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return partial(poll.poll, 0)
