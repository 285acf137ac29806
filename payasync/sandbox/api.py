"""The ten endpoints over HTTP, and who may call them (docs/reference/service.md#overview)."""

import base64
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from aiohttp import web

from payasync.credentials import Credentials
from payasync.endpoints import CREATE_REFUND, QUERY_PAYMENT, QUERY_REFUND, Kind, Operation
from payasync.profile.schema import Auth
from payasync.sandbox import openapi, signatures
from payasync.sandbox.dialect import Outgoing
from payasync.sandbox.exchanges import CUSTOMER
from payasync.sandbox.faults.injection import FaultInjector
from payasync.sandbox.idempotency import IdempotencyKeys
from payasync.sandbox.model import Answered, Order, Refund, RefusedError
from payasync.sandbox.server import BODY, Handler, read_body, read_object, read_query
from payasync.sandbox.service import Service
from payasync.sandbox.timeline import RequestRecorder, add_facts, find_reference, keep_signed_text, known_facts
from payasync.sandbox.web.pages import gateway_path
from payasync.signing.schemes import Template
from payasync.strict_json import encodable

T = TypeVar("T")
AUTHORIZATION: Final = "authorization"
Action = Callable[[Mapping[str, Any]], Mapping[str, Any]]
TOLERANCE: Final = 300
"""Seconds by which the time of a signed request may be away; the sandbox's own limit."""
Received = dict[str, Any] | RefusedError
"""A request's fields, or why there are none."""

_logger: Final = logging.getLogger("payasync.sandbox.api")


