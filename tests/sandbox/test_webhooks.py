"""Notifications: their content, signatures, allowed addresses, and redelivery."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from attrs import evolve

from payasync.errors import InvalidArgumentError
from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import WireNames
from payasync.sandbox.model import Entry
from payasync.sandbox.webhooks import (
    MAX_ADDRESS,
    MAX_CONCURRENT,
    MAX_STORED,
    Delivery,
    explain_refusal,
    shorten_address,
)
from payasync.strict_json import at
from tests.foreign.certificates import server_tls
from tests.inside import Time, turns, until
from tests.sandbox.foreign import Receiver, as_coroutine
from tests.sandbox.world import SAMPLES, Notified, World, refund


async def test_each_change_is_notified_once(world: World) -> None:
    """Each end of an order, a refund or a subscription is notified once, in order; a refused request is not."""
    sandbox, pay = world.sandbox, world.pay
    for number in ("T1", "T2", "T3", "T4"):
        await sandbox.given.pending_order(out_trade_no=number)
    await sandbox.customer.authorize("T1")
    for _ in range(2):
        await pay.send(refund())
        await world.reach(refund(out_refund_no="R2", total_amt=451))
        await pay.orders.close("T2")
    for _ in range(3):
        await sandbox.customer.decline("T3")
    await sandbox.settle()
    await sandbox.clock.advance(seconds=world.profile.sandbox.order_expiry)
    made = await world.reach(SAMPLES["subscriptions.create"])
    number = at(made.data, world.profile.answer.subscription_id or "")
    await pay.subscriptions.cancel(number)
    await sandbox.settle()

    assert [
        ("T1", "paid"),
        ("R1", "succeeded"),
        ("T2", "closed"),
        ("T3", "failed"),
        ("T4", "expired"),
        (number, "cancelled"),
    ] == [each.about for each in world.notified()]


async def test_without_address_nothing_is_told() -> None:
    """Without an address there is no notification, and `settle` does not wait for one."""
    async with Sandbox() as sandbox:
        await sandbox.given.paid_order()
        await sandbox.settle()

        assert [] == sandbox.ledger.deliveries()


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1/notify",
        "http://0.0.0.0:{port}/notify",
        "http://[2001:db8::1]/notify",
        "http://[::ffff:192.0.2.1]/notify",
    ],
)
async def test_notifications_stay_on_this_machine(sandbox: Sandbox, receiver: Receiver, url: str) -> None:
    """A notification to another machine is not sent; the address is checked when the connection is made."""
    port = receiver.url.split(":")[2].partition("/")[0]
    await sandbox.given.paid_order(notify_url=url.format(port=port))
    await sandbox.settle()
    (attempt,) = sandbox.ledger.deliveries()

    assert (None, False) == (attempt.status, attempt.acknowledged)
    assert "is not on this machine" in attempt.error
    assert [] == receiver.received


@pytest.mark.parametrize(("host", "allow_remote"), [("localhost", False), ("0.0.0.0", True)])  # noqa: S104 - tried
async def test_addresses_that_are_reached(receiver: Receiver, host: str, *, allow_remote: bool) -> None:
    """A name of this machine is allowed; with `allow_remote`, any address is."""
    async with Sandbox(allow_remote=allow_remote) as sandbox:
        await sandbox.given.paid_order(notify_url=receiver.url.replace("127.0.0.1", host))
        await sandbox.settle()

        assert [True] == [one.acknowledged for one in sandbox.ledger.deliveries()]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: web.Response(status=302, headers={"Location": "/notify"}), "answered 302"),
        (lambda: web.Response(text="x" * 100_000), "answered a body that does not acknowledge"),
    ],
)
async def test_response_that_does_not_acknowledge(
    sandbox: Sandbox, receiver: Receiver, answer: Callable[[], web.Response], words: str
) -> None:
    """If a response does not acknowledge, the attempt has its error and its beginning. Redirects are not followed."""
    receiver.answer = as_coroutine(answer)
    await sandbox.given.paid_order(notify_url=receiver.url)
    await sandbox.settle()
    (attempt,) = sandbox.ledger.deliveries()

    assert (False, True, 1) == (attempt.acknowledged, words in attempt.error, len(receiver.received))
    assert len(attempt.answer) <= MAX_STORED


OWN: Final = PROFILE.notification
OPEN: Final = NotificationShape()
BODY: Final = NotificationShape(verification="standard-webhooks", ack_body="ok")
ANY: Final = NotificationShape(verification="standard-webhooks")
EXACT: Final = evolve(BODY, ack_status=200)
UNTRUE: Final = '{"received": false}'


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        (OWN, [(200, OWN.ack_body), (202, OWN.ack_body), (204, "")]),
        (OPEN, [(200, OWN.ack_body), (202, OWN.ack_body), (204, "")]),
        (BODY, [(200, "ok"), (202, "ok")]),
        (ANY, [(200, OWN.ack_body), (200, "ok"), (202, OWN.ack_body), (202, "ok"), (204, ""), (200, UNTRUE)]),
        (EXACT, [(200, "ok")]),
    ],
    ids=["own", "open", "body", "any", "exact"],
)
def test_only_the_profiles_response_acknowledges(shape: NotificationShape, taken: list[tuple[int, str]]) -> None:
    """A status or body that the profile names must match. By default, any 2xx or the sandbox's own body counts."""
    names = WireNames(evolve(PROFILE, notification=shape))
    answers = [(status, body) for status in (200, 202) for body in (OWN.ack_body, "ok")]
    others = [(204, ""), (302, OWN.ack_body), (500, "ok"), (200, UNTRUE)]

    assert taken == [each for each in [*answers, *others] if not explain_refusal(names, *each)]


NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
LIFE: Final = timedelta(hours=18)
"""Longer than all redeliveries of one notification take."""


@pytest.fixture
async def frozen(receiver: Receiver) -> AsyncIterator[Sandbox]:
    """A sandbox whose time stands at noon."""
    async with Sandbox(clock=NOON, webhook_url=receiver.url) as running:
        yield running


def refusing() -> web.Response:
    """Return a server error."""
    return web.Response(status=503, text="try later")


async def test_dead_letter(frozen: Sandbox, receiver: Receiver) -> None:
    """Redeliveries follow after 5 s, 5 and 30 min, 2, 5 and 10 h. Then the notification is dead, until it is resent."""
    receiver.answer = as_coroutine(refusing)
    await frozen.given.paid_order()
    await frozen.clock.advance(LIFE)
    given_up = len(receiver.received)
    await frozen.clock.advance(days=365)

    at = [one.at for one in frozen.ledger.deliveries()]
    assert [5, 300, 1800, 7200, 18_000, 36_000] == [(then - before).total_seconds() for before, then in pairwise(at)]
    assert (7, 7) == (given_up, len(receiver.received))
    assert ["dead"] == [one.state for one in frozen.ledger.notifications()]
    assert ["try later"] * 7 == [one.answer for one in frozen.ledger.deliveries()]
    await frozen.resend(frozen.ledger.notifications()[0].notification_id)
    await frozen.clock.advance(LIFE)
    assert 14 == len(receiver.received)


async def test_resend_of_nothing(frozen: Sandbox) -> None:
    """A resend of an unknown notification is refused."""
    with pytest.raises(InvalidArgumentError, match="notification_id: 'msg_1' is refused") as refused:
        await frozen.resend("msg_1")

    assert "notification_id" == refused.value.field


