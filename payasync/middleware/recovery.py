"""What became of a write: the query that tells, by the number that names it."""

from collections.abc import Mapping

from attrs import evolve

from payasync.endpoints import CLOSE_ORDER, CREATE_REFUND, PLACE_ORDER, QUERY_ORDER, QUERY_REFUND
from payasync.errors import IntentConflictError, NoAnswerError, OutcomeUnknownError, PayasyncError
from payasync.middleware.outcome import LOOK, REPEAT, Column, column, still_unknown
from payasync.resources.orders import QueryOrder
from payasync.resources.refunds import QueryRefund
from payasync.wire.call import Call, Reply
from payasync.wire.encode import Codec
from payasync.wire.match import named, tells_nothing
from payasync.wire.request import Request, invalid
from payasync.wire.response import Response


def question(codec: Codec, call: Call) -> Call | None:
    """Return the query that tells what became of a write; `None` where the profile does not map one.

    An order is asked about by endpoint 3, a refund by endpoint 7 (spec: Endpoints, rules 3 and 6), within the
    time that the write has left.
    """
    request = inquiry(call.operation.name, call.reference) if column(call) in {Column.NAMED, Column.CLOSE} else None
    if request is None:
        return None
    try:
        asked = codec.call(request, call.timeouts, call.deadline)
    except PayasyncError:
        return None
    return about_write(asked, named(call.fields))


def about_write(question: Call, asked: Mapping[str, object] | None) -> Call:
    """Return a query whose response must match what a write has named, too.

    Args:
        question: The query.
        asked: The numbers, amounts, currency and merchant of the write, by wire names.
    """
    return question.derived(expected=evolve(question.expected, asked=asked)) if asked else question


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
    """Refuse a response that says nothing of the write that ended with an error.

    Args:
        error: Of the write.
        call: The query.
        reply: To the query.

    Raises:
        OutcomeUnknownError: It holds nothing.
    """
    if error.asked is None and not isinstance(error, OutcomeUnknownError):
        return
    if why := tells_nothing(call.reference, call.profile.answer, reply.document):
        raise of_write(still_unknown(call, why, reply), error) from error


def unmatched(error: PayasyncError, failed: NoAnswerError) -> PayasyncError:
    """Return the error of a write whose query has brought no response that is about it.

    Args:
        error: Of the write.
        failed: Of the query.
    """
    if failed.objection is None or (error.asked is None and not isinstance(error, OutcomeUnknownError)):
        return failed
    words = str(failed.args[0]).replace(REPEAT, LOOK)
    unknown = OutcomeUnknownError(
        words, sent=True, reason=failed.reason, response=failed.response, objection=failed.objection
    )
    unknown.add(reference=failed.reference, attempts=failed.attempts, retry_after=failed.retry_after)
    return of_write(unknown, error)


def of_write(unknown: OutcomeUnknownError, error: PayasyncError) -> OutcomeUnknownError:
    """Return an error of a query as one of the write that is asked about."""
    unknown.add(operation=error.operation, intent_id=getattr(error, "intent_id", None), asked=error.asked)
    return unknown
