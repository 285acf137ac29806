"""A notification as a value: what arrives, what may be acted upon, and how it is confirmed."""

import array
import copy
import pickle
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from attrs.exceptions import FrozenInstanceError
from multidict import CIMultiDict

from payasync import OrderResponse
from payasync.endpoints import QUERY_ORDER
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.notifications.notification import MAX_BYTES, Notification, copy_body, parse, read_headers
from payasync.sandbox import PROFILE, Sandbox
from tests.building import bare_call, reply

NOW: Final = datetime(2027, 1, 31, tzinfo=UTC)
BODY: Final = b'{"type":"payment.paid","data":{"outTradeNo":"T1","status":"SBX_PAID","totalAmt":450,"tags":["a","b"]}}'


def told(**facts: Any) -> Notification:
    """Return a notification with other facts."""
    return evolve(parse(BODY, {"X-A": "1"}, profile=PROFILE, received_at=NOW), **facts)


def answered(document: object) -> OrderResponse:
    """Return what the service says when it is asked."""
    return OrderResponse.of(bare_call(QUERY_ORDER), reply(document))


def test_what_may_be_acted_upon() -> None:
    """The service's own answer before what arrived, that only where it is verified, and nothing else."""
    confirmed = answered({"status": "SBX_CLOSED"})

    assert told().trusted is None
    assert told(verified=True).trusted == told().data
    assert (
        {"status": "SBX_CLOSED"}
        == told(confirmed=confirmed).trusted
        == told(verified=True, confirmed=confirmed).trusted
    )


def test_state_is_that_of_the_confirmed_answer() -> None:
    """What a hint says of the state counts for nothing, once the service has been asked."""
    assert "paid" == told().state
    assert told(confirmed=answered({"status": "SBX_PAID"})).state is None  # by a profile without names


def test_fields_of_the_payload() -> None:
    """`get` steps into the payload by a dotted path, as a response does; the default stands for what is not there."""
    assert ["T1", "b", None, 0] == [
        told().get("outTradeNo"),
        told().get("tags.1"),
        told().get("type"),
        told().get("x", 0),
    ]


@frozen
class Paid:
    """A merchant's own class."""

    outTradeNo: str  # noqa: N815 - the wire's name
    totalAmt: int  # noqa: N815 - the wire's name


@frozen
class Wrong:
    """A class that the payload does not fit."""

    totalAmt: str  # noqa: N815 - the wire's name


def test_payload_as_a_class() -> None:
    """`to` is strict: no number becomes a text, and the error says where."""
    assert Paid("T1", 450) == told().to(Paid)
    with pytest.raises(
        InvalidArgumentError, match=r"the notification does not fit Wrong: expected str, got int @ data\.tot"
    ):
        told().to(Wrong)


def test_nothing_of_it_changes() -> None:
    """A handler cannot make it verified; it can derive another one."""
    first = told()
    with pytest.raises(FrozenInstanceError):
        first.verified = True  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue] # that is the test

    assert (False, True) == (first.verified, evolve(first, verified=True).verified)


def test_equal_and_hashable() -> None:
    """Two that say the same are equal, and fit into a set; a body that differs by a space is another one."""
    other = parse(BODY + b" ", {"x-a": "1"}, profile=PROFILE, received_at=NOW)

    assert 2 == len({told(), told(), other})


def test_shown_without_the_payload() -> None:
    """What is printed names the event, and holds neither payload nor headers: these may be a customer's."""
    shown = repr(told(headers={"cookie": "canary"}, session=object()))

    assert 'payment:["T1","SBX_PAID"]' in shown
    assert not [word for word in ("450", "cookie", "canary", "session", "object") if word in shown]


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],  # noqa: S301 - made in the same line
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_plain(copied: Any) -> None:
    """What goes to a queue takes everything along but the session."""
    session = object()
    first = told(session=session, confirmed=answered({"a": 1}), id=7, attempt=2)
    other = copied(first)

    assert session is vars(first)["_session"]
    assert vars(other)["_session"] is None
    assert (first, first.document, "1") == (other, other.document, other.headers["x-A"])


async def test_payment_is_confirmed_by_its_order() -> None:
    """Endpoint 3 says what the order is now, whatever the notification says (docs/service.md#orders)."""
    async with Sandbox() as sandbox, sandbox.session() as pay:
        await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        answer = await told(session=pay).confirm()
        again = await told().confirm(session=pay)

    assert ("pending", 450, "T1") == (answer.state, answer["totalAmt"], answer["outTradeNo"])
    assert (OrderResponse, answer["paymentId"]) == (type(answer), again["paymentId"])