async def test_resend_during_an_attempt(frozen: Sandbox, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """If a notification is resent during an attempt, one more attempt follows, and the log says that it is due."""
    caplog.set_level(logging.INFO, "payasync.sandbox")
    held = receiver.hold()
    await frozen.given.paid_order()
    await held.asked.wait()
    await frozen.resend(frozen.ledger.notifications()[0].notification_id)
    held.released.set()
    await frozen.settle()

    assert [("waiting", 0.0), ("delivered", None)] == [(one.state, one.wait) for one in logged(caplog)]
    assert [200, 200] == [one.status for one in frozen.ledger.deliveries()]


async def test_slow_receiver_holds_up_nobody(frozen: Sandbox, receiver: Receiver) -> None:
    """A slow address delays no other address, and keeps the order of its own notifications."""
    slow = Receiver()
    await slow.start()
    held = slow.hold()
    for count in range(3):
        await frozen.given.paid_order(out_trade_no=f"S{count}", notify_url=slow.url)
        await frozen.given.paid_order(out_trade_no=f"T{count}")
    async with asyncio.timeout(20):
        await until(lambda: len(receiver.received) == 3)
    await turns(50)
    meanwhile = len(slow.received)
    held.released.set()
    await frozen.settle()
    await slow.close()

    assert 1 == meanwhile
    assert ["S0", "S1", "S2"] == [one.document["data"]["outTradeNo"] for one in slow.received]


async def test_deliveries_at_once_are_bounded(frozen: Sandbox, receiver: Receiver) -> None:
    """The number of concurrent deliveries is limited, and every notification is delivered in the end."""
    held = receiver.hold()
    for count in range(MAX_CONCURRENT * 2):
        await frozen.given.paid_order(notify_url=f"{receiver.url}?{count}")
    await until(lambda: len(receiver.received) >= MAX_CONCURRENT)
    await turns(500)
    at_once = len(receiver.received)
    held.released.set()
    await frozen.settle()

    assert (MAX_CONCURRENT, MAX_CONCURRENT * 2) == (at_once, len(receiver.received))


class Raising:
    """A user's own scheme with a bug."""

    def sign(self, _fields: object, *, path: str, key: object) -> str:
        """Fail."""
        raise KeyError(f"boom{path and key}")

    def verify(self, *_given: object, **_others: object) -> bool:
        """Accept anything."""
        return True


async def test_notification_that_cannot_be_signed(receiver: Receiver) -> None:
    """If signing a notification fails, the attempt has the error, and the next attempt is due."""
    shape = evolve(PROFILE.notification, verification="body", signature="sign")
    profile = evolve(PROFILE, signature=Raising(), notification=shape)
    async with Sandbox(profile, clock="frozen", webhook_url=receiver.url) as sandbox:
        await sandbox.given.paid_order()
        await sandbox.settle()
        await sandbox.clock.advance(seconds=5)

        assert ["KeyError: 'boom'"] * 2 == [one.error for one in sandbox.ledger.deliveries()]
        assert ["waiting"] == [one.state for one in sandbox.ledger.notifications()]


async def test_schedule_survives_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    """After a restart, a redelivery is sent at its time, and the attempts are counted on."""
    path = str(tmp_path / "sandbox.db")
    receiver.answer = as_coroutine(refusing)
    async with Sandbox(clock=NOON, db=path) as first:
        await first.given.paid_order(notify_url=receiver.url)
        await first.clock.advance(seconds=5)
    async with Sandbox(clock="frozen", db=path) as second:
        await second.settle()
        before = len(second.ledger.deliveries())
        await second.clock.advance(minutes=5)

        assert (2, 3) == (before, len(second.ledger.deliveries()))
        assert [3] == [one.tries for one in second.ledger.notifications()]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:9999/notify/payment", "http://127.0.0.1:9999/notify/payment"),
        ("http://127.0.0.1:9999", "http://127.0.0.1:9999"),
        ("http://[::1]:80/a?token=canary", "http://[::1]:80/a?…"),
        ("http://me:canary@localhost/a#canary", "http://localhost/a"),
        ("http://canary@localhost/a@b", "http://localhost/a@b"),
        (f"http://a/{'x' * 100}", f"http://a/{'x' * (MAX_ADDRESS - 10)}…"),
    ],
)
def test_address(url: str, told: str) -> None:
    """An address is shown without password and query; a long one is shortened."""
    assert told == shorten_address(url)


async def deliveries(caplog: pytest.LogCaptureFixture, receiver: Receiver, *, clock: datetime | str) -> list[Delivery]:
    """Return the logged deliveries of an acknowledged notification and of one sent to a closed port."""
    caplog.set_level(logging.INFO, "payasync.sandbox")
    async with Sandbox(clock=clock) as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", notify_url=receiver.url)
        await sandbox.settle()
        await sandbox.given.paid_order(out_trade_no="T2", notify_url="http://127.0.0.1:1/?canary")
        await sandbox.settle()
    return logged(caplog)


def logged(caplog: pytest.LogCaptureFixture) -> list[Delivery]:
    """Return the logged deliveries."""
    return [record.__dict__["delivery"] for record in caplog.records if "delivery" in record.__dict__]


@pytest.mark.parametrize("clock", ["real", NOON])
async def test_each_attempt_is_logged(
    caplog: pytest.LogCaptureFixture, receiver: Receiver, clock: datetime | str
) -> None:
    """The log has each attempt's event, number, outcome and wait, but no query, body or signature."""
    taken, refused = told = await deliveries(caplog, receiver, clock=clock)
    (came,) = receiver.received
    text = caplog.text + repr(told)

    assert (
        Entry(kind="delivery", name="payment.paid", reference="T1", status=200, outcome="acknowledged") == taken.entry
    )
    assert ("delivered", None) == (taken.state, taken.wait)
    assert ("T2", None, "connection refused") == (refused.entry.reference, refused.entry.status, refused.entry.reason)
    assert ("waiting", 1) == (refused.state, refused.tries)
    # A frozen clock has no real time until the next attempt.
    assert refused.wait is None if clock == NOON else 0 < (refused.wait or 0) <= 5
    assert "delivery payment.paid T2 -> no response: connection refused" in text
    assert not [each for each in ("canary", "SBX_PAID", came.headers["webhook-signature"][3:]) if each in text]


