"""Random lives of one number, at a service that carries out each send, and whose queries show old states."""

import asyncio
import faulthandler
from contextlib import suppress
from email.utils import formatdate
from math import inf
from operator import add, attrgetter
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from attrs import evolve, frozen
from hypothesis import example, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from payasync import CloseOrder, CreateRefund, NoAnswerError, PayasyncError, PlaceOrder
from payasync.clocks import Pace, use_clocks
from payasync.evidence.age import POSTS, Posted, age_of
from payasync.journal import Patience, Reconciler, SqliteJournal
from payasync.wire.call import Call, Reply, Send
from tests.building import reply
from tests.journal.building import Clock
from tests.journal.service import MINE, QUARANTINE, QUICK, REFUND, SAYS
from tests.sessions import connect

PLACE: Final = PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD")
CLOSE: Final = CloseOrder(out_trade_no="T1")
STATES: Final = {True: ("processing", "succeeded", "failed"), False: ("pending", "paid", "expired")}
"""The states of a refund, or of an order: at first, after its money has moved, and after it ended without that."""
DONE: Final = frozenset({"succeeded", "paid"})
ENDED: Final = frozenset({"failed", "expired", "closed", "never arrived"})
LATE: Final = (0, 1, 25)
"""Seconds until a send takes effect, and until a query without an age shows that. Their sum is below the quarantine."""


@frozen
class Fate:
    """What becomes of one send.

    Attributes:
        end: What its caller sees. A response comes as soon as it takes effect. If its caller dies, it leaves later.
        late: Seconds until it takes effect; `None`: it never does, and a response is a refusal.
        runs: Seconds until its refund or order ends by itself; `None`: it does not.
        well: Its money moves then. If not, a close of an order that has ended is called a duplicate.
    """

    end: Literal["answered", "lost", "died"] = "answered"
    late: int | None = 0
    runs: int | None = 0
    well: bool = True


@frozen
class Step:
    """What happens next.

    Attributes:
        do: A caller sends the write or a close of the order, a reconciler runs, or a notification comes.
        after: Seconds that pass before.
        behind: By how many seconds the response to a query is older than it says.
        age: How many seconds it says. A notification is older by both.
        dated: It says so by its `Date`, if a POST had one before; else by `Age`.
    """

    do: Literal["send", "close", "reconcile", "notify"]
    after: int = 0
    behind: int = 0
    age: int = 0
    dated: bool = False


@frozen
class Plan:
    """A life: the write, what becomes of the sends, what happens, and whether a worker sends all from the journal."""

    write: CreateRefund | PlaceOrder
    fates: list[Fate]
    steps: list[Step]
    queued: bool


@frozen
class Sent:
    """When a send takes effect, when and how its refund or order ends, and when it is certain that it never arrives."""

    arrives: float
    ends: float
    end: str
    over: float = inf


FAILED: Final = Fate(well=False)
SLOW: Final = Fate(runs=40, well=False)
LEFT: Final = Fate("died", late=25, runs=None)
FIRST: Final = (Step("send"), Step("reconcile", 45), Step("send"), Step("close"))
one: Final = st.sampled_from
ENDS: Final = one(["answered", "answered", "lost", "lost", "died"])
FATES: Final = st.builds(Fate, ENDS, one([*LATE, None]), one([0, 1, 40, None]), st.booleans())
WHATS: Final = one(["send", "close", "close", "reconcile", "reconcile", "notify"])
STEPS: Final = st.builds(Step, WHATS, one([0, 1, 30, 61]), one(LATE), one([0, 0, 55, 100]), st.booleans())
PLANS: Final = st.builds(
    Plan,
    one([REFUND, PLACE, PLACE]),
    st.builds(add, one([[], [FAILED], [SLOW]]), st.lists(FATES, min_size=3, max_size=6)),
    st.builds(add, one([[*FIRST[:3]], [*FIRST]]), st.lists(STEPS, min_size=3, max_size=7)),
    st.booleans(),
)
QUIET: Final = (*[Step("reconcile", 100)] * 3, Step("send"), Step("close"))


class CrashError(BaseException):
    """The process of a caller dies."""


