"""Bytes that nobody asked for: what stands on a connection before its request begins is no answer to it.

A duplicate or late answer, a 408 before an idle close, or the close itself: a request that is written then could be
taken for answered, or be lost without anybody knowing. Seen before the first byte leaves, each is provably unsent.
"""

import select
import weakref
from typing import Any, Final

_used: Final["weakref.WeakSet[Any]"] = weakref.WeakSet()
"""TLS connections that carried a request; on a fresh one the service's session tickets may wait to be read."""


def stray(writer: Any) -> bool:
    """Return whether a connection holds anything to read, in its parser or still in the kernel.

    Args:
        writer: aiohttp's `StreamWriter` of the request that is about to begin.
    """
    protocol, transport = writer.protocol, writer.transport
    if transport is None or protocol.should_close:
        return True
    if transport.get_extra_info("ssl_object") is not None and protocol not in _used:
        _used.add(protocol)
        return False
    connection = transport.get_extra_info("socket")
    return connection is not None and _readable(connection.fileno())


def _readable(descriptor: int) -> bool:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])
