"""A payment service that never de-duplicates, and what it has really done. It shares no code with the sandbox."""

import asyncio
import json
from typing import Any, Final

from attrs import define, field

from tests.simulation.world import Process, World

ADDRESS: Final = ("127.0.0.1", 8080)
REFUND: Final = "/payment/refund"
STATUS: Final = "/payment/refund/status"
REASONS: Final = {200: "OK", 404: "Not Found", 409: "Conflict", 429: "Too Many Requests", 503: "Service Unavailable"}


@define
class Habits:
    """How the service behaves, by probability or in seconds.

    Attributes:
        late: The most seconds from the receipt of a write to its commit.
        stale: Seconds by which the replica that answers queries may be behind.
        declines: How probable it is that a refund is declined.
        silent: How probable it is that a response is lost after the commit.
        broken: How probable it is that a request is refused with 503 before anything is done.
    """

    late: float = 0.0
    stale: float = 0.0
    declines: float = 0.0
    silent: float = 0.0
    broken: float = 0.0


@define
class Ledger:
    """What the service has done.

    Attributes:
        effects: The moments at which each refund was made.
        declined: The numbers that were declined, with the moment.
        received: How often each number was received.
    """

    effects: dict[str, list[float]] = field(factory=dict)
    declined: dict[str, float] = field(factory=dict)
    received: dict[str, int] = field(factory=dict)


class Service:
    """Answers refunds and queries about them."""

    def __init__(self, world: World, habits: Habits) -> None:
        self.habits: Final = habits
        self.ledger: Final = Ledger()
        self._world = world
        self._process: Process = world.process("service")
        self._serving = self._process.start(self._process.loop.create_server(lambda: Connection(self), *ADDRESS))

    async def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]] | None:
        """Return the response to a request, or `None` if it gets none."""
        draw = self._world.random.random
        if draw() < self.habits.broken:
            return 503, {}
        fields: dict[str, Any] = json.loads(body) if body else {}
        number = str(fields.get("outRefundNo", ""))
        if path == STATUS:
            return self._status(number, fields)
        ledger = self.ledger
        ledger.received[number] = ledger.received.get(number, 0) + 1
        await asyncio.sleep(self._world.random.uniform(0, self.habits.late))
        if draw() < self.habits.declines:
            ledger.declined.setdefault(number, self._world.now)
            response = 200, self._said(number, "REFUND_FAILED", fields)
        else:
            ledger.effects.setdefault(number, []).append(self._world.now)
            response = 200, self._said(number, "SUCCEEDED", fields)
        return None if draw() < self.habits.silent else response

    def _status(self, number: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        seen = self._world.now - self._world.random.uniform(0, self.habits.stale)
        if any(each <= seen for each in self.ledger.effects.get(number, ())):
            return 200, self._said(number, "SUCCEEDED", fields)
        if self.ledger.declined.get(number, seen + 1) <= seen:
            return 200, self._said(number, "REFUND_FAILED", fields)
        return 404, {"code": "SBX_NOT_FOUND"}

    @staticmethod
    def _said(number: str, state: str, fields: dict[str, Any]) -> dict[str, Any]:
        about = {
            "merchantId": "M1",
            "outTradeNo": fields.get("outTradeNo", number.replace("R", "T")),
            "outRefundNo": number,
        }
        amounts = {"totalAmt": 450, "refundAmt": 200}
        return {"code": "SBX_OK", "status": f"SBX_{state}", **about, **amounts}


class Connection(asyncio.Protocol):
    """Reads requests with a length, and answers one after the other."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._received = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer a request as soon as it is whole."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(body) >= int(headers.get("content-length", "0")):
            self._received = b""
            self._answering = asyncio.get_running_loop().create_task(self._answer(first.split(" ")[1], body))

    async def _answer(self, target: str, body: bytes) -> None:
        path, _, query = target.partition("?")
        if query:
            body = json.dumps(dict(each.split("=") for each in query.split("&"))).encode()
        found = await self._service.answer(path, body)
        if found is None:
            self._transport.abort()
            return
        status, fields = found
        content = json.dumps(fields).encode()
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        )
        self._transport.write(f"{head}\r\n\r\n".encode() + content)
