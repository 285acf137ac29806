"""A request of ours, sent back to us: the key that signed it verifies notifications, and yet it is none."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from attrs import evolve

from payasync import Accept, Credentials, Profile, Secret, Session, SortedPairs
from payasync.errors import ConfigurationError
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.notifications.verification import telling_paths, verification_of
from payasync.profile.schema import AnswerShape, NotificationShape, Parameter, States
from payasync.profile.signed_fields import names_in_requests
from tests.foreign.recorder import Recorder, answer

KEY: Final = "a key that both sides have"
KEYS: Final = Credentials("M1", signing_key=KEY)
SHAPE: Final = NotificationShape(
    verification="body", signature="sign", out_trade_no="outTradeNo", out_refund_no="outRefundNo", ack_status=200
)
BARE: Final = Profile(signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"), notification=SHAPE)
"""Nothing inside the signature is the service's alone."""
PROFILE: Final = evolve(
    BARE, answer=AnswerShape(refund_status="refundStatus"), states=States(refund={"succeeded": ("SUCCESS",)})
)
TOLD: Final = {"outRefundNo": "R1", "outTradeNo": "T1", "refundAmt": 200, "refundStatus": "SUCCESS"}


def signed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with their signature, made by a few lines of this test's own."""
    text = "&".join(f"{name}={fields[name]}" for name in sorted(fields))
    return {**fields, "sign": hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()}


async def requests_of(profile: Profile) -> list[dict[str, Any]]:
    """Return the bodies of signed requests, as a server has seen them that knows no key."""
    with Recorder([answer(200, b"{}")] * 2) as service:
        async with Session(service.url, credentials=KEYS, profile=profile) as pay:
            await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", notify_url="https://a.example/n")
            await pay.refunds.create(
                out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200, refund_desc="late"
            )
        return [json.loads(each.body) for each in service.requests]


async def told(profile: Profile, folder: Path, *documents: Any) -> tuple[list[int], list[Notification]]:
    """Return how a receiver answers what is posted to its address for refunds, and what its handlers get."""
    got = list[Notification]()
    receiver = Receiver(inbox=SqliteInbox(folder / "inbox.db"), profile=profile, credentials=KEYS)

    @receiver.on("*")
    async def handle(notification: Notification) -> None:
        got.append(notification)

    application = web.Application()
    application.router.add_post("/notify/{kind}", receiver.aiohttp_handler)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}/notify/refund".format(*runner.addresses[0])
    async with receiver, aiohttp.ClientSession() as http:
        statuses = list[int]()
        for document in documents:
            async with http.post(url, data=json.dumps(document)) as response:
                statuses.append(response.status)
        await receiver.settle()
    await runner.cleanup()
    return statuses, got


@pytest.mark.parametrize("place", ["", "data"])
async def test_request_sent_back_is_no_notification(place: str, tmp_path: Path) -> None:
    """Who saw a request, or the log that holds it, has the signature of a body; a genuine one is still handled."""
    shape = evolve(SHAPE, data=place, signature="data.sign" if place else "sign")
    bodies = [*await requests_of(PROFILE), signed(TOLD), signed({**TOLD, "nonceStr": "a nonce of a request"})]
    documents = [{"data": body} if place else body for body in bodies]
    statuses, got = await told(evolve(PROFILE, notification=shape), tmp_path, *documents)

    assert [400, 400, 200, 200] == statuses
    assert {("R1", "succeeded", True)} == {(each.out_refund_no, each.state, each.verified) for each in got}


