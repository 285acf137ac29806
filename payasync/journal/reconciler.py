"""Asks the service what became of the writes whose outcome is unknown, and keeps what it says."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from inspect import iscoroutinefunction
from math import isfinite
from typing import Any, Final

from attrs import evolve

from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    PayasyncError,
    SessionClosedError,
    StorageError,
    frameless_async,
)
from payasync.journal.intents import Intent, Intents, State
from payasync.journal.journal import Journal
from payasync.journal.policy import (
    NAMELESS,
    UNUSABLE,
    Decision,
    End,
    Evidence,
    Finding,
    Heard,
    Move,
    Patience,
    Report,
    Result,
    Run,
    Turn,
    decide,
    evidence_of_error,
    evidence_of_failure,
    evidence_of_response,
    is_due,
    is_shown,
    names_of,
    notice,
    query_for,
)
from payasync.middleware.observe import Event
from payasync.session import Session
from payasync.settings import Pace, RetryPolicy
from payasync.wire.call import Call, Layer, Reply, Send
from payasync.wire.request import Request, invalid
from payasync.wire.response import Response

logger = logging.getLogger("payasync")

HELD: Final = 5.0
"""Seconds that a run which is interrupted waits for its journal, at most: as it keeps something, or claims it."""


class Interruptions:
    """What goes on after the runs that had begun it."""

    def __init__(self) -> None:
        self._left: set[asyncio.Task[None]] = set()

    async def outlast(self, task: asyncio.Task[None]) -> None:
        """Wait for a task, but not for long: it goes on by itself then, and what it fails of is logged."""
        self._left.add(task)
        task.add_done_callback(self._over)
        await asyncio.wait({task}, timeout=HELD)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._left.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.warning("what an interrupted run had begun has failed", exc_info=error)


class Resending:
    """Sends writes again, each under its own number.

    Args:
        session: Whose writes they are.
        journal: What is sent again is kept where it was asked about, whatever journal the session has.

    Raises:
        ConfigurationError: The session cannot have that journal, as its calls may take too long, for example.
    """

    def __init__(self, session: Session, journal: Journal) -> None:
        self._session = session.with_options(journal=journal)
        self._journal = journal

    async def sent(self, turn: Turn) -> Evidence | None:
        """Send a queued write again; the session keeps what becomes of it. Return why it could not, if so."""
        held, session = turn.held, self._session.with_options(journal=Listening(self._journal, turn.end))
        try:
            await session.execute(held.id, fence=held.fence)
        except (ConfigurationError, InvalidArgumentError) as error:
            return Evidence(finding=Finding.UNCLEAR, reason=f"cannot be sent again: {error.args[0]}")
        except (SessionClosedError, StorageError):
            raise
        except PayasyncError as error:
            logger.debug("intention %d was sent again: %s", held.id, error)
        except Exception as error:
            logger.warning("intention %d was sent again, if at all, with an error", held.id, exc_info=True)
            return await self._failed(held, error)
        return None

    async def _failed(self, held: Intent, error: Exception) -> Evidence | None:
        """Return why it could not be sent, unless it was begun: the session has kept then what became of it."""
        now = await self._journal.get(held.id)
        return None if now is None or now.fence != held.fence else evidence_of_failure(error)

    async def result(self, held: Intent) -> Result:
        """Return what it came to that an intention was sent again."""
        now = await self._journal.get(held.id)
        if now is None or now.attempts == held.attempts:
            return Result(intent=held, end="lost", state=held.state)
        if now.fence != held.fence + 1:
            # Somebody has asked about it since, or was told of it: what that came to is theirs to say.
            return Result(intent=held, end="sent", state="sending")
        end: End = "manual" if now.state == "manual" else "sent"
        return Result(intent=held, end=end, state=now.state, reason=now.reason)


class Listening:
    """The half of a journal that a session uses, and of the way below it, whether that has come to its end.

    Args:
        journal: Keeps the write.
        ended: Called once there is an answer, or an error that tells what became of it: all that follows is kept.
    """

    def __init__(self, journal: Journal, ended: Callable[[], None]) -> None:
        self._journal = journal
        self._ended = ended

    @property
    def recorder(self) -> "Listening":
        """What keeps the writes."""
        return self

    def layer(self, merchant: str, service: str, tell: Callable[[Event], None] | None = None) -> Layer:
        """Return the journal's own layer, around one that hears of the end."""
        recorded = self._journal.recorder.layer(merchant, service, tell)

        def layer(call: Call, send: Send) -> Awaitable[Reply]:
            return recorded(call, lambda sent: self._heard(sent, send))

        return layer

    async def queued(self, intent_id: int, merchant: str) -> Request[Response]:
        """Return a request that was queued."""
        return await self._journal.recorder.queued(intent_id, merchant)

    async def note(self, intent_id: int, reason: str) -> bool:
        """Keep why what waits to be sent cannot be."""
        return await self._journal.note(intent_id, reason)

    async def _heard(self, call: Call, send: Send) -> Reply:
        try:
            reply = await send(call)
        except Exception:
            self._ended()
            raise
        self._ended()
        return reply


