import pickle

import pytest
from attrs.exceptions import FrozenInstanceError
from multidict import CIMultiDict

from payasync.absent import ABSENT
from payasync.calls import Reply
from payasync.errors import InvalidArgumentError
from payasync.operations import CREATE_REFUND, OPERATIONS, QUERY_ORDER, Kind, Operation
from payasync.secret import Secret
from tests.building import bare_call


def test_a_call_is_never_changed() -> None:
    """Each layer derives another call: an attempt cannot see what the one before it added."""
    call = bare_call(CREATE_REFUND, fields={"a": 1}, headers={"X-A": "1"})
    longer = call.with_fields(b=2, self="me").with_headers({"X-B": "2"})
    with pytest.raises(FrozenInstanceError):
        call.attempt = 2  # type: ignore[misc] # the mistake that is refused

    assert ({"a": 1}, {"X-A": "1"}) == (call.fields, call.headers)
    assert {"a": 1, "b": 2, "self": "me"} == longer.fields
    assert {"X-A": "1", "X-B": "2"} == longer.headers


def test_later_values_win() -> None:
    """A field or header that is given again replaces the one before it."""
    call = bare_call(CREATE_REFUND, fields={"a": 1}, headers={"X-A": "1"})

    assert {"a": 2} == call.with_fields(a=2).fields
    assert {"X-A": "2"} == call.with_headers({"X-A": "2"}).headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "one\r\nX-B: two"),
        ("X-A", "é"),
        ("X-A", ""),
        ("X-A", " padded"),
        ("X A", "1"),
        ("X-A:", "1"),
        ("", "1"),
        ("X-A", 1),
        ("X-A", None),
    ],
)
def test_header_cannot_break_the_request_apart(name: str, value: str) -> None:
    """Names and values are of visible ASCII; anything else is refused before any I/O."""
    with pytest.raises(InvalidArgumentError, match="visible ASCII") as caught:
        bare_call(CREATE_REFUND).with_headers({name: value})

    assert (name, "visible ASCII", value) == (caught.value.field, caught.value.rule, caught.value.value)


@pytest.mark.parametrize(
    "name",
    [
        *("Transfer-Encoding", "Content-Length", "content-length", "Content-Type", "Content-Encoding", "Host"),
        *("Connection", "Keep-Alive", "EXPECT", "te", "Trailer", "Upgrade", "Accept-Encoding"),
    ],
)
@pytest.mark.parametrize("value", ["3", Secret("3")], ids=["text", "secret"])
def test_header_does_not_frame_the_message(name: str, value: str | Secret) -> None:
    """A layer cannot say where a message ends: of one that says it twice, a second request could be made."""
    with pytest.raises(InvalidArgumentError, match=f"^header {name} must not be set: it says where") as caught:
        bare_call(CREATE_REFUND).with_headers({"X-A": "1", name: value})

    assert (name, "not of the message itself", value) == (caught.value.field, caught.value.rule, caught.value.value)


@pytest.mark.parametrize("name", ["Authorization", "Cookie", "Idempotency-Key", "Accept", "Proxy-Authorization"])
def test_layers_may_say_who_sends_it(name: str) -> None:
    """What a header means is its layer's to say, as Bearer is that of ours."""
    assert {name: "1"} == bare_call(CREATE_REFUND).with_headers({name: "1"}).headers


def test_refused_secret_is_not_shown() -> None:
    """A key with a line end in it is refused, and stays a secret in the error."""
    with pytest.raises(InvalidArgumentError) as caught:
        bare_call(CREATE_REFUND).with_headers({"Authorization": Secret("canary\n")})

    assert "canary" not in f"{caught.value} {caught.value.value!r}"


def test_call_shows_no_field() -> None:
    """What a log shows of a call is its operation and number: no field, no header, nothing of the profile."""
    shown = repr(bare_call(CREATE_REFUND, fields={"a": "canary"}, headers={"X-A": "canary"}, reference="R1"))

    assert "canary" not in shown
    assert "Profile" not in shown
    assert "refunds.create" in shown
    assert "R1" in shown


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_read(operation: Operation) -> None:
    """A read is what the table of operations says."""
    assert (operation.kind is Kind.READ) == bare_call(operation).read


def test_call_has_all_the_time_until_told() -> None:
    """Who sends a call without the retry layer waits as long as it takes."""
    call = bare_call(QUERY_ORDER)

    assert (float("inf"), 1) == (call.deadline, call.attempt)


@pytest.mark.parametrize(("body", "expected"), [(b'{"a":1}', {"a": 1}), (b"null", None), (b"", ABSENT), (b"{", ABSENT)])
def test_reply_decodes_its_body(body: bytes, expected: object) -> None:
    """The JSON of a reply is read once, where somebody asks for it."""
    reply = Reply(status=200, headers={}, body=body)

    assert expected == reply.document
    assert reply.document is reply.document


def test_reply_shows_no_body() -> None:
    """What a log shows of a reply is not what stands in it."""
    assert "canary" not in repr(Reply(status=200, headers={}, body=b"canary"))


def test_reply_crosses_a_process_boundary() -> None:
    """A reply is the same at the other end, its headers by names in any case."""
    came = Reply(status=201, headers=CIMultiDict({"X-A": "1"}), body=b"{}", elapsed=0.5, attempts=2, recovered=True)
    twin = pickle.loads(pickle.dumps(came))  # noqa: S301 - made in the same line

    assert came == twin
    assert "1" == twin.headers["x-a"]