async def test_confirming_without_a_session() -> None:
    """Without one nobody can be asked; the error says where to give it."""
    with pytest.raises(ConfigurationError, match=r"Receiver\(session=...\), or confirm\(session=...\)") as refused:
        await told().confirm()

    assert "session" == refused.value.field


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"out_trade_no": None}, "no number to ask about: notification.out_trade_no says where"),
        ({"kind": "refund"}, "no number to ask about: notification.out_refund_no says where"),
        ({"kind": "subscription", "subscription_id": "S1"}, "no query about subscription"),
        ({"kind": None}, "no query about an unknown event"),
    ],
)
def test_nothing_to_ask_about(facts: Any, words: str) -> None:
    """Subscriptions have no query, and without a number there is no question (docs/service.md#queries)."""
    with pytest.raises(InvalidArgumentError, match=words):
        told(**facts).inquiry()


RELEASED: Final = memoryview(b"{}")
RELEASED.release()


@pytest.mark.parametrize(
    "raw",
    [b"{}", bytearray(b"{}"), memoryview(b"{}"), memoryview(b"{-}-")[::2]],
    ids=["bytes", "bytearray", "memoryview", "every second byte"],
)
def test_body_is_bytes_of_its_own(raw: Any) -> None:
    """Whatever holds them, the bytes are copied: nobody can change what was verified."""
    body = copy_body(raw)

    assert (bytes, b"{}") == (type(body), body)


@pytest.mark.parametrize("raw", ["{}", None, 5, [123, 125], array.array("b", b"{}")], ids=repr)
def test_what_is_no_bytes(raw: Any) -> None:
    """A text is refused, since a signature is made over bytes; the error says so."""
    with pytest.raises(InvalidArgumentError, match="the body's bytes, as they were received") as refused:
        copy_body(raw)

    assert "raw" == refused.value.field


def test_memoryview_that_was_released() -> None:
    """What cannot be read any more is our error, not Python's."""
    with pytest.raises(InvalidArgumentError, match="not a memoryview that was released"):
        copy_body(RELEASED)


def test_length() -> None:
    """The greatest length passes, one byte more does not."""
    longest = b" " * MAX_BYTES

    assert longest == copy_body(longest, MAX_BYTES)
    with pytest.raises(InvalidArgumentError, match="3 bytes long at most, not of 4"):
        copy_body(b"1234", max_bytes=3)
    with pytest.raises(InvalidArgumentError):
        copy_body(longest + b" ", MAX_BYTES)


@pytest.mark.parametrize(
    "headers",
    [
        {"Webhook-Id": "m1"},
        {b"webhook-id": b"m1"},
        [("WEBHOOK-ID", "m1")],
        [(b"webhook-id", b"m1")],
        [["webhook-ID", "m1"]],
        CIMultiDict({"webhook-id": "m1"}),
    ],
    ids=repr,
)
def test_headers_by_names_in_any_case(headers: Any) -> None:
    """A mapping or pairs, texts or bytes, as WSGI, ASGI and aiohttp have them: all are one."""
    taken = read_headers(headers)

    assert "m1" == taken["wEBHOOK-iD"]
    assert 1 == len(taken)


def test_headers_that_come_one_by_one() -> None:
    """Pairs may come from anything that yields them."""
    assert {"a": "1", "b": "2"} == read_headers(pair for pair in [("a", "1"), ("b", "2")])


def test_header_that_stands_twice() -> None:
    """None is dropped: who needs one alone sees that there are two."""
    assert ["a", "b"] == read_headers([("webhook-id", "a"), ("Webhook-Id", "b")]).getall("webhook-id")


def test_bytes_are_latin_1() -> None:
    """Every byte is a character, as in HTTP."""
    assert "".join(map(chr, range(256))) == read_headers({b"x": bytes(range(256))})["x"]


def test_lone_surrogates_become_writable() -> None:
    """A server that cannot decode a header hands over lone surrogates; what is kept can be written anywhere."""
    assert {"x?": "a?b"} == read_headers({"x\udce9": "a\udce9b"})


@pytest.mark.parametrize(
    "headers",
    [
        None,
        5,
        "webhook-id: m1",
        b"webhook-id: m1",
        ["webhook-id"],
        ["ab"],
        [("a",)],
        [("a", "b", "c")],
        [("a", None)],
        [None],
        {"a": 1},
        {1: "a"},
        {"a": ["b"]},
    ],
    ids=repr,
)
def test_what_is_no_headers(headers: Any) -> None:
    """Anything else is refused as an argument, by its name."""
    with pytest.raises(InvalidArgumentError, match="headers must be a mapping") as refused:
        read_headers(headers)

    assert "headers" == refused.value.field


def test_no_headers_at_all() -> None:
    """None are needed where the profile looks at none."""
    assert {} == read_headers({}) == read_headers([])
