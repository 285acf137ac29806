"""Cancellations, in every phase of a call: nothing is left of it but the word of what is in doubt."""

import asyncio
import gc
import random
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from attrs import field, frozen

from payasync import Call, Event, Layer, Reply, RetryPolicy, Send, Session
from payasync.middleware.observe import Retrying, Unknown
from payasync.wire.response import Response
from tests.foreign import signatures
from tests.foreign.certificates import server_tls
from tests.foreign.recorder import PATIENCE, RESET, SILENT, Answer, Connection, Recorder, answer
from tests.inside import turns, until
from tests.matrix.cells import REFUND_QUERY, session
from tests.sessions import OK_BODY

NOBODY: Final = 10**6
"""The number of a call that none that is cancelled has."""
TURNS: Final = 40
"""Of the loop: more than a call takes that nothing holds up."""
SLOW: Final = RetryPolicy(base_delay=30, max_delay=30, quota=10**6)
"""Its waits are still going on when the test has long ended."""
QUICK: Final = RetryPolicy(base_delay=0.001, max_delay=0.002, quota=10**6)

Ask = Callable[[Session, int], Awaitable[Response]]

CALLS: Final[dict[str, Ask]] = {
    "create": lambda pay, number: pay.payments.create(amount=number, currency="USD"),
    "refund": lambda pay, number: pay.refunds.create(
        out_trade_no="T1", out_refund_no=f"R{number}", total_amt=1, refund_amt=1
    ),
    "query": lambda pay, number: pay.orders.query(f"T{number}"),
    "close": lambda pay, number: pay.orders.close(f"T{number}"),
    "status": lambda pay, number: pay.payments.status(f"P{number}"),
}
ALL: Final = tuple(CALLS.values())
REPEATED: Final = tuple(call for name, call in CALLS.items() if name != "create")
"""What a failing service is asked again, or about."""

LENGTH: Final = 3_000_000
LARGE: Final = {"padding": "x" * LENGTH}
"""More than the buffers of two sockets hold: without a reader its writing does not end."""
LARGE_CALLS: Final[tuple[Ask, ...]] = (
    lambda pay, number: pay.payments.create(amount=number, currency="USD", extra=LARGE),
    lambda pay, number: pay.orders.query(f"T{number}", extra=LARGE),
    lambda pay, number: pay.payments.status(f"P{number}", extra=LARGE),
)


class Deaf(Recorder):
    """A service that takes every connection, and reads nothing until it is asked for the ends."""

    def listen(self) -> None:
        """Open the door to a small room."""
        self._door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        super().listen()

    def _serve(self, connection: Connection) -> None:
        if isinstance(connection.stream, ssl.SSLSocket):
            connection.stream.do_handshake()
        connection.ended.wait(PATIENCE)
        super()._serve(connection)

    def wait_for_ends(self) -> None:
        """Read at last what has come, up to the end of each connection."""
        for connection in self.connections:
            connection.ended.set()
        super().wait_for_ends()


@frozen
class Stage:
    """A session with a service that holds its calls up in one phase.

    Attributes:
        service: The service.
        pay: The session.
        told: What `on_event` heard.
        calls: The attempts of the latest call, each with how far it has come.
    """

    service: Recorder
    pay: Session
    told: list[Event]
    calls: list[Call]

    def count(self, kind: type[Event]) -> int:
        """Return how many events of a kind there were."""
        return sum(isinstance(event, kind) for event in self.told)

    def begun(self, *, reads: bool = True) -> int:
        """Return how many attempts of the latest call have begun to leave this machine."""
        return sum(call.progress.begun for call in self.calls if reads or not call.read)

    def asked(self) -> int:
        """Return how many whole requests came."""
        return len(self.service.requests)


@frozen
class Phase:
    """Where calls are cancelled.

    Attributes:
        name: Of the phase.
        calls: Those that come to it.
        service: Makes the service.
        mark: What grows by one as a call has come there; without it, turns of the loop decide.
        further: So many turns of the loop more, at most.
        settings: Of the session.
        hold: Calls that hold its connections meanwhile.
        weight: How often it is chosen.
        scheme: What the address begins with.
    """

    name: str
    calls: tuple[Ask, ...]
    service: Callable[[], Recorder]
    mark: Callable[[Stage], int] | None = None
    further: int = 6
    settings: dict[str, Any] = field(factory=dict)
    hold: tuple[Ask, ...] = ()
    weight: int = 4
    scheme: str = "http:"


LATE_BY_CHANCE: Final = {"anywhere", "beside another"}
"""The phases in which a call may end before it is cancelled, once or each time."""
OK: Final = answer(200, OK_BODY, ("Connection", "close"))
HALF: Final = Answer(answer(200, OK_BODY.ljust(500)).raw[:-250])

