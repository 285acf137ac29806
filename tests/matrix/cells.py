"""Real sessions for the failure matrix, and the calls that go through it."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from attrs import evolve, frozen

from payasync import HttpCodes, Idempotency, PayasyncError, Profile, Recovery, Response, Session
from payasync.profile.sandbox_profile import PROFILE
from tests.foreign.certificates import trusting_tls
from tests.foreign.recorder import Recorder, answer
from tests.matrix.table import KINDS
from tests.sessions import FAST, OK_BODY, connect
from tests.wire.ten import TEN

UNSURE: Final = evolve(PROFILE, http=HttpCodes(absent=(404,)), recovery=Recovery())
"""It says what absent is, but not when that is final, and nothing of 429."""
SURE: Final = evolve(PROFILE, recovery=Recovery(quarantine=0.0))
"""A 429 precedes execution, and an absent answer is final at once."""
KEY: Final = "Idempotency-Key"
KEYED: Final = Idempotency(header=KEY)
ABSENT_BODY: Final = b'{"code":"SBX_NOT_FOUND"}'

ORDER_QUERY: Final = "/payment/orderquery"
REFUND_QUERY: Final = "/payment/refund/status"
REFUNDED: Final = {REFUND_QUERY: answer(200, OK_BODY.replace(b"PAID", b"SUCCEEDED"), ("Connection", "close"))}
"""What a query about a refund finds. The state of an order would say nothing about it."""


@frozen
class Column:
    """One column of the table.

    Attributes:
        number: As in the table; `2n` is 2 with a number, and `1k` is 1 with an idempotency key.
        call: Makes the call.
        path: Its endpoint.
        query: The endpoint that is asked what became of it.
    """

    number: str
    call: Callable[..., Awaitable[Response]]
    path: str
    query: str = ""

    @property
    def kind(self) -> str:
        """Which of the four columns of the table it is."""
        return KINDS[self.number]

    def under(self, profile: Profile) -> Profile:
        """Return a profile whose service takes an idempotency key, if the column is about that."""
        return evolve(profile, idempotency=KEYED) if self.kind == "keyed" else profile


QUERIES: Final = {"2n": ORDER_QUERY, "5": REFUND_QUERY}
BY_NUMBER: Final = {
    number: Column(number, one.least if number in {"2", "2k"} else one.call, one.path, QUERIES.get(number, ""))
    for number, one in ((number, TEN[int(number.strip("nk")) - 1]) for number in KINDS)
}
COLUMNS: Final = tuple(BY_NUMBER.values())


def session(service: Recorder, profile: Profile = UNSURE, scheme: str = "", **settings: Any) -> Session:
    """Return a session with a recorder, that waits for next to nothing, and may expect another scheme of it."""
    url = service.url.replace("http:", scheme) if scheme else service.url
    return connect(url, profile=profile, **{"retry": FAST, "tls": trusting_tls(), **settings})


async def ended(call: Awaitable[Response]) -> Any:
    """Return what a call ends as: its response or its error."""
    try:
        return await call
    except PayasyncError as error:
        return error


def received(service: Recorder) -> dict[str, int]:
    """Return how many whole requests each endpoint received."""
    return dict(Counter(request.path for request in service.requests))
