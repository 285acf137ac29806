"""The values that the sandbox stores: orders, refunds, subscriptions, notifications, timers and its timeline."""

from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, TypeAlias, get_args

from attrs import define, field, frozen
from attrs.converters import optional

from payasync.profile.schema import Kind, Refusal

MERCHANT_ID: Final = "SANDBOX"
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(moment: datetime) -> int:
    """Return an aware time as microseconds since 1970."""
    return (moment - BEGINNING) // timedelta(microseconds=1)


def to_instant(given: datetime | int) -> datetime:
    """Return a time in UTC, from a time or from its microseconds."""
    return BEGINNING + timedelta(microseconds=given) if isinstance(given, int) else given.astimezone(UTC)


def format_instant(moment: datetime) -> str:
    """Return a time in ISO 8601, in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


OrderState = Literal["pending", "paid", "failed", "expired", "closed"]
RefundState = Literal["processing", "succeeded", "failed"]
SubscriptionState = Literal["scheduled", "active", "past_due", "cancelled"]
Decision = Literal["authorize", "decline", "cancel"]
DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
Why: TypeAlias = Refusal


@define
class RefusedError(Exception):
    """A request is refused.

    Attributes:
        why: What the refusal means; the dialect has the service's code for it.
        message: For people.
        argument: The argument at fault, by our name.
        field: The field at fault, by its wire name, if it is not an argument.
        status: The HTTP status, if it is not the usual one for `why`.
        expected: The text that should have been signed: for the dashboard, and never sent.
    """

    why: Why
    message: str
    argument: str = ""
    field: str = ""
    status: int | None = None
    expected: str = ""


@frozen(kw_only=True)
class Order:
    """One order, or one payment of endpoint 1, with its gateway page.

    Attributes:
        out_trade_no: The merchant's own number, or one that the sandbox made.
        payment_id: The sandbox's number.
        token: Names the gateway page; nobody can guess it.
        origin: Which endpoint made it: `order` (2) or `payment` (1).
        total_amt: What the customer pays.
        currency: Its code.
        subject: The title that the customer reads.
        body: What the customer reads below.
        notify_url: Where notifications go.
        return_url: Where the customer is sent back to.
        state: Its state.
        declines: How often the customer's payment was declined.
        reserved: The sum of its refunds, with those in progress.
        created: When it was made, by the sandbox's time.
    """

    out_trade_no: str
    payment_id: str
    token: str
    origin: Literal["order", "payment"]
    total_amt: int
    currency: str
    subject: str = ""
    body: str = ""
    notify_url: str | None = None
    return_url: str | None = None
    state: OrderState = "pending"
    declines: int = 0
    reserved: int = 0
    created: datetime = field(default=BEGINNING, converter=to_instant)

    @property
    def number(self) -> str:
        """The number that names it."""
        return self.out_trade_no


@frozen(kw_only=True)
class Refund:
    """One refund of a paid order.

    Attributes:
        out_refund_no: The merchant's own number.
        refund_id: The sandbox's number.
        out_trade_no: The order's number.
        total_amt: The order's amount.
        refund_amt: The amount of the refund.
        notify_url: Where the notification goes.
        fingerprint: Equal for equal requests: nonce and signature do not count.
        state: Its state.
        created: When it was requested.
    """

    out_refund_no: str
    refund_id: str
    out_trade_no: str
    total_amt: int
    refund_amt: int
    notify_url: str | None = None
    fingerprint: str
    state: RefundState = "processing"
    created: datetime = field(default=BEGINNING, converter=to_instant)

    @property
    def number(self) -> str:
        """The number that names it."""
        return self.out_refund_no


def _date(given: date | str) -> date:
    return date.fromisoformat(given) if isinstance(given, str) else given


@frozen(kw_only=True)
class Subscription:
    """One subscription (docs/reference/service.md#subscriptions).

    Attributes:
        subscription_id: The sandbox's number.
        frequency: How often it is billed, as the merchant wrote it.
        amount: What each period costs.
        start_date: When the first period begins.
        customer: The customer's details, as JSON.
        state: Its state.
        period: How many periods have begun.
        renews: When the next period begins; `None` before the first, and where the calendar ends.
        ends: It is cancelled when its period ends.
        failing: How many of its next charges fail.
        failures: How many have failed in a row.
        created: When it was made.
    """

    subscription_id: str
    frequency: str
    amount: int
    start_date: date = field(converter=_date)
    customer: str
    state: SubscriptionState = "scheduled"
    period: int = 0
    renews: date | None = field(default=None, converter=optional(_date))
    ends: bool = field(default=False, converter=bool)
    failing: int = 0
    failures: int = 0
    created: datetime = field(default=BEGINNING, converter=to_instant)

    @property
    def number(self) -> str:
        """The number that names it."""
        return self.subscription_id


@frozen(kw_only=True)
class Charge:
    """What one period of a subscription was billed.

    Attributes:
        subscription_id: Whose.
        period: Which, from 1.
        at: When.
        amount: How much.
        paid: It succeeded.
    """

    subscription_id: str
    period: int
    at: datetime = field(converter=to_instant)
    amount: int
    paid: bool = field(converter=bool)


@frozen(kw_only=True)
class Event:
    """Something that the merchant is notified of (docs/reference/service.md#notifications).

    Attributes:
        kind: What it is about.
        name: What happened, such as `paid`.
        subject: The order, refund or subscription as it is now.
        url: Where the notification goes; `None` if the merchant gave no address.
    """

    kind: Kind
    name: str
    subject: Order | Refund | Subscription
    url: str | None


@frozen(kw_only=True)
class Answered:
    """One call that the sandbox has responded to.

    Attributes:
        operation: Its name, such as `refunds.create`.
        status: The HTTP status.
        code: The result code, as it was sent; empty if there was none.
    """

    operation: str
    status: int
    code: str | int


@frozen(kw_only=True)
class RecordedResponse:
    """The response to the first request with an idempotency key.

    Attributes:
        key: The key.
        fingerprint: Equal for equal requests.
        at: When it was sent, by the sandbox's time.
        outgoing: The response before it is signed, as JSON.
    """

    key: str
    fingerprint: str
    at: datetime = field(converter=to_instant)
    outgoing: str = ""


NotificationState = Literal["waiting", "delivered", "dead"]


@frozen(kw_only=True)
class Notification:
    """A notification in the outbox.

    Attributes:
        notification_id: Names it to the receiver, in every attempt.
        event: Its kind and name, such as `payment.paid`.
        reference: The number of the order, refund or subscription.
        url: Where it is sent.
        body: The JSON that is sent, unless its signature or its time is renewed.
        created: When the event happened.
        state: `waiting` for an attempt, `delivered`, or `dead`: given up.
        due: When the next attempt is due, or `None`.
        tries: The attempts since it was last put into the outbox.
        resends: How often it was sent again on request. The outcome of earlier attempts does not count then.
        seq: Its place in the outbox.
    """

    notification_id: str
    event: str = ""
    reference: str = ""
    url: str
    body: str
    created: datetime = field(default=BEGINNING, converter=to_instant)
    state: NotificationState = "waiting"
    due: datetime | None = field(default=BEGINNING, converter=optional(to_instant))
    tries: int = 0
    resends: int = 0
    seq: int = 0


@frozen(kw_only=True)
class Attempt:
    """One attempt to deliver a notification.

    Attributes:
        notification_id: Which one.
        url: Where it was sent.
        at: When it ended, by the sandbox's time.
        status: The HTTP status of the response; `None` if there was none.
        error: Why there was no response, or why it does not acknowledge; empty if it does.
        answer: The start of the response's body.
        acknowledged: The receiver accepted it.
    """

    notification_id: str
    url: str
    at: datetime = field(default=BEGINNING, converter=to_instant)
    status: int | None
    error: str
    answer: str = ""
    acknowledged: bool = field(converter=bool)


TimerKind = Literal["expire", "settle", "renew"]


@frozen(kw_only=True)
class Timer:
    """Something that falls due: the expiry of an order, the end of a refund, a period of a subscription."""

    due: datetime = field(converter=to_instant)
    kind: TimerKind
    reference: str


EntryKind = Literal["request", "change", "delivery", "admin"]


@frozen(kw_only=True)
class Entry:
    """One entry of the timeline.

    Attributes:
        seq: Its number; later entries have greater ones.
        at: The sandbox's time, in ISO 8601.
        kind: What it records.
        name: The operation such as `orders.place`, the thing that changed, or the event.
        reference: The number of the order, refund or subscription; empty if none is known.
        status: The HTTP status of the response, or `None` if there was none.
        outcome: The result code that was sent, the states before and after, or the result of a delivery. If a fault
            replaced the response: what was done or refused.
        reason: Why it was refused or failed; empty if it was not.
        expected: The text that should have been signed, if the signature was wrong.
        fault: The fault that was applied.
        milliseconds: Wall time until the response was ready; `None` if nobody waited.
    """

    seq: int = 0
    at: str = ""
    kind: EntryKind
    name: str
    reference: str = ""
    status: int | None = None
    outcome: str = ""
    reason: str = ""
    expected: str = ""
    fault: str = ""
    milliseconds: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it was refused, or met a fault."""
        return bool(self.reason or self.fault)
