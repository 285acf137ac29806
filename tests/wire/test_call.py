import pickle
from functools import partial
from itertools import product
from typing import Any

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from multidict import CIMultiDict, CIMultiDictProxy

from payasync.credentials import Secret
from payasync.endpoints import CREATE_REFUND, QUERY_REFUND
from payasync.errors import InvalidArgumentError
from payasync.profile import Parameter, Profile
from payasync.settings import FRAMING
from payasync.strict_json import ABSENT
from payasync.wire.call import Lease, Reply
from tests.building import bare_call


def test_a_call_is_never_changed() -> None:
    """A call is frozen: a layer derives a new call, so that an attempt does not see another attempt's fields."""
    call = bare_call(CREATE_REFUND, fields={"a": 1}, headers={"X-A": "1"})
    longer = call.with_fields(b=2, self="me").with_headers({"X-B": "2"})
    with pytest.raises(FrozenInstanceError):
        call.attempt = 2  # type: ignore[misc] # the mistake that is refused

    assert ({"a": 1}, {"X-A": "1"}) == (call.fields, call.headers)
    assert {"a": 1, "b": 2, "self": "me"} == longer.fields
    assert {"X-A": "1", "X-B": "2"} == longer.headers


def test_lease_is_over() -> None:
    """A lease ends after its seconds, and also if its clock was set back, because its age is then unknown."""
    for now, over in {100.0: False, 159.9: False, 160.0: True, 161.0: True, 99.9: True}.items():
        assert over is Lease(100.0, 60.0, partial(float, now)).over


def test_header_cannot_break_the_request_apart() -> None:
    """A header name or value that is not visible ASCII is refused. The error shows no key."""
    cases: list[tuple[str, Any]] = [
        *(("X-A", value) for value in ("one\r\nX-B: two", 1, None, Secret("canary\n"))),
        ("X A", "1"),
    ]
    for name, value in cases:
        with pytest.raises(InvalidArgumentError, match="visible ASCII") as caught:
            bare_call(CREATE_REFUND).with_headers({name: value})

        assert (name, "visible ASCII", value) == (caught.value.field, caught.value.rule, caught.value.value)
        assert "canary" not in f"{caught.value} {caught.value.value!r}"


def test_header_does_not_frame_the_message() -> None:
    """A layer cannot set a header that says where the message ends, because this allows request smuggling."""
    values: tuple[str | Secret, ...] = ("3", Secret("3"))
    for value, name in product(values, (*FRAMING, "Transfer-Encoding", "EXPECT")):
        with pytest.raises(InvalidArgumentError, match=f"^header {name} must not be set: it says where") as caught:
            bare_call(CREATE_REFUND).with_headers({"X-A": "1", name: value})

        assert (name, "not of the message itself", value) == (caught.value.field, caught.value.rule, caught.value.value)


def test_call_shows_no_field() -> None:
    """The repr of a call has its operation and number, but no field, header or profile; that of a reply has no body."""
    shown = repr(bare_call(CREATE_REFUND, fields={"a": "canary"}, headers={"X-A": "canary"}, reference="R1"))

    assert "canary" not in shown + repr(Reply(status=200, headers={}, body=b"canary"))
    assert "Profile" not in shown
    assert "refunds.create" in shown
    assert "R1" in shown


def test_call_says_how_its_identifier_is_read() -> None:
    """A layer reads of a status query what the name and the place of its identifier are."""
    profile = Profile(refund_status=Parameter("no", "header"))

    assert Parameter("no", "header") == bare_call(QUERY_REFUND, profile=profile).parameter
    assert bare_call(CREATE_REFUND, profile=profile).parameter is None


def test_reply_that_was_read_is_pickled_as_it_came() -> None:
    """Reading the document of a reply changes neither its equality nor its pickled copy."""
    for body in [b'{"a":[1]}', b"no json"]:
        came = Reply(status=201, headers=CIMultiDictProxy(CIMultiDict({"X-A": "1"})), body=body, elapsed=0.5)
        fresh = evolve(came)
        document = came.document
        other = pickle.loads(pickle.dumps(came))  # noqa: S301 - made in the same line

        assert fresh == came == other
        assert "1" == other.headers["x-a"]
        assert document == other.document
        assert (ABSENT is document) == (ABSENT is other.document)
