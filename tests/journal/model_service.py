"""The model's service: what it does with a write, and what it has under each number; no code under test is called."""

from typing import Final, Literal

from attrs import define, field, frozen

Kind = Literal["refund", "order", "close", "payment"]

OPERATIONS: Final[dict[Kind, str]] = {
    "refund": "refunds.create",
    "order": "orders.place",
    "close": "orders.close",
    "payment": "payments.create",
}
PAID: Final = 450
"""What a customer pays for an order that is refunded."""
ALIVE: Final = frozenset({"pending", "paid", "processing", "succeeded"})
"""A thing in another state moves no money, and never will."""
OVER: Final = frozenset({"closed", "failed"})
"""An order that cannot be paid any more; none expires here."""


@frozen
class Wanted:
    """What somebody wants done; two of them are one request where they are equal.

    Attributes:
        kind: Of what.
        number: The merchant's own; a payment has none.
        amount: How much; to close an order takes nothing.
    """

    kind: Kind
    number: str | None = None
    amount: int = 0

    @property
    def operation(self) -> str:
        """The endpoint's name."""
        return OPERATIONS[self.kind]

    @property
    def account(self) -> str:
        """The paid order that a refund is of."""
        return f"A{(self.number or '')[1:]}"


@define
class Thing:
    """What the service has.

    Attributes:
        wanted: As it was asked for.
        state: By our names, such as `paid`.
        by: The number in the journal of the intention that it was made for; `None`: somebody else has made it.
        excused: A person has said that it was not done: who makes it again does what they were told.
    """

    wanted: Wanted
    state: str
    by: int | None
    excused: bool = False


@frozen
class Said:
    """What the service answers to a write.

    Attributes:
        state: Of the thing; empty: it refuses.
        thing: Which thing.
        refusal: The name of the error that it makes.
    """

    state: str = ""
    thing: str = ""
    refusal: str = ""


REFUSED: Final = Said(refusal="ServiceError")
DUPLICATE: Final = Said(refusal="DuplicateError")


@define
class Service:
    """The service.

    Attributes:
        ends: The state of a new refund: processing, succeeded or failed.
        once: A number of a refund is taken once only, the same request included.
        things: By their numbers.
        left: By paid order, what can still be given back.
        payments: How many it has made.
        late: Writes that are on their way to it still, though their callers have given up, and for which intention.
    """

    ends: str
    once: bool
    things: dict[str, Thing] = field(factory=dict)
    left: dict[str, int] = field(factory=dict)
    payments: int = 0
    late: list[tuple[Wanted, int]] = field(factory=list)

    def do(self, wanted: Wanted, by: int | None) -> Said:
        """Do what is asked, where the rules allow it.

        Args:
            wanted: What.
            by: For which intention; `None`: for somebody else.
        """
        if wanted.kind == "close":
            return self._close(wanted)
        if wanted.kind == "payment":
            self.payments += 1
            return self._make(f"P{self.payments}", Thing(wanted, "pending", by))
        number = wanted.number or ""
        if first := self.things.get(number):
            same = wanted == first.wanted and wanted.kind == "refund" and not self.once
            return Said(first.state, number) if same else DUPLICATE
        if wanted.kind == "order":
            return self._make(number, Thing(wanted, "pending", by))
        if wanted.amount > self.left.get(wanted.account, 0):
            return REFUSED
        if self.ends != "failed":
            self.left[wanted.account] -= wanted.amount
        return self._make(number, Thing(wanted, self.ends, by))

    def end(self, name: str, *, well: bool) -> None:
        """End what is under way."""
        thing = self.things[name]
        refund = thing.wanted.kind == "refund"
        thing.state = ("succeeded" if refund else "paid") if well else "failed"
        if refund and not well:
            self.left[thing.wanted.account] += thing.wanted.amount

    def about(self, wanted: Wanted) -> Thing | None:
        """Return what stands under the number of a write."""
        return self.things.get(wanted.number or "")

    def _close(self, wanted: Wanted) -> Said:
        order = self.about(wanted)
        if order is None or order.state == "paid":
            return REFUSED
        order.state = "closed"
        return Said("closed", wanted.number or "")

    def _make(self, name: str, thing: Thing) -> Said:
        self.things[name] = thing
        return Said(thing.state, name)
