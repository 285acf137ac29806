"""A world of several processes in one thread, whose clocks stand still until nothing is left to do, by a seed."""

import asyncio
import heapq
import itertools
import socket
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, TypeVar, cast

from attrs import define

from payasync.clocks import Clocks, use_clocks

T = TypeVar("T")

EPOCH: Final = 1_800_000_000.0
"""The wall clock's time, in seconds since 1970, when a world begins."""
LONGEST: Final = 30 * 86400.0
"""Seconds of a world after which it is stuck."""


class Stuck(Exception):  # noqa: N818 - it says what the world is
    """Nothing is left to do, and something still waits; or the world goes on for ever."""


class Killed(BaseException):
    """Ends what a process that is killed does at the moment, so that it does nothing more."""


@define(order=False, eq=False)
class Event:
    """Something that happens at a moment of the world, unless it is cancelled."""

    call: Callable[[], object]
    cancelled: bool = False


class World:
    """Clocks, processes and a network.

    Args:
        seed: Draws all that is left to chance.

    Attributes:
        random: Draws it.
        now: Seconds since the world began.
        processes: Those that live.
        network: Connects them.
        steps: How many steps the processes have done.
    """

    def __init__(self, seed: int) -> None:
        from tests.simulation.network import Network  # noqa: PLC0415 - it needs the world's types

        self.random: Final = Random(seed)  # noqa: S311 - a seed must give the same life again
        self.now = 0.0
        self.processes: list[Process] = []
        self.network: Network = Network(self)
        self.steps = 0
        self._events: list[tuple[float, float, int, Event]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, call: Callable[[], object]) -> Event:
        """Have something happen after some seconds. Of what happens at one moment, the seed draws the order."""
        event = Event(call)
        heapq.heappush(self._events, (self.now + max(seconds, 0.0), self.random.random(), next(self._numbers), event))
        return event

    def process(self, name: str, *, ahead: float = 0.0) -> "Process":
        """Return a new process.

        Args:
            name: Its name, for reports.
            ahead: Seconds by which its wall clock is ahead.
        """
        made = Process(self, name, ahead)
        self.processes.append(made)
        return made

    def run(self, until: Callable[[], bool], *, seconds: float = LONGEST) -> None:
        """Let time pass until something is true.

        Raises:
            Stuck: It does not become true within so many seconds, or nothing is left to do.
        """
        end = self.now + seconds
        while not until():
            ready = [each for each in self.processes if each.loop.ready and not each.stopped]
            if ready:
                self.steps += 1
                self.random.choice(ready).step()
                continue
            while self._events and self._events[0][-1].cancelled:
                heapq.heappop(self._events)
            if not self._events or self._events[0][0] > end:
                raise Stuck([(each.name, [*each.loop.tasks]) for each in self.processes])
            self.now, _, _, event = heapq.heappop(self._events)
            event.call()

    def complete(self, process: "Process", work: Coroutine[Any, Any, T], *, seconds: float = LONGEST) -> T:
        """Return the result of a coroutine that a process runs. If the process is killed, raise `Killed`."""
        task = process.start(work)
        self.run(lambda: task.done() or process.killed, seconds=seconds)
        if process.killed:
            raise Killed
        return task.result()

    def close(self) -> None:
        """End all processes."""
        for each in [*self.processes]:
            each.kill()


