"""The journal: stores intents, and leases each to one process at a time, in any database."""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from payasync.clocks import boot_tick
from payasync.endpoints import BY_NAME
from payasync.errors import frameless_async
from payasync.evidence.claims import STATE_CLAIMS
from payasync.evidence.comparison import comparison_of_report
from payasync.journal import transactions
from payasync.journal.drafts import Keep, draft_from_request, keep_all_but_customer
from payasync.journal.intents import (
    ASKED_STATES,
    END_STATES,
    STATES,
    BeginResult,
    Draft,
    Intent,
    Intents,
    Outcome,
    State,
    Step,
    write_state,
)
from payasync.journal.middleware import Recorder
from payasync.journal.redaction import outcome_to_json, redact_outcome
from payasync.journal.replay import refusal_error
from payasync.journal.transactions import SQL
from payasync.middleware.observe import log
from payasync.middleware.recovery import status_query
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.settings import canonical_url, check_function, parse_base_url
from payasync.storage import Backlog, Present, Upgrade, check_moment, check_number
from payasync.storage.transactions import Work
from payasync.wire.call import Call, Reply
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import invalid_argument

logger: Final = logging.getLogger("payasync")

LONGEST_LEASE: Final = 10**9
"""Seconds."""
PRUNED_TOGETHER: Final = 500
"""Intents that one transaction deletes, so that no other transaction waits long for it."""

T = TypeVar("T")


