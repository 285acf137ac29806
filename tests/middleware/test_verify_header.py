"""Responses that are signed in a header, over their exact bytes."""

import time
from types import SimpleNamespace
from typing import Any, Final

import pytest
from attrs import evolve
from multidict import CIMultiDict

from payasync import Credentials, Profile, Reply, RetryPolicy, Session
from payasync.endpoints import QUERY_ORDER
from payasync.errors import ConfigurationError, InvalidSignatureError, NoAnswerError, OutcomeUnknownError, ServiceError
from payasync.middleware.verify import verify
from payasync.signing import SortedPairs
from tests.building import bare_call
from tests.foreign.certificates import trusting_tls
from tests.foreign.recorder import Answer, Recorder, answer
from tests.foreign.signatures import hmac_sha256
from tests.profile.refusal import refusal

TLS: Final = trusting_tls()
FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
OWN: Final = "signing key of the merchant"
KEY: Final = "new key of the service"
KEYS: Final = Credentials("M1", signing_key=OWN, service_keys=("old key of the service", KEY))
TOML: Final = r"""
[signature]
family = "template"
algorithm = "hmac-sha256"
encoding = "hex"
text = "{timestamp}\n{nonce}\n{body}\n"
header = "Signature"
value = "t={timestamp},n={nonce},s={signature}"
[answer]
data = "data"
order_status = "state"
[answer.header]
signature = "Signature:s"
timestamp = "Signature:t"
nonce = "Nonce"
prefix = "v1-"
text = "{timestamp}\n{nonce}\n{body}\n"
"""
PROFILE: Final = Profile.from_toml(TOML)
PAID: Final = b'{"data" : {"state": "PAID", "total": 1.10}}'
NOW: Final = 1700000000


def headers(body: bytes, key: str = KEY, *, prefix: str = "v1-", at: float | None = None) -> list[tuple[str, str]]:
    """Return the headers of a response, signed by `openssl`."""
    sent = int(time.time() if at is None else at)
    signature = hmac_sha256(f"{sent}\nn1\n{body.decode()}\n", key)
    return [("Signature", f"t={sent},s={prefix}{signature}"), ("Nonce", "n1")]


def signed(body: bytes = PAID, key: str = KEY, status: int = 200, **options: Any) -> Answer:
    """Return a signed response."""
    return answer(status, body, *headers(body, key, **options))


async def queried(response: Answer, profile: Profile = PROFILE, credentials: Credentials = KEYS) -> str | int | None:
    """Return the state that a query reads from this response."""
    with Recorder([response] * 3) as service:
        async with Session(service.url, credentials=credentials, profile=profile, tls=TLS, retry=FAST) as pay:
            return (await pay.orders.query("T1")).order_status


async def test_any_of_the_services_keys_verifies() -> None:
    """A response verifies by each key of the service, over its exact bytes, spaces and fractions included."""
    for key in ["old key of the service", KEY]:
        assert "PAID" == await queried(signed(key=key))


async def test_signatures_of_two_keys_in_one_line() -> None:
    """While keys rotate, a response may have a signature of each, also if a server has joined the lines."""
    now = time.time()
    (_, old), nonce = headers(PAID, key="next key of the service", at=now)
    joined = f"{old}, {headers(PAID, at=now)[0][1]}"

    assert "PAID" == await queried(answer(200, PAID, ("Signature", joined), nonce))


async def test_without_service_keys_the_merchants_key_verifies() -> None:
    """With a symmetric algorithm and no keys of the service, the merchant's key verifies."""
    assert "PAID" == await queried(signed(key=OWN), credentials=Credentials("M1", signing_key=OWN))


async def test_other_successes_do_not_verify() -> None:
    """A success with a wrong, incomplete or missing signature is not believed; nor are names that stand twice."""
    cases: list[Any] = [
        lambda: signed(key="stolen key of the service"),
        lambda: signed(prefix=""),
        lambda: answer(200, PAID.replace(b"PAID", b"OPEN"), *headers(PAID)),
        lambda: answer(200, PAID.replace(b" ", b""), *headers(PAID)),
        lambda: answer(200, PAID),
        lambda: answer(200, PAID, headers(PAID)[0]),
        lambda: answer(200, PAID, headers(PAID)[1]),
        lambda: answer(200, PAID, *headers(PAID), ("Nonce", "n2")),
        lambda: answer(200, PAID, ("Signature", "t=1,s=v1-zz"), ("Nonce", "n1")),
        lambda: signed(b'{"data": {"state": "OPEN", "state": "PAID"}}'),
    ]
    for respond in cases:
        with pytest.raises(InvalidSignatureError):
            await queried(respond())


