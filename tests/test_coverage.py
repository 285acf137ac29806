"""What the signature of an answer covers: a payload and a state beside it would be anybody's."""

from typing import Any, Final

import pytest

from payasync import AnswerShape, ConfigurationError, Credentials, Profile, Session, SortedPairs

SCHEME: Final[dict[str, Any]] = {"algorithm": "hmac-sha256", "encoding": "hex"}


class Own:
    """A scheme of the merchant's own, which may sign whatever it likes of an object."""

    def sign(self, fields: Any, *, path: str, key: Any) -> str:
        """Sign nothing."""
        raise NotImplementedError

    def verify(self, fields: Any, signature: str, *, path: str, key: Any) -> bool:
        """Verify nothing."""
        raise NotImplementedError


def session(profile: Profile) -> Session:
    """Return a session, which opens nothing."""
    return Session(
        "https://pay.example", credentials=Credentials("M1", signing_key="service key number 1"), profile=profile
    )


@pytest.mark.parametrize(
    ("answer", "options", "point"),
    [
        ({"data": "data", "signature": "sign"}, {"nested": "omit"}, "answer.data"),
        ({"data": "data", "signature": "other.sign"}, {}, "answer.data"),
        ({"data": "data", "signature": "data.inner.sign"}, {}, "answer.data"),
        ({"data": "data", "signature": "sign"}, {"nested": "json", "exclude": ("sign", "data")}, "answer.data"),
        (
            {"data": "data", "signature": "data.sign", "order_status": "order.state"},
            {"nested": "omit"},
            "answer.order_status",
        ),
        ({"signature": "sign", "refund_status": "data.state"}, {"nested": "omit"}, "answer.refund_status"),
        ({"signature": "data.sign", "payment_status": "state"}, {}, "answer.payment_status"),
        ({"signature": "sign", "subscription_status": "st"}, {"exclude": ("sign", "st")}, "answer.subscription_status"),
    ],
)
def test_believed_and_not_covered(answer: dict[str, Any], options: dict[str, Any], point: str) -> None:
    """A payload or a state that no signature covers is refused by a session, as it is made, by its name."""
    profile = Profile(answer=AnswerShape(**answer), signature=SortedPairs(**SCHEME, **options))
    with pytest.raises(
        ConfigurationError, match=f"^{point} is .*, which the signature at '.*' does not cover"
    ) as caught:
        session(profile)

    assert point == caught.value.field


@pytest.mark.parametrize(
    ("answer", "scheme"),
    [
        ({"data": "data", "code": "code", "ok": ("0",), "signature": "data.sign"}, SortedPairs(**SCHEME)),
        ({"data": "data", "signature": "sign", "order_status": "a.b"}, SortedPairs(**SCHEME, nested="json")),
        ({"signature": "sign", "order_status": "state"}, SortedPairs(**SCHEME, nested="omit")),
        ({"signature": "data.sign", "order_status": "data.state"}, SortedPairs(**SCHEME)),
        ({"signature": "sign", "redirect_url": "payUrl"}, SortedPairs(**SCHEME, exclude=("sign", "payUrl"))),
        ({"data": "data", "signature": "sign", "order_status": "a.b"}, Own()),
        ({"data": "data", "signature": "data.sign"}, None),
        ({"data": "data", "order_status": "a.b"}, SortedPairs(**SCHEME, nested="omit")),
    ],
    ids=["envelope", "nested", "flat", "by paths", "address", "own scheme", "no scheme yet", "not signed"],
)
def test_covered(answer: dict[str, Any], scheme: Any) -> None:
    """What the signature's object holds is; a code beside it and an address that a service leaves out may be."""
    profile = Profile(answer=AnswerShape(**answer), signature=scheme)

    assert session(profile).profile is profile
