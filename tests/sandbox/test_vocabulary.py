"""The words of a profile: open points are the sandbox's own, and never fall onto those that are answered."""

from typing import Any

import pytest

from payasync import AnswerShape, NotificationShape, Profile, ResultCodes, SortedPairs
from payasync.sandbox.dialect import Vocabulary, place
from payasync.sandbox.model import RefusedError


def words(**parts: Any) -> Vocabulary:
    """Return the words of a profile with these parts."""
    return Vocabulary(Profile(**parts))


@pytest.mark.parametrize(
    ("answer", "untold"),
    [
        (AnswerShape(order_status="code"), {"code"}),
        (AnswerShape(order_status="code.state"), {"code"}),
        (AnswerShape(data="code"), {"code"}),
        (AnswerShape(data="message.inner"), {"message"}),
        (AnswerShape(payment_id="status"), {"order_status", "payment_status"}),
        (AnswerShape(data="x", payment_id="code"), set[str]()),
        (AnswerShape(refund_status="paymentId"), set[str]()),
        (AnswerShape(request_id="header:code"), set[str]()),
    ],
)
def test_answered_points_stay_where_they_are(answer: AnswerShape, untold: set[str]) -> None:
    """An open point whose own place is taken by an answered one is not told at all."""
    shape = words(answer=answer).answer
    points = ("code", "message", "request_id", "payment_id", "payment_status", "order_status", "refund_status")

    assert untold == {point for point in points if not getattr(shape, point)}


def test_place_is_the_whole_path() -> None:
    """What tells of a thing stands in the payload, what tells of the answer beside it; a header is no place."""
    shape = AnswerShape(data="a.b", payment_id="c", message="d", request_id="header:e")

    assert ["a.b.c", "d", "", ""] == [place(shape, point) for point in ("payment_id", "message", "request_id", "code")]


def test_notifications_whose_kind_is_open_keep_what_is_answered() -> None:
    """Where only some points are answered, the others are the sandbox's own."""
    shape = words(notification=NotificationShape(ack_body="OK", kind="event")).notification

    assert ("OK", "event", "data", "standard-webhooks") == (shape.ack_body, shape.kind, shape.data, shape.verification)


def test_notifications_whose_kind_is_answered_are_as_they_are() -> None:
    """With a kind of its own, an empty path means that there is no such thing."""
    shape = words(notification=NotificationShape(verification="none")).notification

    assert ("", "", "", "none") == (shape.kind, shape.data, shape.time, shape.verification)


def test_signature_has_an_algorithm() -> None:
    """The algorithm and the encoding are the sandbox's own where they are open; other options stay."""
    scheme = words(signature=SortedPairs(separator="|")).signature
    assert isinstance(scheme, SortedPairs)

    assert ("hmac-sha256", "hex", "|") == (scheme.algorithm, scheme.encoding, scheme.separator)


def test_codes_that_stand_in_messages() -> None:
    """Where the profile has no place for a code, but lists messages by what they mean, the message is the code."""
    codes, gone = ResultCodes(absent=("NO_ORDER",)), RefusedError("absent", "there is no such order")
    busy = RefusedError("busy", "later")

    assert ["NO_ORDER", "later"] == [
        words(answer=AnswerShape(message="m"), codes=codes).message(each) for each in (gone, busy)
    ]
    assert "there is no such order" == words(answer=AnswerShape(message="m", code="c", ok=[0]), codes=codes).message(
        gone
    )
    assert "there is no such order" == words(codes=codes).message(gone)


def test_names_of_events() -> None:
    """Names are taken in the order of the sandbox's own, and the last stands for the rest, but for orders."""
    kinds = {"payment": ["p1", "p2"], "refund": ["r1"], "subscription": ["s1", "s2", "s3"]}
    told = words(notification=NotificationShape(verification="none", kind="k", kinds=kinds))
    ends = [told.event("payment", name) for name in ("paid", "failed", "closed", "expired")]
    steps = [told.event("subscription", name) for name in ("renewed", "past_due", "cancelled", "started")]

    assert ["p1", "p2", None, None] == ends
    assert ["r1", "r1"] == [told.event("refund", name) for name in ("succeeded", "failed")]
    assert ["s1", "s2", "s3", "s1"] == steps


def test_wrong_signature_leads_to_the_dashboard() -> None:
    """The text that was to be signed is told to nobody by an answer, which says where it stands."""
    refused = RefusedError("bad_signature", "it is wrong", expected="totalAmt=1")

    assert "it is wrong; the sandbox's dashboard shows the text to sign" == words().message(refused)


def test_title_says_who_checks_signatures() -> None:
    """A scheme of the merchant's own is checked by itself alone: people are told."""

    class Mine:
        def sign(self, fields: Any, *, path: str, key: Any) -> str:
            raise NotImplementedError

        def verify(self, fields: Any, signature: str, *, path: str, key: Any) -> bool:
            raise NotImplementedError

    assert "shop" == words(name="shop").title
    assert (
        "shop: signatures are made and checked by its own Mine, by nothing else"
        == words(name="shop", signature=Mine()).title
    )
