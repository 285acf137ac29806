"""Calls and runs that are cancelled at each of their awaits."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

import pytest
from attrs import evolve, frozen

from payasync import InvalidArgumentError, OutcomeUnknownError, RetryPolicy, Session
from payasync.clocks import Pace
from payasync.journal import Journal, Reconciler, Result
from payasync.profile.schema import Recovery
from payasync.sandbox import PROFILE, Sandbox
from tests.journal.building import Clock, refund
from tests.matrix.test_cancelling import sockets

NEVER: Final = 10**6


class Interrupted:
    """Awaits what it is given, and cancels as that waits for the so-manieth time.

    Args:
        work: What it awaits.
        at: From 0.
        cancel: Cancels; by default the task that awaits this.

    Attributes:
        waits: How often it has waited.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, cancel: Callable[[], object] | None = None) -> None:
        self._work = work
        self._at = at
        self._cancel = cancel or _cancel_this
        self.waits = 0

    @property
    def reached(self) -> bool:
        """Whether the work reached the await at which it is cancelled."""
        return self.waits > self._at

    def __await__(self) -> Generator[Any, None, Any]:
        """Hand on whatever the work waits for, and whatever that comes to."""
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            if self.waits == self._at:
                self._cancel()
            self.waits += 1
            try:
                yield waits_for
                step = partial(self._work.send, None)
            except BaseException as error:  # noqa: BLE001 - it is the work's
                step = partial(self._work.throw, error)

    async def run(self) -> Any:
        """Await it: tasks are made of coroutines."""
        return await self


def _cancel_this() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


QUICK: Final = RetryPolicy(base_delay=0.001, max_delay=0.002, quota=10**6)


ONCE: Final = RetryPolicy(attempts=1, quota=0)
"""A call ends with its first attempt, and asks nothing afterwards: that is the reconciler's."""


SLOW: Final = evolve(PROFILE, recovery=Recovery(quarantine=60.0))


LATER: Final = 3600.0
"""Seconds, after which any lease, pause and quarantine is over."""


RUNS: Final = 4


TURNS: Final = 10_000
"""Of the loop: what has not ended by then stays."""


MAY_BE_DONE: Final = frozenset({"sending", "unknown", "accepted", "succeeded"})


NOTHING: Final = "nothing"


Open = Callable[[], Journal]


Heard = Callable[[Result], None]


Work = Callable[..., Coroutine[Any, Any, object]]
"""Takes a session, its journal and the number of a refund."""


long = pytest.mark.long


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order. It refuses a second send of the same write, so that tests notice one."""
    async with Sandbox(SLOW, clock="frozen", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        yield sandbox


@frozen
class Left:
    """What there is beside the journal's rows.

    Attributes:
        tasks: Of the event loop.
        sockets: Of this process.
        threads: Of this process. The first journal on SQLite starts one more, which waits for the end of the program.
    """

    tasks: frozenset[asyncio.Task[Any]]
    sockets: frozenset[str]
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> "Left":
        """Return what there is now."""
        threads = (each for each in threading.enumerate() if each.name != "payasync-exit")
        return cls(frozenset(asyncio.all_tasks()), frozenset(sockets()), frozenset(threads))

    async def settled(self) -> "Left":
        """Return what there is once it is no more than this; soon, it is what has stayed."""
        for _ in range(TURNS):
            if self == Left.now():
                break
            await asyncio.sleep(0)
        return Left.now()


async def called(pay: Session, _: Journal, number: str) -> object:
    """Make a refund."""
    return await pay.send(refund(number, refund_amt=1))


async def queued(pay: Session, journal: Journal, number: str) -> object:
    """Queue a refund, and make it."""
    return await pay.execute(await journal.add(refund(number, refund_amt=1), merchant=pay.merchant_id))


def nothing_fails(_: Sandbox) -> None:
    """Arm no fault."""


def answer_is_lost(sandbox: Sandbox) -> None:
    """Lose the next response, so that the call queries the write."""
    sandbox.faults.reset_after_commit("refunds.create")


def never_arrives(sandbox: Sandbox) -> None:
    """Lose the next refund, so that the call's query does not find it."""
    sandbox.faults.reset_before("refunds.create")


def done(sandbox: Sandbox, number: str) -> bool:
    """Return whether the service has made a refund."""
    try:
        sandbox.ledger.refund_state(number)
    except InvalidArgumentError:
        return False
    return True


async def states_of(journal: Journal, numbers: Mapping[str, object]) -> dict[str, str]:
    """Return the states of refunds in the journal."""
    found = {number: await journal.find("refunds.create", number) for number in numbers}
    return {number: rows[0].state if rows else NOTHING for number, rows in found.items()}


def those(states: Mapping[str, str], *wanted: str) -> set[str]:
    """Return the refunds that are in some states."""
    return {number for number, state in states.items() if state in wanted}


async def resolved(
    sandbox: Sandbox, journal: Journal, clock: Clock, heard: Callable[[Result], None] | None = None
) -> None:
    """Reconcile until nothing is open."""
    async with sandbox.session(journal=journal, retry=ONCE) as pay:
        reconciler = Reconciler(pay, journal, pace=Pace(clock=clock))
        for _ in range(RUNS):
            clock.advance(LATER)
            await reconciler.run_once(heard)


