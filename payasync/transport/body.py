"""A request body that is written once, and remembers that it was begun."""

from typing import TYPE_CHECKING, Any

from aiohttp.payload import Payload

from payasync.transport.stray import stray

if TYPE_CHECKING:
    from asyncio import WriteTransport
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter


class OneShotBody(Payload):
    """The only proof of whether anything left this machine: a body that marks the start of its own write.

    aiohttp writes the head together with the body, so before `write` no byte is handed to a socket. Once begun
    it reports itself as consumed, and aiohttp sends a consumed body to no second connection: that stops its own
    re-send of GET, PUT and DELETE after a dropped connection, which has no public switch.

    Args:
        content: The bytes.
        has_content: Without it the request has no body, as a GET: then there are no bytes and no Content-Type.
    """

    def __init__(self, content: bytes, *, has_content: bool = True) -> None:
        super().__init__(content, content_type="application/json")
        if not has_content:
            self.headers.clear()
            self.headers["Accept"] = "application/json"  # aiohttp wants a payload to have a header
        self._content = content
        self._size = len(content)
        self.begun = False
        self.on_start: Callable[[], None] | None = None
        self._transport: WriteTransport | None = None

    @property
    def consumed(self) -> bool:
        """Whether it was begun."""
        return self.begun

    @property
    def autoclose(self) -> bool:
        """It holds nothing that must be closed."""
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return self._content.decode(encoding, errors)

    async def write(self, writer: "AbstractStreamWriter") -> None:
        """Mark the start, then write; but not where an answer stands already, which is none to this request.

        Raises:
            ConnectionResetError: The connection holds what nobody asked for.
        """
        wire: Any = writer
        if stray(wire):
            raise ConnectionResetError("the connection holds what nobody asked for")
        self._transport = wire.transport
        self.begun = True
        if self.on_start is not None:
            self.on_start()
        await writer.write(self._content)

    def abort(self) -> None:
        """Write no more: closing a transport, as aiohttp does, lets it send what it still holds."""
        if self._transport is None:
            return
        connection = self._transport.get_extra_info("socket")
        if connection is None or connection.fileno() >= 0:  # asyncio fails at aborting what is lost already
            self._transport.abort()
