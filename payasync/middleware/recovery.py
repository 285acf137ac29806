"""Queries by the number of a write that show what became of it."""

from typing import TYPE_CHECKING, Final

from payasync.endpoints import QUERY_ORDER
from payasync.errors import IntentConflictError, NoAnswerError, OutcomeUnknownError, PayasyncError
from payasync.evidence.comparison import by_document_names, compared_fields, is_empty_envelope
from payasync.middleware.outcome import REPEAT_HINT, Recourse, describe_claim, recourse, unknown_error
from payasync.profile.wire_names import ASKED_BY, SOUGHT, unaskable
from payasync.resources.orders import QueryOrder
from payasync.resources.refunds import QueryRefund
from payasync.strict_json import ABSENT
from payasync.wire.call import Call, Reply
from payasync.wire.encode import Codec
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import invalid_argument

if TYPE_CHECKING:
    from payasync.profile import Profile

ANOTHER_HINT: Final = "ask again; if that does not help, check the paths in [answer], and caches and proxies on the way"
OTHER_REQUEST_HINT: Final = (
    "look the number up at the service; if it belongs to another request, and you owe both, repeat this one under a "
    "new number"
)


def status_query(
    operation: str | None, reference: str | None, order: object = None, profile: "Profile | None" = None
) -> Request[Response] | None:
    """Return the query about an order or a refund by its number, or `None` if no query fits.

    Args:
        operation: The name of the write or the query.
        reference: The number.
        order: Of a refund, the order's number, if it is known. Some services want it besides.
        profile: The service's, if it is known.

    Raises:
        NotConfiguredError: By the profile, the query takes the service's number.
    """
    query = ASKED_BY.get(operation or "", operation or "")
    if reference is None or query not in SOUGHT:
        return None
    if profile and (error := unaskable(profile, query)):
        raise error
    if query == QUERY_ORDER.name:
        return QueryOrder(out_trade_no=reference)
    return QueryRefund(identifier=reference, out_trade_no=order if isinstance(order, str) else ABSENT)


def query_about(codec: Codec, call: Call) -> Call | None:
    """Return the query about a write, or `None` if the profile does not map one.

    Endpoint 3 shows the state of an order, endpoint 7 that of a refund (docs/reference/service.md#queries).
    The query must end by the write's own deadline.
    """
    if recourse(call) not in {Recourse.QUERY, Recourse.CLOSE}:
        return None
    asked, name = compared_fields(by_document_names(call)), call.operation.name
    try:
        request = status_query(name, call.reference, asked.get("outTradeNo"), call.profile)
        return codec.call(request, call.timeouts, call.deadline).expect_match(asked) if request else None
    except PayasyncError:
        return None


def query_after(error: PayasyncError, profile: "Profile") -> Request[Response]:
    """Return the query about the write that ended with an error.

    Raises:
        InvalidArgumentError: The argument is not a `PayasyncError`.
        NotConfiguredError: By the profile, the query takes the service's number.
        PayasyncError: The error itself, if it has no number to ask about, or its number belongs to another request.
    """
    if not isinstance(error, PayasyncError):
        raise invalid_argument("error", "the error of a call, such as an OutcomeUnknownError", error)
    if isinstance(error, IntentConflictError):
        raise error
    request = status_query(error.operation, error.reference, (error.asked or {}).get("outTradeNo"), profile)
    if request is None:
        raise error
    return request


def check_response(error: PayasyncError, query: Call, reply: Reply) -> None:
    """Refuse an empty response to the query about a write that ended with an error.

    Raises:
        OutcomeUnknownError: The response is empty.
    """
    if _is_of_write(error) and is_empty_envelope(query.profile.answer, reply.document):
        raise _as_of_write(unknown_error(query, describe_claim(query, reply), reply), error) from error


def unmatched_error(error: PayasyncError, failed: NoAnswerError) -> PayasyncError:
    """Return the error of a write if the query about it got no response, or one about something else.

    Args:
        error: The error of the write.
        failed: The error of the query.
    """
    if failed.objection is None or not _is_of_write(error):
        return failed
    hint = ANOTHER_HINT if failed.objection.about_another else OTHER_REQUEST_HINT
    words = str(failed.args[0]).replace(REPEAT_HINT, hint)
    unknown = OutcomeUnknownError(
        words, sent=True, reason=failed.reason, response=failed.response, objection=failed.objection
    )
    unknown.add(reference=failed.reference, attempts=failed.attempts, retry_after=failed.retry_after)
    return _as_of_write(unknown, error)


def _is_of_write(error: PayasyncError) -> bool:
    return error.asked is not None or isinstance(error, OutcomeUnknownError)


def _as_of_write(unknown: OutcomeUnknownError, error: PayasyncError) -> OutcomeUnknownError:
    """Return an error with the facts of the write that the query is about."""
    unknown.add(operation=error.operation, intent_id=getattr(error, "intent_id", None), asked=error.asked)
    return unknown
