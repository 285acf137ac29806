"""The refund of `bare_journal` on PostgreSQL: hand-written aiohttp, and two statements that commit themselves."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson
from psycopg import AsyncConnection

from benchmarks.bare_journal import PATH, signed

CONNECTIONS: Final = 10
TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS bare_refunds "
    "(number text PRIMARY KEY, state text, request text, outcome text, updated timestamptz)"
)
BEGIN: Final = "INSERT INTO bare_refunds (number, state, request, updated) VALUES (%s, 'sending', %s, now())"
END: Final = "UPDATE bare_refunds SET state = %s, outcome = %s, updated = now() WHERE number = %s"


@asynccontextmanager
async def bare_refunding_postgres(base: str, dsn: str) -> AsyncGenerator[Callable[[str], Awaitable[object]]]:
    """Give what makes a refund of a number, recorded in a table of its own."""
    idle: asyncio.LifoQueue[AsyncConnection[Any]] = asyncio.LifoQueue()
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = await stack.enter_async_context(await AsyncConnection.connect(dsn, autocommit=True))
            connection.prepare_threshold = 0
            idle.put_nowait(connection)
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def run(statement: Any, *values: object) -> None:
            connection = await idle.get()
            try:
                await connection.execute(statement, values)
            finally:
                idle.put_nowait(connection)

        async def refund(number: str) -> None:
            await run(BEGIN, number, orjson.dumps({"totalAmt": 450, "refundAmt": 1}).decode())
            async with http.post(f"{base}{PATH}", json=signed(number)) as response:
                result: dict[str, Any] = await response.json()
            state = "succeeded" if result["code"] == "OK" else "rejected"
            await run(END, state, orjson.dumps(result).decode(), number)

        await run(TABLE)
        yield refund