@pytest.mark.parametrize(
    ("changes", "genuine", "other"),
    [
        ({"kind": "what", "kinds": {"refund": ["refund.done"]}}, {"what": "refund.done"}, {"what": "refund.else"}),
        ({"time": "at", "tolerance": 10**9}, {"at": 1_800_000_000}, {"at": "soon"}),
    ],
)
async def test_what_shows_that_the_service_made_it(
    changes: dict[str, Any], genuine: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    """An event that the profile knows, or a time, inside the signature; another event, or no time, shows nothing."""
    profile = evolve(BARE, notification=evolve(SHAPE, **changes))
    bodies = [signed({"outRefundNo": "R1", **more}) for more in (genuine, other, {})]
    statuses, got = await told(profile, tmp_path, *bodies)

    assert ([200, 400, 400], ["R1"]) == (statuses, [each.out_refund_no for each in got])


async def test_state_that_the_profile_does_not_know_shows_nothing(tmp_path: Path) -> None:
    """Of a state, the value is looked at, too."""
    statuses, _ = await told(PROFILE, tmp_path, signed({**TOLD, "refundStatus": "LATE"}))

    assert [400] == statuses


@pytest.mark.parametrize(
    "profile",
    [
        BARE,
        evolve(BARE, notification=evolve(SHAPE, kind="what")),
        evolve(BARE, answer=AnswerShape(refund_status="refundStatus")),
        evolve(PROFILE, constants={"refunds.create": {"refundStatus": "SUCCESS"}}),
        evolve(PROFILE, accept=Accept(required={"refunds.create": ["refundStatus"]})),
        evolve(PROFILE, refund_status=Parameter("refundStatus")),
        evolve(PROFILE, answer=AnswerShape(refund_status="refundDesc")),
        evolve(BARE, notification=evolve(SHAPE, time="nonceStr")),
        evolve(BARE, notification=evolve(SHAPE, data="data", signature="data.sign", time="at")),
    ],
)
def test_profile_by_which_nobody_could_tell(profile: Profile, tmp_path: Path) -> None:
    """Where requests have each such field, or no signature covers it, no receiver is made; it says what to add."""
    with pytest.raises(ConfigurationError, match="name nothing inside the signature") as refused:
        Receiver(inbox=SqliteInbox(tmp_path / "inbox.db"), profile=profile, credentials=KEYS)

    assert "credentials.service_keys" in str(refused.value)
    for keys in ([KEY], ["another key", KEY]):
        with pytest.raises(ConfigurationError):
            verification_of(profile, Credentials("M1", signing_key=KEY, service_keys=keys))
    assert verification_of(profile, Credentials("M1", signing_key=KEY, service_keys="another key")).proves
    assert verification_of(profile, KEYS, lambda _raw, _headers: True).proves


class Own:
    """A scheme of the merchant's own."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:  # noqa: ARG002 - the shape of a scheme
        """Return a signature."""
        return key.reveal()

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:  # noqa: ARG002
        """Return whether it is right."""
        return signature == key.reveal()


class Symmetric(Own):
    """It says that one key does both."""

    symmetric = True


class Named(Own):
    """What it calls a key is the name of a pair."""

    symmetric = False


@pytest.mark.parametrize(("scheme", "refused"), [(Own(), True), (Symmetric(), True), (Named(), False)])
def test_scheme_of_ones_own(scheme: Own, *, refused: bool) -> None:
    """One key on both sides signs on both, unless the scheme says that it does not."""
    keys = Credentials("M1", signing_key=KEY, service_keys=KEY)
    if refused:
        with pytest.raises(ConfigurationError):
            verification_of(evolve(BARE, signature=scheme), keys)
    else:
        assert verification_of(evolve(BARE, signature=scheme), keys).proves


def test_where_no_signature_stands_in_the_body() -> None:
    """Nothing inside one shows anything."""
    unsigned = evolve(PROFILE, notification=evolve(SHAPE, verification="none"))

    assert not telling_paths(unsigned)
    assert {"refundStatus"} == telling_paths(PROFILE)


async def test_names_of_requests_are_known() -> None:
    """Whatever a request of the profile holds is among the names that show nothing."""
    profile = evolve(
        PROFILE,
        fields={"return_url": "backTo", "customer": "payer"},
        constants={"*": {"signType": "HMAC"}, "orders.place": {"version": "2"}},
    )
    said = names_in_requests(profile)

    for body in await requests_of(profile):
        assert body.keys() <= said
    assert {"backTo", "payer", "signType", "version", "outRefundNo", "sceneType"} <= said
    assert "refundStatus" not in said
