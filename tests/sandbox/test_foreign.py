"""Clients that share no code with payasync: a shell with curl and openssl, and random bytes."""

import asyncio
import http.client
import json
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payasync import Profile, SortedPairs
from payasync.endpoints import OPERATIONS, Operation
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.threaded import ThreadedSandbox

SCRIPT: Final = r"""
set -euo pipefail
nonce=$(openssl rand -hex 16)
text="currency=CAD&merchantId=$MERCHANT&nonceStr=$nonce&outTradeNo=$NUMBER&subject=Café au lait&totalAmt=450"
sign=$(printf %s "$text" | eval "$SIGN")
body=$(cat <<END
{"merchantId": "$MERCHANT", "outTradeNo": "$NUMBER", "subject": "Café au lait", "totalAmt": $AMOUNT,
 "currency": "CAD", "nonceStr": "$nonce", "sign": "$sign"}
END
)
curl --silent --show-error --max-time 20 --noproxy '*' --write-out '\n%{http_code}' \
    --header 'Content-Type: application/json' --data-binary "$body" "$URL/payment/unifiedorder"
"""
HMAC: Final = """openssl dgst -sha256 -hmac "$KEY" -r | cut -d ' ' -f 1"""
RSA: Final = """openssl dgst -sha256 -sign "$KEY_FILE" | openssl base64 -A"""
CONTENT: Final = {"Content_Type": "application/json"}
DOCUMENTED: Final = frozenset({200, 400, 401, 403, 404, 405, 409, 413, 415, 422})


async def shelled(sandbox: Sandbox, sign: str, **given: str) -> tuple[int, Any]:
    """Place an order from a shell, and return the response's status and document."""
    own = {"MERCHANT": sandbox.credentials.merchant_id, "URL": sandbox.url, "SIGN": sign, "NUMBER": "T1"}
    environ = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "AMOUNT": "450", **own, **given}
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", SCRIPT, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    document, _, status = output.decode().rpartition("\n")
    return int(status), json.loads(document)


async def test_shell_places_an_order(tmp_path: Path) -> None:
    """A signature that `openssl` made is accepted; one by another key, or of another amount, is refused.

    An RSA signature with the merchant's private key is accepted, too. An idle connection delays nobody.
    """
    if missing := [tool for tool in ("bash", "curl", "openssl") if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    private = Profile(signature=SortedPairs(algorithm="rsa-sha256", encoding="base64"))
    file = tmp_path / "key.pem"
    async with Sandbox() as sandbox, Sandbox(private) as other:
        key, pem = (each.credentials.signing_key for each in (sandbox, other))
        assert key
        assert pem
        file.write_text(pem.reveal(), encoding="utf-8")
        given = {"KEY": key.reveal()}
        with socket.create_connection(("127.0.0.1", int(sandbox.url.rpartition(":")[2]))):
            placed = await shelled(sandbox, HMAC, **given)
        refused = [await shelled(sandbox, HMAC, **{**given, **each}) for each in ({"KEY": "wrong"}, {"AMOUNT": "451"})]
        by_key, _ = await shelled(other, RSA, KEY_FILE=str(file))

        assert (200, "SBX_OK") == (placed[0], placed[1]["code"])
        assert [(401, "SBX_BAD_SIGNATURE")] * 2 == [(status, document["code"]) for status, document in refused]
        assert (200, 1, 1) == (by_key, other.ledger.orders(), sandbox.ledger.orders())


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    """A sandbox in a thread, for clients that block."""
    with ThreadedSandbox(PROFILE) as sandbox:
        yield sandbox


def sent(url: str, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Send a request with the standard library's client, and return the response's status and body."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


BOUNDED: Final = settings(suppress_health_check=[HealthCheck.too_slow])
TEXTS: Final = st.text(max_size=40)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.just("\ud800") | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
NAMES: Final = st.sampled_from(
    ["merchantId", "nonceStr", "sign", "totalAmt", "amount", "currency", "outTradeNo", "notifyUrl", "customer",
     "startDate", "billingFrequency", "subscriptionId", "outRefundNo", "refundAmt", "subject", "returnUrl"]
)  # fmt: skip


def repeating(pairs: Sequence[tuple[str, object]]) -> bytes:
    """Return a JSON object in which a name may stand twice."""
    members = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs)
    return f"{{{members}}}".encode()


BODIES: Final = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(NAMES | TEXTS, VALUES, max_size=8).map(lambda fields: json.dumps(fields).encode()),
    st.lists(st.tuples(NAMES, VALUES), max_size=6).map(repeating),
    st.integers(1, 20_000).map(lambda depth: b'{"a":' * depth),
    st.sampled_from([b"[" * 60_000, b'{"a":NaN}', b'{"a":1e999}', b'{"a":-Infinity}', b"\xff\xfe{}"]),
    st.sampled_from([b'{"a":"\\ud800"}', b'{"a":1,"a":1}', b"{}", b"null", b"", b"\x00"]),
    st.integers(1, 30_000).map(lambda digits: b'{"totalAmt":' + b"9" * digits + b"}"),
)
POSTS: Final = st.sampled_from([operation for operation in OPERATIONS if operation.has_body])
HEADER: Final = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60)


@BOUNDED
@given(operation=POSTS, body=BODIES)
def test_any_body(served: Any, operation: Operation, body: bytes) -> None:
    """Any body with the right token gets a documented JSON response, and no 500."""
    token = f"Bearer {served.credentials.secret_key.reveal()}"
    status, document = sent(served.url, "POST", operation.path, body, Authorization=token, **CONTENT)

    assert status in DOCUMENTED
    assert json.loads(document)["code"]


@BOUNDED
@given(
    method=st.sampled_from(["GET", "POST"]),
    path=st.sampled_from([*(operation.path for operation in OPERATIONS), "/payment/status/", "/gateway/", "/", "/v1/"]),
    rest=st.just("") | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=40),
    headers=st.dictionaries(st.sampled_from(["Authorization", "Content_Type", "Content_Encoding"]), HEADER),
)
def test_any_target_and_headers(served: Any, method: str, path: str, rest: str, headers: dict[str, str]) -> None:
    """Any path, query and headers get a documented 4xx, or a redirect to a page for people."""
    given = {"Authorization": f"Bearer {served.credentials.secret_key.reveal()}", **headers}
    body = b"" if method == "GET" else b"{}"
    status, _ = sent(served.url, method, path + rest, body, **{name: text.strip() for name, text in given.items()})

    assert status in DOCUMENTED - {200} | {303}
