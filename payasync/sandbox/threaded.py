"""A sandbox in its own thread, for tests that are not asynchronous, or that run in another event loop."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, cast

from attrs import frozen

from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.sandbox.controls import Ledger
from payasync.sandbox.faults import Fault, Faults, NotificationFaults
from payasync.sandbox.sandbox import Sandbox
from payasync.sandbox.server import running_loop
from payasync.session import Session

if TYPE_CHECKING:
    from payasync.sandbox.recording_receiver import RecordingReceiver


class LoopThread:
    """A thread that runs an event loop.

    Args:
        name: The thread's.
    """

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._runner:
            self._loop.run_forever()

    def close(self) -> None:
        """End the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function in the loop's thread, and return its result, or raise its error.

        The call waits for a coroutine function. Called in a running loop, it returns an awaitable instead.
        """
        running = running_loop()
        if running is self._loop:
            return function(*args, **named)
        future = asyncio.run_coroutine_threadsafe(_called(function, args, named), self._loop)
        if running is not None and inspect.iscoroutinefunction(function):
            return asyncio.wrap_future(future)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the loop's thread, and block until it has ended."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _called(function: Callable[..., Any], args: Any, named: Any) -> Any:
    result = function(*args, **named)
    return await result if inspect.isawaitable(result) else result


@frozen
class Proxy:
    """An object of another thread: its methods run there.

    A method that is a coroutine function blocks until it is done; called in a running loop, it is awaited as usual. Any
    other method blocks. Faults that a method returns are wrapped in the same way.

    Attributes:
        _call: Calls a function in that thread.
        _target: The object.
    """

    _call: Callable[..., Any]
    _target: object

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self._call(getattr, self._target, name)
        if not inspect.isroutine(found):
            return self._wrapped(found)
        return lambda *args, **named: self._wrapped(self._call(found, *args, **named))

    def _wrapped(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self._wrapped(each) for each in found]
        return Proxy(self._call, found) if isinstance(found, Fault | NotificationFaults) else found

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __str__(self) -> str:
        return str(self._target)

    def __repr__(self) -> str:
        return f"<{type(self._target).__name__} of a sandbox in a thread>"


class ThreadedSandbox:
    """A sandbox that runs in a thread of its own; it has all that `Sandbox` has.

    Use it with `with`, or with `start` and `close`. At the end of `with`, a fault that was armed and never fired raises
    `FaultNeverFiredError`. The coroutine methods of `Sandbox` and its parts (`customer`, `given`, `clock`, …) block
    until they are done: `sandbox.customer.authorize("T1")`. Called in any running event loop, they are awaited:
    `await sandbox.customer.authorize("T1")`.

    Args:
        profile: As for `Sandbox`.
        settings: As for `Sandbox`.

    Attributes:
        url: Where it listens.
        profile: What the service does.
        credentials: Those of its one merchant.
        ledger: What the service really did; its methods block.

    Raises:
        ConfigurationError: As for `Sandbox`.
    """

    url: str
    profile: Profile
    credentials: Credentials
    ledger: Ledger

    def __init__(self, profile: Profile = PROFILE, **settings: Any) -> None:
        self._sandbox: Final = Sandbox(profile, **settings)
        self._thread: LoopThread | None = None
        self._last_timeline: list[str] | None = None
        self._receivers: list[RecordingReceiver] = []

    @property
    def running(self) -> bool:
        """Whether it was started, and not closed since."""
        return self._thread is not None

    @property
    def faults(self) -> Faults:
        """Arms faults, as for `Sandbox`: also before the start. They can be read after the end."""
        return cast("Faults", Proxy(self._reach, self._sandbox.faults))

    @property
    def webhook_url(self) -> str | None:
        """Where notifications go if there is no `notifyUrl`; it may be changed at any time."""
        return self._sandbox.webhook_url

    @webhook_url.setter
    def webhook_url(self, url: str | None) -> None:
        self._sandbox.webhook_url = url

    @contextmanager
    def receiver(self) -> Generator[Any]:
        """Give a `RecordingReceiver` that verifies this sandbox's notifications, in the same thread.

        It ends with `with`, or with the sandbox.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        receiver = self.call(self._sandbox.receiver)
        self.call(receiver.start)
        self._receivers.append(receiver)
        try:
            yield Proxy(self.call, receiver)
        finally:
            if receiver in self._receivers:
                self._receivers.remove(receiver)
                self.call(receiver.close)

    def session(self, **overrides: Any) -> Session:
        """Return a session that is configured for this sandbox, to be used in whichever loop; see `Sandbox.session`.

        Args:
            overrides: Arguments of `Session`.

        Raises:
            ConfigurationError: The sandbox does not run, or `Session` refuses an override.
        """
        return self._sandbox.session(**overrides)

    def timeline(self) -> list[str]:
        """Return the timeline, as for `Sandbox`; after the end, as it was then.

        Raises:
            ConfigurationError: The sandbox has never run.
        """
        if self._thread is None and self._last_timeline is not None:
            return self._last_timeline
        return cast("list[str]", self.call(self._sandbox.timeline))

    def start(self) -> Self:
        """Start the thread, and the sandbox in it.

        Raises:
            ConfigurationError: It runs already, its port is in use, or its database cannot be used.
        """
        if self._thread:
            raise ConfigurationError("the sandbox runs already: close it first")
        thread = LoopThread("payasync sandbox")
        try:
            thread.wait(self._sandbox.start())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def close(self) -> None:
        """Close the sandbox, and end its thread; closing again does nothing."""
        thread, self._thread = self._thread, None
        if thread:
            try:
                thread.wait(self._end())
            finally:
                thread.close()

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call any function in the sandbox's thread, and return what it returns.

        The call waits for a coroutine function. Called in a running loop, it returns an awaitable instead. So a
        synchronous test can use a session: `sandbox.call(pay.orders.query, "T1")`.

        Args:
            function: The function.
            args: Its arguments.
            named: Its keyword arguments.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        if self._thread is None:
            raise ConfigurationError("the sandbox does not run: call is there between start and close")
        return self._thread.call(function, *args, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._sandbox, name)
        if inspect.isroutine(found):
            return lambda *args, **named: self.call(found, *args, **named)
        return Proxy(self.call, found) if type(found).__module__.startswith("payasync.sandbox") else found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._sandbox)})

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self.close()
        if kind is None:
            self._sandbox.faults.check()

    def _reach(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function in the thread, or here while the thread does not run."""
        return self.call(function, *args, **named) if self._thread else function(*args, **named)

    async def _end(self) -> None:
        try:
            self._last_timeline = self._sandbox.timeline()
        finally:
            await self._sandbox.close()
            while self._receivers:
                await self._receivers.pop().close()
