"""Sessions with a recorder, and the calls that several test modules make with them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from payasync import Credentials, PayasyncError, PaymentResponse, Profile, Response, RetryPolicy, Session
from tests.foreign.recorder import Answer, Recorder, answer

R = TypeVar("R")
EMPTY: Final = Profile()
KEYS: Final = Credentials("M1", secret_key="sk_1", signing_key="signing key of M1")
ONE_TRY: Final = RetryPolicy(attempts=1)
AT_ONCE: Final = RetryPolicy(base_delay=0)
"""As many attempts as by default, without pauses."""
FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
OK_BODY: Final = b'{"code":"SBX_OK","status":"SBX_PAID","subscriptionId":"S1"}'
OK: Final = answer(200, OK_BODY)
"""A success by the sandbox's profile."""


def connect(service: Recorder | str, **settings: Any) -> Session:
    """Return a session with a recorder or an address. By default it makes one attempt, with an empty profile."""
    chosen: dict[str, Any] = {"credentials": KEYS, "profile": Profile(), "retry": ONE_TRY, **settings}
    return Session(service if isinstance(service, str) else service.url, **chosen)


async def ended(
    ask: Callable[[Session], Awaitable[Any]],
    service: Recorder,
    profile: Profile = EMPTY,
    credentials: Credentials = KEYS,
    **settings: Any,
) -> Any:
    """Return the response or the error with which a call ends. By default its session retries without pauses."""
    given = {"profile": profile, "credentials": credentials, "retry": AT_ONCE, **settings}
    async with service, connect(service, **given) as pay:
        try:
            return await ask(pay)
        except PayasyncError as error:
            return error


async def create(pay: Session, amount: int = 1) -> PaymentResponse:
    """Make a write without a number."""
    return await pay.payments.create(amount=amount, currency="USD")


async def query(pay: Session) -> Response:
    """Make a read."""
    return await pay.orders.query("T1")


async def begin(call: Awaitable[R], service: Recorder) -> "asyncio.Future[R]":
    """Begin a call, and return it once the service has read its request."""
    begun = asyncio.ensure_future(call)
    await asyncio.to_thread(service.wait_for_request)
    return begun


async def call_once(ask: Callable[[Session], Awaitable[R]], *script: Answer, **settings: Any) -> R:
    """Return the response to one call of a session whose service responds by a script."""
    with Recorder(script) as service:
        async with connect(service, **settings) as pay:
            return await ask(pay)