class Api:
    """Receives requests, passes them to the service, and responds.

    Args:
        service: Carries out requests.
        credentials: Those of the one merchant.
        recorder: Records requests, in the same transaction.
        url: Where the sandbox listens.
        signer: Signs responses, where the profile says so.
        faults: Applies the faults that are armed.
    """

    def __init__(
        self,
        service: Service,
        *,
        credentials: Credentials,
        recorder: RequestRecorder,
        url: str,
        signer: signatures.ServiceSigner,
        faults: FaultInjector,
    ) -> None:
        self._dialect = service.dialect
        self._profile = service.dialect.names.profile
        self._credentials = credentials
        self._store = service.store
        self._recorder = recorder
        self._signer = signer
        self._faults = faults
        self._actions = _build_actions(service, url)
        self._keys = IdempotencyKeys(service.store, self._profile.idempotency)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the ten endpoints, and of their description."""

        async def describe(_request: web.Request) -> web.Response:
            return web.json_response(openapi.describe_service(self._dialect))

        described = web.get(openapi.PATH, describe, allow_head=False)
        # A path without braces goes before one whose braces would take it.
        operations = sorted(self._dialect.names.operations.values(), key=lambda each: len(each.in_path))
        return [*(route for operation in operations for route in self._routes(operation)), described]

    def _routes(self, operation: Operation) -> list[web.RouteDef]:
        sharing = self._dialect.names.sharing(operation.name)
        if operation != sharing[0]:
            return []

        async def handler(request: web.Request) -> web.StreamResponse:
            for meant in sharing if len(sharing) > 1 else ():
                received, _ = await self._receive(meant, request)
                if not isinstance(received, RefusedError) and self._dialect.is_meant(meant, received):
                    return await self._handle(meant, request)
            return await self._handle(sharing[0], request)  # if it fits none of them

        names, paths = self._dialect.names, [operation.path]
        if operation.place == "path":
            paths.append(f"{operation.path}/{{{operation.reference}:.+}}")
            others = (each for each in names.operations.values() if each != operation)
            if any((each.method, each.path) == (operation.method, operation.path) for each in others):
                del paths[0]  # without an argument, it is the other's address
        options = {"allow_head": False} if operation.method == "GET" else {}
        return [web.route(operation.method, path, handler, **options) for path in paths]

    async def _handle(self, operation: Operation, request: web.Request) -> web.StreamResponse:
        add_facts(request, name=operation.name)
        received, numbers = await self._receive(operation, request)

        committed, sent_code = list[web.Response](), ""

        async def commit() -> web.Response:
            committed.append(await self._commit(operation, request, received))
            return committed[0]

        async def fail(status: int) -> web.Response:
            nonlocal sent_code
            refused = RefusedError("busy", f"{status}: a fault of the sandbox", status=status)
            outgoing = self._dialect.build_refusal(refused, None, secrets.token_hex(12))
            sent_code = "" if outgoing.code is None else str(outgoing.code)
            return await self._send_refusal(outgoing, request)

        key = "" if isinstance(received, RefusedError) else self._keys.find(operation, received, request)
        with self._keys.hold(key, request):
            answer = await self._faults.respond(request, operation.name, numbers, commit=commit, fail=fail)
        if sent_code or (committed and answer.status != committed[0].status):
            ended = _describe_commit(committed[0], known_facts(request)) if committed else ""
            add_facts(request, outcome=", ".join(filter(None, (sent_code, ended))))
        return answer

    async def _receive(self, operation: Operation, request: web.Request) -> tuple[Received, frozenset[str]]:
        """Return a request's fields, and the numbers that it names, for faults that wait for a number."""
        try:
            if operation.has_body:
                rest = read_object(await read_body(request, "application/json"))
            else:
                rest, request[BODY] = read_query(request), b""
            fields = self._dialect.collect_fields(operation, rest, request.headers, request.match_info)
        except RefusedError as refused:
            return refused, frozenset()
        named = self._dialect.find_numbers(operation, fields)
        # Now, because a fault may end the request before it is carried out.
        add_facts(request, reference=find_reference(named))
        numbers = set(named.values())
        if operation in {QUERY_PAYMENT, QUERY_REFUND}:
            for number in named.values():
                refund = self._store.find(Refund, out_refund_no=number) if operation == QUERY_REFUND else None
                if subject := refund or self._store.order_named(number):
                    numbers.add(subject.out_trade_no)
        return fields, frozenset(numbers)

    async def _commit(self, operation: Operation, request: web.Request, received: Received) -> web.Response:
        """Do what a request asks for, record it, commit both, and return the response."""
        request_id = secrets.token_hex(12)
        with self._store.transaction():
            try:
                outgoing = self._execute(operation, request, received, request_id)
            except RefusedError as refused:
                add_facts(request, reason=refused.message, expected=refused.expected)
                outgoing = self._dialect.build_refusal(refused, operation, request_id)
            code = "" if outgoing.code is None else outgoing.code
            add_facts(request, outcome=str(code))
            self._store.add(Answered(operation=operation.name, status=outgoing.status, code=code))
            self._recorder.record_in_transaction(request, outgoing.status)
        return self._build_response(await self._sign(outgoing, _signed_path(operation, request), request))

    async def _sign(self, outgoing: Outgoing, path: str, request: web.Request) -> Outgoing:
        raw_path = request.raw_path.partition("?")[0]
        said = {"method": request.method, "path": raw_path if encodable(raw_path) else ""}
        signed = await self._signer.sign_answer(outgoing, path, said)
        if signed is not outgoing:
            keep_signed_text(request, partial(self._signer.text_of_answer, signed, path, said), of_response=True)
        return signed

    def _execute(self, operation: Operation, request: web.Request, received: Received, request_id: str) -> Outgoing:
        if isinstance(received, RefusedError):
            raise received
        arguments = self._dialect.read(operation, received, request.headers)
        self._check_sender(operation, received, request)
        fingerprint = self._dialect.fingerprint(operation, received)
        if operation == CREATE_REFUND:
            arguments["fingerprint"] = fingerprint

        key, asked = self._keys.find(operation, received, request), f"{operation.name} {fingerprint}"
        numbered = operation.kind is Kind.KEYED and bool(find_reference(arguments))
        once = operation.name in self._profile.sandbox.single_use_keys
        if key and (before := self._keys.recall(key, asked, request, numbered=numbered, once=once)):
            return before
        try:
            # A request that its state refuses has used its nonce: if it is repeated later, it must not be carried out.
            with self._store.savepoint():
                payload = self._actions[operation.name](arguments)
        except RefusedError as refused:
            if key and not once:
                self._keys.record(key, asked, self._dialect.build_refusal(refused, operation, request_id))
            raise
        add_facts(request, reference=find_reference(arguments) or self._dialect.find_number(payload))
        outgoing = self._dialect.build_success(operation, payload, received, request_id)
        if key:
            self._keys.record(key, asked, outgoing)
        return outgoing

    def _check_sender(self, operation: Operation, fields: Mapping[str, Any], request: web.Request) -> None:
        """Check that the merchant sent a request, by token, number and signature, and use up its nonce."""
        name, profile, merchant, words = operation.name, self._profile, self._credentials, self._dialect.names
        number = words.name(name, "merchant_id")
        if name in profile.bearer:
            self._check_headers(request)
        stated = name in profile.merchant or "merchant_id" in operation.in_path
        if stated and fields[number] != merchant.merchant_id:
            raise RefusedError("unauthenticated", "no such merchant", field=number, status=403)
        if name in profile.signed and isinstance(words.signature, Template):
            field, nonce = self._check_headers_signed(words.signature, operation, fields, request)
        elif words.has_fields_to_sign(name):
            field, nonce = self._check_signature(operation, fields, request)
        else:
            return
        if nonce and not self._store.use_nonce(merchant.merchant_id, nonce):
            raise RefusedError("nonce_used", "the nonce was used before", field=field)

    def _check_headers(self, request: web.Request) -> None:
        """Check that each header of the profile's `auth` is there once, with the merchant's keys."""
        for header, template in self._profile.auth.all_headers.items():
            given = request.headers.getall(header, [])
            expected = template.format(**_placeholders(self._credentials))
            scheme = _scheme(template) if header.lower() == AUTHORIZATION else ""
            if len(given) != 1 or not _is_same_value(expected, given[0], scheme and f"{scheme} "):
                shown = re.sub(r"\{(\w+)\}", lambda name: f"<{name[1].upper()}>", template)
                raise RefusedError("unauthenticated", f"{header} must be: {shown}")

    def _check_headers_signed(
        self, scheme: Template, operation: Operation, fields: Mapping[str, Any], request: web.Request
    ) -> tuple[str, str]:
        """Check a signature in a header, and return the name of that header, and the nonce; empty if it has none."""
        merchant = self._credentials
        try:
            said = signatures.read_headers(scheme, request.headers)
        except signatures.UnsignableError as error:
            why = f"{error.field} must be: {scheme.all_headers[error.field]}"
            raise RefusedError("bad_signature", why, field=error.field) from None
        if said.get("merchant_id", merchant.merchant_id) != merchant.merchant_id:
            raise RefusedError("unauthenticated", "no such merchant", field=scheme.header, status=403)
        path, _, query = request.raw_path.partition("?")
        values = {
            **said,
            "merchant_id": merchant.merchant_id,
            "method": request.method,
            "path": path,
            "query": query,
            "target": request.raw_path,
            "url": f"{request.scheme}://{request.host}{request.raw_path}",
            "body": request[BODY].decode(),
            "signing_key": "<signing key>",
        }
        key = merchant.signing_key
        keyed = {**values, "signing_key": key.reveal() if key else ""}
        message = signatures.fill_text(scheme.text, keyed).encode()

        def write_text() -> str:
            customer = self._dialect.names.name(operation.name, "customer").partition(".")[0]
            return signatures.fill_text(scheme.text, {**values, "body": CUSTOMER} if customer in fields else values)

        if key is None or not signatures.verify_message(scheme, message, said["signature"], key):
            why = "the signature is not that of this request"
            raise RefusedError("bad_signature", why, field=scheme.header, expected=write_text())
        keep_signed_text(request, write_text)
        for name, form in _TIMES.items():
            if name in said and not _is_now(name, said[name]):
                why = f"the time must be {form}, {TOLERANCE} seconds away at most"
                raise RefusedError("bad_signature", why, field=scheme.header)
        return scheme.header, said.get("nonce", "")

    def _check_signature(
        self, operation: Operation, fields: Mapping[str, Any], request: web.Request
    ) -> tuple[str, str]:
        """Check a signature among the fields, and return the name of the field with the nonce, and the nonce."""
        words, key = self._dialect.names, self._credentials.signing_key
        path = _signed_path(operation, request)
        sign, nonce, customer = (words.name(operation.name, each) for each in ("sign", "nonce", "customer"))

        def write_text() -> str:
            hidden = customer.partition(".")[0]
            shown = {name: CUSTOMER if name == hidden else value for name, value in fields.items()}
            return signatures.text_to_sign(words.signature, shown, path=path)

        try:
            genuine = key is not None and signatures.verify(words.signature, fields, fields[sign], path=path, key=key)
        except signatures.UnsignableError as error:
            # Not as invalid: the field may be as described, and no signature can be that of it.
            raise RefusedError("bad_signature", f"{error.field} cannot be signed", field=error.field) from None
        if not genuine:
            message = "the signature is not that of these fields"
            raise RefusedError("bad_signature", message, field=sign, expected=write_text())
        keep_signed_text(request, write_text)
        return nonce, fields[nonce]

    @web.middleware
    async def shape_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse an unknown path or a wrong method in the shape of all refusals."""
        try:
            return await handler(request)
        except RefusedError as error:
            return await self._refuse(error, request)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            refused = RefusedError("invalid", f"the method must be {allowed}", status=405)
            return await self._refuse(refused, request, {"Allow": allowed})
        except web.HTTPNotFound:
            # Not as "absent": a wrong address proves nothing about a refund.
            return await self._refuse(RefusedError("invalid", "there is no such endpoint", status=404), request)
        except (web.HTTPException, OSError):
            raise
        except Exception:
            about = request.method, request.path
            _logger.exception("the sandbox failed to answer %s %s", *about, extra={"event_name": "sandbox.failed"})
            return await self._refuse(RefusedError("busy", "the sandbox failed", status=500), request)

    async def _refuse(
        self, refused: RefusedError, request: web.Request, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        outgoing = self._dialect.build_refusal(refused, None, secrets.token_hex(12))
        return await self._send_refusal(outgoing, request, headers)

    async def _send_refusal(
        self, outgoing: Outgoing, request: web.Request, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        path = request.path if encodable(request.path) else ""
        return self._build_response(await self._sign(outgoing, path, request), headers)

    def _build_response(self, outgoing: Outgoing, headers: Mapping[str, str] | None = None) -> web.Response:
        refused = outgoing.status == web.HTTPUnauthorized.status_code
        challenge = {"WWW-Authenticate": _challenge(self._profile.auth)} if refused else {}
        return web.Response(
            body=outgoing.body.encode(),
            status=outgoing.status,
            headers={**outgoing.headers, **challenge, **(headers or {})},
            content_type="application/json" if outgoing.body else None,
        )


def _describe_commit(committed: web.Response, facts: Mapping[str, Any]) -> str:
    """Return how the request ended whose response a fault replaced. A refusal may have the status 200."""
    refused = committed.status >= HTTPStatus.BAD_REQUEST or facts.get("reason")
    return f"{'refused' if refused else 'done'}: {facts['outcome']}"


def _signed_path(operation: Operation, request: web.Request) -> str:
    """Return the path that a signature covers: with the arguments that it has in braces, without any other."""
    return request.path if operation.in_path else operation.path


def _placeholders(merchant: Credentials) -> dict[str, str]:
    """Return what the headers of a profile's `auth` hold in braces."""
    secret, public = (key.reveal() if key else "" for key in (merchant.secret_key, merchant.public_key))
    return {
        "secret_key": secret,
        "public_key": public,
        "merchant_id": merchant.merchant_id,
        "basic": base64.b64encode(f"{public}:{secret}".encode()).decode(),
        "basic_user": base64.b64encode(f"{secret}:".encode()).decode(),
    }


