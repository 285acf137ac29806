"""What became of a write: the query that tells, by the number that names it."""

from payasync.calls import Call, Reply
from payasync.codec import Codec
from payasync.errors import IntentConflictError, OutcomeUnknownError, PayasyncError
from payasync.matrix import Column, column
from payasync.operations import CLOSE_ORDER, CREATE_REFUND, PLACE_ORDER, QUERY_ORDER, QUERY_REFUND
from payasync.requests import Request, invalid
from payasync.resources.orders import QueryOrder
from payasync.resources.refunds import QueryRefund
from payasync.responses import Response
from payasync.sameness import objection
from payasync.verdicts import still_unknown


def question(codec: Codec, call: Call) -> Call | None:
    """Return the query that tells what became of a write; `None` where the profile does not map one.

    An order is asked about by endpoint 3, a refund by endpoint 7 (spec: Endpoints, rules 3 and 6), within the
    time that the write has left.
    """
    request = inquiry(call.operation.name, call.reference) if column(call) is Column.NAMED else None
    if request is None:
        return None
    try:
        asked = codec.call(request)
    except PayasyncError:
        return None
    return asked.derived(timeouts=call.timeouts, deadline=call.deadline)


def inquiry(operation: str | None, reference: str | None) -> Request[Response] | None:
    """Return the request that asks about an order or a refund by its number; `None` where there is none."""
    if reference is None:
        return None
    if operation in {PLACE_ORDER.name, CLOSE_ORDER.name, QUERY_ORDER.name}:
        return QueryOrder(out_trade_no=reference)
    return QueryRefund(identifier=reference) if operation in {CREATE_REFUND.name, QUERY_REFUND.name} else None


def about(error: PayasyncError) -> Request[Response]:
    """Return the request that asks what became of the write that ended with an error.

    Raises:
        InvalidArgumentError: It is no error of ours.
        PayasyncError: The error itself, where nothing names what it was about, or its number stands for another.
    """
    if not isinstance(error, PayasyncError):
        raise invalid("error", "the error of a call, such as an OutcomeUnknownError", error)
    request = inquiry(error.operation, error.reference)
    if request is None or isinstance(error, IntentConflictError):
        raise error
    return request


def check_answer(error: PayasyncError, call: Call, reply: Reply) -> None:
    """Refuse an answer that says nothing of the write that ended with an error.

    Args:
        error: Of the write.
        call: The question.
        reply: The answer.

    Raises:
        OutcomeUnknownError: It holds nothing, or is about another order or refund under the same number.
    """
    if error.asked is None and not isinstance(error, OutcomeUnknownError):
        return
    why = objection(error.asked or {}, call.reference, call.profile.answer, reply.document)
    if not why:
        return
    unknown = still_unknown(call, why, reply)
    unknown.add(operation=error.operation, intent_id=getattr(error, "intent_id", None), asked=error.asked)
    raise unknown from error
