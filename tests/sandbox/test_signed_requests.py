"""A sandbox whose profile signs texts of requests: the client is believed, and nobody else."""

import base64
import hmac
import time
from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp
import pytest
from multidict import CIMultiDict

from payasync import AuthenticationError, Credentials, Profile, Secret, ServiceError, Template
from payasync.sandbox import Sandbox
from payasync.sandbox import openapi as described
from payasync.sandbox.dialect import Dialect, WireNames
from payasync.signing import UnsignedRequest

GONE: Final = 'codes.absent = ["GONE"]\n'
TOML: Final = r"""
bearer = []
signed = ["payments.create", "orders.place", "orders.query", "orders.close", "refunds.create", "payments.status",
    "refunds.status", "subscriptions.create"]
[signature]
family = "template"
algorithm = "hmac-sha256"
encoding = "base64"
text = "{method}\n{target}\n{merchant_id}\n{timestamp}\n{nonce}\n{body}\n"
header = "Signature"
value = "keyid={merchant_id},t={timestamp},s={signature}"
[signature.headers]
X-Nonce = "{nonce}"
[status.payment]
name = "no"
[status.refund]
name = "no"
place = "path"
[endpoints."refunds.status"]
number = "merchant"
[endpoints."orders.close"]
method = "DELETE"
path = "/v2/{merchant_id}/orders/{out_trade_no}"
"""
PROFILE: Final = Profile.from_toml(TOML)
ALGORITHMS: Final = ("hmac-sha256", "hmac-sha512", "hmac-md5", "rsa-sha256", "rsa-sha512", "ed25519")


def test_toml_and_python_say_the_same() -> None:
    """A template in TOML is one in Python, with line breaks in its texts, and is written as it was read."""
    assert isinstance(PROFILE.signature, Template)
    assert "{method}\n{target}\n" in PROFILE.signature.text
    assert PROFILE == Profile.from_toml(PROFILE.to_toml())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_client_is_believed(algorithm: str) -> None:
    """The client's signatures are accepted, with each algorithm; the lost refund is found by a signed query."""
    profile = Profile.from_toml(TOML.replace("hmac-sha256", algorithm))
    async with Sandbox(profile=profile, refunds="succeed") as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD", subject="Café & =")
        await sandbox.customer.authorize(order)
        sandbox.faults.reset_after_commit("refunds.create")
        refund = await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
        payment = await pay.payments.status("T1")
        await pay.orders.place(out_trade_no="T2", total_amt=450, currency="CAD")
        await pay.orders.close("T2")

        assert (True, 200) == (refund.recovered, sandbox.ledger.refunded("T1"))
        assert payment.data


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """Return a running sandbox."""
    async with Sandbox(profile=PROFILE) as running:
        yield running


def headers(sandbox: Sandbox, body: bytes, **changes: str) -> dict[str, str]:
    """Return the headers of a query, signed by this test alone."""
    key = sandbox.credentials.signing_key
    assert key
    said = {"keyid": sandbox.credentials.merchant_id, "t": str(int(time.time())), "nonce": "n1", **changes}
    text = f"POST\n/payment/orderquery\nSANDBOX\n{said['t']}\n{said['nonce']}\n".encode() + body + b"\n"
    signature = base64.b64encode(hmac.digest(key.reveal().encode(), text, "sha256")).decode()
    value = f"keyid={said['keyid']},t={said['t']},s={signature}"
    return {"Signature": value, "X-Nonce": said["nonce"], "Content-Type": "application/json"}


async def ask(sandbox: Sandbox, body: bytes, given: Mapping[str, str]) -> tuple[int, str]:
    """Send a query, and return the status and the field of the response."""
    url = f"{sandbox.url}/payment/orderquery"
    async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=given) as response:
        document = await response.json()
    return response.status, document.get("field", "")


QUERY: Final = b'{"outTradeNo": "T1",  "merchantId": "SANDBOX"}'


async def test_exact_bytes_count(sandbox: Sandbox) -> None:
    """The exact bytes are accepted, and each nonce and header once. Another byte is refused."""
    first = await ask(sandbox, QUERY, headers(sandbox, QUERY))
    again = await ask(sandbox, QUERY, headers(sandbox, QUERY))
    other = await ask(sandbox, QUERY.replace(b"  ", b" "), headers(sandbox, QUERY, nonce="n2"))

    twice = await ask(sandbox, QUERY, CIMultiDict([*headers(sandbox, QUERY, nonce="n3").items(), ("X-Nonce", "n4")]))

    assert [(404, "outTradeNo"), (403, "Signature"), (401, "Signature")] == [first, again, other]
    assert (401, "X-Nonce") == twice


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"t": "1700000000"}, 401, "Signature"),
        ({"t": "99999999999"}, 401, "Signature"),
        ({"t": "soon"}, 401, "Signature"),
        ({"keyid": "OTHER"}, 403, "Signature"),
        ({"nonce": ""}, 401, "X-Nonce"),
    ],
)
async def test_wrong_header_is_refused(sandbox: Sandbox, changes: dict[str, str], status: int, field: str) -> None:
    """A time far away, another merchant or a missing nonce is refused, though the signature is genuine."""
    assert (status, field) == await ask(sandbox, QUERY, headers(sandbox, QUERY, **changes))


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ("timestamp", "{milliseconds}"),
        ("milliseconds", "{timestamp}"),
        ("milliseconds", "{datetime}"),
        ("datetime", "{timestamp}"),
        ("datetime", "2020-01-31T12:00:00.000Z"),
        ("datetime", "2020-01-31T12:00:00"),
        ("datetime", "x{datetime}Z"),
    ],
)
async def test_time_has_the_form_of_the_profile(form: str, wrong: str) -> None:
    """The sandbox takes a current time in the profile's form. It refuses another form, or a time far away."""
    profile = Profile.from_toml(TOML.replace("{timestamp}", f"{{{form}}}"))
    other = Profile.from_toml(TOML.replace("t={timestamp}", f"t={wrong}").replace("{timestamp}", wrong))
    async with Sandbox(profile=profile) as running, running.session() as pay:
        await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        async with running.session(profile=other) as late:
            with pytest.raises(AuthenticationError):
                await late.orders.query("T1")


