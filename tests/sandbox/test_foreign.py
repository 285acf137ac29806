"""Random bytes from a client that shares no code with payasync."""

import http.client
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payasync.endpoints import OPERATIONS, Operation
from payasync.sandbox import PROFILE
from payasync.sandbox.threaded import ThreadedSandbox

CONTENT: Final = {"Content_Type": "application/json"}
DOCUMENTED: Final = frozenset({200, 400, 401, 403, 404, 405, 409, 413, 415, 422})


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


BODIES: Final = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(NAMES | TEXTS, VALUES, max_size=8).map(lambda fields: json.dumps(fields).encode()),
    st.integers(1, 2000).map(lambda depth: b'{"a":' * depth),
    st.sampled_from([b"[" * 9000, b'{"a":NaN}', b'{"a":1e999}', b'{"a":-Infinity}', b"\xff\xfe{}"]),
    st.sampled_from([b'{"a":"\\ud800"}', b'{"a":1,"a":1}', b"{}", b"null", b"", b"\x00"]),
    st.integers(1, 5000).map(lambda digits: b'{"totalAmt":' + b"9" * digits + b"}"),
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