async def test_success_without_a_body_is_signed() -> None:
    """A 204 is verified over no bytes; without the signature, it is not believed."""
    genuine, forged = signed(b"", status=204), [answer(204, b"")] * 3
    with Recorder([genuine, *forged]) as service:
        async with Session(service.url, credentials=KEYS, profile=PROFILE, tls=TLS, retry=FAST) as pay:
            closed = await pay.orders.close("T1")
            with pytest.raises(OutcomeUnknownError) as caught:
                await pay.orders.close("T2")

    assert (204, None, None) == (closed.http_status, closed.state, closed.data)
    assert isinstance(caught.value.reason, InvalidSignatureError)


@pytest.mark.parametrize(("away", "verified"), [(0, True), (-300, True), (300, True), (-301, False), (301, False)])
@pytest.mark.parametrize("factor", [1, 1000])
async def test_time_must_be_near(away: int, factor: int, *, verified: bool) -> None:
    """A response whose time is further away than `answer.tolerance`, before or after, does not verify."""
    given = CIMultiDict(headers(PAID, at=(NOW + away) * factor))

    async def send(_: object) -> Reply:
        return Reply(200, given, PAID)

    reply = await verify(KEYS, now=lambda: NOW)(bare_call(QUERY_ORDER, profile=PROFILE), send)

    assert verified is reply.verified
    assert verified is not ("answer.tolerance (300 seconds)" in reply.doubt)


async def test_time_must_be_a_time() -> None:
    """A signed header that holds no time does not verify."""
    for at in ["soon", "2026-01-01T00:00:00", ""]:
        signature = hmac_sha256(f"{at}\nn1\n{PAID.decode()}\n", KEY)
        given = [("Signature", f"t={at},s=v1-{signature}"), ("Nonce", "n1")]
        with pytest.raises(InvalidSignatureError, match=r"Signature:t is not within answer\.tolerance"):
            await queried(answer(200, PAID, *given))


async def test_text_may_hold_the_request() -> None:
    """A response may sign the merchant's number, and the method and the whole path of its request."""
    for path, verified in [("/gate/payment/orderquery", True), ("/payment/orderquery", False), ("/gate/other", False)]:
        head, _, rest = TOML.rpartition("{timestamp}\\n")
        profile = Profile.from_toml(head + r"{method} {path}\n{merchant_id}.{timestamp}\n" + rest)
        sent = int(time.time())
        signature = hmac_sha256(f"POST {path}\nM1.{sent}\nn1\n{PAID.decode()}\n", KEY)
        response = answer(200, PAID, ("Signature", f"t={sent},s=v1-{signature}"), ("Nonce", "n1"))
        with Recorder([response] * 3) as service:
            url = f"{service.url}/gate"
            async with Session(url, credentials=KEYS, profile=profile, tls=TLS, retry=FAST) as pay:
                if verified:
                    assert "PAID" == (await pay.orders.query("T1")).order_status
                else:
                    with pytest.raises(InvalidSignatureError):
                        await pay.orders.query("T1")


async def test_error_names_the_missing_header() -> None:
    """The error names the header that is missing."""
    with pytest.raises(InvalidSignatureError, match="the header Nonce is missing, and it is signed"):
        await queried(answer(200, PAID, headers(PAID)[0]))


NO: Final = b'{"data": {}}'


async def test_refusals() -> None:
    """A refusal must be signed where `answer.refusals_signed` says so; a wrong signature is never believed."""
    cases: list[Any] = [
        ("", lambda: answer(400, NO), ServiceError),
        ("refusals_signed = false", lambda: answer(400, NO), ServiceError),
        ("refusals_signed = true", lambda: signed(NO, status=400), ServiceError),
        ("refusals_signed = true", lambda: answer(400, NO), InvalidSignatureError),
        ("", lambda: signed(NO, "stolen key of the service", 400), InvalidSignatureError),
    ]
    for line, respond, error in cases:
        profile = Profile.from_toml(TOML.replace("[answer]\n", f"[answer]\n{line}\n"))
        with pytest.raises(error):
            await queried(respond(), profile)