class Life:
    """A shop with a journal, at a service that answers in place of the transport."""

    def __init__(self, plan: Plan, folder: Path, *sent: Sent) -> None:
        self._plan, self._clock, self._fates, self._shown = plan, Clock(), [*plan.fates], Step("send")
        self._open, self._done, self._failed = STATES[plan.write is REFUND]
        self._words: Any = SAYS.states.refund if plan.write is REFUND else SAYS.states.order
        self._sent, self._closes, self._posted = [*sent], list[float](), Posted(maxlen=POSTS)
        self._journal = SqliteJournal(folder / "pay.db")
        options: Any = {"profile": SAYS, "journal": self._journal, "retry": QUICK, "middleware": [self._answer]}
        self._pay = connect("http://127.0.0.1:9", **options)
        pace, patience = Pace(clock=self._clock, jitter=lambda bound: bound), Patience(first=1, longest=10, sends=99)
        self._reconciler = Reconciler(self._pay, self._journal, patience=patience, concurrency=1, pace=pace)

    async def live(self) -> None:
        """Do all steps, let everything end, and compare the journal with the truth after each step."""
        use_clocks(self._clock.clocks())
        faulthandler.cancel_dump_traceback_later()  # Hypothesis looks for a short failing life for up to five minutes
        async with self._pay, self._journal:
            for step in self._plan.steps:
                await self._do(step)
            self._fates.clear()
            for step in QUIET:
                await self._do(step)
            left = [each for each in await self._journal.list() if each.state in {"sending", "unknown"}]

        assert all(each.answered for each in left), left  # a duplicate takes longer, and then a person

    async def _do(self, step: Step) -> None:
        self._clock.advance(step.after)
        self._shown = step
        with suppress(PayasyncError, CrashError):
            if step.do == "reconcile":
                await self._reconciler.run_once()
            elif step.do == "notify":
                state = self._state(self._clock() - step.age - step.behind)
                for about in [REFUND] if self._plan.write is REFUND else [PLACE, CLOSE]:
                    await self._journal.told(about.operation.name, str(about.reference), state, {}, merchant="M1")
            else:
                await self._send(CLOSE if step.do == "close" and self._plan.write is PLACE else self._plan.write)
        await self._compare()

    async def _send(self, request: Any) -> None:
        if self._plan.queued:
            await self._pay.execute(await self._journal.add(request, merchant="M1"))
        else:
            await self._pay.send(request)

        assert request is not CLOSE or self._states()[-1] in ENDED

    async def _compare(self) -> None:
        states = self._states()
        done = sum(state in DONE for state in states)

        assert done <= 1, states
        for each in await self._journal.list():
            facts = (each.operation, each.state, each.reason, states)
            if each.operation == CLOSE.operation.name:
                assert each.state != "succeeded" or states[-1] in ENDED, facts
            else:
                assert each.state != "succeeded" or done, facts
                assert each.state != "rejected" or ENDED.issuperset(states), facts
                assert each.state != "accepted" or states[-1], facts

    async def _answer(self, call: Call, send: Send) -> Reply:
        del send
        now = self._clock.advance(0.001).timestamp()  # no two sends arrive at one moment
        if not call.read:
            return self._carry_out(call, self._fates.pop(0) if self._fates else Fate(), now)
        made, dated = now - self._shown.age, self._shown.dated and self._posted
        headers = CIMultiDict({"Date": formatdate(made, usegmt=True)} if dated else {"Age": str(self._shown.age)})
        return evolve(self._reply(made - self._shown.behind), age=age_of(now, headers, self._posted))

    def _carry_out(self, call: Call, fate: Fate, now: float) -> Reply:
        call.progress.begun = True
        is_close, refused = call.operation == CLOSE.operation, fate.late is None and fate.end == "answered"
        leaves = now + 50 * (fate.end == "died")
        arrives = leaves + (inf if fate.late is None else fate.late)
        found = self._state(arrives)
        if is_close:
            self._closes.append(arrives)
        elif not refused:
            ends, end = arrives + (inf if fate.runs is None else fate.runs), self._done if fate.well else self._failed
            self._sent.append(Sent(arrives, ends, end, leaves + QUARANTINE if fate.late is None else inf))
        if fate.end == "died":
            raise CrashError
        if fate.end == "lost":
            raise NoAnswerError("no response came", reason="no response", sent=True)
        if not refused:
            self._clock.advance(arrives - now)
            self._posted.append((arrives, CIMultiDict({"Date": formatdate(arrives, usegmt=True)}), arrives - now))
        if refused or (is_close and found in DONE):
            return reply({"code": "SBX_WRONG_STATE"}, 400)
        if is_close and found in ENDED and not fate.well:
            return reply({"code": "SBX_DUPLICATE"}, 409)
        return self._reply(arrives)

    def _reply(self, moment: float) -> Reply:
        state = self._state(moment)
        shown = {"code": "SBX_OK", "status": self._words[state][0], **MINE} if state else {"code": "SBX_NOT_FOUND"}
        return reply(shown, 200 if state else 404)

    def _state(self, moment: float) -> str | None:
        latest = self._latest(moment)
        return None if latest is None else self._state_of(latest, moment)

    def _latest(self, moment: float) -> Sent | None:
        return max((each for each in self._sent if each.arrives <= moment), key=attrgetter("arrives"), default=None)

    def _state_of(self, sent: Sent, moment: float) -> str | None:
        closed = min((each for each in self._closes if self._latest(each) is sent), default=inf)
        ends, end = min((sent.ends, sent.end), (closed, "closed"))
        return None if moment < sent.arrives else self._open if moment < ends else end

    def _states(self) -> list[str | None]:
        now = self._clock()
        return ["never arrived" if each.over <= now else self._state_of(each, now) for each in self._sent]


@given(plan=PLANS)
@example(plan=Plan(PLACE, [FAILED, LEFT, Fate()], [*FIRST[:3], Step("close", 61)], queued=False))
@example(plan=Plan(PLACE, [FAILED, LEFT, Fate("lost")], [*FIRST, Step("reconcile", 61)], queued=False))
def test_money_moves_once_and_the_journal_is_right(tmp_path_factory: pytest.TempPathFactory, plan: Plan) -> None:
    """No old state of a number moves its money twice, or is recorded as the end of its last send."""
    asyncio.run(Life(plan, tmp_path_factory.mktemp("life")).live())


@given(plan=PLANS)
@settings(max_examples=settings().max_examples // 4)
def test_number_that_failed_before_the_journal_knew_it(tmp_path_factory: pytest.TempPathFactory, plan: Plan) -> None:
    """A "failed" that is older than the first send that the journal knows ends nothing, if a cache shows its age."""
    # A notification has no age, and a close that comes before that send is of the order that failed.
    shown = [each for each in plan.steps if each.do not in {"notify", "close"}]
    steps = [evolve(each, behind=0, age=100, dated=False) for each in shown]
    plan = evolve(plan, fates=[evolve(each, late=0) for each in plan.fates], steps=steps)
    asyncio.run(Life(plan, tmp_path_factory.mktemp("life"), Sent(0.0, 0.0, "failed")).live())
