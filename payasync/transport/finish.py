"""What needs no event loop."""

from collections.abc import Awaitable
from contextlib import suppress


def finish(awaitable: Awaitable[object]) -> None:
    """Run to its end what waits for nothing but a turn of a loop; what waits for more is left there, and closed."""
    steps = awaitable.__await__()
    with suppress(StopIteration):
        while steps.send(None) is None:
            pass
