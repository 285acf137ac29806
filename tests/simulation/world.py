"""A world of several processes in one thread, whose clocks stand still until nothing is left to do, by a seed."""

import asyncio
import heapq
import itertools
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any, Final, TypeVar, cast

from attrs import define

from payasync.clocks import Clocks, use_clocks

T = TypeVar("T")

EPOCH: Final = 1_800_000_000.0
"""The wall clock's time, in seconds since 1970, when a world begins."""
LONGEST: Final = 30 * 86400.0
"""Seconds of a world after which it is stuck."""
STEPS: Final = 1_000_000
"""Steps of a world after which it is stuck. Most worlds end within 10,000."""
DEEPEST: Final = 100
"""How many `finally` blocks a task may wait in, one after the other."""
EARLIEST: Final = 1e-6
"""Seconds by which a timer may end early, because its moment is a float."""


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
    """Clocks, machines, processes and a network.

    Each draw has a name, and is drawn from the seed, the name and how often it was drawn before. If something is left
    out of a world, all else is therefore drawn as before.

    Args:
        seed: Draws all that is left to chance.
        only: What may happen, by the names in `happened`. Default: all.

    Attributes:
        now: Seconds since the world began.
        processes: Those that live.
        network: Connects them.
        steps: How many steps the processes have done.
        happened: The names of what has happened, of all that might have.
        notes: What a person wants to read of this world: the moments and the texts.
    """

    def __init__(self, seed: str, only: frozenset[str] | None = None) -> None:
        from tests.simulation.network import Network  # noqa: PLC0415 - it needs the world's types

        self.now = 0.0
        self.processes: list[Process] = []
        self.network: Network = Network(self)
        self.steps = 0
        self.happened = list[str]()
        self.notes = list[tuple[float, str]]()
        self._seed, self._only = seed, only
        self._draws = Counter[str]()
        self._order = Random(seed)  # noqa: S311 - a seed must give the same life again
        self._events: list[tuple[float, float, int, Event]] = []
        self._numbers = itertools.count()
        self._varies = self.happens("delays vary")
        self._turns = self.happens("steps change their order")

    def draw(self, what: str) -> float:
        """Draw a number from 0 to 1.

        Args:
            what: Names the draw.
        """
        self._draws[what] += 1
        name = f"{self._seed} {what} {self._draws[what]}"
        return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) / 2**64

    def between(self, least: float, most: float, what: str) -> float:
        """Draw a number of seconds, or return the middle if delays do not vary."""
        return least + (most - least) * (self.draw(what) if self._varies else 0.5)

    def choose(self, choices: Sequence[T], what: str) -> T:
        """Draw one of several values."""
        return choices[int(self.draw(what) * len(choices))]

    def happens(self, what: str, probability: float = 1.0) -> bool:
        """Draw whether something happens that may be left out of this world, and remember it if it does."""
        drawn = self.draw(what) < probability
        name = f"{what}, {self._draws[what]}" if self._draws[what] > 1 else what
        if not drawn or (self._only is not None and name not in self._only):
            return False
        self.happened.append(name)
        return True

    def note(self, text: str) -> None:
        """Note what a person wants to read of this world."""
        self.notes.append((round(self.now, 3), text))

    def after(self, seconds: float, call: Callable[[], object]) -> Event:
        """Have something happen after some seconds. Of what happens at one moment, the seed draws the order."""
        event, tie = Event(call), self._order.random() if self._turns else 0.0
        heapq.heappush(self._events, (self.now + max(seconds, 0.0), tie, next(self._numbers), event))
        return event

    def machine(self, name: str) -> "Machine":
        """Return a new machine."""
        return Machine(self, name)

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
                if self.steps > STEPS:
                    raise Stuck(f"after {STEPS} steps")
                (self._order.choice(ready) if self._turns else ready[0]).step()
                continue
            while self._events and self._events[0][-1].cancelled:
                heapq.heappop(self._events)
            if not self._events or self._events[0][0] > end:
                waiting = sorted(
                    f"{each.name}: {task.get_coro()}" for each in self.processes for task in each.loop.tasks
                )
                raise Stuck("; ".join(re.sub(r"<coroutine object (\S+) .*?>", r"\1", text) for text in waiting))
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


