"""What a session tells its `on_event`: plain values, none with a secret in it."""

from attrs import frozen


@frozen(kw_only=True)
class Attempted:
    """One attempt ended.

    Attributes:
        operation: Its name, such as `"orders.place"`.
        reference: The order or refund number, where the call has one.
        attempt: 1 for the first.
        elapsed: Seconds.
        status: The HTTP status of the answer, or `None` where none came.
        error: The name of the error's class, where none came.
    """

    operation: str
    reference: str | None
    attempt: int
    elapsed: float
    status: int | None = None
    error: str | None = None


@frozen(kw_only=True)
class Retrying:
    """A further attempt will start in `delay` seconds, because of `reason`."""

    operation: str
    reference: str | None
    attempt: int
    delay: float
    reason: str


@frozen(kw_only=True)
class Unknown:
    """A write ended without a recognised answer: it may have been done."""

    operation: str
    reference: str | None
    reason: str


Event = Attempted | Retrying | Unknown