class Process:
    """A process: a loop whose steps the world runs one at a time.

    Attributes:
        world: Where it lives.
        name: Its name.
        loop: Its loop.
        ahead: Seconds by which its wall clock is ahead.
        killed: Whether it was killed.
        stopped: Whether it does nothing for a while, as after SIGSTOP.
        on_kill: What is called when it is killed, such as to cut its connections.
    """

    def __init__(self, world: World, name: str, ahead: float) -> None:
        self.world: Final = world
        self.name: Final = name
        self.ahead = ahead
        self.killed = False
        self.stopped = False
        self.loop: Final = Loop(self)  # type: ignore[abstract] # what is missing raises NotImplementedError
        self.on_kill = list[Callable[[], object]]()
        self._context = Context()
        self._context.run(self._enter)

    def _enter(self) -> None:
        world = self.world
        clocks = Clocks(
            wall=lambda: EPOCH + world.now + self.ahead,
            boot=lambda: world.now,
            monotonic=lambda: world.now,
            tick=lambda: round(world.now * 1e9),
            identity=lambda: "machine",
            jitter=lambda longest: world.random.uniform(0, longest),
        )
        use_clocks(clocks)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Return a task of this process."""
        return self.run(lambda: self.loop.create_task(work))

    def run(self, call: Callable[[], T]) -> T:
        """Return what a function returns that is called in this process, outside of a task."""
        with self.running():
            return self._context.run(call)

    @contextmanager
    def running(self) -> Generator[None]:
        """Have the process's loop be the running one."""
        before = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage] - as `Runner` does
        asyncio._set_running_loop(self.loop)  # pyright: ignore[reportPrivateUsage]
        try:
            yield
        finally:
            asyncio._set_running_loop(before)  # pyright: ignore[reportPrivateUsage]

    def step(self) -> None:
        """Do one thing that is ready."""
        handle = self.loop.ready.pop(0)
        if not handle.cancelled():
            with self.running():
                handle.run()

    def stop(self, seconds: float) -> None:
        """Do nothing for some seconds, while time goes on."""

        def go_on() -> None:
            self.stopped = False

        self.stopped = True
        self.world.after(seconds, go_on)

    def kill(self) -> None:
        """End at once: nothing more is done, and connections are reset."""
        if self.killed:
            return
        self.killed = True
        self.world.processes.remove(self)
        self.loop.ready.clear()
        for each in self.on_kill:
            each()
        # Python would close them at any time, and what their `finally` blocks do has no effect any more.
        while self.loop.tasks:
            task = next(iter(self.loop.tasks))
            del self.loop.tasks[task]
            with suppress(BaseException):
                self.run(cast("Any", task.get_coro()).close)


class Handle(asyncio.TimerHandle):
    """A callback of a loop, which the world runs."""

    def __init__(self, when: float, call: Callable[..., object], args: Any, loop: "Loop", context: Any) -> None:
        super().__init__(when, call, args, loop, context)
        self._call = (context or copy_context()).run, call, args
        self.event: Event | None = None

    def run(self) -> None:
        """Call it."""
        run, call, args = self._call
        run(call, *args)

    def cancel(self) -> None:
        """Cancel it. The world forgets it at its moment."""
        asyncio.Handle.cancel(self)
        if self.event is not None:
            self.event.cancelled = True


class Loop(asyncio.AbstractEventLoop):
    """The loop of a process. It has what payasync and aiohttp use of a loop.

    Attributes:
        ready: What can be done now.
        tasks: Those that have not ended, in the order in which they began.
        errors: What nobody else has handled.
    """

    def __init__(self, process: Process) -> None:
        self.process: Final = process
        self.ready = list[Handle]()
        self.tasks = dict[asyncio.Task[Any], None]()
        self.errors = list[dict[str, Any]]()
        self._factory: Any = None

    def time(self) -> float:
        """Return the time of timers."""
        return self.process.world.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Handle:  # type: ignore[override] # any call
        """Call a function as soon as its turn comes."""
        handle = Handle(self.time(), callback, args, self, context)
        if not self.process.killed:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment] # as above

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        """Call a function after some seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        """Call a function at a moment."""
        handle = Handle(when, callback, args, self, context)
        handle.event = self.process.world.after(when - self.time(), lambda: self._add(handle))
        return handle

    def _add(self, handle: Handle) -> None:
        if not self.process.killed:
            self.ready.append(handle)

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **given: Any) -> "asyncio.Task[Any]":
        """Return a task."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context, **given)
        self.tasks[task] = None
        task.add_done_callback(lambda _: self.tasks.pop(task, None))
        return task

    def get_task_factory(self) -> Any:
        """Return nothing: tasks are asyncio's."""
        return self._factory

    def get_debug(self) -> bool:
        """Return whether asyncio looks for mistakes."""
        return False

    def is_running(self) -> bool:
        """Return that it runs."""
        return True

    def is_closed(self) -> bool:
        """Return whether the process has ended."""
        return self.process.killed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note what nobody else has handled."""
        self.errors.append(context)

    default_exception_handler = call_exception_handler

    async def shutdown_asyncgens(self) -> None:
        """Do nothing."""

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connect to a server of this world, or raise `ConnectionRefusedError`."""
        await self.process.world.network.connect(self.process, sock, address)

    async def create_connection(self, protocol_factory: Any, *_: Any, sock: Any = None, **given: Any) -> Any:
        """Return the transport and the protocol of a socket that is connected."""
        assert not given.get("ssl")
        return self.process.world.network.open(self.process, protocol_factory, sock)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Serve at an address of this world."""
        return self.process.world.network.listen(self.process, protocol_factory, (host, port))


def close_socket(sock: socket.socket) -> None:
    """Close a socket, which was never connected to anything real."""
    with suppress(OSError):
        sock.close()
