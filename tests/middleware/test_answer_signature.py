"""Whether an answer is signed by the service, without any I/O."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, cast

import orjson
import pytest
from attrs import evolve

from payasync.credentials import Secret
from payasync.endpoints import PLACE_ORDER
from payasync.middleware.verify import verify_reply
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape
from payasync.signing.schemes import FREE_TEXT, IDENTIFIERS, SortedPairs
from payasync.wire.call import Call, Reply
from tests.building import bare_call

SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
KEY: Final = "service key number 1"
ADDRESS: Final = "https://gate.example/pay?no=7&back=https%3A%2F%2Fshop.example&a=b=c"
SHAPES: Final = {
    "at the top": AnswerShape(signature="sign", redirect_url="payUrl"),
    "in the payload": AnswerShape(data="data", signature="data.sign", redirect_url="payUrl"),
    "deeper": AnswerShape(signature="data.sign", redirect_url="data.payUrl"),
}


def profile(answer: AnswerShape = SHAPES["in the payload"], scheme: Any = SCHEME) -> Profile:
    """Return a profile of a service that signs its answers."""
    return Profile(answer=answer, signature=scheme)


def signed(fields: Mapping[str, Any], key: str = KEY) -> dict[str, Any]:
    """Return an object with its signature, made by a few lines of this test's own."""
    text = "&".join(f"{name}={fields[name]}" for name in sorted(fields) if fields[name] != "")
    return {**fields, "sign": hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()}


def told(document: object) -> Reply:
    """Return an answer."""
    return Reply(status=200, headers={}, body=orjson.dumps(document))


def judged(
    fields: Mapping[str, Any], about: Profile | None = None, scheme: Any = SCHEME, keys: tuple[str, ...] = (KEY,)
) -> bool | None:
    """Return what is made of a payload that is signed."""
    about = about or profile()
    call: Call = bare_call(PLACE_ORDER, profile=about)
    object_ = signed(fields)
    document = {"data": object_} if about.answer.signature.startswith("data.") else object_
    return verify_reply(call, told(document), scheme, [Secret(key) for key in keys])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("address", [ADDRESS, "https://gate.example/?a&b", "https://gate.example/?a=b", "&", "="])
def test_redirect_address_may_hold_delimiters(address: str, shape: AnswerShape) -> None:
    """Addresses hold them: that of an order verifies in any scheme, wherever it stands."""
    fields = {"payUrl": address, "state": 0, "tradeNo": "T1"}

    assert "payUrl" not in SCHEME.allow_delimiters
    assert judged(fields, profile(shape)) is True


def test_changed_address_does_not_verify() -> None:
    """What may stand there is signed all the same."""
    object_ = signed({"payUrl": ADDRESS, "state": 0})
    forged = {**object_, "payUrl": ADDRESS.replace("gate", "evil")}

    assert (
        verify_reply(bare_call(PLACE_ORDER, profile=profile()), told({"data": forged}), SCHEME, [Secret(KEY)]) is False
    )


def test_pair_that_moved_out_of_another_field_does_not_verify() -> None:
    """Equal texts of two payloads are told apart by where the delimiters stand."""
    whole = signed({"note": "a", "state": 1})
    joined = {"note": "a&state=1", "sign": whole["sign"]}
    call = bare_call(PLACE_ORDER, profile=profile())

    assert verify_reply(call, told({"data": whole}), SCHEME, [Secret(KEY)]) is True
    assert verify_reply(call, told({"data": joined}), SCHEME, [Secret(KEY)]) is False


@pytest.mark.parametrize("name", ["note", "state", "redirectUrl", "data.payUrl", *sorted(IDENTIFIERS)])
@pytest.mark.parametrize("value", ["a&b", "a=b"])
def test_other_fields_hold_no_delimiter(name: str, value: str) -> None:
    """Where the profile did not allow one, a delimiter could be the end of a field, and nothing verifies."""
    assert judged({"payUrl": ADDRESS, name: value}) is False
    assert judged({"payUrl": ADDRESS, name: "ab"}) is True


