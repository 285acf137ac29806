"""What journals have in common, whichever database they keep intentions in."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from attrs import evolve

from payasync.endpoints import OPERATIONS, Operation
from payasync.errors import frameless_async
from payasync.journal import statements, transactions
from payasync.journal.clock import boot_time, tick
from payasync.journal.entries import (
    Keep,
    conflict,
    entry_of_request,
    kept_outcome,
    moving,
    outcome_text,
    without_customer,
)
from payasync.journal.intents import ENDS, STATES, Begun, Draft, Intent, Intents, Outcome, State, Step
from payasync.journal.middleware import Recorder
from payasync.journal.transactions import BY_STATE, Transaction, Where, bind_service, intents, move_service, numbers
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.settings import canonical_url, check_function, parse_base_url
from payasync.storage import check_moment, check_number
from payasync.wire.call import Call, ComparedField, Comparison, Reply, ValueKind
from payasync.wire.match import comparison_of
from payasync.wire.request import Request, invalid
from payasync.wire.response import Response

logger = logging.getLogger("payasync")

LONGEST_LEASE: Final = 10**9
PRUNED_AT_ONCE: Final = 500
"""Intentions that one transaction deletes, so that nobody waits long behind it."""

T = TypeVar("T")


class StoredJournal(ABC):
    """Keeps intentions in a database; what it promises stands at `Journal`.

    Args:
        keep: Says what may be kept of a request; `None`: of what is queued all but the customer's details, and of a
            direct call what moves money.
        whole_answers: Keep answers whole.
        clock: The clock that was given; `None`: time goes by the system's, which may be set.

    Attributes:
        recorder: What a session uses.

    Raises:
        ConfigurationError: `keep` is no plain function.
    """

    def __init__(self, keep: Keep | None, *, whole_answers: bool, clock: Callable[[], float] | None) -> None:
        if keep is not None:
            check_function("keep", keep)
        self._keep = keep or without_customer
        self._whole_answers = whole_answers
        self._ticking = clock is None
        self.recorder: Final = Recorder(self, keep or moving, clock or boot_time)

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where it is, as a person may see it."""

    @abstractmethod
    async def _run(self, work: Callable[[datetime], Transaction[T]]) -> T:
        """Return what a transaction does that begins now, after it was committed."""

    @abstractmethod
    async def _within(self, connection: Any, work: Callable[[datetime], Transaction[T]]) -> T:
        """Return what is done in a transaction of the caller's own, who commits it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish what was begun, and let go of the journal; whatever is asked afterwards is a `StorageError`."""

    def _where(self, service: str | None) -> Where | None:
        return None if service is None else Where(service, self._place)

    def _tick(self) -> str | None:
        return tick() if self._ticking else None

    def outcome(self, call: Call, reply: Reply) -> Outcome:
        """Return what this journal keeps of the answer to a call."""
        return kept_outcome(call, reply, whole=self._whole_answers)

    async def bind(self, merchant: str, service: str) -> None:
        """Keep which service a merchant's writes go to, until it moves; any other is refused."""
        await self._run(lambda _: bind_service(merchant, self._where(service)))

    async def move(self, old: str, new: str) -> list[str]:
        """Follow a service to its new address, and return the merchants whose writes go there from now on."""
        sandbox, after = old in {"sandbox", SANDBOX.name}, canonical_url(parse_base_url(new))
        before = SANDBOX.name if sandbox else canonical_url(parse_base_url(old))
        merchants, known = await self._run(lambda _: move_service(before, after, unused=sandbox))
        if not merchants:
            raise invalid("old", f"the address of one of its services: {', '.join(known) or 'it has none'}", old)
        return sorted(merchants)

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> Begun:
        """Keep an intention as *sending*, for `lease` seconds, unless its key says that it must not be sent."""
        lasts, where, ticked = check_seconds("lease", lease), self._where(service), self._tick()
        return await self._run(lambda now: transactions.begin(draft, where, now, lasts, tick=ticked))

    async def claim(
        self,
        intent_id: int,
        lease: float,
        *,
        fence: int | None = None,
        service: str | None = None,
        named: Mapping[str, object] | None = None,
    ) -> Begun:
        """Make an intention that is kept already *sending*, for `lease` seconds, unless its state forbids it."""
        asked, lasts = check_number("intent_id", intent_id), check_seconds("lease", lease)
        where, ticked = self._where(service), self._tick()
        return await self._run(
            lambda now: transactions.claim(asked, fence, where, now, lasts, tick=ticked, named=named)
        )

    async def note_used(self, intent: Intent) -> bool:
        """Keep that the service said "used before" of what was sent; `False` if its end is known by now."""
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
        """Keep what became of an intention, and end the claim; `False`, and nothing changes, where that is lost."""
        asked, again = _state(state), None if due is None else check_moment("due", due)
        facts = {"outcome": None if outcome is None else outcome_text(outcome), "reason": _line(reason)}
        ticked = self._tick()
        return await self._run(
            lambda now: transactions.settle(intent, asked, again, now, facts, tick=ticked, answered=answered)
        )

    async def ask(
        self,
        limit: int,
        lease: float,
        *,
        merchant: str | None = None,
        before: datetime | None = None,
        service: str | None = None,
    ) -> Intents:
        """Claim up to `limit` intentions that the service is to be asked about, the longest due first."""
        most, by = check_number("limit", limit), None if before is None else check_moment("before", before)
        lasts, ticked, where = check_seconds("lease", lease), self._tick(), self._where(service)
        whose = transactions.Whose(merchant, where)
        await self.recorder.catch_up()
        return await self._run(lambda now: transactions.ask(most, whose, by, now, lasts, tick=ticked))

    async def postpone(
        self,
        intent: Intent,
        due: datetime,
        reason: str = "",
        *,
        denied: int = 0,
        silent_since: datetime | None = None,
    ) -> bool:
        """End a claim without news: ask again from then on; `False` where the claim is lost."""
        again, since = (
            check_moment("due", due),
            None if silent_since is None else check_moment("silent_since", silent_since),
        )
        facts = {"reason": _line(reason), "denied": denied, "silent_since": since}
        return await self._run(lambda _: transactions.postpone(intent, again, facts))

    async def next_due(self, merchant: str | None = None) -> datetime | None:
        """Return when the next intention is to be asked about, or a lease ends; `None` where nothing is to come."""
        return await self._run(lambda _: transactions.next_due(merchant))

    @frameless_async
    async def add(
        self, request: Request[Response], *, merchant: str, intent: str | None = None, connection: Any = None
    ) -> int:
        """Keep a request as *new*, for a worker to send, and return its number; the same again is the same number.

        Args:
            request: Such as `CreateRefund(...)`. It is kept with its `extra`, as it is sent from there.
            merchant: The merchant's number.
            intent: The caller's own key.
            connection: The caller's own, to the journal's database: it is kept when that commits.
        """
        work = partial(transactions.add, entry_of_request(request, merchant, intent, self._keep))
        begun = await (self._run(work) if connection is None else self._within(connection, work))
        if begun.step is Step.CONFLICT:
            raise conflict(begun.intent)
        return begun.intent.id

    async def note(self, intent_id: int, reason: str) -> bool:
        """Keep why what is *new* cannot be sent, and change nothing else of it; `False` where that is kept already."""
        values = {"id": check_number("intent_id", intent_id), "reason": _line(reason)}
        return bool(await self._run(lambda _: numbers(statements.NOTE, values)))

    async def get(self, intent_id: int) -> Intent | None:
        """Return an intention by its number; `None` where there is none."""
        found = await self._intents(statements.INTENT, id=check_number("intent_id", intent_id))
        return found[0] if found else None

    async def find(self, operation: str, reference: str, *, merchant: str | None = None) -> Intents:
        """Return the intentions of one operation about one order, refund or subscription, oldest first."""
        return await self._intents(statements.FIND, operation=operation, reference=reference, merchant=merchant)

    async def list(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> Intents:
        """List intentions, those of one state or all, in the order of their numbers, `after` one of them."""
        values = {"limit": check_number("limit", limit), "after": check_number("after", after)}
        if state is None:
            return await self._intents(statements.LIST, **values)
        return await self._intents(statements.LIST_OF_STATE, state=_state(state), **values)

    async def resolve(
        self, intent_id: int, *, as_: State, reason: str, seen: State | None = None, attempts: int | None = None
    ) -> Intent:
        """End a new, unknown, accepted or manual intention by a person's word; who held it changes nothing any more."""
        if as_ not in (ends := sorted(ENDS)):
            raise invalid("as_", f"one of {', '.join(ends)}", as_)
        if not isinstance(reason, str) or not reason.strip():
            raise invalid("reason", "a text that says how you know", reason)
        asked, why = check_number("intent_id", intent_id), _line(reason)
        was = None if seen is None else _state(seen, "seen")
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
        """End what is open by what the service has told of it, and return what that changed."""
        if operation not in list(BY_STATE):
            raise invalid("operation", f"one of {', '.join(BY_STATE)}", operation)
        if profile is not None and not isinstance(profile, Profile):
            raise invalid("profile", "a Profile, such as `session.profile`, or left out", profile)
        if state is not None and not isinstance(state, str):
            raise invalid("state", "our name of a state, or None", state)
        end = BY_STATE[operation].get(state or "")
        if end is None:
            return []
        about = {"operation": operation, "reference": reference, "merchant": merchant}
        write = next(each for each in OPERATIONS if each.name == operation)
        given = profile or Profile()
        said = transactions.Said(write, data, _compared(write, given), given)
        word = await self._run(lambda now: transactions.told(about, said, end, f"the service told: {state}", now))
        for kept, other in word.others:
            logger.warning("intention %d is %s; what was told is of another: %s", kept.id, kept.state, _line(other))
        return word.changed

    async def prune(self, before: datetime) -> int:
        """Delete what has succeeded or was rejected before a moment, and nothing else; return how many that were."""
        values = {"before": check_moment("before", before), "limit": PRUNED_AT_ONCE}
        pruned = 0
        while now := len(await self._run(lambda _: numbers(statements.PRUNE, values))):
            pruned += now
        return pruned

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _intents(self, statement: str, **values: Any) -> Intents:
        return await self._run(lambda _: intents(statement, values))


def _compared(write: Operation, profile: Profile) -> Comparison:
    """Return in what the service's word about a write is compared, by the paths of `[answer]` and `[notification]`.

    Nothing need be there.
    """
    found = [evolve(each, required=False) for each in comparison_of(write, profile).fields]
    places = {"outTradeNo": profile.notification.out_trade_no, "outRefundNo": profile.notification.out_refund_no}
    return Comparison((*found, *(ComparedField(name, path, ValueKind.NUMBER) for name, path in places.items() if path)))


def check_seconds(name: str, given: object) -> float:
    """Return a number of seconds that a lease can last.

    Raises:
        InvalidArgumentError: It is none, below 0, or longer than decades.
    """
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= LONGEST_LEASE:
        raise invalid(name, "a number of seconds, 0 or more, and no more than a billion", given)
    return given


def _state(state: State, name: str = "state") -> State:
    if state not in STATES:
        raise invalid(name, f"one of {', '.join(STATES)}", state)
    return state


def _line(reason: str) -> str:
    return " ".join(reason.split())