class Machine:
    """A machine: the clocks of its processes.

    Attributes:
        world: Where it stands.
        name: Its name.
        ahead: Seconds by which its wall clock is ahead.
        processes: All that were ever started on it.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world: Final = world
        self.name: Final = name
        self.ahead = 0.0
        self.processes = list[Process]()
        self._boots, self._booted = 1, 0.0
        self._asleep, self._asleep_since, self._wakes = 0.0, -1.0, 0.0

    def boot_time(self) -> float:
        """Return the seconds since it was started."""
        return self.world.now - self._booted

    def monotonic_time(self) -> float:
        """Return the seconds for which it was awake."""
        now = self.world.now if self._asleep_since < 0 else self._asleep_since
        return now - self._booted - self._asleep

    def clocks(self, process: str) -> Clocks:
        """Return the clocks of one of its processes."""
        world = self.world
        return Clocks(
            wall=lambda: EPOCH + world.now + self.ahead,
            boot=self.boot_time,
            monotonic=self.monotonic_time,
            tick=lambda: round(self.boot_time() * 1e9),
            identity=lambda: f"{self.name}-{self._boots}",
            jitter=lambda longest: world.between(0, longest, f"jitter of {process}"),
        )

    def process(self, name: str) -> "Process":
        """Return a new process.

        Args:
            name: Its name, for reports.
        """
        made = Process(self, name)
        self.processes.append(made)
        self.world.processes.append(made)
        if self._asleep_since >= 0:
            made.stop(self._wakes - self.world.now)
        return made

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self.world.note(f"the clock of {self.name} is set by {seconds:.0f} s")
        self.ahead += seconds

    def suspend(self, seconds: float) -> None:
        """Sleep for some seconds: no process does anything, and the monotonic clock stands still."""
        if self._asleep_since >= 0:
            return
        self.world.note(f"{self.name} sleeps for {seconds:.0f} s")
        self._asleep_since, self._wakes = self.world.now, self.world.now + seconds
        for each in self.processes:
            each.stop(seconds)
        self.world.after(seconds, self._wake)

    def _wake(self) -> None:
        if self._asleep_since >= 0:
            self._asleep += self.world.now - self._asleep_since
            self._asleep_since = -1.0

    def reboot(self) -> None:
        """Kill all processes, and start again."""
        self.world.note(f"{self.name} is started again")
        for each in self.processes:
            each.kill()
        self._boots += 1
        self._booted, self._asleep, self._asleep_since = self.world.now, 0.0, -1.0


class Process:
    """A process: a loop whose steps the world runs one at a time.

    Attributes:
        machine: Where it runs.
        world: Where that stands.
        name: Its name.
        loop: Its loop.
        killed: Whether it was killed.
        stopped: Whether it does nothing for a while, as after SIGSTOP.
        was_stopped: Whether it was ever stopped, so that what it does may end late.
        connections: Those that it has.
        on_kill: What is called when it has been killed.
    """

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine: Final = machine
        self.world: Final = machine.world
        self.name: Final = name
        self.killed = False
        self.stopped = False
        self.was_stopped = False
        self._stopped_until = 0.0
        self.loop: Final = Loop(self)  # type: ignore[abstract] # what is missing raises NotImplementedError
        self.connections = list[Any]()
        self.on_kill = list[Callable[[], object]]()
        self._context = Context()
        self._context.run(use_clocks, machine.clocks(name))

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
        before, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()  # pyright: ignore[reportPrivateUsage] - as `Runner` does
        asyncio._set_running_loop(self.loop)  # pyright: ignore[reportPrivateUsage]
        sys.set_asyncgen_hooks(finalizer=self._drop)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)  # pyright: ignore[reportPrivateUsage]
            sys.set_asyncgen_hooks(*hooks)

    def _drop(self, generator: Any) -> None:
        """Close a generator that nobody refers to any more, unless its process was killed."""
        if not self.killed:
            _ = self.start(generator.aclose())

    def step(self) -> None:
        """Do one thing that is ready."""
        handle = self.loop.ready.pop(0)
        if not handle.cancelled():
            with self.running():
                handle.run()

    def stop(self, seconds: float) -> None:
        """Do nothing for some seconds, while time goes on."""

        def go_on() -> None:
            self.stopped = self.world.now < self._stopped_until

        self.stopped = self.was_stopped = True
        self._stopped_until = max(self._stopped_until, self.world.now + seconds)
        self.world.after(self._stopped_until - self.world.now, go_on)

    def kill(self) -> None:
        """End at once: nothing more is done, and connections are reset."""
        if self.killed:
            return
        self.killed = True
        self.world.processes.remove(self)
        self.loop.ready.clear()
        for each in [*self.connections]:
            each.cut_off()
        # Python would close them at any time, and what their `finally` blocks do has no effect any more.
        while self.loop.tasks:
            task = next(iter(self.loop.tasks))
            del self.loop.tasks[task]
            self.run(partial(_end_now, task))
        for each in self.on_kill:
            each()


def _end_now(task: "asyncio.Task[Any]") -> None:
    """End the coroutine of a task, whatever it waits for in its `finally` blocks."""
    for _ in range(DEEPEST):
        try:
            cast("Any", task.get_coro()).throw(Killed())
        except BaseException:  # noqa: BLE001 - nobody is there to hear of it
            return


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
        return self.process.machine.monotonic_time()

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
        self._wait(handle)
        return handle

    def _wait(self, handle: Handle) -> None:
        """Call a function at its moment. While the machine sleeps, the moment comes no nearer."""
        seconds = handle.when() - self.time()
        if self.process.killed:
            return
        if seconds > EARLIEST:
            handle.event = self.process.world.after(seconds, lambda: self._wait(handle))
        else:
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
        """Return whether the process lives."""
        return not self.process.killed

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