async def cancelled(sandbox: Sandbox, another: Open, work: Work, at: int) -> tuple[Interrupted, object]:
    """Cancel a piece of work at one of its awaits, and return how far it came and how it ended."""
    async with another() as journal, sandbox.session(journal=journal, retry=QUICK) as pay:
        watched = Interrupted(work(pay, journal, f"R{at}"), at)
        ends = await asyncio.gather(asyncio.ensure_future(watched.run()), return_exceptions=True)
    return watched, type(ends[0])


async def cancelled_everywhere(
    sandbox: Sandbox, another: Open, work: Work, fails: Callable[[Sandbox], None]
) -> dict[str, object]:
    """Make refunds, each cancelled at another await; return how those ended that came as far as that."""
    fails(sandbox)
    whole, _ = await cancelled(sandbox, another, work, NEVER)
    ends: dict[str, object] = {}
    for at in range(whole.waits):
        fails(sandbox)
        watched, end = await cancelled(sandbox, another, work, at)
        sandbox.faults.clear()
        if watched.reached:
            ends[f"R{at}"] = end
    return ends


@pytest.mark.parametrize(
    "fails", [answer_is_lost, *(pytest.param(each, marks=long) for each in (nothing_fails, never_arrives))]
)
@pytest.mark.parametrize("work", [called, pytest.param(queued, marks=long)])
async def test_cancelled_at_each_await(
    sandbox: Sandbox, another: Open, clock: Clock, *, work: Work, fails: Callable[[Sandbox], None]
) -> None:
    """If a call is cancelled at any await, it raises `CancelledError` and leaves only a row with a true state."""
    before = Left.now()
    ends = await cancelled_everywhere(sandbox, another, work, fails)
    left = await before.settled()
    made = {number for number in ends if done(sandbox, number)}
    async with another() as journal:
        then = await states_of(journal, ends)
        await resolved(sandbox, journal, clock)
        finally_ = await states_of(journal, ends)

    assert ({asyncio.CancelledError}, before) == (set(ends.values()), left)
    assert "sending" in then.values()
    assert those(then, "accepted", "succeeded") <= made <= those(then, *MAY_BE_DONE)
    assert {number for number in ends if done(sandbox, number)} == those(finally_, *MAY_BE_DONE)
    assert those(finally_, "succeeded") == those(finally_, *MAY_BE_DONE)
    assert {"SBX_OK"} >= {each.code for each in sandbox.ledger.calls("refunds.create")}


async def two_in_doubt(sandbox: Sandbox, journal: Journal, numbers: Mapping[str, Work]) -> None:
    """Lose the response to the first refund, and lose the second refund, which was queued."""
    async with sandbox.session(journal=journal, retry=ONCE) as pay:
        for fails, (number, work) in zip((answer_is_lost, never_arrives), numbers.items(), strict=True):
            fails(sandbox)
            with pytest.raises(OutcomeUnknownError):
                await work(pay, journal, number)


@frozen
class Cut:
    """A run of the reconciler, cancelled at an await of what one of its methods does.

    Attributes:
        method: Its worker, which waits for what it has in hand, or that itself.
        at: From 0, counted over all that the method is called for.
        heard: Is told each result.
    """

    method: str
    at: int
    heard: Heard | None = None

    async def run(self, pay: Session, journal: Journal, clock: Clock) -> bool:
        """Reconcile, and return whether it came to that; the cancellation must be heard of."""
        whole: Any = vars(Reconciler)[self.method]
        watched: list[Interrupted] = []

        def work(*given: object) -> Coroutine[Any, Any, object]:
            before = sum(each.waits for each in watched)
            watched.append(Interrupted(whole(*given), self.at - before, running.cancel))
            return watched[-1].run()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Reconciler, self.method, work)
            reconciler = Reconciler(pay, journal, concurrency=1, pace=Pace(clock=clock))
            running = asyncio.ensure_future(reconciler.run_once(self.heard))
            await asyncio.wait({running})
        reached = sum(each.waits for each in watched) > self.at
        assert running.cancelled() == reached
        return reached


each_method = pytest.mark.parametrize("method", [pytest.param("_work", marks=long), "_process"])


@pytest.mark.parametrize(("refunds", "end"), [("succeed", "succeeded"), ("fail", "rejected")])
@each_method
async def test_reconciler_cancelled_at_each_await(
    another: Open, clock: Clock, method: str, refunds: Any, end: str
) -> None:
    """If a run is cancelled, a later run ends its writes. The runs report each write that was not done once."""
    before, reached, told = Left.now(), list[bool](), list[str]()

    def heard(result: Result) -> None:
        if result.rejected:
            told.append(str(result.intent.reference))

    async with Sandbox(SLOW, clock="frozen", refunds=refunds, repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        inside = Left.now()
        for at in count():
            numbers: dict[str, Work] = {f"D{at}": called, f"N{at}": queued}
            async with another() as journal, sandbox.session(journal=journal, retry=ONCE) as pay:
                await two_in_doubt(sandbox, journal, numbers)
                clock.advance(LATER)
                reached.append(await Cut(method, at, heard).run(pay, journal, clock))
            assert inside == await inside.settled()
            async with another() as journal:
                await resolved(sandbox, journal, clock, heard)
                assert {end} == set((await states_of(journal, numbers)).values())
            assert ([*numbers] if end == "rejected" else []) == sorted(told)
            told.clear()
            if not reached[-1]:
                break
        sends = [each.code for each in sandbox.ledger.calls("refunds.create")]

    assert len(reached) > 1
    assert ["SBX_OK"] * 2 * len(reached) == sends
    assert before == await before.settled()
