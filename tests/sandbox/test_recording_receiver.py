"""The receiver for tests: it acknowledges genuine notifications, whichever way a profile signs them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve

from payasync import Profile, SignedHeader
from payasync.errors import WaitTimeoutError
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import WireNames
from payasync.sandbox.recording_receiver import RecordingReceiver, explain_forgery
from payasync.sandbox.signatures import make_keys


def notifying(name: str, **points: Any) -> Profile:
    """Return the sandbox's own profile with other points of notifications."""
    return evolve(PROFILE, name=name, notification=evolve(PROFILE.notification, **points))


BODY: Final = {
    "verification": "body",
    "signature": "data.sign",
    "volatile": ("nonceStr", "sign"),
    "ack_body": "SUCCESS",
}
HEADER: Final = SignedHeader(
    signature="X-Sign:v1", timestamp="X-Sign:t", nonce="X-Nonce", text="{timestamp}{nonce}{body}"
)
IN_BODY: Final = notifying("in-body", **BODY)
IN_HEADER: Final = notifying("in-header", verification="header", header=HEADER)
UNSIGNED: Final = notifying("unsigned", verification="none", signature="")
RENAMED: Final = evolve(notifying("renamed nonce", **BODY, time="sent"), fields={**PROFILE.fields, "nonce": "random"})


@pytest.fixture(params=[PROFILE, IN_BODY, IN_HEADER, UNSIGNED], ids=lambda profile: profile.name)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A sandbox for each way of signing notifications."""
    async with Sandbox(request.param) as running:
        yield running


@pytest.fixture
async def receiver(sandbox: Sandbox) -> AsyncIterator[RecordingReceiver]:
    """The receiver of the sandbox."""
    async with sandbox.receiver() as running:
        yield running


async def sent(receiver: RecordingReceiver, headers: Mapping[str, str], body: str) -> tuple[int, str]:
    """Send a notification again, and return the response."""
    async with aiohttp.ClientSession() as http, http.post(receiver.url, data=body, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("sandbox", [PROFILE, IN_BODY, IN_HEADER], ids=lambda profile: profile.name, indirect=True)
async def test_changed_notification_is_refused(sandbox: Sandbox, receiver: RecordingReceiver) -> None:
    """A forged notification gets the profile's refusal, is recorded, and is not returned by `next`."""
    await sandbox.given.paid_order(notify_url=receiver.url)
    genuine = await receiver.next()
    for change in (("450", "451"), ("SBX_PAID", "SBX_VOID")):
        answer = await sent(receiver, genuine.headers, genuine.body.replace(*change))
        assert (400, '{"received":false}') == answer

    assert ["", *["is not that of its body"] * 2] == [each.wrong.partition(" ")[2] for each in receiver.received]
    with pytest.raises(WaitTimeoutError, match="2 were refused"):
        await receiver.next(timeout=0)


@pytest.mark.parametrize("sandbox", [PROFILE, IN_BODY, IN_HEADER, RENAMED], ids=lambda each: each.name, indirect=True)
async def test_corrupted_notification_is_refused(sandbox: Sandbox, receiver: RecordingReceiver) -> None:
    """The fault `corrupt` changes something that is signed, also if the time beside it is not."""
    sandbox.faults.notifications.corrupt()
    await sandbox.given.paid_order(notify_url=receiver.url)
    await sandbox.settle()

    assert ["is not that of its body"] == [each.wrong.partition(" ")[2] for each in receiver.received]


def test_wrong_time_is_refused() -> None:
    """A notification without a current timestamp is refused for that reason."""
    for timestamp in ("", "soon", "1000000000", "99999999999", "²"):
        headers = {"webhook-id": "msg_1", "webhook-timestamp": timestamp}
        reason = explain_forgery(WireNames(PROFILE), make_keys(PROFILE), headers, "{}")

        assert reason.startswith("webhook-timestamp is ")


@pytest.mark.parametrize("sandbox", [IN_BODY], ids=lambda profile: profile.name, indirect=True)
async def test_other_bodies_are_refused(receiver: RecordingReceiver) -> None:
    """Any body that is not a genuine notification is refused in the same way."""
    for body in ("", "{", "[]", "3", '{"data":{}}', '{"data":{"sign":"x","a":1.5}}', '{"data":[]}'):
        assert (400, '{"received":false}') == await sent(receiver, {}, body)


async def test_bad_answers_in_turn(sandbox: Sandbox, receiver: RecordingReceiver) -> None:
    """`next` returns a genuine notification, which gets the profile's acknowledgement.

    `answer_badly` applies to the given number of notifications; later ones are acknowledged.
    """
    receiver.answer_badly(503, times=2)
    for _ in range(3):
        order = await sandbox.given.paid_order(notify_url=receiver.url)
        assert order == (await receiver.next()).document["data"]["outTradeNo"]
    await sandbox.settle()

    attempts = sandbox.ledger.deliveries()
    assert [(503, False), (503, False), (200, True)] == [(each.status, each.acknowledged) for each in attempts]
