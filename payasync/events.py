"""What a session tells its `on_event`: plain values, none with a secret in it; `str` gives the line for a log."""

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

    def __str__(self) -> str:
        ended = f"no response ({self.error})" if self.status is None else f"HTTP {self.status}"
        return _line(self.operation, self.reference, f"attempt {self.attempt}: {ended} after {self.elapsed:.3f} s")


@frozen(kw_only=True)
class Retrying:
    """A further attempt will start in `delay` seconds, because of `reason`."""

    operation: str
    reference: str | None
    attempt: int
    delay: float
    reason: str

    def __str__(self) -> str:
        words = f"attempt {self.attempt} starts in {self.delay:.2f} s: {self.reason}"
        return _line(self.operation, self.reference, words)


@frozen(kw_only=True)
class Unknown:
    """A write ended without a recognised answer: it may have been done."""

    operation: str
    reference: str | None
    reason: str

    def __str__(self) -> str:
        return _line(self.operation, self.reference, f"outcome unknown: {self.reason}")


Event = Attempted | Retrying | Unknown


def _line(operation: str, reference: str | None, words: str) -> str:
    about = f"{operation} {reference}" if reference else operation
    return " ".join(f"{about}: {words}".split())
