"""A sandbox whose profile signs texts of requests: the client is believed, and nobody else."""

import base64
import hmac
import time
from functools import partial
from typing import Any, Final

import aiohttp
import pytest
from multidict import CIMultiDict

from payasync import AuthenticationError, Credentials, Profile, ServiceError
from payasync.sandbox import Sandbox
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.openapi import describe_service

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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_signed_texts_are_verified(algorithm: str) -> None:
    """Signatures of requests and responses are accepted, with each algorithm; a lost refund is found by a query.

    Refusals are signed, too, if the profile says so.
    """
    profile = Profile.from_toml(f"{GONE}{TOML}{ANSWERS}".replace("hmac-sha256", algorithm))
    async with Sandbox(profile=profile, refunds="succeed") as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD", subject="Café & =")
        await sandbox.customer.authorize(order)
        sandbox.faults.reset_after_commit("refunds.create")
        refund = await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
        payment = await pay.payments.status("T1")
        await pay.orders.place(out_trade_no="T2", total_amt=450, currency="CAD")
        await pay.orders.close("T2")
        with pytest.raises(ServiceError, match="HTTP 404"):
            await pay.orders.query("T9")

        assert (True, 200) == (refund.recovered, sandbox.ledger.refunded("T1"))
        assert "OK" == payment.data["code"]


def headers_of(sandbox: Sandbox, body: bytes, **changes: str) -> dict[str, str]:
    """Return the headers of a query that a few lines of their own sign."""
    key, merchant = sandbox.credentials.signing_key, sandbox.credentials.merchant_id
    assert key
    said = {"keyid": merchant, "t": str(int(time.time())), "nonce": "n1", **changes}
    text = f"POST\n/payment/orderquery\nSANDBOX\n{said['t']}\n{said['nonce']}\n".encode() + body + b"\n"
    signature = base64.b64encode(hmac.digest(key.reveal().encode(), text, "sha256")).decode()
    value = f"keyid={said['keyid']},t={said['t']},s={signature}"
    return {"Signature": value, "X-Nonce": said["nonce"], "Content-Type": "application/json"}


QUERY: Final = b'{"outTradeNo": "T1",  "merchantId": "SANDBOX"}'


async def test_exact_bytes_count(http: aiohttp.ClientSession) -> None:
    """The exact bytes are accepted, and each nonce and header once. Other bytes and wrong headers are refused.

    A time far away, another merchant or a missing nonce is refused, though the signature is genuine.
    """
    async with Sandbox(profile=PROFILE) as sandbox:
        signed = partial(headers_of, sandbox, QUERY)
        own = signed()
        twice = CIMultiDict([*signed(nonce="n3").items(), ("X-Nonce", "n4")])
        cases: list[tuple[bytes, Any, tuple[int, str]]] = [
            (QUERY, own, (404, "outTradeNo")),
            (QUERY, own, (403, "Signature")),
            (QUERY.replace(b"  ", b" "), signed(nonce="n2"), (401, "Signature")),
            (QUERY, twice, (401, "X-Nonce")),
            *((QUERY, signed(t=moment), (401, "Signature")) for moment in ("1700000000", "99999999999", "soon")),
            (QUERY, signed(keyid="OTHER"), (403, "Signature")),
            (QUERY, signed(nonce=""), (401, "X-Nonce")),
            *(
                (QUERY, {**own, "Signature": value}, (401, "Signature"))
                for value in ("", "s=1", "keyid=SANDBOX,t=1,s=")
            ),
        ]
        for body, headers, expected in cases:
            async with http.post(f"{sandbox.url}/payment/orderquery", data=body, headers=headers) as answer:
                assert expected == (answer.status, (await answer.json()).get("field", "")), headers


async def test_time_has_the_form_of_the_profile() -> None:
    """The sandbox takes a current time in the profile's form. It refuses another form, or a time far away."""
    others = {
        "timestamp": ["{milliseconds}"],
        "milliseconds": ["{timestamp}", "{datetime}"],
        "datetime": ["{timestamp}", "2020-01-31T12:00:00.000Z", "2020-01-31T12:00:00", "x{datetime}Z"],
    }
    for form, texts in others.items():
        profile = Profile.from_toml(TOML.replace("{timestamp}", f"{{{form}}}"))
        async with Sandbox(profile=profile) as running, running.session() as pay:
            await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
            for wrong in texts:
                other = TOML.replace("t={timestamp}", f"t={wrong}").replace("{timestamp}", wrong)
                async with running.session(profile=Profile.from_toml(other)) as late:
                    with pytest.raises(AuthenticationError):
                        await late.orders.query("T1")


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


def test_description_names_the_headers() -> None:
    """OpenAPI shows the headers that sign a request and a response, and no fields that are not sent."""
    described = describe_service(Dialect(Profile.from_toml(TOML + ANSWERS)))
    place = described["paths"]["/payment/unifiedorder"]["post"]
    fields = place["requestBody"]["content"]["application/json"]["schema"]["properties"]

    assert PROFILE == Profile.from_toml(PROFILE.to_toml())
    assert ["Signature", "X-Nonce"] == [each["name"] for each in place["parameters"]]
    assert {"nonceStr", "sign"}.isdisjoint(fields)
    assert place["description"].startswith('The header Signature is "keyid={merchant_id},t={timestamp},s={signature}"')
    assert {"Proof", "X-Number"} <= place["responses"]["200"]["headers"].keys()


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


@pytest.mark.parametrize("algorithm", ["hmac-sha256", "rsa-sha256"])
async def test_responses_sign_the_request(algorithm: str, http: aiohttp.ClientSession) -> None:
    """Signatures may be percent-encoded, and responses may sign the method and the path of their requests.

    Unless the profile says that refusals are signed, they have no header of a signature.
    """
    text = f"{GONE}{TOML}{ANSWERS}".replace("hmac-sha256", algorithm).replace('"base64"', '"base64-percent"')
    signed = text.replace(
        r'text = "{timestamp}\n{nonce}', r'text = "{method} {path}\n{merchant_id}.{timestamp}\n{nonce}'
    )
    for line, refusals in (("refusals_signed = true", True), ("", False)):
        profile = Profile.from_toml(signed.replace("refusals_signed = true", line))
        async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
            await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
            closed = await pay.orders.close("T1")
            async with http.get(f"{sandbox.url}/nowhere") as refused:
                assert ("OK", refusals) == (closed.data["code"], "Proof" in refused.headers)
            if refusals:
                with pytest.raises(ServiceError):
                    await pay.refunds.status("R1")
