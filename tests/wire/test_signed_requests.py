"""Signatures over whole requests: what is signed is what a service receives, over real HTTP."""

import base64
import re
import time
from typing import Any, Final

import pytest
from attrs import field, frozen

from payasync import ConfigurationError, Credentials, NotSentError, PayasyncError, Profile, Secret, Session, Template
from payasync.endpoints import CREATE_REFUND
from payasync.middleware.sign import Sender, require_signable, sign
from payasync.settings import RetryPolicy
from payasync.signing import UnsignedRequest
from tests.building import bare_call, way
from tests.foreign import signatures
from tests.foreign.certificates import trusting_tls
from tests.foreign.recorder import RESET, Recorder, Request
from tests.profile.refusal import refusal
from tests.wire.ten import CREDENTIALS, SIGNING_KEY

TLS: Final = trusting_tls()
FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
VALUE: Final = "keyid={merchant_id},t={timestamp},n={nonce},s={signature}"
TEXT: Final = "{method}\n{path}\n{query}\n{target}\n{url}\n{merchant_id}\n{timestamp}\n{nonce}\n{body}\n"
PARTS: Final = re.compile(r"keyid=M1,t=(\d+),n=([0-9a-f]{32}),s=(.+)")


def template(**options: Any) -> Template:
    """Return an HMAC-SHA256 scheme in base64, with these options changed."""
    given: dict[str, Any] = {"algorithm": "hmac-sha256", "encoding": "base64", "text": TEXT, "header": "Signature"}
    given |= {"value": VALUE, **options}
    return Template(**given)


def session(service: Recorder, scheme: Any, credentials: Credentials = CREDENTIALS, **parts: Any) -> Session:
    """Return a session whose base URL has a path."""
    profile = Profile(signature=scheme, **parts)
    return Session(f"{service.url}/gate", credentials=credentials, profile=profile, retry=FAST, tls=TLS)


def signed_text(service: Recorder, request: Request) -> tuple[str, str]:
    """Return the text that a request should sign, made of what the service received, and the signature."""
    found = PARTS.fullmatch(request.header("Signature")[0])
    assert found
    timestamp, nonce, signature = found.groups()
    assert abs(time.time() - int(timestamp)) < 60
    path, _, query = request.target.partition("?")
    url = f"{service.url}{request.target}"
    lines = (request.method, path, query, request.target, url, "M1", timestamp, nonce, request.body.decode(), "")
    return "\n".join(lines), signature


def verifies(service: Recorder, request: Request) -> bool:
    """Return whether a request has the HMAC that `openssl` makes."""
    text, signature = signed_text(service, request)
    return signatures.hmac_sha256(text, SIGNING_KEY) == base64.b64decode(signature).hex()


REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 15, "refund_amt": 5}


async def test_exact_bytes_are_signed() -> None:
    """The body is written once: the signed text holds the bytes that the service receives, and no added fields."""
    with Recorder() as service:
        async with session(service, template()) as pay:
            await pay.refunds.create(**REFUND, refund_desc="Café & =\n\u2028", extra={"more": {"b": 1, "a": [1.5]}})

        assert verifies(service, service.only)
        assert {"nonceStr", "sign"}.isdisjoint(signatures.fields(service.only))


async def test_path_and_query_are_signed_as_they_are_sent() -> None:
    """The signed path has that of the base URL; path and query are percent-encoded as the service receives them."""
    for place in ["query", "path"]:
        toml = f'identifier = ".+"\nsigned = ["payments.status"]\n[status.payment]\nname = "no"\nplace = "{place}"'
        profile = Profile.from_toml(toml)
        parts = {name: getattr(profile, name) for name in ("identifier", "signed", "payment_status")}
        with Recorder() as service:
            async with session(service, template(), **parts) as pay:
                await pay.payments.status("é/&= +%?x")

            assert verifies(service, service.only)
            assert not service.only.body


async def test_each_attempt_has_its_own_nonce() -> None:
    """A repeated request is signed again, with another nonce."""
    with Recorder([RESET]) as service:
        async with session(service, template()) as pay:
            await pay.orders.query("T1")
        requests = service.requests

        assert [True, True] == [verifies(service, each) for each in requests]
        assert 2 == len({each.header("Signature")[0] for each in requests})


async def test_time_may_have_another_form() -> None:
    """A service may want the time in milliseconds, or in ISO 8601: all forms name the same second, in UTC."""
    forms = {"X-Seconds": "{timestamp}", "X-Milliseconds": "{milliseconds}", "X-Date": "{datetime}"}
    scheme = template(text="{milliseconds}.{datetime}.{body}", value="s={signature}", headers=forms)
    with Recorder() as service:
        async with session(service, scheme) as pay:
            await pay.refunds.create(**REFUND)
        seconds, milliseconds, moment, value = (service.only.header(name)[0] for name in (*forms, "Signature"))

        text = f"{milliseconds}.{moment}.{service.only.body.decode()}"
        assert f"{seconds}000" == milliseconds
        assert time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(int(seconds))) == moment
        assert signatures.hmac_sha256(text, SIGNING_KEY) == base64.b64decode(value.removeprefix("s=")).hex()


