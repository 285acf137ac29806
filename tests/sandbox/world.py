"""A sandbox of one profile, with a client, a customer, a merchant's server, and altered requests.

Scenarios name outcomes by their meanings, such as `nonce_used`, and never by a profile's words, so that they run with
any profile.
"""

import base64
import itertools
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from typing import Any, Final, cast

import aiohttp
from aiohttp import web
from attrs import evolve, field, frozen
from yarl import URL

from payasync import Credentials, InvalidSignatureError, Profile, Session, SignatureScheme
from payasync.endpoints import Operation
from payasync.notifications import verify
from payasync.profile.wire_names import NONCE, SIGN
from payasync.resources.orders import PlaceOrder
from payasync.resources.refunds import CreateRefund
from payasync.resources.subscriptions import UpdateSubscription
from payasync.sandbox import Sandbox
from payasync.strict_json import at, first_at, paths_of
from payasync.wire.encode import Codec, encode
from payasync.wire.request import Request
from payasync.wire.response import Response
from tests.building import FULL
from tests.sandbox.foreign import Delivered, Receiver, as_coroutine

OTHERS: Final = {"duplicate": "duplicate", "absent": "absent", "retryable": "busy"}
BY_CODE_ALONE: Final = {401, 403, 404, 409, 422}


SAMPLES: Final[Mapping[str, Request[Response]]] = {
    **FULL,
    "orders.place": PlaceOrder(
        out_trade_no="T1", total_amt=450, currency="CAD", subject="Coffee", body="Large", scene_type="JSAPI"
    ),
    "refunds.create": CreateRefund(
        out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200, refund_desc="cold"
    ),
    "subscriptions.create": evolve(cast("Any", FULL["subscriptions.create"]), start_date=date(2999, 1, 31)),
    "subscriptions.update": UpdateSubscription(subscription_id="S1", amount=1000),
}
"""One request for each operation, which any service takes, and which notifies no other machine."""


def order(**given: object) -> PlaceOrder:
    """Return a request for an order that any service accepts."""
    usual: dict[str, object] = {"total_amt": 450, "currency": "CAD", "subject": "Coffee", "scene_type": "JSAPI"}
    return PlaceOrder(**{**usual, **given})  # type: ignore[arg-type] # any argument


def refund(**changes: Any) -> CreateRefund:
    """Return a request for a refund of T1 that any service accepts."""
    return evolve(cast("CreateRefund", SAMPLES["refunds.create"]), **changes)


@frozen
class Reading:
    """A response, and its meaning in the words of a profile."""

    profile: Profile
    status: int
    headers: Mapping[str, str]
    document: Any

    @property
    def why(self) -> str:
        """The meaning of the result code; `done` for success."""
        code, codes = first_at(self.document, self.profile.answer.code, None), self.profile.codes
        if code is None and self.profile.answer.code_optional:
            return "done"
        meanings: dict[str, tuple[str | int, ...]] = {"done": self.profile.answer.ok}
        meanings |= {why: (code,) for why, code in self.profile.sandbox.codes.items()}
        meanings |= {why: getattr(codes, name) for name, why in OTHERS.items()}
        return next(why for why, listed in meanings.items() if code in listed)

    @property
    def reason(self) -> tuple[int, str]:
        """The status, and the meaning of the code."""
        return self.status, self.why

    @property
    def data(self) -> Any:
        """The payload."""
        return at(self.document, self.profile.answer.data)

    @property
    def field(self) -> str | None:
        """The invalid field."""
        above, dot, _ = paths_of(self.profile.answer.message)[0].rpartition(".")
        field: str | None = at(self.document, f"{above}{dot}field", None)
        return field

    def state(self, thing: str) -> str | None:
        """Return the state of an order, a payment, a refund or a subscription, as payasync names it."""
        return self.profile.states.name(thing, at(self.data, getattr(self.profile.answer, f"{thing}_status")))


