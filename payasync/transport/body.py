"""A request body that is written once, and remembers that it was begun."""

from typing import TYPE_CHECKING, Any

from aiohttp.payload import Payload

from payasync.transport.failures import stray

if TYPE_CHECKING:
    from asyncio import WriteTransport
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter


class OneShotBody(Payload):
    """The only proof of whether anything left this machine: a body that marks the start of its own write.

    aiohttp writes the head together with the body, so before `write` no byte is handed to a socket. It reports
    itself as consumed, and aiohttp sends a consumed body to no second connection: that stops its own re-send of
    GET, PUT and DELETE after a dropped connection, which has no public switch.

    Args:
        content: The bytes; without any the request has no body, as a GET, and no Content-Type.
    """

    begun = False
    on_connect: "Callable[[], None] | None" = None
    on_start: "Callable[[], None] | None" = None
    _transport: "WriteTransport | None" = None

    def __init__(self, content: bytes) -> None:
        super().__init__(content, content_type="application/json")
        if not content:
            self.headers.clear()
            self.headers["Accept"] = "application/json"  # aiohttp wants a payload to have a header
        self._content = content
        self._size = len(content)

    @property
    def consumed(self) -> bool:
        """Always: another connection is another attempt, with a nonce of its own, and aiohttp would take one."""
        return True

    @property
    def autoclose(self) -> bool:
        """It holds nothing that must be closed."""
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return self._content.decode(encoding, errors)

    async def write(
        self,
        writer: "AbstractStreamWriter",
        content_length: int | None = None,  # noqa: ARG002 - aiohttp gives the length of what is here
    ) -> None:
        """Mark the start, then write; but not where an answer stands already, which is none to this request.

        Raises:
            ConnectionResetError: The connection holds what nobody asked for.
            TimeoutError: It is too late to begin.
        """
        wire: Any = writer
        if stray(wire.protocol):
            raise ConnectionResetError("the connection holds what nobody asked for")
        self._transport = wire.transport
        if self.on_start is not None:
            self.on_start()
        self.begun = True
        await writer.write(self._content)

    write_with_length = write

    def abort(self) -> None:
        """Write no more: closing a transport, as aiohttp does, lets it send what it still holds."""
        if self._transport is None:
            return
        try:
            connection = self._transport.get_extra_info("socket")
        except AttributeError:  # of TLS, that is closed twice: then asyncio knows nothing of it any more
            return
        if connection is None or connection.fileno() >= 0:  # asyncio fails at aborting what is lost already
            self._transport.abort()