class Journal(ABC):
    """Stores intents durably, and lets one process at a time send an intent or ask about it.

    Several processes can share one journal. Each method raises `StorageError` if the journal cannot be read or written
    now; then nothing was done. `SqliteJournal` and `PostgresJournal` are journals; their docstrings list the arguments.

    Attributes:
        recorder: What a session uses.
        present: Lets others know, within `async with`, that a program works through this journal. It yields a function
            that returns whether no other program does. In SQLite, another journal of the folder counts as this one.
            Behind PostgreSQL's poolers, others do not see this program.
    """

    present: Present

    def __init__(self, keep: Keep | None, *, whole_answers: bool) -> None:
        if keep is not None:
            check_function("keep", keep)
        self._keep = keep or keep_all_but_customer
        self._whole_answers = whole_answers
        if whole_answers:
            words = "whole_answers= ends with the first release: let a middleware of your own store whole responses"
            warnings.warn(words, DeprecationWarning, stacklevel=3)
        # Awaiting a coroutine takes a task, which would slow each write; a class that overrides the method pays it.
        begin = self._start_begin if type(self).begin is Journal.begin else self.begin
        settle = self._start_settle if type(self).settle is Journal.settle else self.settle
        self.recorder: Final = Recorder(self, keep, begin=begin, settle=settle)

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where the journal is, as a person may see it."""

    @abstractmethod
    def _run(self, work: Work[T], *, is_short: bool = False) -> Awaitable[T]:
        """Return the result of a transaction that begins now, after it was committed.

        Args:
            work: Begins the transaction.
            is_short: Its first query is usually all.
        """

    @abstractmethod
    async def _run_within(self, connection: Any, work: Work[T]) -> T:
        """Run work in a transaction of the caller, who commits it."""

    @abstractmethod
    async def upgrade(self, *, dry_run: bool = False) -> Upgrade:
        """Make or migrate the tables, and return what was executed. With `dry_run`, execute nothing.

        The first use does the same, unless the journal was made with `migrate=False`.

        Raises:
            ConfigurationError: The tables belong to another program or to a newer payasync, or may not be made.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Finish what was begun, and close the journal. Each later call raises `StorageError`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def outcome(self, call: Call, reply: Reply) -> Outcome:
        """Return what this journal stores of the response to a call."""
        return redact_outcome(call, reply, whole=self._whole_answers)

    async def bind(self, merchant: str, service: str) -> None:
        """Store which service a merchant's writes go to. A reconciler calls this before it asks.

        Args:
            merchant: The merchant's number.
            service: `Session.service`.

        Raises:
            ConfigurationError: The merchant's writes have gone to another service.
        """
        await self._run(lambda _: transactions.bind_service(merchant, self._binding(service)))

    async def move(self, old: str, new: str, *, dry_run: bool = False) -> list[str]:
        """Follow a service to its new address, and return the merchants whose writes go there from now on.

        Use this only if the service itself is the same. Otherwise the journal would take the writes of the old service
        for those of the new one. From now on, sessions of the old address are refused, even if they have sent before.

        Args:
            old: The base URL that the service had; or `sandbox`, as long as nothing was done there.
            new: The base URL that it has.
            dry_run: Only check the addresses, and change nothing.

        Raises:
            ConfigurationError: One of the addresses is not a base URL.
            InvalidArgumentError: No merchant's writes go to `old`; or `old` is the sandbox, and a write was done there.
        """
        sandbox, after = old in {"sandbox", SANDBOX.name}, canonical_url(parse_base_url(new, "new"))
        before = SANDBOX.name if sandbox else canonical_url(parse_base_url(old, "old"))
        target = before if dry_run else after
        merchants, known = await self._run(lambda _: transactions.move_service(before, target, unused=sandbox))
        if not merchants:
            listed = ", ".join("sandbox" if each == SANDBOX.name else each for each in known)
            raise invalid_argument("old", f"the address of one of its services: {listed or 'it has none'}", old)
        return sorted(merchants)

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> BeginResult:
        """Store an intent as *sending*, for `lease` seconds, unless its key says that it must not be sent.

        When this returns `Step.SEND`, the intent is on the disk and survives a loss of power: bytes may leave. An
        intent without a key never repeats another one. If the caller is cancelled, the intent may still be stored.

        Args:
            draft: The intent.
            lease: Seconds.
            service: `Session.service`; stored, and compared, as by `bind`.

        Raises:
            ConfigurationError: The merchant's writes go to another service.
        """
        return await self._start_begin(draft, lease, service=service)

    def _start_begin(self, draft: Draft, lease: float, *, service: str | None = None) -> Awaitable[BeginResult]:
        lasts, binding, tick = _check_lease(lease), self._binding(service), boot_tick()
        return self._run(partial(transactions.begin, draft, binding, lasts, tick), is_short=True)

    async def claim(
        self,
        intent_id: int,
        lease: float,
        *,
        fence: int | None = None,
        service: str | None = None,
        named: Mapping[str, object] | None = None,
        key: str | None = None,
    ) -> BeginResult:
        """Lease a stored intent for `lease` seconds, and make it *sending*, unless its state forbids it.

        Args:
            intent_id: Its id.
            lease: Seconds.
            fence: The fence of a holder by `ask` who has found out that the intent was never done.
            service: As for `begin`.
            named: What responses are compared with, and no argument says, by wire names, as `Draft.named`.
            key: The idempotency key of the call, if the service takes one. The intent's own key has priority.

        Raises:
            ConfigurationError: The merchant's writes go to another service.
            InvalidArgumentError: There is no such intent, or it was a direct call. Or it is rejected for good, by a
                person or because it turned out not to be done.
        """
        asked, lasts = check_number("intent_id", intent_id), _check_lease(lease)
        binding, tick = self._binding(service), boot_tick()
        return await self._run(
            lambda now: transactions.claim(asked, fence, binding, now, lasts, tick=tick, named=named, key=key)
        )

    async def note_used(self, intent: Intent) -> bool:
        """Record that the service said "used before"; return `False` if the end of the intent is known by now.

        When this returns `True`, it is on the disk: no later "not found" is believed, whatever becomes of the sender.
        This needs no lease, because it is a fact about the number. A process that holds the intent to ask about it
        loses its lease.

        Args:
            intent: As `begin` or `claim` gave it.
        """
        return await self._run(lambda now: transactions.note_used(intent, now))

    async def settle(
        self,
        intent: Intent,
        state: State,
        *,
        outcome: Outcome | None = None,
        reason: str = "",
        due: datetime | None = None,
        answered: bool = False,
    ) -> bool:
        """Record the state of an intent, and end the lease. If the lease is lost, change nothing, and return `False`.

        If the caller is cancelled, the state may still be recorded.

        Args:
            intent: As `begin`, `claim` or `ask` gave it.
            state: A state that may follow.
            outcome: The response that says so. Without one, an earlier one stays.
            reason: Why, in one line.
            due: For an accepted or unknown intent, the aware moment from which the service is asked; default: now.
            answered: The service has responded. Nothing of the intent can still arrive, even if its state is *unknown*.

        Raises:
            InvalidArgumentError: That state cannot follow.
        """
        return await self._start_settle(intent, state, outcome=outcome, reason=reason, due=due, answered=answered)

    def _start_settle(
        self,
        intent: Intent,
        state: State,
        *,
        outcome: Outcome | None = None,
        reason: str = "",
        due: datetime | None = None,
        answered: bool = False,
    ) -> Awaitable[bool]:
        after, again = _check_state(state), None if due is None else check_moment("due", due)
        stored = None if outcome is None else outcome_to_json(outcome)
        # No other state stores a tick.
        why, tick = " ".join(reason.split()), boot_tick() if after in ASKED_STATES else None
        work = transactions.settle(intent, after, outcome=stored, reason=why, due=again, tick=tick, answered=answered)
        return self._run(work, is_short=True)

    async def ask(
        self,
        limit: int,
        lease: float,
        *,
        merchant: str | None = None,
        before: datetime | None = None,
        service: str | None = None,
    ) -> Intents:
        """Lease up to `limit` intents to query, the longest due first.

        These are unknown and accepted intents that are due. Intents whose lease ended while they were *sending* become
        unknown, and are leased, too. Each lease adds 1 to `asked`.

        Args:
            limit: The most intents.
            lease: Seconds.
            merchant: Only this merchant's intents, because a query with another merchant's keys finds none of them.
            before: Only what was due at this aware moment; default: now.
            service: The service that is asked, as for `begin`; needs `merchant`.

        Raises:
            ConfigurationError: The merchant's writes go to another service.
        """
        most, by = check_number("limit", limit), None if before is None else check_moment("before", before)
        lasts, tick, binding = _check_lease(lease), boot_tick(), self._binding(service)
        await self.recorder.catch_up()
        return await self._run(
            lambda now: transactions.ask(most, now, lasts, merchant=merchant, binding=binding, before=by, tick=tick)
        )

    async def postpone(
        self,
        intent: Intent,
        due: datetime,
        reason: str = "",
        *,
        denied: int = 0,
        silent_since: datetime | None = None,
        odd: int = 0,
        silent: int = 0,
    ) -> bool:
        """End a lease without news, and ask again later; return `False` if the lease is lost.

        Args:
            intent: As `ask` gave it.
            due: From when the service is asked again.
            reason: In one line.
            denied: How many responses in a row did not say how an accepted intent ended.
            silent_since: The aware moment since which no usable response about an accepted intent came.
            odd: What is added to `Intent.odd`.
            silent: What is added to `Intent.silent`.
        """
        again = check_moment("due", due)
        since = None if silent_since is None else check_moment("silent_since", silent_since)
        facts = {"reason": " ".join(reason.split()), "denied": denied, "silent_since": since}
        facts |= {"odd": check_number("odd", odd), "silent": check_number("silent", silent)}
        return await self._run(lambda _: transactions.postpone(intent, again, facts))

    async def next_due(self, merchant: str | None = None) -> datetime | None:
        """Return when the next query is due or a lease ends, or `None`.

        Args:
            merchant: Only this merchant's.
        """
        return await self._run(lambda _: transactions.next_due(merchant))

    @frameless_async
    async def add(
        self, request: Request[Response], *, merchant: str, intent: str | None = None, connection: Any = None
    ) -> int:
        """Store a request as *new*, for a worker to send, and return its id. The same request has the same id.

        A request that was rejected is *new* again. Any other keeps its state.

        Args:
            request: Such as `CreateRefund(...)`. It is stored whole, with its `extra`, because a worker sends it later.
            merchant: The merchant's number.
            intent: Your own name of the write, its key in the journal.
            connection: Your connection to the journal's database. The request is stored when your transaction commits.

        Raises:
            InvalidArgumentError: The request is a read, or something of it may not be stored, such as a customer's
                details.
            IntentConflictError: The key belongs to another request.
            OutcomeUnknownError: The key is stored in a row that is damaged.
        """
        add = partial(transactions.add, draft_from_request(request, merchant, intent, self._keep))
        begun = await (self._run(add, is_short=True) if connection is None else self._run_within(connection, add))
        if begun.step is Step.CONFLICT or begun.intent.damaged:
            raise refusal_error(begun)
        return begun.intent.id

    async def note(self, intent_id: int, reason: str, *, manual: bool = False) -> bool:
        """Record why a *new* intent cannot be sent. It waits as before, and `Reconciler.unsent` lists it.

        Args:
            intent_id: Its id.
            reason: In one line.
            manual: Make it *manual*, so that nothing sends it, because its row is damaged.

        Returns:
            Whether anything has changed; `False` if the reason is stored already, or the intent is no longer *new*.
        """
        values = {"id": check_number("intent_id", intent_id), "reason": " ".join(reason.split()), "manual": manual}
        return bool(await self._run(lambda now: transactions.change_intents(SQL["note"], {**values, "now": now})))

    async def count_unsent(self, merchant: str, before: datetime) -> int:
        """Return how many *new* intents of a merchant `Reconciler.unsent` would list.

        Args:
            merchant: The merchant's number.
            before: Only those that have waited since before this aware moment.
        """
        values = {"merchant": merchant, "before": check_moment("before", before)}
        return await self._run(lambda _: transactions.count_intents("count_unsent_of", values))

    async def backlog(self) -> Backlog:
        """Return how many intents are in each state but *succeeded* and *rejected*, and what is late."""
        return await self._run(transactions.backlog)

    async def get(self, intent_id: int) -> Intent | None:
        """Return an intent by its number, or `None`."""
        found = await self._find(SQL["intent"], id=check_number("intent_id", intent_id))
        return found[0] if found else None

    async def find(self, operation: str, reference: str, *, merchant: str | None = None) -> Intents:
        """Return the intents of one operation about one order, refund or subscription, oldest first."""
        return await self._find(SQL["find"], **transactions.values_to_find(operation, reference, merchant))

    async def sends(self, operation: str, reference: str, *, merchant: str) -> tuple[int, float]:
        """Return how often the number of an order or refund was sent, and the seconds since the end of the last send.

        Sends that had certainly no effect do not count. The seconds are negative while a send is in progress, and `inf`
        if the journal knows none.

        Args:
            operation: The write: `orders.place` or `refunds.create`.
            reference: The number.
            merchant: The merchant's number.
        """
        about, tick = transactions.values_to_find(operation, reference, merchant), boot_tick()
        return await self._run(lambda now: transactions.count_sends(about, now, tick))

    async def list(
        self,
        state: State | None = None,
        *,
        limit: int = 100,
        after: int = 0,
        order: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        merchant: str | None = None,
    ) -> Intents:
        """List the first `limit` intents, in the order of their numbers. Repeat the call with `after` for the others.

        Args:
            state: Only those of this state.
            limit: The most intents.
            after: Only those with a higher number.
            order: Only those about the order of this number: to place it, to close it, and its refunds.
            since: Only those recorded at this aware moment or later.
            until: Only those recorded before this aware moment.
            merchant: Only this merchant's.
        """
        values: dict[str, Any] = {
            "limit": check_number("limit", limit),
            "after": check_number("after", after),
            "merchant": merchant,
            "state": None if state is None else _check_state(state),
            "since": None if since is None else check_moment("since", since),
            "until": None if until is None else check_moment("until", until),
        }
        if order is None:
            return await self._find(SQL["list_of_state"] if state else SQL["list"], **values)
        if not isinstance(order, str):
            raise invalid_argument("order", "the number of an order, which is a text", order)
        return await self._find(SQL["list_of_order"], order=order, **values)

    async def resolve(
        self, intent_id: int, *, as_: State, reason: str, seen: State | None = None, attempts: int | None = None
    ) -> Intent:
        """End a new, unknown, accepted or manual intent as a person decided. Its earlier holder cannot change it then.

        A succeeded intent is never sent again, also if it was done by other means; but a close is, if its order was
        placed more than once. A rejected one is sent if somebody repeats it or adds it again; a queue that delivers
        its number sends nothing.

        Args:
            intent_id: Its id.
            as_: `succeeded` or `rejected`.
            reason: How the person knows.
            seen: The state that the person has seen. If it has changed since, nothing is recorded. Default: any.
            attempts: How often it was sent, as the person has seen. If it was sent since, nothing is recorded.

        Raises:
            InvalidArgumentError: There is no such intent, its state does not allow this, or it has changed since.
        """
        if as_ not in (ends := sorted(END_STATES)):
            raise invalid_argument("as_", f"one of {', '.join(ends)}", as_)
        if not isinstance(reason, str) or not reason.strip():
            raise invalid_argument("reason", "a text that says how you know", reason)
        asked, why = check_number("intent_id", intent_id), " ".join(reason.split())
        was = None if seen is None else _check_state(seen, "seen")
        sent = None if attempts is None else check_number("attempts", attempts)
        return await self._run(lambda now: transactions.resolve(asked, as_, why, (was, sent), now))

    @frameless_async
    async def told(
        self,
        operation: str,
        reference: str,
        state: str | None,
        data: object,
        *,
        merchant: str,
        profile: Profile | None = None,
    ) -> Intents:
        """End accepted and unknown intents by what the service reported about them, and return those that changed.

        Use this for notifications that are verified or confirmed. The recorded response stays. An intent that was added
        again and is done already ends, too. An intent that was sent several times is not rejected, because the
        notification may be about an earlier send: the reconciler asks. A rejected intent that has succeeded becomes
        *manual*.

        Args:
            operation: The write: `orders.place`, `orders.close` or `refunds.create`.
            reference: The number of the order or refund.
            state: Our name of its state, such as `succeeded`. A state that is not an end changes nothing.
            data: What the service sent, such as the notification's `trusted`. If it names another number, amount,
                currency or merchant than the write, nothing changes, and a warning is logged.
            merchant: The merchant's number.
            profile: Its `[answer]` gives the paths of these values in `data`. Default: their wire names.

        Raises:
            InvalidArgumentError: There is no such operation.
        """
        if operation not in list(STATE_CLAIMS):
            raise invalid_argument("operation", f"one of {', '.join(STATE_CLAIMS)}", operation)
        if profile is not None and not isinstance(profile, Profile):
            raise invalid_argument("profile", "a Profile, such as `session.profile`, or left out", profile)
        if state is not None and not isinstance(state, str):
            raise invalid_argument("state", "our name of a state, or None", state)
        if write_state(operation, state) is None:
            return []
        given, write = profile or Profile(), BY_NAME[operation]
        query = status_query(operation, reference)
        report = transactions.StateReport(
            write,
            reference,
            merchant,
            STATE_CLAIMS[operation][state or ""],
            f"the service reported: {state}",
            data,
            comparison_of_report(write, query.operation if query else write, given),
        )
        changed, others = await self._run(lambda now: transactions.apply_state_report(report, now))
        for stored, why in others:
            log(
                logger,
                logging.WARNING,
                "journal.report_mismatch",
                "intent %(intent_id)d is %(state)s, and a report changes nothing: %(reason)s",
                intent_id=stored.id,
                state=stored.state,
                reason=" ".join(why.split()),
            )
        return changed

    async def prune(self, before: datetime) -> int:
        """Delete intents that succeeded or were rejected before a moment, and return their number.

        Pruned keys are forgotten. A request that repeats one is sent again.
        """
        values = {"before": check_moment("before", before), "limit": PRUNED_TOGETHER}
        pruned = 0
        while deleted := await self._run(lambda _: transactions.change_intents(SQL["prune"], values)):
            pruned += deleted
        return pruned

    async def _find(self, statement: str, **values: Any) -> Intents:
        return await self._run(lambda _: transactions.find_intents(statement, values))

    def _binding(self, service: str | None) -> transactions.ServiceBinding | None:
        return None if service is None else _service_binding(service, self._place)


_service_binding: Final = lru_cache(maxsize=64)(transactions.ServiceBinding)


def _check_lease(given: object) -> float:
    if not (isinstance(given, float) or type(given) is int) or not 0 <= given <= LONGEST_LEASE:
        raise invalid_argument("lease", "a number of seconds, 0 or more, and no more than a billion", given)
    return given


def _check_state(state: State, name: str = "state") -> State:
    if state not in STATES:
        raise invalid_argument(name, f"one of {', '.join(STATES)}", state)
    return state
