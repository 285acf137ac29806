import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import Profile, Session
from payasync.errors import NotConfiguredError
from tests.foreign import signatures
from tests.foreign.recorder import Recorder, answer
from tests.wire.ten import (
    BASE_PATH,
    CREDENTIALS,
    DOCUMENTED,
    OTHER,
    SECRET_KEY,
    SIGNING_KEY,
    TEN,
    TenCall,
    as_signed,
    expected_fields,
    parameter,
    received_fields,
    recorded,
)

NONCE: Final = re.compile("[0-9a-f]{32}")
BODY_HEADERS: Final = {"host", "accept", "accept-encoding", "user-agent", "content-type", "content-length"}
BODILESS_HEADERS: Final = BODY_HEADERS - {"content-type"}
OPEN_WITH_BARE_PROFILE: Final = {
    **dict.fromkeys(("orders.place", "orders.query", "orders.close", "refunds.create"), "signature"),
    "payments.status": "payment_status",
    "refunds.status": "refund_status",
    "subscriptions.create": "fields.frequency",
    "subscriptions.update": "fields.subscription_id",
    "subscriptions.cancel": "fields.subscription_id",
}
BY_NAME: Final = {one.name: one for one in TEN}


def unsigned(sent: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without nonce and signature, which differ with each request."""
    return {name: value for name, value in sent.items() if name not in {"nonceStr", "sign"}}


def test_what_the_document_authenticates() -> None:
    """Without a profile, Bearer, signature and merchant number are for the calls that the document shows with them."""
    bare = Profile()

    assert (DOCUMENTED.bearer, DOCUMENTED.signed, DOCUMENTED.merchant) == (bare.bearer, bare.signed, bare.merchant)


@pytest.mark.parametrize("profile", [DOCUMENTED, OTHER], ids=["documented", "other"])
@pytest.mark.parametrize("one", TEN, ids=lambda one: one.name)
async def test_exactly_what_is_documented(profile: Profile, one: TenCall) -> None:
    """A call goes to its path below the base URL, with exactly the fields that document and profile list.

    A POST has a body and no query, a GET no body. Bearer, nonce and signature stand only where the profile says. The
    signature is the one that `openssl` makes of the received fields. An argument that is not given is not sent.

    The call sends exactly the expected headers: a POST has Content-Type `application/json`, a GET has none.
    """
    request = await recorded(one.call, profile)
    sent = received_fields(one, profile, request)
    bearer = [f"Bearer {SECRET_KEY}"] if one.name in profile.bearer else []
    step = "/T1" if parameter(one, profile).place == "path" else ""

    assert (one.method, f"{BASE_PATH}{one.path}{step}") == (request.method, request.path)
    assert expected_fields(one, profile) == unsigned(sent)
    assert not request.query if one.method == "POST" else not request.body
    assert bearer == request.header("Authorization")
    assert len(bearer) == request.raw.count(SECRET_KEY.encode())
    assert (one.name in profile.signed) == ("nonceStr" in sent) == ("sign" in sent)
    if one.name in profile.signed:
        assert NONCE.fullmatch(sent["nonceStr"])
        assert signatures.hmac_sha256(signatures.signed_text(as_signed(sent)), SIGNING_KEY) == sent["sign"]

    expected = BODY_HEADERS if one.method == "POST" else BODILESS_HEADERS
    own = {name.lower() for name in profile.headers} | ({"authorization"} if bearer else set())
    own |= {parameter(one, profile).name.lower()} if parameter(one, profile).place == "header" else set()
    own |= {"cache-control", "pragma"} if one.name in {"orders.query", "payments.status", "refunds.status"} else set()

    assert sorted(expected | own) == sorted(name.lower() for name, _ in request.headers)
    assert {name: [value] for name, value in profile.headers.items()} == {
        name: request.header(name) for name in profile.headers
    }
    assert (["application/json"] if one.method == "POST" else []) == request.header("Content-Type")
    assert (["identity"], ["application/json"]) == (request.header("Accept-Encoding"), request.header("Accept"))
    assert [str(len(request.body))] == request.header("Content-Length")

    least = await recorded(one.least, profile)

    assert expected_fields(one, profile, least=True) == unsigned(received_fields(one, profile, least))


async def test_no_cookies() -> None:
    """A session does not send back the cookies of the service."""
    with Recorder(otherwise=answer(200, b"{}", ("Set-Cookie", "seen=1; Path=/"))) as service:
        async with Session(service.url, credentials=CREDENTIALS, profile=DOCUMENTED) as pay:
            for one in TEN:
                await one.call(pay)

    assert [[]] * 10 == [request.header("Cookie") for request in service.requests]


@pytest.mark.long
def test_rsa_signs_again_after_a_fork(tmp_path: Path) -> None:
    """After a fork, parent and child can both sign with RSA; the child starts its own signing thread."""
    private, public = signatures.rsa_keys(tmp_path)
    with Recorder() as service:
        command = [sys.executable, str(Path(__file__).with_name("signing_program.py")), service.url, str(private)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    sent = [signatures.fields(request) for request in service.requests]

    assert (0, "") == (ended.returncode, ended.stderr)
    assert ["before", "child", "after"] == [each["outTradeNo"] for each in sent]
    assert [True] * 3 == [
        signatures.rsa_sha256_verifies(
            signatures.signed_text(each), base64.b64decode(each["sign"]), public, tmp_path / "signature"
        )
        for each in sent
    ]
    assert 3 == len({each["nonceStr"] for each in sent})


async def test_open_points_are_named_before_any_byte() -> None:
    """A call that needs an open point raises an error with its name before it connects."""
    for name in OPEN_WITH_BARE_PROFILE:
        async with Recorder() as service, Session(service.url, credentials=CREDENTIALS, profile=Profile()) as pay:
            with pytest.raises(NotConfiguredError) as caught:
                await BY_NAME[name].least(pay)

        assert (OPEN_WITH_BARE_PROFILE[name], name) == (caught.value.field, caught.value.operation)
        assert OPEN_WITH_BARE_PROFILE[name] in str(caught.value)
        assert caught.value.sent is False
        assert [] == service.connections
