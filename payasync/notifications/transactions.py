"""A handler inside a transaction of the caller's own: its effect, and the mark that it is done, commit together.

The mark is a row in a table beside the effect. So an event that is dispatched again, after a crash between that
commit and the inbox's, finds its mark, and has no second effect.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias

from payasync.errors import ConfigurationError
from payasync.notifications.drivers import Begin, changes, entered
from payasync.notifications.marks import marking
from payasync.notifications.proving import SWALLOWED, prove, wrong

logger: Final = logging.getLogger("payasync.notifications")

Within: TypeAlias = Callable[[Any], Awaitable[object]]
"""What is done with the connection of a transaction."""

PATIENCE: Final = 10.0
"""Seconds that a receiver waits, as it starts, for a database: what comes is kept without it."""


class Transactions:
    """The transactions that a function of the caller's begins.

    Args:
        begin: Returns a context manager, plain or not, that gives a connection.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._proven = False
        self._turn: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def once(self, digits: str, at: datetime, handle: Within) -> bool:
        """Do something in a transaction, and mark it; `False` where it has been marked before, and was left undone.

        Args:
            digits: The mark.
            at: Now.
            handle: Gets the connection.

        Raises:
            ConfigurationError: The transaction is none, gives no connection, or swallows an error, or its driver does
                not say what it did.
        """
        await self.prove()
        ends = list[bool]()
        async with entered(self._begin) as connection:
            fresh = await changes(connection, marking(digits, at))
            if fresh:
                await handle(connection)
            ends.append(fresh)
        if not ends:
            raise wrong(SWALLOWED)
        return ends[0]

    async def prove(self) -> None:
        """Prove that it commits, and undoes on an error; once is enough.

        Raises:
            ConfigurationError: It does not.
        """
        if self._proven:
            return
        loop = asyncio.get_running_loop()
        if self._turn is None or self._loop is not loop:
            self._turn, self._loop = asyncio.Lock(), loop
        async with self._turn:
            if not self._proven:
                await prove(self._begin)
                self._proven = True


async def prove_all(transactions: Iterable[Transactions]) -> None:
    """Prove transactions before the first event comes; one whose database does not answer now is left until then.

    Raises:
        ConfigurationError: One loses what is done in it, or leaves what an error should undo.
    """
    proofs = await asyncio.gather(*map(_proven, transactions), return_exceptions=True)
    for error in proofs:
        if isinstance(error, ConfigurationError):
            raise error
    for error in proofs:
        if error is not None:
            about = type(error).__name__
            logger.warning("a handler's transaction cannot be proven yet: %s. Its events wait in the inbox", about)


async def _proven(transactions: Transactions) -> None:
    async with asyncio.timeout(PATIENCE):
        await transactions.prove()