@frozen
class World:
    """A running sandbox, with a session and the merchant's server."""

    sandbox: Sandbox
    http: aiohttp.ClientSession
    receiver: Receiver
    pay: Session
    nonces: "itertools.count[int]" = field(factory=itertools.count)

    @property
    def profile(self) -> Profile:
        """The profile of the sandbox."""
        return self.sandbox.profile

    @cached_property
    def codec(self) -> Codec:
        """What writes the merchant's requests."""
        return Codec(self.profile, self.sandbox.credentials)

    def refused(self, status: int, why: str) -> tuple[int, str]:
        """Return the status and the meaning of a refusal; some profiles put refusals inside HTTP 200."""
        if not self.profile.http.not_executed and status in BY_CODE_ALONE:
            return 200, why
        return (self.profile.http.duplicate[0] if why == "duplicate" else status), why

    def fields(self, request: Request[Response], **changes: Any) -> dict[str, Any]:
        """Return the wire fields of a request, signed for this profile, with a new nonce.

        Args:
            request: The request.
            changes: Wire fields that replace its own; `None` leaves one out.
        """
        call = self.codec.call(request)
        carried = {**call.fields, **({NONCE: f"N{next(self.nonces)}"} if call.signed else {}), **changes}
        carried = {name: value for name, value in carried.items() if value is not None}
        if call.signed and SIGN not in changes:
            carried[SIGN] = self.signature(request.operation, carried)
        return carried

    def signature(self, operation: Operation, carried: Mapping[str, Any]) -> str:
        """Return the merchant's signature of some fields."""
        scheme, key = self.profile.signature, self.sandbox.credentials.signing_key
        assert scheme
        assert key
        made = cast("SignatureScheme", scheme).sign(carried, path=operation.path, key=key)
        assert isinstance(made, str)
        return made

    async def reach(
        self,
        request: Request[Response],
        *,
        fields: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: bytes | None = None,
    ) -> Reading:
        """Send a request unchanged or altered.

        Args:
            request: The request.
            fields: Wire fields that replace all of its own.
            headers: Headers that replace its own; `None` leaves one out.
            body: A body that replaces its own.
        """
        call = self.codec.call(request)
        outgoing = encode(evolve(call, fields=self.fields(request) if fields is None else fields))
        own = {**self.profile.headers, **outgoing.headers, **self.bearer(request.operation)}
        if request.operation.has_body:
            own["Content-Type"] = "application/json"
        sent = {name: value for name, value in {**own, **(headers or {})}.items() if value is not None}
        url = URL(self.sandbox.url + outgoing.path, encoded=True).with_query(outgoing.query)
        data = outgoing.body if body is None else body
        return await self.ask(request.operation.method, url, headers=sent, data=data or None)

    async def ask(self, method: str, url: URL | str, **options: Any) -> Reading:
        """Send any request."""
        async with self.http.request(method, url, allow_redirects=False, **options) as answer:
            return Reading(self.profile, answer.status, answer.headers.copy(), json.loads(await answer.text()))

    def bearer(self, operation: Operation) -> dict[str, str]:
        """Return the headers with the merchant's keys, if an operation needs them."""
        merchant, auth = self.sandbox.credentials, self.profile.auth
        assert merchant.public_key
        assert merchant.secret_key
        public, secret = merchant.public_key.reveal(), merchant.secret_key.reveal()
        keys = {"public_key": public, "secret_key": secret, "merchant_id": merchant.merchant_id}
        keys["basic_user"] = base64.b64encode(f"{secret}:".encode()).decode()
        keys["basic"] = base64.b64encode(f"{public}:{secret}".encode()).decode()
        headers = {auth.header: auth.value, **auth.headers}
        return {name: value.format(**keys) for name, value in headers.items() if operation.name in self.profile.bearer}

    def wire(self, argument: str) -> str:
        """Return the wire name of an argument."""
        first, *others = argument.split("_")
        return str(self.profile.fields.get(argument, first + "".join(map(str.capitalize, others))))

    def acknowledge(self) -> None:
        """Let the merchant's server acknowledge notifications, as the profile says."""
        shape = self.profile.notification
        self.answer(shape.ack_status or 200, shape.ack_body)

    def refuse(self) -> None:
        """Let the merchant's server refuse notifications, as the profile says."""
        shape = self.profile.notification
        self.answer(shape.nack_status or 400, shape.nack_body)

    def answer(self, status: int, text: str) -> None:
        """Let the merchant's server return this response."""
        self.receiver.answer = as_coroutine(lambda: web.Response(status=status, text=text))

    def notified(self) -> list["Notified"]:
        """Return the notifications that have arrived, oldest first."""
        return [Notified(self.profile, each) for each in self.receiver.received]


@frozen
class Notified:
    """A notification, in the words of a profile."""

    profile: Profile
    delivered: Delivered

    @property
    def data(self) -> Any:
        """The payload."""
        return at(self.delivered.document, self.profile.notification.data)

    @property
    def about(self) -> tuple[object, str | None]:
        """The number of the notification's object, and payasync's name for its state."""
        answer, shape = self.profile.answer, self.profile.notification
        numbers = {"refund": shape.out_refund_no, "subscription": shape.subscription_id, "order": shape.out_trade_no}
        thing, number = next((thing, found) for thing, path in numbers.items() if (found := at(self.data, path, None)))
        return number, self.profile.states.name(thing, at(self.data, getattr(answer, f"{thing}_status")))

    def is_genuine(self, credentials: Credentials, when: datetime) -> bool:
        """Return whether the client believes it at some time."""
        body, headers = self.delivered.body.encode(), self.delivered.headers
        with suppress(InvalidSignatureError):
            return bool(verify(body, headers, profile=self.profile, credentials=credentials, clock=when.timestamp))
        return False
