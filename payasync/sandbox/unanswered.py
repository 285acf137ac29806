"""Why an attempt to deliver a notification got no answer, in plain words: the library's own name what it used."""

from typing import Final

import aiohttp

from payasync.transport.failures import phrase

SECONDS: Final = 5.0
"""How long a receiver may take."""


class ElsewhereError(OSError):
    """The address is not on this machine."""

    def __str__(self) -> str:
        return "the address is not on this machine: the sandbox notifies loopback addresses only"


def why(failure: Exception) -> str:
    """Return why no answer came; never with the address, which may hold what opens something."""
    cause = getattr(failure, "os_error", failure)
    if isinstance(cause, ElsewhereError):
        return str(cause)
    if isinstance(failure, aiohttp.ConnectionTimeoutError):
        return f"no connection within {SECONDS:g} seconds"
    if isinstance(failure, TimeoutError):
        return f"no answer within {SECONDS:g} seconds"
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return "its certificate cannot be trusted"
    return "the address cannot be used" if isinstance(failure, ValueError) else phrase(failure)
