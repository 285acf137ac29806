"""What a namespace needs of a session: a way to send a request."""

from typing import Protocol, TypeVar

from payasync.profile import Profile
from payasync.requests import Request
from payasync.responses import Response

R = TypeVar("R", bound=Response)


class SendRequest(Protocol):
    """`Session.send`, as the namespaces see it."""

    async def __call__(
        self, request: Request[R], *, timeout: float | None = None, intent: str | None = None, shield: bool = False
    ) -> R:
        """Send a request, and return its answer."""
        ...


class Namespace:
    """One of `pay.payments`, `pay.orders`, `pay.refunds` and `pay.subscriptions`."""

    def __init__(self, send: SendRequest, profile: Profile) -> None:
        self._send = send
        self._profile = profile
