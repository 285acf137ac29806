"""The design's table once more, for calls over real HTTP, and the ten calls that go through it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from attrs import evolve, frozen

from payasync import Credentials, HttpCodes, Profile, Recovery, Response, RetryPolicy, Session
from payasync.profile.sandbox_profile import PROFILE
from tests.foreign.certificates import trusting_tls
from tests.foreign.recorder import Recorder
from tests.wire.ten import TEN

KEYS: Final = Credentials("M1", secret_key="sk_1", signing_key="signing key of M1")
UNSURE: Final = evolve(PROFILE, http=HttpCodes(absent=(404,)), recovery=Recovery())
"""It says what absent is, but not when that is final, and nothing of 429."""
SURE: Final = evolve(PROFILE, recovery=Recovery(quarantine=0.0))
"""A 429 precedes execution, and an absent answer is final at once."""
FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
OK_BODY: Final = b'{"code":"SBX_OK","status":"SBX_PAID","subscriptionId":"S1"}'
ABSENT_BODY: Final = b'{"code":"SBX_NOT_FOUND"}'

ORDER_QUERY: Final = "/payment/orderquery"
REFUND_QUERY: Final = "/payment/refund/status"


@frozen
class Column:
    """One column of the table.

    Attributes:
        number: As in the table; `2n` is 2 with a number.
        call: Makes the call.
        path: Its endpoint.
        query: The endpoint that is asked what became of it.
        read: It changes nothing.
    """

    number: str
    call: Callable[[Session], Awaitable[Response]]
    path: str
    query: str = ""
    read: bool = False

    @property
    def keyless(self) -> bool:
        """Whether it is a write that nothing names."""
        return self.number in {"1", "2", "8", "9", "10"}


def _column(number: str, index: int, *, least: bool = False, query: str = "") -> Column:
    one = TEN[index]
    return Column(number, one.least if least else one.call, one.path, query, read=number in {"3", "6", "7"})


COLUMNS: Final = (
    _column("1", 0),
    _column("2", 1, least=True),
    _column("2n", 1, query=ORDER_QUERY),
    _column("3", 2),
    _column("4", 3),
    _column("5", 4, query=REFUND_QUERY),
    _column("6", 5),
    _column("7", 6),
    _column("8", 7),
    _column("9", 8),
    _column("10", 9),
)
BY_NUMBER: Final = {column.number: column for column in COLUMNS}


def session(service: Recorder, profile: Profile = UNSURE, **settings: Any) -> Session:
    """Return a session with a recorder, that waits for next to nothing."""
    chosen: dict[str, Any] = {"credentials": KEYS, "retry": FAST, "tls": trusting_tls(), **settings}
    return Session(service.url, profile=profile, **chosen)
