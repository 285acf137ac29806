"""When an import sends nothing more."""

from typing import Final

import pytest

from payasync import (
    AuthenticationError,
    CreateRefund,
    Done,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    RefundResponse,
    Refused,
    ServiceError,
)
from payasync.cli.refund_import import DENIED, NO_ANSWER, WRONG_KEYS, Stops
from payasync.profile.sandbox_profile import PROFILE
from payasync.session import Result, Unknown
from payasync.wire.call import Reply

REFUND: Final = CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
MOST: Final = 3


def done(attempts: int = 1) -> Result[RefundResponse]:
    """Return what the service has done, or the journal has answered."""
    reply = Reply(status=200, headers={}, body=b"{}", attempts=attempts)
    return Done(REFUND, RefundResponse(reply, PROFILE.answer, PROFILE.states))


def refused(error: PayasyncError, attempts: int = 1) -> Result[RefundResponse]:
    """Return what was not done."""
    error.add(attempts=attempts)
    return Refused(REFUND, error)


def lost(attempts: int = 1) -> Result[RefundResponse]:
    """Return what has no answer, or what the journal does not send, as it is in doubt."""
    return Unknown(REFUND, OutcomeUnknownError("no answer", attempts=attempts))


def denied(status: int = 403) -> Result[RefundResponse]:
    """Return what these keys may not do."""
    return refused(AuthenticationError(f"HTTP {status}", http_status=status))


def heard(*results: Result[RefundResponse]) -> str:
    """Return what is said to the last of several results."""
    stops = Stops(MOST)
    return [stops.why(each) for each in results][-1]


@pytest.mark.parametrize("result", [lost(), refused(NotSentError("no connection"))])
def test_silent_service_is_left_in_peace(result: Result[RefundResponse]) -> None:
    """So many rows without an answer, one after the other, and nothing more is sent."""
    assert ["", NO_ANSWER] == [heard(*[result] * count) for count in (MOST - 1, MOST)]
    assert not heard(result, result, done(), result)
    assert not heard(result, result, refused(ServiceError("HTTP 400")), result)


def test_what_the_journal_answers_says_nothing_of_the_service() -> None:
    """After a killed run many rows are in doubt at once, and the service was not even asked."""
    assert not heard(*[lost(attempts=0)] * MOST)
    assert NO_ANSWER == heard(lost(), lost(), done(attempts=0), lost())


def test_keys_that_are_not_known_stop_at_once() -> None:
    """HTTP 401 is said of the keys, whatever was done before."""
    assert WRONG_KEYS == heard(denied(401))
    assert WRONG_KEYS == heard(done(), denied(401))


def test_order_that_may_not_be_refunded_stops_nothing() -> None:
    """HTTP 403 may be said of one order; of the keys it is only where nothing else is ever said."""
    assert not heard(denied())
    assert not heard(*[denied()] * (DENIED - 1))
    assert WRONG_KEYS == heard(*[denied()] * DENIED)
    assert not heard(done(), *[denied()] * DENIED)
    assert not heard(refused(ServiceError("HTTP 400")), *[denied()] * DENIED)
