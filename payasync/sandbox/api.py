"""The ten endpoints over HTTP, and who may ask (spec: Endpoints, Authentication)."""

import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from payasync.credentials import Credentials, Secret
from payasync.endpoints import (
    CANCEL_SUBSCRIPTION,
    CLOSE_ORDER,
    CREATE_PAYMENT,
    CREATE_REFUND,
    CREATE_SUBSCRIPTION,
    OPERATIONS,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    UPDATE_SUBSCRIPTION,
    Operation,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import MERCHANT, NONCE, SIGN
from payasync.sandbox import openapi
from payasync.sandbox.dialect import Dialect, Incoming, Outgoing, Vocabulary
from payasync.sandbox.faults.injection import FaultInjector
from payasync.sandbox.model import Answered, Order, RefusedError
from payasync.sandbox.response_signing import Seal
from payasync.sandbox.server import check_address, read_body, read_query
from payasync.sandbox.service import Service
from payasync.sandbox.signatures import UnsignableError, text, verify
from payasync.sandbox.store import Store, encodable, read_object
from payasync.sandbox.timeline import FACTS, Facts, note, reference

MASK: Final = "<customer details>"


class Admission:
    """Checks requests against the one merchant of a sandbox.

    Args:
        profile: Which operations carry what.
        credentials: The merchant's.
    """

    def __init__(self, profile: Profile, credentials: Credentials) -> None:
        self._profile = profile
        self._credentials = credentials
        self._customer = Vocabulary(profile).fields["customer"]

    def check(self, incoming: Incoming, authorization: str) -> None:
        """Check who asks, by all that the profile has the request carry.

        Args:
            incoming: The request.
            authorization: Its header of this name.

        Raises:
            RefusedError: It is not the merchant.
        """
        name = incoming.operation.name
        if name in self._profile.bearer:
            self._check_bearer(authorization)
        if name in self._profile.merchant and incoming.merchant_id != self._credentials.merchant_id:
            raise RefusedError("unauthenticated", "no such merchant", field=MERCHANT, status=403)
        if name in self._profile.signed:
            self._check_signature(incoming)

    def burn(self, incoming: Incoming, store: Store) -> None:
        """Use up the nonce of a signed request, in the transaction that does what it asks for.

        Raises:
            RefusedError: It was used before.
        """
        if not self.signed(incoming.operation):
            return
        if not store.burn(self._credentials.merchant_id, incoming.nonce):
            raise RefusedError("nonce_used", "the nonce was used before", field=NONCE)

    def signed(self, operation: Operation) -> bool:
        """Return whether an operation carries a nonce and a signature."""
        return operation.name in self._profile.signed

    def _check_bearer(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not _equal(token.strip(), self._credentials.secret_key):
            raise RefusedError("unauthenticated", "Authorization must be: Bearer <SECRET_KEY>")

    def _check_signature(self, incoming: Incoming) -> None:
        key = self._credentials.signing_key
        try:
            genuine = key is not None and verify(
                self._profile.signature,
                incoming.fields,
                incoming.signature,
                path=incoming.operation.path,
                key=key,
            )
        except UnsignableError as error:
            raise RefusedError("invalid", f"{error.field} cannot be signed", field=error.field) from None
        if not genuine:
            message, expected = "the signature is not that of these fields", self._text(incoming)
            raise RefusedError("bad_signature", message, field=SIGN, expected=expected)

    def _text(self, incoming: Incoming) -> str:
        """Return the text that was to be signed; a customer's details are nobody's business."""
        told = {name: MASK if name == self._customer else value for name, value in incoming.fields.items()}
        return text(self._profile.signature, told, path=incoming.operation.path)


def _equal(given: str, expected: Secret | None) -> bool:
    told = given.encode(errors="surrogateescape")
    return expected is not None and hmac.compare_digest(told, expected.reveal().encode())


Action = Callable[[Incoming], Mapping[str, Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Received = dict[str, Any] | RefusedError
"""A request's fields, or why there are none."""

_REST: Final = "identifier"
_logger: Final = logging.getLogger(__name__)


class Api:
    """Takes requests, has them done, and answers.

    Args:
        dialect: How the wire is read and written.
        admission: Who may ask.
        service: Does it.
        store: Holds the transaction around it.
        page_url: Gives the address of an order's gateway page.
        seal: Signs the answers, where the profile says so.
        faults: Lets calls meet the faults that are armed.
    """

    def __init__(
        self,
        *,
        dialect: Dialect,
        admission: Admission,
        service: Service,
        store: Store,
        page_url: Callable[[Order], str],
        seal: Seal,
        faults: FaultInjector,
    ) -> None:
        self._seal = seal
        self._faults = faults
        self._dialect = dialect
        self._admission = admission
        self._store = store
        self._actions = actions(service, dialect, page_url)

    def routes(self) -> list[web.RouteDef]:
        """Return the ten endpoints' routes, and that of their description."""
        described = web.get(openapi.PATH, self._described, allow_head=False)
        return [*(route for operation in OPERATIONS for route in self._routes(operation)), described]

    async def _described(self, _request: web.Request) -> web.Response:
        return web.json_response(openapi.document(self._dialect))

    def _routes(self, operation: Operation) -> list[web.RouteDef]:
        async def handler(request: web.Request) -> web.StreamResponse:
            return await self._handle(operation, request)

        paths = [operation.path]
        if self._dialect.place(operation) == "path":
            paths.append(f"{operation.path}/{{{_REST}:.+}}")
        options = {} if operation.has_body else {"allow_head": False}
        return [web.route(operation.method, path, handler, **options) for path in paths]

    async def _handle(self, operation: Operation, request: web.Request) -> web.StreamResponse:
        request[FACTS] = Facts(name=operation.name)
        received, numbers = await self._received(operation, request)
        return await self._faults.respond(
            request,
            operation.name,
            numbers,
            commit=lambda: self._answered(operation, request, received),
            fail=lambda status: self._failed(status, request),
        )

    async def _failed(self, status: int, request: web.Request) -> web.Response:
        return await self._refused(RefusedError("busy", f"{status}: a fault of the sandbox", status=status), request)

    async def _received(self, operation: Operation, request: web.Request) -> tuple[Received, frozenset[str]]:
        try:
            fields = await self._fields(operation, request)
            named = self._dialect.named(operation, fields)
            # Also of what a fault ends before it is read.
            note(request, reference=reference(named))
            numbers = frozenset(named.values())
            return fields, numbers.union(*(self._behind(operation, number) for number in numbers))
        except RefusedError as refused:
            return refused, frozenset()

    def _behind(self, operation: Operation, number: str) -> set[str]:
        """Return the number of the order that a query of a payment or a refund is about."""
        if operation not in {QUERY_PAYMENT, QUERY_REFUND}:
            return set()
        store = self._store
        about = store.order_named(number) if operation is QUERY_PAYMENT else store.refund(number)
        return {about.out_trade_no} if about else set()

    async def _answered(self, operation: Operation, request: web.Request, received: Received) -> web.Response:
        request_id = secrets.token_hex(12)
        try:
            if isinstance(received, RefusedError):
                raise received
            incoming = self._dialect.read(operation, received, request.headers)
            self._admission.check(incoming, request.headers.get("Authorization", ""))
            payloads = self._dialect.payloads
            payload = payloads.about(incoming.fields, self._execute(incoming))
            note(request, reference=reference(incoming.arguments) or payloads.number(payload))
            outgoing = self._dialect.answer(payload, request_id)
        except RefusedError as refused:
            note(request, refused=refused)
            outgoing = self._dialect.refusal(refused, operation, request_id)
        note(request, code=outgoing.code)
        self._store.add_call(Answered(operation=operation.name, status=outgoing.status, code=outgoing.code))
        return sent(await self._seal.answer(outgoing, operation.path))

    async def _fields(self, operation: Operation, request: web.Request) -> dict[str, Any]:
        if operation.has_body:
            return read_object(await read_body(request, "application/json"))
        rest = request.match_info.get(_REST, "")
        return self._dialect.located(operation, read_query(request), request.headers, rest)

    def _execute(self, incoming: Incoming) -> Mapping[str, Any]:
        with self._store.transaction():
            self._admission.burn(incoming, self._store)
            try:
                with self._store.attempt():
                    return self._actions[incoming.operation](incoming)
            except RefusedError as error:
                # What is refused by state keeps its nonce burned: sent again later, it must not be done.
                refused = error
        raise refused

    @web.middleware
    async def shape_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a long address, an unknown path or a wrong method in the shape of all refusals."""
        try:
            check_address(request)
            return await handler(request)
        except RefusedError as error:
            return await self._refused(error, request)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            refused = RefusedError("invalid", f"the method must be {allowed}", status=405)
            return await self._refused(refused, request, {"Allow": allowed})
        except web.HTTPNotFound:
            # Never in the words for what is absent: a wrong address proves nothing about a refund.
            return await self._refused(RefusedError("invalid", "there is no such endpoint", status=404), request)
        except (web.HTTPException, OSError):
            raise
        except Exception:
            _logger.exception("the sandbox failed to answer %s %s", request.method, request.path)
            return await self._refused(RefusedError("busy", "the sandbox failed", status=500), request)

    async def _refused(
        self, refused: RefusedError, request: web.Request, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        outgoing = self._dialect.refusal(refused, None, secrets.token_hex(12))
        path = request.path if encodable(request.path) else ""
        return sent(await self._seal.answer(outgoing, path), headers)


def sent(outgoing: Outgoing, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer as aiohttp sends it."""
    challenge = {"WWW-Authenticate": "Bearer"} if outgoing.status == web.HTTPUnauthorized.status_code else {}
    return web.Response(
        body=json.dumps(outgoing.document, ensure_ascii=False).encode(),
        status=outgoing.status,
        headers={**outgoing.headers, **challenge, **(headers or {})},
        content_type="application/json",
    )


def actions(service: Service, dialect: Dialect, page_url: Callable[[Order], str]) -> dict[Operation, Action]:
    """Return what each endpoint does."""
    told = dialect.payloads

    def create_payment(incoming: Incoming) -> Mapping[str, Any]:
        order = service.create_payment(**incoming.arguments)
        return told.payment(order, page_url(order))

    def place_order(incoming: Incoming) -> Mapping[str, Any]:
        order = service.place_order(**incoming.arguments)
        return told.order(order, page_url(order))

    def create_refund(incoming: Incoming) -> Mapping[str, Any]:
        return told.refund(service.create_refund(fingerprint=incoming.fingerprint, **incoming.arguments))

    return {
        CREATE_PAYMENT: create_payment,
        PLACE_ORDER: place_order,
        QUERY_ORDER: lambda incoming: told.order(service.order(**incoming.arguments)),
        CLOSE_ORDER: lambda incoming: told.order(service.close_order(**incoming.arguments)),
        CREATE_REFUND: create_refund,
        QUERY_PAYMENT: lambda incoming: told.payment(service.payment(**incoming.arguments)),
        QUERY_REFUND: lambda incoming: told.refund(service.refund(incoming.arguments["identifier"])),
        CREATE_SUBSCRIPTION: lambda incoming: told.subscription(service.subscriptions.create(**incoming.arguments)),
        UPDATE_SUBSCRIPTION: lambda incoming: told.subscription(service.subscriptions.update(**incoming.arguments)),
        CANCEL_SUBSCRIPTION: lambda incoming: told.subscription(service.subscriptions.cancel(**incoming.arguments)),
    }