@pytest.mark.parametrize("name", FREE_TEXT)
def test_fields_of_the_scheme_hold_theirs(name: str) -> None:
    """What the scheme itself allows stays allowed beside the address."""
    assert judged({"payUrl": ADDRESS, name: "a&b=c"}) is True


@pytest.mark.parametrize("name", sorted(IDENTIFIERS))
def test_identifiers_never_hold_delimiters(name: str) -> None:
    """Not even where a profile takes one for the address: what it identifies must not be shifted."""
    about = profile(AnswerShape(data="data", signature="data.sign", redirect_url=name))

    assert judged({name: "T1&a=b"}, about) is False
    assert judged({name: "T1"}, about) is True


def test_without_an_address_nothing_is_allowed() -> None:
    """Where the profile knows of no address, no field is taken for one."""
    about = profile(AnswerShape(data="data", signature="data.sign"))

    assert judged({"payUrl": ADDRESS}, about) is False
    assert judged({"": "a&b"}, about) is False


def test_requests_sign_as_before() -> None:
    """What answers may hold changes nothing of the scheme that requests are signed with."""
    judged({"payUrl": ADDRESS})

    assert FREE_TEXT == SCHEME.allow_delimiters
    assert profile().signature == SCHEME


def test_two_services_are_kept_apart() -> None:
    """The address of one profile is not that of another."""
    other = profile(AnswerShape(data="data", signature="data.sign", redirect_url="goTo"))

    assert [True, False] == [judged({"payUrl": ADDRESS}), judged({"payUrl": ADDRESS}, other)]
    assert [False, True] == [judged({"goTo": ADDRESS}), judged({"goTo": ADDRESS}, other)]


@pytest.mark.parametrize("options", [{"separator": "|"}, {"exclude": ("sign", "payUrl")}], ids=str)
def test_any_scheme_of_pairs(options: dict[str, Any]) -> None:
    """The address stands in a text of any form, or is left out of it."""
    scheme = evolve(SCHEME, **options)
    fields = {"payUrl": "https://gate.example/?a|b=c", "state": 0}
    object_ = {**fields, "sign": ""}
    pairs = [f"{name}={fields[name]}" for name in sorted(fields) if name not in scheme.exclude]
    object_["sign"] = hmac.new(KEY.encode(), scheme.separator.join(pairs).encode(), hashlib.sha256).hexdigest()
    call = bare_call(PLACE_ORDER, profile=profile(scheme=scheme))

    assert verify_reply(call, told({"data": object_}), scheme, [Secret(KEY)]) is True


class Own:
    """A scheme of a merchant's own, which is equal to others, and so has no hash."""

    def __init__(self, said: object = True) -> None:  # noqa: FBT002 - it may say anything
        self.said = said
        self.seen: list[tuple[Mapping[str, Any], str, str, str]] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    __hash__ = None  # type: ignore[assignment] # as Python itself does it beside `__eq__`

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign nothing."""
        raise AssertionError(fields, path, key)

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Say what it was told to."""
        self.seen.append((fields, signature, path, key.reveal()))
        return cast("bool", self.said)


def test_scheme_of_ones_own() -> None:
    """It gets the fields as they came, without the signature, and decides alone; it need not be hashable."""
    own = Own()
    fields = {"payUrl": ADDRESS, "note": "a&b"}

    assert judged(fields, scheme=own) is True
    assert [(fields, signed(fields)["sign"], "/payment/unifiedorder", KEY)] == own.seen


@pytest.mark.parametrize("said", [False, None, 1, "yes"])
def test_scheme_that_does_not_say_true(said: object) -> None:
    """What is not plainly true verifies nothing."""
    assert judged({"payUrl": ADDRESS}, scheme=Own(said)) is False