@pytest.mark.parametrize("value", ["", "s=1", "keyid=SANDBOX,t=1,s="])
async def test_header_of_another_form_is_refused(sandbox: Sandbox, value: str) -> None:
    """A header that is not of the profile's form is refused."""
    given = headers(sandbox, QUERY) | {"Signature": value}

    assert (401, "Signature") == await ask(sandbox, QUERY, given)


async def test_key_in_the_text_is_checked_and_not_shown() -> None:
    """A text that holds the key is checked with the key, and the expected text of a refused request hides it."""
    profile = Profile.from_toml(TOML.replace('text = "{method}', 'text = "{signing_key}{method}'))
    async with Sandbox(profile=profile) as sandbox:
        other = Credentials(sandbox.credentials.merchant_id, signing_key="another key of 32 characters")
        async with sandbox.session() as pay, sandbox.session(credentials=other) as wrong:
            order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
            with pytest.raises(AuthenticationError):
                await wrong.orders.query("T1")
        shown = [line for line in sandbox.timeline() if "the text to sign: <signing key>POST" in line]

    assert order.data
    assert 1 == len(shown)


class Own:
    """A scheme of the merchant's own."""

    def sign_request(self, request: UnsignedRequest, *, key: Secret) -> dict[str, str]:
        """Return one header."""
        return {"X-Sign": f"{request.nonce}{len(key.reveal())}"}


async def test_own_scheme_is_not_checked() -> None:
    """The sandbox cannot check a scheme that only makes signatures, and its title says so."""
    profile = Profile(signature=Own())
    async with Sandbox(profile=profile) as running, running.session() as pay:
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")

    assert order.data
    assert "signatures are not checked" in WireNames(profile).title


def test_description_names_the_headers() -> None:
    """OpenAPI shows the headers of the signature, and no fields that are not sent."""
    place = described.describe_service(Dialect(PROFILE))["paths"]["/payment/unifiedorder"]["post"]
    fields = place["requestBody"]["content"]["application/json"]["schema"]["properties"]

    assert ["Signature", "X-Nonce"] == [each["name"] for each in place["parameters"]]
    assert {"nonceStr", "sign"}.isdisjoint(fields)
    assert place["description"].startswith('The header Signature is "keyid={merchant_id},t={timestamp},s={signature}"')


ANSWERS: Final = r"""
[answer]
code = "code"
ok = ["OK"]
message = "why"
refusals_signed = true
[answer.header]
signature = "Proof:s"
timestamp = "Proof:t"
nonce = "X-Number"
prefix = "v1-"
text = "{timestamp}\n{nonce}\n{body}\n"
"""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_answers_are_signed(algorithm: str) -> None:
    """The sandbox signs its responses in the profile's headers, refusals too, and the client verifies them."""
    profile = Profile.from_toml(f"{GONE}{TOML}{ANSWERS}".replace("hmac-sha256", algorithm))
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        order = await pay.orders.query("T1")
        with pytest.raises(ServiceError) as caught:
            await pay.orders.query("T2")

    assert "OK" == order.data["code"]
    assert "HTTP 404" in str(caught.value)


@pytest.mark.parametrize("algorithm", ["hmac-sha256", "rsa-sha256"])
async def test_answers_sign_the_request(algorithm: str) -> None:
    """Signatures may be percent-encoded, and responses may sign the method and the path of their requests."""
    text = f"{GONE}{TOML}{ANSWERS}".replace("hmac-sha256", algorithm).replace('"base64"', '"base64-percent"')
    signed = text.replace(
        r'text = "{timestamp}\n{nonce}', r'text = "{method} {path}\n{merchant_id}.{timestamp}\n{nonce}'
    )
    profile = Profile.from_toml(signed.replace("signed = [", 'signed = ["orders.close", '))
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        closed = await pay.orders.close("T1")
        with pytest.raises(ServiceError):
            await pay.refunds.status("R1")

    assert "OK" == closed.data["code"]


async def test_refusals_are_signed_where_the_profile_says_so() -> None:
    """Unless the profile says that refusals are signed, they have no header of a signature."""
    for line, signed in (("refusals_signed = true", True), ("", False)):
        profile = Profile.from_toml(f"{TOML}{ANSWERS}".replace("refusals_signed = true", line))
        async with (
            Sandbox(profile=profile) as sandbox,
            aiohttp.ClientSession() as http,
            http.get(f"{sandbox.url}/nowhere") as response,
        ):
            assert signed is ("Proof" in response.headers)


def test_description_names_the_headers_of_answers() -> None:
    """OpenAPI shows the headers that sign a response."""
    document = described.describe_service(Dialect(Profile.from_toml(TOML + ANSWERS)))
    place = document["paths"]["/payment/unifiedorder"]["post"]

    assert {"Proof", "X-Number"} <= place["responses"]["200"]["headers"].keys()