async def test_request_that_is_sent_back_is_no_response() -> None:
    """With one key for both, a request verifies as a response; it is not believed, because it has no state."""
    profile = Profile.from_toml(TOML.replace('prefix = "v1-"\n', "").replace('"Nonce"', '"Signature:n"'))
    own = Credentials("M1", signing_key=OWN)
    async with Recorder() as service, Session(service.url, credentials=own, profile=profile, tls=TLS) as pay:
        with pytest.raises(InvalidSignatureError):
            await pay.orders.query("T1")
        request = service.only
    echo = answer(200, request.body, ("Signature", request.header("Signature")[0]))
    with pytest.raises(NoAnswerError, match="it may be a request that was sent back"):
        await queried(echo, profile, own)


def test_session_needs_what_only_a_response_says() -> None:
    """With one key for both, a profile must locate something that no request has."""
    profile = Profile.from_toml(TOML.replace('order_status = "state"', ""))
    own = Credentials("M1", signing_key=OWN)
    field, words = refusal(Session, "https://pay.example", credentials=own, profile=profile)

    assert "answer.header" == field
    assert words.startswith("the signature in 'Signature:s' covers nothing that only a response says")


def test_header_covers_the_whole_body() -> None:
    """A signature in a header covers nested values and each name, whatever the scheme leaves out of sorted pairs."""
    pairs = SortedPairs(algorithm="hmac-sha256", encoding="hex", exclude=("sign", "data"), nested="omit")
    profile, own = evolve(PROFILE, signature=pairs), Credentials("M1", signing_key=OWN)

    assert profile is Session("https://pay.example", credentials=own, profile=profile).profile


async def test_missing_keys_are_named() -> None:
    """Without a key that verifies, a call names the credential and the point of the profile."""
    profile = Profile.from_toml(TOML.replace("hmac-sha256", "ed25519"))
    with Recorder() as service:
        async with Session(service.url, credentials=Credentials("M1", secret_key="k"), profile=profile, tls=TLS) as pay:
            with pytest.raises(ConfigurationError, match=r"responses are signed \(answer\.header\)"):
                await pay.payments.create(amount=1, currency="CAD")


def test_contradictions() -> None:
    """A signature of responses that contradicts itself is refused, with its key."""
    for old, new, key, why in [
        ('data = "data"', 'data = "data"\nsignature = "sign"', "answer.signature", "needs a signature that verifies"),
        ('text = "{timestamp}\\n{nonce}\\n{body}\\n"\n', "", "answer.header.timestamp", "belong together"),
        ('nonce = "Nonce"', "", "answer.header.nonce", "belong together"),
        ('nonce = "Nonce"', 'nonce = "signature:T"', "answer.header.signature", "must differ"),
        ('nonce = "Nonce"', 'nonce = "signature"', "answer.header.signature", "must differ"),
        ("{body}", "", "answer.header.text", "must hold {body}"),
        ("{body}", "{body}{query}", "answer.header.text", "{query}, which is unknown; allowed are {timestamp} {nonce}"),
        ('signature = "Signature:s"', "", "answer.header.signature", "is missing"),
        ('"Signature:s"', '"Signature s"', "answer.header.signature", "must be the name of a header, or Name:key"),
        ('"v1-"', '"é"', "answer.header.prefix", "must be of visible ASCII"),
        ('data = "data"', 'data = "data"\ntolerance = 0', "answer.tolerance", "a number of seconds above 0"),
    ]:
        head, table, rest = TOML.partition("[answer]")
        field, words = refusal(Profile.from_toml, head + table + rest.replace(old, new))

        assert key == field
        assert why in words


def test_contradictions_of_sorted_pairs() -> None:
    """Responses may be signed in a header where requests are signed by fields, but in one place, and with a key."""
    for scheme, why in [
        ('algorithm = "md5"\nkey_param = "key"', 'must not be given with algorithm "md5"'),
        ('algorithm = "hmac-md5"\n[answer]\nsignature = "sign"', "both say where the signature stands"),
    ]:
        _, _, header = TOML.partition("[answer.header]")

        assert why in refusal(Profile.from_toml, f"[signature]\n{scheme}\n[answer.header]{header}")[1]


def test_own_scheme_verifies_no_header() -> None:
    """With a scheme of your own, responses cannot be verified in a header."""
    own = SimpleNamespace(sign_request=lambda *_, **__: {})

    assert "a scheme of your own" in refusal(Profile, signature=own, answer=PROFILE.answer)[1]
