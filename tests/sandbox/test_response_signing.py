"""What the service signs itself: answers, and notifications attempt by attempt."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import AnswerShape, NotificationShape, Profile, SortedPairs
from payasync.credentials import Secret
from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox
from payasync.sandbox.dialect import Dialect, Outgoing
from payasync.sandbox.response_signing import Seal
from tests.foreign.signatures import hmac_sha256

KEY: Final = Secret("service key")
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
PATH: Final = "/payment/orderquery"


def seal_of(**parts: Any) -> Seal:
    """Return the seal of a profile with these parts."""
    now = datetime(2027, 1, 31, tzinfo=UTC)
    told: dict[str, Any] = {"signature": SCHEME, **parts}
    return Seal(Dialect(Profile(**told)).words, KEY, now=lambda: now)


def outgoing(document: dict[str, Any]) -> Outgoing:
    """Return an answer before it is signed."""
    return Outgoing(status=200, code="OK", headers={}, document=document)


async def test_answer_is_signed_over_the_object_that_holds_the_signature() -> None:
    """All its fields count, with a nonce of its own, and nothing beside it."""
    seal = seal_of(answer=AnswerShape(data="data", signature="data.seal"))
    sent = await seal.answer(outgoing({"code": "OK", "data": {"a": "1"}}), PATH)
    fields = dict(sent.document["data"])
    signature = fields.pop("seal")

    assert {"a", "nonceStr"} == set(fields)
    assert SCHEME.verify(fields, signature, path=PATH, key=KEY)


async def test_words_for_people_do_not_split_the_text() -> None:
    """A message in a signed object holds no delimiter: the client would take none of it."""
    seal = seal_of(answer=AnswerShape(message="text", signature="seal"))
    sent = await seal.answer(outgoing({"text": "a=b & c"}), PATH)
    fields = dict(sent.document)
    signature = fields.pop("seal")

    assert "a b   c" == fields["text"]
    assert SCHEME.verify(fields, signature, path=PATH, key=KEY)


async def test_scheme_of_ones_own_makes_its_own_signature() -> None:
    """Only its owner knows how a custom scheme signs; its `sign` may be a coroutine function."""

    class Reversed:
        async def sign(self, fields: Any, *, path: str, key: Secret) -> str:
            return f"{fields['a']}{path}{key.reveal()}"[::-1]

        def verify(self, fields: Any, signature: str, *, path: str, key: Secret) -> bool:
            raise NotImplementedError

    seal = seal_of(signature=Reversed(), answer=AnswerShape(signature="seal"))
    sent = await seal.answer(outgoing({"a": "1"}), PATH)

    assert f"1{PATH}service key"[::-1] == sent.document["seal"]


@pytest.mark.parametrize(
    "parts",
    [
        {"answer": AnswerShape(data="data", signature="seal")},
        {"answer": AnswerShape(data="data", payment_id="pay.id", signature="data.seal")},
        {"notification": NotificationShape(verification="body", data="data", signature="seal")},
        {"notification": NotificationShape(verification="body", signature="seal", out_trade_no="order.no")},
    ],
)
async def test_objects_that_the_scheme_refuses(parts: dict[str, Any]) -> None:
    """What could never be signed is refused as the sandbox starts, and says which part of the profile to change."""
    sandbox = Sandbox(Profile(signature=SCHEME, **parts))
    with pytest.raises(ConfigurationError, match="refuses to sign an object") as refused:
        await sandbox.start()

    assert "signature.nested" == refused.value.field


async def test_each_attempt_has_a_nonce_of_its_own() -> None:
    """A redelivery differs in its nonce and its signature, and in a time that is volatile."""
    shape = NotificationShape(verification="body", signature="seal", time="at", volatile=["nonceStr", "at"])
    seal = seal_of(notification=shape)
    first, second = [json.loads(await seal.notification('{"a":"1","at":"before"}')) for _ in range(2)]
    differing = {name for name in first if first[name] != second[name]}

    assert {"nonceStr", "seal"} == differing
    assert "2027-01-31T00:00:00.000Z" == first["at"]


async def test_time_that_is_not_volatile_is_that_of_the_event() -> None:
    """What the profile does not call volatile, a redelivery may not change."""
    seal = seal_of(notification=NotificationShape(verification="body", signature="seal", time="at"))

    assert "before" == json.loads(await seal.notification('{"at":"before"}'))["at"]


async def test_signature_without_a_place_stands_in_the_payload() -> None:
    """A profile that has notifications signed in their body, but not where, gets `sign` beside the rest."""
    seal = seal_of(notification=NotificationShape(verification="body", data="data"))

    assert {"a", "nonceStr", "sign"} == set(json.loads(await seal.notification('{"data":{"a":"1"}}'))["data"])


async def test_services_key_is_kept_with_the_database(tmp_path: Path) -> None:
    """Started again on its file, the service signs with the key that the merchant's credentials verify."""
    scheme = SortedPairs(algorithm="ed25519", encoding="hex")
    profile = Profile(signature=scheme, answer=AnswerShape(signature="seal"))
    keys = list[Any]()
    for number in ("T1", "T2"):
        async with Sandbox(profile, db=str(tmp_path / "sandbox.db")) as sandbox, sandbox.session() as pay:
            keys.append(sandbox.credentials.service_keys)
            placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no=number)
            assert placed.document["seal"]

    assert keys[0] == keys[1]


@pytest.mark.parametrize(("prehash", "skip_null"), [("", True), ("sha256", False), ("sha256-hex", False)])
async def test_client_and_sandbox_agree_on_values(prehash: Any, *, skip_null: bool) -> None:
    """Null, true, false and an object with them are signed alike by two codes, in requests as in answers."""
    scheme = SortedPairs(
        algorithm="hmac-sha256",
        encoding="hex",
        prehash=prehash,
        skip_null=skip_null,
        booleans="json",
        numbers="text",
        nested="json",
    )
    profile = Profile(signature=scheme, answer=AnswerShape(data="data", signature="data.seal", order_status="state"))
    extra = {"note": None, "vip": True, "new": False, "more": {"a": [None, True]}}
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", extra=extra)

    assert placed.document["data"]["seal"]


async def test_sandbox_signs_the_values_that_it_sends() -> None:
    """The client verifies what the sandbox signs of a null, true and a number; the text is what the body has."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", skip_null=False, booleans="json", numbers="text")
    seal = seal_of(signature=scheme, answer=AnswerShape(signature="seal"))
    sent = await seal.answer(outgoing({"a": None, "b": True, "c": 1e-7}), PATH)
    text = f"a=null&b=true&c=1e-07&nonceStr={sent.document['nonceStr']}"

    assert hmac_sha256(text, KEY.reveal()) == sent.document["seal"]
