"""Where something listens: on this machine alone."""

import asyncio
import errno
import ipaddress
import socket
from typing import Final

from payasync.errors import ConfigurationError

_MOST: Final = 0xFFFF
_KEYS: Final = "the sandbox's keys are for everybody who can reach it"


def listen(host: str, port: int, *, because: str = _KEYS) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: A loopback address: `localhost` (which is 127.0.0.1), one in 127.0.0.0/8, or `::1`.
        port: 0: a free one.
        because: Why nobody else may reach it.

    Raises:
        ConfigurationError: The host is not this machine alone, or the port cannot be had.
    """
    address = loopback(host, because)
    if type(port) is not int or not 0 <= port <= _MOST:
        raise ConfigurationError(f"port: cannot listen on {port!r}: it must be 0 to {_MOST}", field="port")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        why = _reason(error)
    raise ConfigurationError(f"port: cannot listen on {_netloc(address, port)}: {why}", field="port")


def url_of(listening: socket.socket) -> str:
    """Return the URL of what listens; an IPv6 address stands in brackets."""
    host, port, *_ = listening.getsockname()
    return f"http://{_netloc(host, port)}"


async def turns() -> None:
    """Let the loop finish what it has begun: a connection that it has just accepted, or is closing."""
    for _ in range(3):
        await asyncio.sleep(0)


def loopback(host: str, because: str = _KEYS) -> str:
    """Return the address of a host that is this machine alone.

    Raises:
        ConfigurationError: It is another, or a name whose address somebody else decides.
    """
    if host == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or str(address) != host or not (address.is_loopback and _plain(address)):
        raise ConfigurationError(
            f"host must be this machine alone: 127.0.0.1, another of 127.0.0.0/8, ::1 or localhost, not {host!r}; "
            f"{because}",
            field="host",
        )
    return host


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.version == 4 or address == ipaddress.IPv6Address("::1")  # noqa: PLR2004 - the IP version


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "it is in use: stop what listens there, or choose another port"
    return error.strerror or str(error)