SECONDS: Final = 30.0
"""A question takes no longer."""
LEASE: Final = SECONDS + 15.0
"""Seconds that a claim lasts, beyond its question, so that no busy machine loses one."""
PAGE: Final = 500
UNSENT: Final = timedelta(minutes=5)
"""After so long, what was queued should have been sent."""
SHORTEST: Final = 1.0
"""Seconds between two runs, at least."""
LONGEST: Final = 10.0
"""Seconds between two runs, at most: somebody else may add something at any time."""


class Reconciler:
    """Resolves one merchant's unknown writes by asking the service about them.

    Each is asked about by the number that names it, with growing pauses between two questions. Where the service
    says that it does not know the number, and the quarantine is over since something may last have been sent, a queued
    write is sent again under that number, and a direct one is rejected. What cannot be asked about, or is never
    resolved, becomes `manual`: a person ends it by `journal.resolve`. An accepted write is asked about until it ends.
    It becomes `manual` if no response was usable for a day, and the last one is about something else.

    It may be interrupted at any time, and several may run at once, in several processes: each holds what it asks about
    by a lease and a fence. Moments are the journal's, so that a machine whose clock is wrong ends no quarantine early.

    Args:
        session: The merchant's.
        journal: Keeps the writes.
        quarantine: Seconds after which an absent answer is final, at least the longest that the service takes to do
            what it has received; `None`: as the profile says, and where it says nothing, absent is never final.
        patience: How long the service is asked before a person is.
        concurrency: At most so many questions at once.
        pace: Time and chance, for tests: seconds since 1970, waiting, and jitter.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    def __init__(
        self,
        session: Session,
        journal: Journal,
        *,
        quarantine: float | None = None,
        patience: Patience = Patience(),
        concurrency: int = 10,
        pace: Pace = Pace(clock=time.time),
    ) -> None:
        if type(concurrency) is not int or concurrency < 1:
            raise ConfigurationError(
                f"concurrency must be an integer of 1 or more, not {concurrency!r}", field="concurrency"
            )
        if not hasattr(journal, "recorder"):
            raise ConfigurationError(
                f'journal must be a journal, such as SqliteJournal("pay.db"), not {journal!r}', field="journal"
            )
        kinds = {"session": (session, Session), "patience": (patience, Patience), "pace": (pace, Pace)}
        for name, (value, kind) in kinds.items():
            if not isinstance(value, kind):
                raise ConfigurationError(f"{name} must be a {kind.__name__}, not {value!r}", field=name)
        self._session = session
        self._resending = Resending(session, journal)
        # The journal keeps the pauses between questions: a service that is down is asked once, and not three times.
        self._asking = session.with_options(retry=RetryPolicy(attempts=1))
        self._journal = journal
        self._quarantine = session.profile.recovery.quarantine if quarantine is None else _checked(quarantine)
        self._patience = patience
        self._concurrency = concurrency
        self._pace = pace
        self._interruptions = Interruptions()

    @frameless_async
    async def run_once(self, on_result: Heard | None = None) -> Report:
        """Ask once about each write that is due, and return what that came to.

        Args:
            on_result: A plain function, called with what became of each.

        Raises:
            InvalidArgumentError: `on_result` is no plain function.
            StorageError: The journal can be neither read nor written now; what was settled stays so.
            ConfigurationError: The session cannot ask at all: a key or a point of the profile is missing; or the
                writes went to another service. Any other error, such as one of a layer of the session's, leaves the
                write that it is about waiting, and the run goes on.
        """
        if on_result is not None and (not callable(on_result) or iscoroutinefunction(on_result)):
            raise invalid("on_result", "a plain function of a result, or None", on_result)
        run = Run(self._now(), on_result)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._work(run))
        except BaseExceptionGroup as several:
            error = several.exceptions[0]
        else:
            return run.report(unsent=len(await self.unsent()))
        raise error

    async def watch(self, on_result: Heard | None = None) -> AsyncGenerator[Report]:
        """Run again and again, whenever something is due, and yield what each run came to.

        A service that answers nobody is left in peace for longer, whatever is due.
        """
        while True:
            report = await self.run_once(on_result)
            yield report
            await self._pace.sleep(LONGEST if report.silent else await self._left())

    async def _left(self) -> float:
        due = await self._journal.next_due(self._session.merchant_id)
        return LONGEST if due is None else min(max((due - self._now()).total_seconds(), SHORTEST), LONGEST)

    async def due(self) -> Intents:
        """Return what a run would ask about now, and change nothing."""
        states: tuple[State, ...] = ("sending", "unknown", "accepted")
        found = [each for state in states for each in await self._mine(state)]
        return [each for each in found if is_due(each, self._now())]

    async def unsent(self) -> Intents:
        """Return what was queued, and is not sent for five minutes: no worker may be running, or none can send it.

        What was tried, and failed, counts from when it was kept, however lately that was; its `reason` says why.
        """
        before = self._now() - UNSENT
        return [each for each in await self._mine("new") if (each.created if each.reason else each.updated) <= before]

    async def manual(self) -> Intents:
        """Return what a person must say.

        With it what was accepted, and the service denies to know again and again, says nothing of use about, or has not
        answered about for a day (`Patience.give_up`).
        """
        accepted, now = await self._mine("accepted"), self._now()
        shown = (each for each in accepted if is_shown(each, now, self._patience))
        return [*await self._mine("manual"), *shown]

    async def _mine(self, state: State) -> Intents:
        mine: Intents = []
        after = 0
        while page := await self._journal.list(state, limit=PAGE, after=after):
            mine += [each for each in page if each.merchant == self._session.merchant_id]
            after = page[-1].id
        return mine

    async def _work(self, run: Run) -> None:
        while not run.silent and (held := await self._claimed(run)):
            turn = _turn(run, held)
            await self._uncut(turn, self._through(run, turn))

    async def _claimed(self, run: Run) -> Intent | None:
        """Claim what is due; who is cut off meanwhile gives back what the journal has given all the same."""
        mine, service = self._session.merchant_id, self._session.service
        asking = asyncio.ensure_future(self._journal.ask(1, LEASE, merchant=mine, before=run.started, service=service))
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:
            await self._interruptions.outlast(asyncio.ensure_future(self._unclaimed(run, asking)))
            raise
        found = asking.result()
        return found[0] if found else None

    async def _unclaimed(self, run: Run, asking: Awaitable[Intents]) -> None:
        with suppress(PayasyncError):  # who was given nothing has nothing to give back
            for held in await asking:
                await self._give_back(_turn(run, held))

    async def _uncut(self, turn: Turn, work: Coroutine[Any, Any, None]) -> None:
        """Do what is cut off by who cancels this, but not between what is kept and who is told of it."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if not turn.ending:
                task.cancel()
            await self._interruptions.outlast(task)
            raise
        task.result()

    async def _through(self, run: Run, turn: Turn) -> None:
        try:
            result, finding = await self._resolved(turn)
            if told := notice(result):
                logger.warning("%s", told)
            run.heard(result, finding)
        except BaseException:
            await self._give_back(turn)
            raise

    async def _resolved(self, turn: Turn) -> tuple[Result, Finding]:
        try:
            return await self._ended(turn)
        except PayasyncError:
            raise
        except Exception as error:
            # Of a layer of the user's, say: it waits, and the others are asked about.
            logger.warning("intention %d cannot be asked about now", turn.held.id, exc_info=True)
            evidence = evidence_of_failure(error)
        # That says nothing of whether the service answers.
        return await self._kept(turn, self._decided(turn, evidence), evidence), Finding.UNASKABLE

    async def _ended(self, turn: Turn) -> tuple[Result, Finding]:
        evidence = await self._asked(turn.held)
        decision = self._decided(turn, evidence)
        if decision.move is Move.SEND:
            refused = await self._resending.sent(turn)
            if refused is None:
                return await self._resending.result(turn.held), evidence.finding
            evidence = refused
            decision = self._decided(turn, evidence)
        return await self._kept(turn, decision, evidence), evidence.finding

    async def _asked(self, intent: Intent) -> Evidence:
        profile = self._session.profile
        question = query_for(intent, profile)
        if question is None:
            return Evidence(finding=Finding.UNASKABLE, reason=NAMELESS)
        try:
            call, reply = await self._asking.inquire(question, timeout=SECONDS, asked=names_of(intent, profile))
        except PayasyncError as error:
            return evidence_of_error(error)
        known = evidence_of_response(intent, question.answer.of(call, reply), call.profile)
        return evolve(known, outcome=self._journal.outcome(call, evolve(reply, recovered=True)))

    def _decided(self, turn: Turn, evidence: Evidence) -> Decision:
        return decide(
            turn.held,
            evidence,
            asked_at=turn.asked_at,
            quarantine=self._quarantine,
            patience=self._patience,
            jitter=self._pace.jitter,
        )

    async def _kept(self, turn: Turn, decision: Decision, evidence: Evidence) -> Result:
        turn.end()
        held, state, reason = turn.held, decision.state, decision.reason
        # From the question on, and not from its answer: what was absent then is asked about when that is final.
        due = None if decision.pause is None else turn.asked_at + timedelta(seconds=decision.pause)
        end: End
        if decision.move is Move.POSTPONE and due is not None:
            facts: dict[str, Any] = {"denied": decision.denied, "silent_since": decision.silent_since}
            still, end = await self._journal.postpone(held, due, reason, **facts), "waiting"
        else:
            still = await self._journal.settle(held, state, outcome=evidence.outcome, reason=reason, due=due)
            end = "manual" if state == "manual" else "resolved"
        answered = evidence.finding not in UNUSABLE or evidence.state is not None
        return Result(intent=held, end=end if still else "lost", state=state, reason=reason, answered=answered)

    async def _give_back(self, turn: Turn) -> None:
        """Let another ask at once, in place of waiting for the end of the lease."""
        held = turn.held
        facts: dict[str, Any] = {"denied": held.denied, "silent_since": held.silent_since}
        with suppress(PayasyncError):
            await self._journal.postpone(held, turn.asked_at, held.reason, **facts)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._pace.clock(), UTC)


def _turn(run: Run, held: Intent) -> Turn:
    return Turn(held, held.lease - timedelta(seconds=LEASE) if held.lease else run.started)


def _checked(quarantine: float) -> float:
    number = isinstance(quarantine, int | float) and not isinstance(quarantine, bool)
    if not number or not isfinite(quarantine) or quarantine < 0:
        raise ConfigurationError(
            f"quarantine must be a number of seconds, 0 or more, not {quarantine!r}", field="quarantine"
        )
    return float(quarantine)