async def test_time_is_that_of_the_clock() -> None:
    """The timestamp is whole Unix seconds, by a clock that is an argument."""
    end, scheme = way(), template(text="{timestamp}", value="{timestamp} {merchant_id} {signature}", encoding="hex")
    call = bare_call(CREATE_REFUND, profile=Profile(signature=scheme), fields={"a": 1}, signed=True)
    await sign(Secret(SIGNING_KEY), end.send, Sender("", "M1", now=lambda: 1700000000.9))(call)

    expected = f"1700000000 M1 {signatures.hmac_sha256('1700000000', SIGNING_KEY)}"
    assert {"Signature": expected} == end.calls[0].headers
    assert {"a": 1} == end.calls[0].fields


@frozen
class OwnScheme:
    """A merchant's own scheme, which signs whole requests.

    Args:
        made: What it returns.
        seen: The requests that it saw, with the keys.
    """

    made: Any = field(factory=lambda: {"X-Sign": "signature"})
    seen: list[tuple[UnsignedRequest, Secret]] = field(factory=list)

    async def sign_request(self, request: UnsignedRequest, *, key: Secret) -> Any:
        """Return the headers, or fail."""
        self.seen.append((request, key))
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


async def test_own_scheme_sees_the_whole_request() -> None:
    """`sign_request` sees method, URL, headers and the exact bytes; the headers that it returns are sent."""
    scheme = OwnScheme()
    with Recorder() as service:
        async with session(service, scheme, headers={"X-Version": "2"}) as pay:
            await pay.refunds.create(**REFUND)
        request, ((seen, key),) = service.only, scheme.seen

    assert ["signature"] == request.header("X-Sign")
    assert (request.body, "POST", f"{service.url}{request.target}") == (seen.body, seen.method, seen.url)
    assert (request.path, "", "M1") == (seen.path, seen.query, seen.merchant_id)
    assert ({"X-Version": "2"}, Secret(SIGNING_KEY)) == (seen.headers, key)
    assert re.fullmatch("[0-9a-f]{32}", seen.nonce)


async def test_own_scheme_that_fails_sends_nothing() -> None:
    """A scheme that fails, returns no headers, or headers that could split or frame a request, sends nothing."""
    for made, why in [
        (RuntimeError("canary"), "the signature scheme raised RuntimeError: nothing was sent"),
        ("canary", "the signature scheme returned str, not a table of texts: nothing was sent"),
        ({"X-Sign": b"canary"}, "the signature scheme returned dict, not a table of texts: nothing was sent"),
        ({"X-Sign": "a\nb: c"}, "must be of visible ASCII"),
        ({"Content-Length": "1"}, "must not be set: it says where"),
    ]:
        with Recorder() as service:
            async with session(service, OwnScheme(made)) as pay:
                with pytest.raises(PayasyncError, match=why) as caught:
                    await pay.refunds.create(**REFUND)

            assert isinstance(caught.value, NotSentError) is why.endswith("nothing was sent")
            assert not service.requests


async def test_open_option_is_named_before_the_journal() -> None:
    """A template that leaves the algorithm or the encoding open is refused before anything is recorded or sent."""
    for option in ["algorithm", "encoding"]:
        end = way()
        call = bare_call(
            CREATE_REFUND, profile=Profile(signature=template(**{option: ""})), fields={"a": 1}, signed=True
        )
        with pytest.raises(ConfigurationError, match=rf"signature\.{option} is open"):
            await require_signable(Secret(SIGNING_KEY))(call, end.send)

        assert [] == end.calls


def test_wrong_option_is_refused() -> None:
    """A template that could not be signed or verified is refused, with its key and what is allowed."""
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"algorithm": "md5"}, "algorithm", "anybody could sign"),
        (
            {"text": "{body}{host}"},
            "text",
            "{host}, which is unknown; allowed are {method} {path} {query} {target}",
        ),
        ({"text": "{body}\ud800"}, "text", "must be a text of valid Unicode"),
        ({"text": "{signing_key}"}, "text", "one signature would be that of all requests"),
        ({"text": "{signing_key}{body}", "algorithm": "ed25519"}, "text", "nobody else has that key"),
        ({"value": "s={sig}"}, "value", "{sig}, which is unknown; allowed are {merchant_id} {timestamp} {nonce}"),
        ({"value": "t={timestamp},n={nonce}"}, "value", "must hold {signature}"),
        ({"value": "t={timestamp},s={signature}"}, "value", "must hold {nonce}, which signature.text signs"),
        ({"value": "n={nonce},s={signature}"}, "value", "must hold {timestamp}"),
        ({"value": "é={signature}{timestamp}{nonce}"}, "value", "visible ASCII"),
        ({"header": "Content-Type"}, "header", "must not be Content-Type, because payasync sets it"),
        ({"header": "a b"}, "header", "the name of a header"),
        ({"headers": {"Cookie": "{nonce}"}}, "headers.Cookie", "must not be Cookie, because payasync sets it"),
        ({"headers": {"X-Time": "{time}"}}, "headers.X-Time", "{time}, which is unknown"),
        ({"headers": {"signature": "{nonce}"}}, "headers.signature", "and signature.header are the same header"),
    ]
    for options, key, why in cases:
        name, words = refusal(lambda: Profile(signature=template(**options)))  # noqa: B023 - called here

        assert (f"signature.{key}", True) == (name, why in words)
