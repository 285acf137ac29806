"""What a session sends: request objects, calls to endpoints that the document does not show, and questions."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import evolve

from payasync.calls import Call, Send
from payasync.codec import Codec
from payasync.errors import PayasyncError, SessionClosedError
from payasync.flights import Flights
from payasync.operations import custom
from payasync.recovery import about
from payasync.requests import NOTHING, Request, invalid, word
from payasync.responses import Response
from payasync.settings import Timeouts
from payasync.wiring import Setup

R = TypeVar("R", bound=Response)


class Sender:
    """The half of a session that sends; the other half is its making and its end."""

    _setup: Setup
    _codec: Codec
    _flights: Flights
    _way: Send
    _closed: bool

    async def send(
        self,
        request: Request[R],
        *,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> R:
        """Send a request object, as the methods of the namespaces do.

        Args:
            request: Such as `CreateRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of what a write is for; it travels with the call, and not on the wire.
            shield: Let the call go on to its end where its caller is cancelled; `aclose(grace=)` waits for it.

        Raises:
            PayasyncError: As the method of the same name says.
        """
        if not isinstance(request, Request) or not hasattr(request, "operation"):
            raise invalid("request", "a request object, such as CreateRefund(...)", request)
        if shield:
            return await self._flights.shielded(self.send(request, timeout=timeout, intent=intent))
        usual = timeout is None and intent is None and not self._closed and not self._flights.closed
        timeouts = self._setup.timeouts if usual else self._times(request, timeout, intent)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        call = self._codec.call(request, timeouts=timeouts, deadline=deadline, intent=intent)
        with self._flights.begin():
            reply = await self._way(call)
        answer: R = request.answer.of(call, reply)  # type: ignore[assignment] # its own
        return answer

    async def request(
        self,
        method: str,
        path: str,
        *,
        fields: Mapping[str, Any] = NOTHING,
        bearer: bool = False,
        signed: bool = False,
        read: bool = False,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Response:
        """Call an endpoint that the document does not show, through the same middleware.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: Below the base URL, such as `/payment/bill`.
            fields: By their wire names: in a JSON body, or for GET and DELETE in the query.
            bearer: Send `Authorization: Bearer`.
            signed: Add `nonceStr` and `sign`.
            read: Asking again changes nothing. Without it the call is a write that nothing names, and is never
                sent twice.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of what a write is for; it travels with the call, and not on the wire.
            shield: Let the call go on to its end where its caller is cancelled.

        Raises:
            PayasyncError: As for any other call.
        """
        operation = custom(method, path, read=read)
        for name, flag in (("bearer", bearer), ("signed", signed), ("read", read)):
            if not isinstance(flag, bool):
                raise invalid(name, "True or False", flag, operation)
        call = self._codec.custom(operation, fields, bearer=bearer, signed=signed)
        timeouts = self._times(call, timeout, intent)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        answer = self._answer(call.derived(timeouts=timeouts, deadline=deadline, intent=intent))
        return await (self._flights.shielded(answer) if shield else answer)

    async def _answer(self, call: Call) -> Response:
        with self._flights.begin():
            return Response.of(call, await self._way(call))

    def _times(self, about: Call | Request[Any], seconds: float | None, intent: str | None) -> Timeouts:
        """Return the times of one call that may begin."""
        try:
            self._check_open()
            if intent is not None:
                word("intent", intent, about.operation)
            return self._setup.times(seconds)
        except PayasyncError as error:
            error.add(operation=about.operation.name, reference=about.reference)
            raise

    async def reconcile(
        self, error: PayasyncError, *, extra: Mapping[str, Any] = NOTHING, timeout: float | None = None
    ) -> Response:
        """Ask the service what became of a write that ended without a recognised answer.

        Args:
            error: The `OutcomeUnknownError` of an order or a refund that has a number of the merchant's.
            extra: Fields of the query that the document does not show, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            OutcomeUnknownError: The error itself, where nothing names what it was about.
            NotConfiguredError: The profile does not say how to ask.
            NoAnswerError: No usable answer came: ask again later.
            ServiceError: The service refused the query, or knows no such number.
        """
        question = about(error)
        return await self.send(evolve(question, extra=extra) if extra else question, timeout=timeout)

    def _check_open(self) -> None:
        if self._closed or self._flights.closed:
            raise SessionClosedError("the session is closed: make another")
