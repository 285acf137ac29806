"""What a session sends: request objects, calls to endpoints that the document does not show, and questions."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from attrs import evolve

from payasync import bulk
from payasync.calls import Call, Entry, Reply, Send
from payasync.codec import Codec
from payasync.errors import ConfigurationError, NoAnswerError, PayasyncError, SessionClosedError, StorageError
from payasync.flights import Flights
from payasync.middleware.quota import Quota
from payasync.operations import custom
from payasync.recovery import about, about_write, check_answer, unmatched
from payasync.requests import NOTHING, Request, invalid, word
from payasync.responses import Response
from payasync.settings import Timeouts
from payasync.tracebacks import drop_frames, frameless, frameless_async
from payasync.wiring import Setup

R = TypeVar("R", bound=Response)


class Sender:
    """The half of a session that sends; the other half is its making and its end."""

    _setup: Setup
    _codec: Codec
    _flights: Flights
    _way: Send
    _quota: Quota
    _closed: bool

    @frameless_async
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
            intent: Your own name of what a write is for: its key in the session's journal, and not on the wire.
            shield: Let the call go on to its end where its caller is cancelled; `aclose(grace=)` waits for it.

        Raises:
            PayasyncError: As the method of the same name says.
        """
        _check_request(request)
        return await self._send(request, timeout=timeout, intent=intent, shield=shield)

    async def _send(
        self, request: Request[R], *, timeout: float | None = None, intent: str | None = None, shield: bool = False
    ) -> R:
        if shield:
            return await self._flights.shielded(self._send(request, timeout=timeout, intent=intent))
        usual = timeout is None and intent is None and not self._closed and not self._flights.closed
        timeouts = self._setup.timeouts if usual else self._times(request, timeout, intent)
        loop = asyncio.get_running_loop()
        call = self._codec.call(request, timeouts, loop.time() + timeouts.total, intent)
        self._flights.begin(call.progress, loop)
        try:
            reply = await self._way(call)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            ended = [error]
        else:
            answer: R = request.answer.of(call, reply)  # type: ignore[assignment] # its own
            return answer
        finally:
            self._flights.end(call.progress)
        del request, call
        raise drop_frames(ended.pop(), sys.exception())

    @frameless
    def check(self, request: Request[Response]) -> None:
        """Refuse a request that this session could not send, as sending it would; and send nothing.

        For who keeps a request now and has it sent later, such as by `journal.add`. It passes where the service may
        refuse it all the same.

        Args:
            request: Such as `CreateRefund(...)`.

        Raises:
            InvalidArgumentError: It is no request object, the profile says that the service does not take it, or it
                cannot be signed; whether there is a key for that is not looked at.
            NotConfiguredError: It needs a point that the profile leaves open.
        """
        _check_request(request)
        self._check(request, keyless=True)

    @frameless
    def bulk(
        self,
        requests: Iterable[Request[R]],
        *,
        limit: int = 20,
        on_progress: bulk.Progress | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[bulk.Result[R]]:
        """Send many requests, a few at a time, and yield what each comes to, as they end: one result for each.

        All are checked before the first is sent. Who leaves the loop, or is cancelled, cuts off those under way: they
        may have been done, and a journal knows which. `contextlib.aclosing` has it done before the next line runs.
        If the session is closed, requests that had not begun are `Refused`, with a `SessionClosedError`. After a 429
        with `Retry-After`, no further request begins before that time is over.

        Args:
            requests: Request objects, such as `CreateRefund(...)`; no two writes with one number.
            limit: At most so many are under way, or ended and not looked at; more than the session's `max_connections`
                wait for each other.
            on_progress: A plain function, called with how many have ended, and how many there are.
            timeout: Seconds for each, in place of `Timeouts.total`.

        Raises:
            InvalidArgumentError: An argument is wrong, and nothing was sent; of a request that could not be sent, or
                not be signed, its position from 0 on is named.
            ConfigurationError: The key that a request is signed with is missing; nothing was sent.
            NotConfiguredError: A request needs a point that the profile leaves open; nothing was sent.
            SessionClosedError: The session is closed.
        """
        self._check_open()
        self._setup.times(timeout)
        bulk.check_settings(limit, on_progress)
        sendable = bulk.checked(requests, self._check)
        return bulk.results(
            sendable,
            partial(self.send, timeout=timeout),
            limit=limit,
            on_progress=on_progress,
            pause=self._held,
        )

    async def _held(self) -> None:
        """Wait until the service wants further requests, or the session is closed."""
        clock = asyncio.get_running_loop().time
        while (left := self._quota.held_until - clock()) > 0 and not self._closed and not self._flights.closed:
            await self._flights.pause(left)

    def _check(self, request: Request[Response], *, keyless: bool = False) -> None:
        self._setup.check(self._codec.call(request), keyless=keyless)

    @frameless_async
    async def execute(self, intent_id: int, *, timeout: float | None = None, fence: int | None = None) -> Response:
        """Send what `journal.add` has kept; what was done already is answered from the journal, and not sent.

        Args:
            intent_id: Its number in the session's journal.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            fence: Of who holds it by `journal.ask` and has found out that it was never done: it is sent again then.

        Raises:
            ConfigurationError: The session has no journal.
            InvalidArgumentError: There is no such intention, it is another merchant's, or it was a direct call; a
                person has rejected it, or it turned out not to be done. Or the service does not take it, as the profile
                says by now: that is kept as its reason.
            OutcomeUnknownError: It may have been done, or another process is at it.
            PayasyncError: As the method of the request's own name says.
        """
        self._check_open()
        journal = self._setup.journal
        if journal is None:
            raise ConfigurationError(
                'journal is not set: give the session one, such as SqliteJournal("pay.db")', field="journal"
            )
        request = await journal.recorder.queued(intent_id, self._setup.credentials.merchant_id)
        timeouts = self._times(request, timeout, None)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        try:
            call = self._codec.call(request, timeouts, deadline, None).derived(entry=Entry(intent_id, fence))
            self._setup.check(call)
        except PayasyncError as error:
            with suppress(StorageError):
                await journal.note(intent_id, str(error.args[0]))
            raise
        return request.answer.of(call, await self._reply(call))

    @frameless_async
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
            intent: Your own name of what a write is for: its key in the session's journal, and not on the wire.
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
        return Response.of(call, await self._reply(call))

    async def _reply(self, call: Call) -> Reply:
        self._flights.begin(call.progress)
        try:
            return await self._way(call)
        finally:
            self._flights.end(call.progress)

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

    @frameless_async
    async def reconcile(
        self, error: PayasyncError, *, extra: Mapping[str, Any] = NOTHING, timeout: float | None = None
    ) -> Response:
        """Ask the service what became of a write that ended without a recognised answer.

        Args:
            error: Of an order or a refund that has a number of the merchant's, such as an `OutcomeUnknownError`.
            extra: Fields of the query that the document does not show, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            PayasyncError: The error itself, where nothing names what it was about, or its number stands for another.
            OutcomeUnknownError: The answer holds nothing, or the number stands at the service for another order or
                refund.
            NotConfiguredError: The profile does not say how to ask.
            NoAnswerError: No usable answer came: ask again later.
            ServiceError: The service refused the query, or knows no such number (`absent`): as long as its quarantine
                lasts, it may still do what it has received, and under another number that would be a second one.
        """
        question = about(error)
        if extra:
            question = evolve(question, extra=extra)
        try:
            call, reply = await self.inquire(question, timeout=timeout, asked=error.asked)
        except NoAnswerError as failed:
            unmatching = unmatched(error, failed)
        else:
            check_answer(error, call, reply)
            return question.answer.of(call, reply)
        raise unmatching from error

    @frameless_async
    async def inquire(
        self,
        question: Request[Response],
        *,
        timeout: float | None = None,
        asked: Mapping[str, object] | None = None,
    ) -> tuple[Call, Reply]:
        """Send a query, and return it as it was sent, with the answer as it came: for who keeps both.

        Args:
            question: Such as `QueryRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            asked: What the write named that it asks about, by wire names: the response must match that, too.

        Raises:
            PayasyncError: As for any other call.
        """
        timeouts = self._times(question, timeout, None)
        deadline = asyncio.get_running_loop().time() + timeouts.total
        call = about_write(self._codec.call(question, timeouts, deadline), asked)
        return call, await self._reply(call)

    def _check_open(self) -> None:
        if self._closed or self._flights.closed:
            raise SessionClosedError("the session is closed: make another")


def _check_request(request: object) -> None:
    if not isinstance(request, Request) or not hasattr(request, "operation"):
        raise invalid("request", "a request object, such as CreateRefund(...)", request)
