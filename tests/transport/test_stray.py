"""What is remembered of the connections that were looked at."""

import socket
from contextlib import closing
from typing import Any, Final

from attrs import define

from payasync.transport import stray as module
from payasync.transport.stray import stray

KNOWN: Final[Any] = vars(module)["_readable"]


@define(eq=False)
class Connection:
    """What is asked of aiohttp's protocol, and of its transport.

    Args:
        socket: What the kernel has of it.
    """

    socket: socket.socket
    should_close: bool = False

    @property
    def transport(self) -> Any:
        """Stand for the transport, too."""
        return self

    def get_extra_info(self, name: str) -> Any:
        """Return the socket; there is no TLS."""
        return self.socket if name == "socket" else None


def test_a_connection_that_is_gone_leaves_nothing_behind() -> None:
    """A connection is looked at in one way as long as it lives, and is forgotten with it."""
    here, peer = socket.socketpair()
    with closing(here), closing(peer):
        known = len(KNOWN)
        connection = Connection(here)
        silent, still = stray(connection), stray(connection)
        while_it_lives = len(KNOWN)
        peer.send(b"HTTP/1.1 408")
        spoken = stray(connection)
        del connection

        assert (False, False, True) == (silent, still, spoken)
        assert (known + 1, known) == (while_it_lives, len(KNOWN))
