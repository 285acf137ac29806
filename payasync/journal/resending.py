"""A journal for a session that sends a write again, whose sender is told when there is an end that is being kept."""

from collections.abc import Awaitable, Callable

from payasync.calls import Call, Layer, Reply, Send
from payasync.journal.journal import Journal
from payasync.requests import Request
from payasync.responses import Response


class Resending:
    """The half of a journal that a session uses, and of the way below it, whether that has come to its end.

    Args:
        journal: Keeps the write.
        ended: Called once there is an answer, or an error that tells what became of it: all that follows is kept.
    """

    def __init__(self, journal: Journal, ended: Callable[[], None]) -> None:
        self._journal = journal
        self._ended = ended

    @property
    def recorder(self) -> "Resending":
        """What keeps the writes."""
        return self

    def layer(self, merchant: str, service: str) -> Layer:
        """Return the journal's own layer, around one that hears of the end."""
        recorded = self._journal.recorder.layer(merchant, service)

        def layer(call: Call, send: Send) -> Awaitable[Reply]:
            return recorded(call, lambda sent: self._heard(sent, send))

        return layer

    async def queued(self, intent_id: int, merchant: str) -> Request[Response]:
        """Return a request that was queued."""
        return await self._journal.recorder.queued(intent_id, merchant)

    async def note(self, intent_id: int, reason: str) -> bool:
        """Keep why what waits to be sent cannot be."""
        return await self._journal.note(intent_id, reason)

    async def _heard(self, call: Call, send: Send) -> Reply:
        try:
            reply = await send(call)
        except Exception:
            self._ended()
            raise
        self._ended()
        return reply
