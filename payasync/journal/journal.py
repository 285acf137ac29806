"""What a session and a reconciler ask of the place that keeps intentions: no I/O here."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from payasync.journal.intents import Begun, Draft, Intent, Intents, Outcome, State
from payasync.profile.profile import Profile
from payasync.session import Recording
from payasync.wire.call import Call, Reply
from payasync.wire.request import Request
from payasync.wire.response import Response


class Journal(Recording, Protocol):
    """Keeps intentions durably, and lends each to one sender or asker at a time.

    All of it is safe with several processes on one journal. Each method raises `StorageError` where the journal can
    be neither read nor written now, and then nothing was done.
    """

    def outcome(self, call: Call, reply: Reply) -> Outcome:
        """Return what this journal keeps of the answer to a call."""
        ...

    async def bind(self, merchant: str, service: str) -> None:
        """Keep which service a merchant's writes go to, until it moves: who asks about them has this asked first.

        Args:
            merchant: The merchant's number.
            service: As `Session.service` says it.

        Raises:
            ConfigurationError: They have gone to another.
        """
        ...

    async def move(self, old: str, new: str) -> list[str]:
        """Follow a service to its new address, and return the merchants whose writes go there from now on.

        For one and the same service: of any other the journal would believe what it has never done. A session of the
        old address is refused from now on, also one that has sent already.

        Args:
            old: The base URL that it had; or `sandbox`, which is another service: as long as nothing was done there.
            new: The one that it has.

        Raises:
            ConfigurationError: One of them is no base URL.
            InvalidArgumentError: No merchant's writes go to `old`; or it is the sandbox, and has done some.
        """
        ...

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> Begun:
        """Keep an intention as *sending*, for `lease` seconds, unless its key says that it must not be sent.

        When this returns `Step.SEND`, it is on the disk and outlives a loss of power: bytes may leave. An intention
        without a key is always the first.

        Args:
            draft: The intention.
            lease: Seconds.
            service: Where it is sent to, as `Session.service` says it; kept, and compared, as by `bind`.

        Raises:
            ConfigurationError: The merchant's writes go to another service.
        """
        ...

    async def claim(
        self,
        intent_id: int,
        lease: float,
        *,
        fence: int | None = None,
        service: str | None = None,
        named: Mapping[str, object] | None = None,
    ) -> Begun:
        """Make an intention that is kept already *sending*, for `lease` seconds, unless its state forbids it.

        Args:
            intent_id: Its number.
            lease: Seconds.
            fence: Of who holds it by `ask`, and has found out that it was never done: it is sent again then.
            service: As of `begin`.
            named: What responses are compared with, and no argument says, by wire names, as `Draft.named`.

        Raises:
            ConfigurationError: The merchant's writes go to another service.
            InvalidArgumentError: There is no such intention; or it was a direct call, or is rejected for good: by a
                person, or since it turned out not to be done.
        """
        ...

    async def note_used(self, intent: Intent) -> bool:
        """Keep that the service said "used before" of what was sent; `False` if its end is known by now.

        When this returns `True`, it is on the disk: whatever becomes of the sender, no later "not found" is believed.
        It needs no claim, because it is true of the number. Who holds the write to ask about it loses that claim.

        Args:
            intent: As `begin` or `claim` gave it.
        """
        ...

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
        """Keep what became of an intention, and end the claim; `False`, and nothing changes, where that is lost.

        Args:
            intent: As `begin`, `claim` or `ask` gave it.
            state: What `TRANSITIONS` has behind its state.
            outcome: The answer that says so; without one, a former one stays.
            reason: Why, in one line.
            due: Of an accepted or unknown one, the aware moment from which it is asked about; now, if not given.
            answered: The service has answered it: though *unknown*, nothing of it is on its way any more.

        Raises:
            InvalidArgumentError: That state cannot follow.
        """
        ...

    async def ask(
        self,
        limit: int,
        lease: float,
        *,
        merchant: str | None = None,
        before: datetime | None = None,
        service: str | None = None,
    ) -> Intents:
        """Claim up to `limit` intentions that the service is to be asked about, the longest due first.

        Those are: unknown and accepted ones that are due, and what was *sending* when its lease ended, which is
        unknown with that. Each counts in `asked`.

        Args:
            limit: At most so many.
            lease: Seconds.
            merchant: Only this one's: with another's keys the service would know none of them.
            before: Only what was due by then, an aware moment; left out: by now.
            service: Which is asked, as of `begin`; with it goes the merchant.

        Raises:
            ConfigurationError: The merchant's writes go to another service.
        """
        ...

    async def postpone(
        self,
        intent: Intent,
        due: datetime,
        reason: str = "",
        *,
        denied: int = 0,
        silent_since: datetime | None = None,
    ) -> bool:
        """End a claim without news: ask again from then on; `False` where the claim is lost.

        Args:
            intent: As `ask` gave it.
            due: From when it is asked about again.
            reason: In one line.
            denied: How often in a row by now nothing that it said of what was accepted was of use.
            silent_since: Since when, an aware moment, it has said nothing at all of what was accepted.
        """
        ...

    async def next_due(self, merchant: str | None = None) -> datetime | None:
        """Return when the next intention is to be asked about, or a lease ends; `None` where nothing is to come.

        Args:
            merchant: Only of this one's.
        """
        ...

    async def add(
        self, request: Request[Response], *, merchant: str, intent: str | None = None, connection: Any = None
    ) -> int:
        """Keep a request as *new*, for a worker to send, and return its number; the same again is the same number.

        One that was rejected is *new* again by that. Any other keeps its state.

        Args:
            request: Such as `CreateRefund(...)`. It is kept whole, with its `extra`, as it is sent from there.
            merchant: The merchant's number.
            intent: The caller's own key.
            connection: The caller's, in whose transaction it is kept: what commits, commits together.

        Raises:
            InvalidArgumentError: A read; or something of it may not be kept, such as a customer's details.
            IntentConflictError: Its key stands for another request.
        """
        ...

    async def note(self, intent_id: int, reason: str) -> bool:
        """Keep why a *new* intention cannot be sent; it waits as long as before, and `Reconciler.unsent` tells of it.

        Args:
            intent_id: Its number.
            reason: In one line.

        Returns:
            Whether anything has changed: not where it says so already, and not where its state is another by now.
        """
        ...

    async def get(self, intent_id: int) -> Intent | None:
        """Return an intention by its number; `None` where there is none."""
        ...

    async def find(self, operation: str, reference: str, *, merchant: str | None = None) -> Intents:
        """Return the intentions of one operation about one order, refund or subscription, oldest first."""
        ...

    async def list(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> Intents:
        """List intentions, those of one state or all, in the order of their numbers, `after` one of them."""
        ...

    async def resolve(
        self, intent_id: int, *, as_: State, reason: str, seen: State | None = None, attempts: int | None = None
    ) -> Intent:
        """End a new, unknown, accepted or manual intention by a person's word; who held it changes nothing any more.

        What has succeeded is never sent again, also where it was done by other means, and not by this journal. What was
        rejected is sent to whoever repeats it or adds it again; a queue that delivers its number still sends nothing.

        Args:
            intent_id: Its number.
            as_: `succeeded` or `rejected`.
            reason: How the person knows.
            seen: The state that the person has seen; where it is another by now, nothing changes. Left out: any.
            attempts: How often it was sent, as the person has seen: one that was sent again since is in doubt again.

        Raises:
            InvalidArgumentError: There is no such intention, or its state is another.
        """
        ...

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
        """End what is accepted or unknown by what the service has told of it, and return what that changed.

        So ends what was added again, and is done already. For notifications, where they are verified or confirmed; the
        answer that was kept stays. What was sent several times is not rejected by one, which may be about an earlier
        attempt. What was rejected, and has succeeded by one, is given to a person.

        Args:
            operation: The write that it is about: `orders.place`, `orders.close` or `refunds.create`.
            reference: The order's or the refund's number.
            state: Our name of its state, such as `succeeded`; of one that is no end nothing follows.
            data: What was told, such as the notification's `data`. If it names another number, amount, currency or
                merchant than the write, nothing changes, and a warning is logged.
            merchant: The merchant's number.
            profile: Says by the paths of `[answer]` where `data` names these; left out: under their wire names.

        Raises:
            InvalidArgumentError: There is no such operation.
        """
        ...

    async def prune(self, before: datetime) -> int:
        """Delete what has succeeded or was rejected before a moment, and nothing else; return how many that were.

        The journal knows its keys no more: what comes under them afterwards is sent.
        """
        ...

    async def aclose(self) -> None:
        """Finish what was begun, and let go of the journal; whatever is asked of it afterwards is a `StorageError`."""
        ...
