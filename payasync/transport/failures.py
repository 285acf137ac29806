"""What aiohttp's errors mean, in our own: nothing foreign escapes; and bytes that came before their request."""

import os
import select
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import ref

import aiohttp

from payasync.errors import (
    ConfigurationError,
    NoAnswerError,
    NoAnswerTimeoutError,
    NotSentError,
    NotSentTimeoutError,
)


def finish(awaitable: Awaitable[object]) -> None:
    """Run to its end what waits for nothing but a turn of a loop; what waits for more is left there, and closed."""
    steps = awaitable.__await__()
    with suppress(StopIteration):
        while steps.send(None) is None:
            pass


class AnswerTooLargeError(aiohttp.ClientError):
    """The answer is longer than `max_response_bytes`."""


class NoFreeConnectionError(TimeoutError):
    """The time was over while the call waited for a connection of the pool."""


class LeaseOverError(TimeoutError):
    """The journal's lease on a write may be over, and another process may send it."""


_PHRASES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (aiohttp.ClientConnectorCertificateError, "the certificate of the service cannot be trusted"),
    (ssl.SSLCertVerificationError, "the certificate of the service cannot be trusted"),
    (aiohttp.ClientConnectorDNSError, "the host name does not resolve"),
    (aiohttp.ClientConnectorSSLError, "the TLS handshake failed"),
    (aiohttp.ClientProxyConnectionError, "the proxy does not answer"),
    (aiohttp.ClientHttpProxyError, "the proxy refused the connection"),
    (aiohttp.ConnectionTimeoutError, "no connection in time"),
    (LeaseOverError, "the journal's lease on this write is over"),
    (NoFreeConnectionError, "no connection was free in time: raise max_connections (with http, its connector's limit)"),
    (TimeoutError, "no answer in time"),
    (AnswerTooLargeError, "the answer is longer than max_response_bytes"),
    (aiohttp.ClientPayloadError, "the answer was cut short"),
    (aiohttp.ServerDisconnectedError, "the connection was closed before the answer"),
    (aiohttp.ClientResponseError, "the answer is not HTTP"),
)

_PERMANENT: Final = (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError, ConfigurationError)


def failure(error: BaseException, address: str, *, begun: bool) -> NotSentError | NoAnswerError:
    """Return what a failed attempt ends as.

    Args:
        error: What aiohttp raised.
        address: The base URL.
        begun: Whether the write had begun: only the writer can prove that nothing was sent.
    """
    timed_out = isinstance(error, TimeoutError)
    if begun:
        kind = NoAnswerTimeoutError if timed_out else NoAnswerError
        reason = phrase(error)
        return kind(f"no usable answer from {address}: {reason}", reason=reason, sent=None)
    # Both say themselves what was late.
    late = timed_out and not isinstance(error, LeaseOverError | NoFreeConnectionError)
    reason = "no connection in time" if late else phrase(error)
    unsent = NotSentTimeoutError if timed_out else NotSentError
    return unsent(
        f"nothing was sent to {address}: {reason}; repeating is harmless",
        reason=reason,
        sent=False,
        permanent=isinstance(error, _PERMANENT),
    )


def phrase(error: BaseException) -> str:
    """Return what happened in a few words, without the request's own."""
    if isinstance(error, ConfigurationError):
        return str(error)
    for kind, words in _PHRASES:
        if isinstance(error, kind):
            return words
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return "the connection failed"


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
