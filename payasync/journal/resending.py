"""Sends again what was queued and never arrived, and knows when there is an end that is being kept."""

import logging
from collections.abc import Awaitable, Callable

from payasync.calls import Call, Layer, Reply, Send
from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    PayasyncError,
    SessionClosedError,
    StorageError,
)
from payasync.events import Event
from payasync.journal import findings
from payasync.journal.findings import Evidence, Finding
from payasync.journal.intents import Intent
from payasync.journal.journal import Journal
from payasync.journal.reconciling import End, Result, Turn
from payasync.requests import Request
from payasync.responses import Response
from payasync.session import Session

logger = logging.getLogger("payasync")


class Resending:
    """Sends writes again, each under its own number.

    Args:
        session: Whose writes they are.
        journal: What is sent again is kept where it was asked about, whatever journal the session has.

    Raises:
        ConfigurationError: The session cannot have that journal, as its calls may take too long, for example.
    """

    def __init__(self, session: Session, journal: Journal) -> None:
        self._session = session.with_options(journal=journal)
        self._journal = journal

    async def sent(self, turn: Turn) -> Evidence | None:
        """Send a queued write again; the session keeps what becomes of it. Return why it could not, if so."""
        held, session = turn.held, self._session.with_options(journal=Listening(self._journal, turn.end))
        try:
            await session.execute(held.id, fence=held.fence)
        except (ConfigurationError, InvalidArgumentError) as error:
            return Evidence(finding=Finding.UNCLEAR, reason=f"cannot be sent again: {error.args[0]}")
        except (SessionClosedError, StorageError):
            raise
        except PayasyncError as error:
            logger.debug("intention %d was sent again: %s", held.id, error)
        except Exception as error:
            logger.warning("intention %d was sent again, if at all, with an error", held.id, exc_info=True)
            return await self._failed(held, error)
        return None

    async def _failed(self, held: Intent, error: Exception) -> Evidence | None:
        """Return why it could not be sent, unless it was begun: the session has kept then what became of it."""
        now = await self._journal.get(held.id)
        return None if now is None or now.fence != held.fence else findings.failed(error)

    async def result(self, held: Intent) -> Result:
        """Return what it came to that an intention was sent again."""
        now = await self._journal.get(held.id)
        if now is None or now.attempts == held.attempts:
            return Result(intent=held, end="lost", state=held.state)
        if now.fence != held.fence + 1:
            # Somebody has asked about it since, or was told of it: what that came to is theirs to say.
            return Result(intent=held, end="sent", state="sending")
        end: End = "manual" if now.state == "manual" else "sent"
        return Result(intent=held, end=end, state=now.state, reason=now.reason)


class Listening:
    """The half of a journal that a session uses, and of the way below it, whether that has come to its end.

    Args:
        journal: Keeps the write.
        ended: Called once there is an answer, or an error that tells what became of it: all that follows is kept.
    """

    def __init__(self, journal: Journal, ended: Callable[[], None]) -> None:
        self._journal = journal
        self._ended = ended

    @property
    def recorder(self) -> "Listening":
        """What keeps the writes."""
        return self

    def layer(self, merchant: str, service: str, tell: Callable[[Event], None] | None = None) -> Layer:
        """Return the journal's own layer, around one that hears of the end."""
        recorded = self._journal.recorder.layer(merchant, service, tell)

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