PHASES: Final = (
    Phase("anywhere", ALL, partial(Recorder, otherwise=OK), further=TURNS),
    Phase(
        "in the pool's line",
        ALL,
        partial(Recorder, otherwise=SILENT),
        settings={"max_connections": 1},
        hold=(CALLS["create"], CALLS["query"]),
    ),
    Phase(
        "beside another",
        REPEATED,
        partial(Recorder, otherwise=OK, by_path={"/v1/payments": SILENT}),
        hold=(CALLS["create"],),
        further=TURNS,
    ),
    Phase("refused", ALL, partial(Recorder, listening=False), partial(Stage.count, kind=Retrying)),
    Phase(
        "handshake",
        ALL,
        partial(Recorder, otherwise=SILENT),
        lambda stage: sum(bool(each.received) for each in stage.service.connections),
        scheme="https:",
    ),
    Phase("write", LARGE_CALLS, Deaf, Stage.begun, weight=1),
    Phase("write over TLS", LARGE_CALLS, lambda: Deaf(tls=server_tls()), Stage.begun, weight=1, scheme="https:"),
    Phase("answer", ALL, partial(Recorder, otherwise=SILENT), Stage.asked),
    Phase("answer over TLS", ALL, lambda: Recorder(otherwise=SILENT, tls=server_tls()), Stage.asked),
    Phase("body", ALL, partial(Recorder, otherwise=HALF), Stage.asked, further=TURNS),
    Phase("wait", REPEATED, partial(Recorder, otherwise=answer(503, b"{}")), partial(Stage.count, kind=Retrying)),
    Phase(
        "question",
        (CALLS["refund"],),
        partial(Recorder, otherwise=RESET, by_path={REFUND_QUERY: SILENT}),
        lambda stage: stage.begun() - stage.begun(reads=False),
        settings={"retry": QUICK},
    ),
)


def noting(calls: list[Call]) -> Layer:
    """Return a layer that notes each attempt."""

    async def note(call: Call, send: Send) -> Reply:
        calls.append(call)
        return await send(call)

    return note


@asynccontextmanager
async def staged(phase: Phase) -> AsyncGenerator[Stage]:
    """Give a session with a service; behind it the session is closed, and the service saw every connection end."""
    told: list[Event] = []
    calls: list[Call] = []

    settings: dict[str, Any] = {"retry": SLOW, "on_event": told.append, "middleware": [noting(calls)], **phase.settings}
    with phase.service() as service:
        async with session(service, scheme=phase.scheme, **settings) as pay:
            stage = Stage(service, pay, told, calls)
            held = [asyncio.ensure_future(call(pay, NOBODY)) for call in phase.hold]
            await until(lambda: stage.asked() == len(held))
            yield stage
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)
        await asyncio.to_thread(service.wait_for_ends)


@frozen
class Trial:
    """One cancellation.

    Attributes:
        phase: Where.
        end: What the call ended as; `late` if it had ended before.
        doubt: How many writes had begun to leave this machine.
        told: How many were told of as unknown.
    """

    phase: str
    end: str
    doubt: int
    told: int


async def cancelled(phase: Phase, stage: Stage, number: int, chance: Random) -> Trial:
    """Cancel a call once it has come to the phase, and a few turns of the loop later."""
    stage.calls.clear()
    mark = phase.mark or (lambda _: 1)
    before, told_before = mark(stage), stage.count(Unknown)
    task = asyncio.ensure_future(chance.choice(phase.calls)(stage.pay, number))
    await until(lambda: phase.mark is None or mark(stage) > before)
    await turns(chance.randrange(phase.further))
    late = task.done()
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        (end,) = await asyncio.gather(task, return_exceptions=True)
    doubt, name = (0, "late") if late else (stage.begun(reads=False), type(end).__name__)
    return Trial(phase.name, name, doubt, stage.count(Unknown) - told_before)


def sockets() -> set[str]:
    """Return the sockets that this process has open, as Linux tells; elsewhere none, and the services' count stands."""
    found: set[str] = set()
    for each in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # that of the folder itself is gone again
            found.add(str(each.readlink()))
    return {name for name in found if name.startswith("socket:")}


def numbers(stage: Stage, path: str, name: str) -> list[object]:
    """Return what a field was in each request of an endpoint."""
    return [signatures.fields(request)[name] for request in stage.service.requests if request.path == path]


@pytest.mark.parametrize("many", [100, pytest.param(1000, marks=pytest.mark.long)])
async def test_cancelling_at_any_point(many: int) -> None:
    """A cancellation always ends the call, leaks nothing, reports each write in doubt, and never pays twice."""
    seed = random.randrange(2**32)  # noqa: S311 - which point it is guards nothing
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    chance = Random(seed)  # noqa: S311 - as above
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    gc.collect()  # sockets that other tests left
    tasks_before, sockets_before = asyncio.all_tasks(), sockets()
    async with AsyncExitStack() as stack:
        stages = [(phase, await stack.enter_async_context(staged(phase))) for phase in PHASES]
        chosen = [*stages, *chance.choices(stages, [phase.weight for phase in PHASES], k=many)]
        trials = [await cancelled(*where, number, chance) for number, where in enumerate(chosen, start=1)]
    gc.collect()
    await turns(TURNS)
    paid = [numbers(stage, "/v1/payments", "amount") for _, stage in stages]
    refunded = [numbers(stage, "/payment/refund", "outRefundNo") for _, stage in stages]

    assert [] == [trial for trial in trials if trial.told != trial.doubt]
    assert {"CancelledError"} == {trial.end for trial in trials} - {"late"}
    assert LATE_BY_CHANCE >= {trial.phase for trial in trials if trial.end == "late"}
    assert {phase.name for phase in PHASES} - LATE_BY_CHANCE <= {trial.phase for trial in trials if trial.end != "late"}
    assert [len(set(each)) for each in paid] == [len(each) for each in paid]
    assert [len(set(each)) for each in refunded] == [len(each) for each in refunded]
    assert (tasks_before, sockets_before) == (asyncio.all_tasks(), sockets())
    assert not [each for _, stage in stages for each in stage.service.connections if len(each.received) >= LENGTH]
    assert [] == complaints
