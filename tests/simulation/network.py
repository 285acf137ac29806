"""A network in memory, under aiohttp's own client and server code."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from tests.simulation.world import Process, close_socket

if TYPE_CHECKING:
    from tests.simulation.world import World

Address = tuple[str, int]


@define(eq=False)
class Habits:
    """What the network does to connections.

    Attributes:
        fastest: The least seconds that something takes.
        slowest: The most seconds that something takes.
        refused: How probable it is that a connection is refused.
        cut: How probable it is that a piece of data is lost in the middle, and the connection ends.
    """

    fastest: float = 0.001
    slowest: float = 0.05
    refused: float = 0.0
    cut: float = 0.0


class Network:
    """Connects the processes of a world.

    Attributes:
        world: The world.
        habits: What it does to connections.
        faults: How many connections were refused or cut.
    """

    def __init__(self, world: "World") -> None:
        self.world: Final = world
        self._servers = dict[Address, tuple[Process, Callable[[], Any]]]()
        self._targets = dict[int, Address]()
        self.habits = Habits()
        self.faults = 0

    def delay(self, name: str) -> float:
        """Draw how long something takes that a process sends."""
        return self.world.between(self.habits.fastest, self.habits.slowest, f"delay of {name}")

    def fails(self, what: str, probability: float) -> bool:
        """Draw whether something goes wrong."""
        wrong = probability > 0 and self.world.happens(what, probability)
        if wrong:
            self.faults += 1
            self.world.note(what)
        return wrong

    def listen(self, process: Process, factory: Callable[[], Any], address: Address) -> "Server":
        """Serve at an address until the process ends."""
        self._servers[address] = process, factory
        return Server(self, address)  # type: ignore[abstract] # the rest is not used

    def stop(self, address: Address) -> None:
        """Serve no more at an address."""
        self._servers.pop(address, None)

    async def connect(self, process: Process, sock: socket.socket, address: Any) -> None:
        """Wait until a server accepts a connection.

        Raises:
            ConnectionRefusedError: Nobody serves there, or the network refuses it.
        """
        await asyncio.sleep(self.delay(process.name))
        target = (address[0], address[1])
        if not self.serves(target) or self.fails(f"a connection of {process.name} is refused", self.habits.refused):
            close_socket(sock)
            raise ConnectionRefusedError(111, "refused")
        self._targets[sock.fileno()] = target

    def serves(self, address: Address) -> bool:
        """Return whether somebody serves at an address."""
        server = self._servers.get(address)
        return server is not None and not server[0].killed

    def open(self, process: Process, factory: Callable[[], Any], sock: socket.socket) -> tuple["Pipe", Any]:
        """Return the client's transport and protocol of an accepted connection."""
        return self.join(process, factory, self._targets.pop(sock.fileno()), sock)

    def join(
        self, process: Process, factory: Callable[[], Any], address: Address, sock: socket.socket | None = None
    ) -> tuple["Pipe", Any]:
        """Return the client's transport and protocol of a connection with who serves at an address."""
        server, serve = self._servers[address]
        near, far = Pipe(self, process, sock), Pipe(self, server, None)
        near.peer, far.peer = far, near
        for pipe in (near, far):
            pipe.process.connections.append(pipe)
        near.protocol = factory()
        far.protocol = server.run(serve)
        near.protocol.connection_made(near)
        server.run(lambda: server.loop.call_soon(far.protocol.connection_made, far))
        return near, near.protocol


class Server(asyncio.AbstractServer):
    """Serves at one address."""

    def __init__(self, network: Network, address: Address) -> None:
        self._network, self._address = network, address
        self.sockets = ()

    def close(self) -> None:
        """Serve no more."""
        self._network.stop(self._address)

    async def wait_closed(self) -> None:
        """Do nothing: it is closed."""


class Pipe(asyncio.Transport):
    """One end of a connection. Data arrives late, in the order in which it was written, or is cut off."""

    def __init__(self, network: Network, process: Process, sock: socket.socket | None) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._network, self.process, self._sock = network, process, sock
        self.peer: Pipe | None = None
        self.protocol: Any = None
        self._closing = False
        self._lost = False
        self._cut_off = False
        self._arrives = 0.0
        self._works = deque[Callable[[], object]]()

    def write(self, data: Any) -> None:
        """Send data."""
        if self._closing or not data or self.process.killed:
            return
        whole, name = bytes(data), self.process.name
        if self._network.fails(f"data of {name} is cut off", self._network.habits.cut):
            self._send(whole[: int(len(whole) * self._network.world.draw(f"place of a cut by {name}"))])
            # Both ends see a reset, or one sees an orderly end, in the middle of the data.
            self._end(self._network.world.choose([ConnectionResetError(104, "reset"), None], f"end of a cut by {name}"))
        else:
            self._send(whole)

    def writelines(self, list_of_data: Any) -> None:
        """Send several pieces of data as one."""
        self.write(b"".join(list_of_data))

    def _send(self, data: bytes) -> None:
        peer = self.peer
        if peer is not None and data:
            self._deliver(lambda: peer.call(lambda: peer.protocol.data_received(data)))

    def _deliver(self, call: Callable[[], object]) -> None:
        world = self._network.world
        self._arrives = max(world.now + self._network.delay(self.process.name), self._arrives + 1e-6)
        world.after(self._arrives - world.now, call)

    def call(self, work: Callable[[], object]) -> None:
        """Have the owner do something, unless the connection has ended."""
        if not self._lost and not self.process.killed:
            self._works.append(work)
            if len(self._works) == 1:
                self._turn(self._run_next)

    def _turn(self, work: Callable[[], object]) -> None:
        """Have the owner do something in the turn after the next: a real loop reads a connection once in each."""
        loop = self.process.loop
        self.process.run(lambda: loop.call_soon(loop.call_soon, work))

    def _run_next(self) -> None:
        if not self._lost:
            self._works.popleft()()
            if self._works:
                self._turn(self._run_next)

    def is_closing(self) -> bool:
        """Return whether nothing can be sent any more."""
        return self._closing

    def close(self) -> None:
        """End the connection after what was sent."""
        self._end(None)

    def abort(self) -> None:
        """Reset the connection."""
        self._end(ConnectionResetError(104, "reset"))

    def _end(self, error: Exception | None) -> None:
        if self._closing or self._cut_off:
            return
        self._closing = True
        peer = self.peer
        if peer is not None:
            self._deliver(lambda: peer.hang_up(error))
        self.call(lambda: self._lose(None))

    def cut_off(self) -> None:
        """Reset the connection, because the process was killed. It can do nothing more with it."""
        self.abort()
        self._cut_off = True

    def hang_up(self, error: Exception | None) -> None:
        """Notice that the other end has ended."""
        if not self._lost:
            self._closing = True
            self.call(lambda: self._lose(error))

    def _lose(self, error: Exception | None) -> None:
        self._lost = True
        if self in self.process.connections:
            self.process.connections.remove(self)
        if self._sock is not None:
            close_socket(self._sock)
        self.protocol.connection_lost(error)

    def get_protocol(self) -> Any:
        """Return who gets the data."""
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        """Have another protocol get the data."""
        self.protocol = protocol

    def is_reading(self) -> bool:
        """Return that data is read."""
        return True

    def pause_reading(self) -> None:
        """Do nothing: bodies are short."""

    def resume_reading(self) -> None:
        """Do nothing, as above."""

    def get_write_buffer_size(self) -> int:
        """Return that all was sent."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: all is sent at once."""