@asynccontextmanager
async def untrusted() -> AsyncGenerator[str]:
    """Serve HTTPS with a certificate that this machine does not trust, and yield the address."""
    async with await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=server_tls()
    ) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1:1/", "connection refused"),
        ("http://localhost:1/", "connection refused"),
        (f"http://{'a' * 70}.example/", "the address cannot be used"),
        ("", "its certificate cannot be trusted"),
    ],
)
async def test_failed_attempt_says_why(sandbox: Sandbox, url: str, error: str) -> None:
    """If an attempt gets no response, it records the reason."""
    async with untrusted() as address:
        await sandbox.given.paid_order(notify_url=url or address)
        await sandbox.settle()

    assert [error] == [each.error for each in sandbox.ledger.deliveries()]


async def test_slow_receiver_times_out(frozen: Sandbox, receiver: Receiver) -> None:
    """If the receiver does not respond within 5 seconds, the attempt has failed."""
    held, time = receiver.hold(), Time()
    await frozen.given.paid_order()
    await held.asked.wait()
    await time.pass_by(6)
    await frozen.settle()
    held.released.set()

    assert ["no response within 5 seconds"] == [each.error for each in frozen.ledger.deliveries()]


async def paid(world: World, **given: Any) -> list[Notified]:
    """Have an order paid, and return its notifications."""
    await world.sandbox.given.paid_order(out_trade_no="T1", **given)
    await world.sandbox.settle()
    return world.notified()


async def test_notification_is_genuine_and_holds_no_key(world: World) -> None:
    """A notification is signed as the profile says, and contains no secret of the merchant."""
    (notified,) = await paid(world)
    credentials, delivered = world.sandbox.credentials, notified.delivered
    keys = [credentials.secret_key, credentials.signing_key, *credentials.notification_keys]
    whole = delivered.body + json.dumps(dict(delivered.headers))

    assert notified.is_genuine(credentials)
    assert [] == [key for key in keys if key and key.reveal() in whole]


async def test_redelivered_until_it_is_acknowledged(world: World) -> None:
    """After two refusals the third attempt is the last; attempts differ only in the profile's volatile fields."""
    world.refuse()
    await paid(world)
    waits = world.profile.sandbox.redelivery
    await world.sandbox.clock.advance(seconds=waits[0])
    world.acknowledge()
    await world.sandbox.clock.advance(seconds=waits[1])
    await world.sandbox.clock.advance(days=2)
    attempts = world.sandbox.ledger.deliveries()
    first, *others = (dict(leaves(each.delivered.document)) for each in world.notified())
    shape = world.profile.notification
    nonce = ".".join([*shape.signature.split(".")[:-1], "nonceStr"])

    assert [False, False, True] == [each.acknowledged for each in attempts]
    assert 1 == len({each.notification_id for each in attempts})
    for other in others:
        assert first.keys() == other.keys()
        assert {path for path in first if first[path] != other[path]} <= {nonce, shape.signature, *shape.volatile}
        assert (shape.verification == "body") == (first.get(nonce) != other.get(nonce))


@pytest.mark.parametrize("waits", [[], [7], [7, 0.5, 86_400]])
async def test_redelivered_as_the_profile_says(receiver: Receiver, waits: list[float]) -> None:
    """An unacknowledged notification is sent again after each wait of the profile, and then given up."""
    receiver.answer = as_coroutine(lambda: web.Response(status=500))
    profile = evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, redelivery=waits))
    async with Sandbox(profile, webhook_url=receiver.url, clock="frozen") as sandbox:
        await sandbox.given.paid_order()
        await sandbox.settle()
        await sandbox.clock.advance(days=30)
        times = [each.at for each in sandbox.ledger.deliveries()]
        (notification,) = sandbox.ledger.notifications()

    assert waits == [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    assert "dead" == notification.state


def leaves(document: Any, above: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a document, each with its path."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