def _scheme(template: str) -> str:
    """Return the scheme with which a value begins, such as Bearer; empty if it has none."""
    scheme, space, _ = template.partition(" ")
    return scheme if space and "{" not in scheme else ""


def _is_same_value(expected: str, given: str, start: str) -> bool:
    """Return whether a header has the expected value. Its start, such as `Bearer `, counts in any case."""
    key, sent = expected[len(start) :], given[len(start) :].strip()
    same = hmac.compare_digest(key.encode(), sent.encode(errors="surrogateescape"))
    return same and given[: len(start)].lower() == start.lower()


def _challenge(auth: Auth) -> str:
    """Return the challenge of a 401: the scheme in Authorization, or the name of the header that carries the key."""
    scheme = _scheme(auth.value)
    if auth.header.lower() != AUTHORIZATION or not scheme:
        return f'ApiKey header="{auth.header}"'
    return f'{scheme} realm="payasync sandbox"' if scheme.lower() == "basic" else scheme


_TIMES: Final = {"timestamp": "Unix seconds", "milliseconds": "Unix milliseconds", "datetime": "ISO 8601 in UTC"}


def _is_now(name: str, text: str) -> bool:
    """Return whether a text is wall time, or almost, in the form that its name in a template stands for."""
    try:
        if name == "datetime":
            sent = datetime.fromisoformat(text).timestamp() if text.endswith("Z") else 0.0
        else:
            sent = int(text) / (1000 if name == "milliseconds" else 1) if text.isascii() and text.isdigit() else 0.0
    except (ValueError, OverflowError):
        return False
    return abs(time.time() - sent) <= TOLERANCE


def _build_actions(service: Service, url: str) -> dict[str, Action]:
    """Return what each endpoint does, by the operation's name."""
    dialect = service.dialect

    def describe_new(order: Order) -> Mapping[str, Any]:
        return dialect.describe_order(order, url + gateway_path(order), order.origin)

    def run(act: Callable[..., T], describe: Callable[[T], Mapping[str, Any]]) -> Action:
        return lambda arguments: describe(act(**arguments))

    return {
        "payments.create": run(service.create_payment, describe_new),
        "orders.place": run(service.place_order, describe_new),
        "orders.query": run(service.asked_order, dialect.describe_order),
        "orders.close": run(service.close_order, dialect.describe_order),
        "refunds.create": run(service.create_refund, dialect.describe_refund),
        "payments.status": run(service.payment, partial(dialect.describe_order, thing="payment")),
        "refunds.status": lambda arguments: dialect.describe_refund(service.asked_refund(arguments["identifier"])),
        "subscriptions.create": run(service.create_subscription, dialect.describe_subscription),
        "subscriptions.update": run(service.update_subscription, dialect.describe_subscription),
        "subscriptions.cancel": run(service.cancel_subscription, dialect.describe_subscription),
    }
