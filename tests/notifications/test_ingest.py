"""A receiver from the raw body to the response: it verifies, stores and acknowledges, in Python and over HTTP."""

import asyncio
import gc
import gzip
import json
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import aiohttp
import pytest
import uvicorn
from aiohttp import web
from attrs import evolve, frozen
from fastapi import FastAPI
from litestar import Litestar
from litestar.handlers import asgi

from payasync import ConfigurationError, InvalidSignatureError, NotConfiguredError, Profile, StorageError
from payasync.notifications import Answer, Notification, Receiver, SqliteInbox, ingest, verify
from payasync.notifications.ingest import MAX_REASON, OTHER_BODY, Ingest, build_received
from payasync.notifications.verification import Examined, Verification, sign_webhook
from tests.inside import until
from tests.notifications.merchant import CREDENTIALS, PAID, REFUNDED, SIGNED, UNSIGNED, Clock, Shop, Tampered, opened
from tests.notifications.wire import dripped, exchanged

YES = Answer(200, '{"received":true}', {"Content-Type": "application/json"})
NO = Answer(400, '{"received":false}', {"Content-Type": "application/json"})
OVERLOADED = Answer(503, NO.body, {**NO.headers, "Retry-After": "5"})


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver that handles everything, and believes what is signed."""
    async with opened(tmp_path) as shop:
        shop.recording()
        yield shop


async def waiting(shop: Shop, *numbers: str) -> list[asyncio.Task[Answer]]:
    """Have notifications of orders wait at the gate of the inbox, which stores nothing before it is opened."""
    shop.inbox.gates["add"] = asyncio.Event()
    taking = [asyncio.create_task(shop.take({**PAID, "outTradeNo": each})) for each in numbers]
    await until(lambda: shop.inbox.calls["add"] == len(numbers))
    return taking


async def test_nothing_is_acknowledged_before_it_is_stored(shop: Shop) -> None:
    """A notification is on the disk before it is acknowledged; until then, only its bytes are held in memory."""
    (taking,) = await waiting(shop, "WAITING")
    decoded = [each for each in gc.get_objects() if type(each) is Notification]

    assert not taking.done()
    assert [] == [each for each in decoded if each.out_trade_no == "WAITING"]
    shop.inbox.gates["add"].set()
    assert YES == await taking
    assert ["WAITING"] == [json.loads(each.raw)["data"]["outTradeNo"] for each in await shop.inbox.events()]


@pytest.mark.parametrize("genuine", [True, False])
async def test_genuine_body_that_cannot_be_read_is_held(tmp_path: Path, *, genuine: bool) -> None:
    """A genuine body that is no JSON object is acknowledged, and stored once as held. A forged one is refused."""
    bodies = (b"", b"null", b"[]", b"{", b'{"a":1,"a":2}', b"\xff", b'{"a":NaN}')
    async with opened(tmp_path, verifier=lambda _raw, _headers: genuine) as shop:
        answers = [await shop.receiver.receive(raw, {}, "payment") for raw in bodies * 2]
        states = await shop.states()
        replayed = await shop.receiver.replay_all("held")
        await shop.receiver.settle()

        assert [YES if genuine else NO] * 2 * len(bodies) == answers
        assert ["held"] * genuine * len(bodies) == states == await shop.states()
        assert genuine is bool(replayed)


def in_the_body(**facts: Any) -> Profile:
    """Return the profile of a service that signs each delivery afresh, with a time and a nonce, in the payload."""
    given: dict[str, Any] = {
        "verification": "body",
        "signature": "data.sign",
        "kind": "",
        "time": "data.at",
        "volatile": (),
        **facts,
    }
    return evolve(SIGNED, notification=evolve(SIGNED.notification, **given))


@pytest.mark.parametrize(
    "facts",
    [{"id": {}, "volatile": ("at",)}, {"id": {"payment": ["outTradeNo", "status"]}}],
    ids=["no paths", "paths"],
)
async def test_redelivery_is_signed_afresh(facts: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Deliveries that are signed with their own times and nonces are the same event.

    If the profile names no paths of a kind, its first event is logged as a warning.
    """
    async with opened(tmp_path, profile=in_the_body(**facts)) as shop:
        got = shop.recording()
        for number in range(3):
            shop.clock.advance(1000)
            await shop.received(shop.sign({**PAID, "nonceStr": f"n{number}"}).raw, {}, "payment")
        await shop.received(shop.sign({**PAID, "outTradeNo": "T2"}).raw, {}, "payment")

        assert (["done"] * 2, ["T1", "T2"]) == (await shop.states(), got.numbers)
        assert caplog.text.count("notification.id.payment") == (not facts["id"])


async def test_refusals_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`on_refused` gets one of few reasons for each refusal. If it raises, this is logged, and the response is sent."""
    reasons: list[str] = []

    def note(reason: str) -> None:
        reasons.append(reason)
        raise RuntimeError("canaryTweet")

    async with opened(tmp_path, max_bytes=1000, on_refused=note) as shop:
        signed = shop.sign()
        sent = [(signed.raw, None), (b"{}", None), (b" " * 1001, None)]
        answers = [await shop.receiver.receive(raw, signed.headers, kind) for raw, kind in sent]

    records = [each for each in caplog.records if vars(each)["event_name"] == "on_refused_failed"]

    assert [YES, NO, evolve(NO, status=413)] == answers
    assert ["signature", "too_large"] == reasons
    assert ["RuntimeError"] * 2 == [vars(each)["error_type"] for each in records]


async def test_payments_without_a_number_are_several(shop: Shop) -> None:
    """If payments have an empty number, each of them is an event of its own, and none is held."""
    got = shop.recording()
    for number in ("P1", "P2", "P3"):
        await shop.take({**PAID, "outTradeNo": "", "paymentId": number})
    await shop.receiver.settle()

    assert ["P1", "P2", "P3"] == [each.payment_id for each in got]
    assert ["done"] * 3 == await shop.states()


async def test_what_comes_again_is_dispatched(shop: Shop) -> None:
    """If a process ended before it acknowledged, the next process handles the event when it is delivered again."""
    got, signed = shop.recording(), shop.sign()
    stored = verify(signed.raw, signed.headers, profile=SIGNED, credentials=shop.credentials, clock=shop.clock)
    await shop.inbox.add(build_received(stored, SIGNED, timed=True))

    assert YES == await shop.receiver.receive(signed.raw, signed.headers)
    await until(lambda: got)


@pytest.mark.parametrize("error", [StorageError("the disk is full"), RuntimeError("anything")])
async def test_what_cannot_be_stored_must_come_again(
    error: Exception, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """If the inbox cannot store a notification, the receiver responds with 503. A redelivery is accepted later."""
    shop.inbox.errors["add"] = error
    lost = await shop.take()
    shop.inbox.errors.clear()

    assert (OVERLOADED, "5") == (lost, lost.headers["Retry-After"])
    assert type(error).__name__ in caplog.text
    assert YES == await shop.take()


async def test_same_key_with_another_body_is_held(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """If two genuine notifications contradict each other, the second is stored, but not handled automatically."""
    got = shop.recording()
    answers = [await shop.take(), await shop.take({**PAID, "totalAmt": 1})]
    await shop.receiver.settle()
    superseded = await shop.states()
    answers.append(await shop.take({**PAID, "totalAmt": 2}))

    assert [YES] * 3 == answers
    assert ["done", "superseded"] == superseded
    assert ["done", "superseded", "held"] == await shop.states()
    assert [450] == [each.data["totalAmt"] for each in got]
    assert [OTHER_BODY] * 2 == [vars(each)["reason"] for each in caplog.records if "held a" in each.getMessage()]
    assert not await shop.receiver.replay(2)
    assert await shop.receiver.replay(3)


async def test_so_many_wait_for_the_disk_and_no_more(tmp_path: Path) -> None:
    """If `max_waiting` notifications wait for the disk, the next one gets 503. A cancelled one counts no more."""
    async with opened(tmp_path, max_waiting=2) as shop:
        shop.recording()
        taking = await waiting(shop, "T1", "T2")

        async with asyncio.timeout(10):  # a third that waits would wait for ever
            assert OVERLOADED == await shop.take({**PAID, "outTradeNo": "T3"})
        assert NO == await shop.receiver.receive(b"{}", {})
        taking[0].cancel()
        await asyncio.wait(taking[:1])
        shop.inbox.gates["add"].set()
        assert YES == await shop.take({**PAID, "outTradeNo": "T3"}) == await taking[1]


async def test_so_many_bytes_wait_for_the_disk_and_no_more(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """If waiting notifications fill the allowed bytes, the next one gets 503. A single one may be longer than that."""
    length = len(shop.sign().raw)
    monkeypatch.setattr(ingest, "MAX_WAITING_BYTES", 2 * length)
    taking = await waiting(shop, "T1", "T2")

    assert OVERLOADED == await shop.take({**PAID, "outTradeNo": "T3"})
    shop.inbox.gates["add"].set()
    assert [YES, YES] == await asyncio.gather(*taking)
    assert YES == await shop.take({**PAID, "outTradeNo": "T4", "note": "x" * 3 * length})
    assert [YES, YES] == await asyncio.gather(*(shop.take({**PAID, "outTradeNo": each}) for each in ("T5", "T6")))


@frozen
class Signed(Verification):
    """Believes what says that it is signed; all else is a hint."""

    def examine(self, raw: Any, headers: Any, **given: Any) -> Examined:
        """Return a notification, or a hint."""
        return Examined(evolve(super().examine(raw, headers, **given).notification, verified=b"signed" in raw))


@pytest.mark.parametrize(("places", "room"), [(4, 1_000_000), (1000, 100)])
async def test_hints_push_out_nothing_that_is_signed(
    places: int, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While notifications wait for the disk, hints get half of the places and half of the bytes."""
    monkeypatch.setattr(ingest, "MAX_WAITING_BYTES", room)
    async with aclosing(Tampered(tmp_path / "inbox.db", Clock())) as inbox:
        gate, verification = inbox.gates["add"], Signed(UNSIGNED, credentials=CREDENTIALS)
        found = Ingest(verification, inbox, clock=Clock(), on_stored=lambda: None, max_waiting=places)
        taking = list[asyncio.Task[ingest.IngestResult]]()
        for body in (b'{"%s":%10d}' % (name, number) for name in (b"hint..", b"signed") for number in range(3)):
            taking.append(asyncio.create_task(found.ingest(body, {}, "payment")))
            await until(lambda: taking[-1].done() or inbox.calls["add"] == sum(not each.done() for each in taking))
        gate.set()

        assert [200, 200, 503] * 2 == [each.answer.status for each in await asyncio.gather(*taking)]


async def test_forgeries_are_few_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Forged bodies are one warning for each class of reasons, whatever names they have. Long names are cut."""
    caplog.set_level(logging.INFO, "payasync.notifications")
    answers, classes = list[Answer](), ("cannot be checked", "is not valid", "is not a text")
    async with opened(tmp_path, profile=in_the_body()) as shop:
        for letter in "abcdefghij":
            name = f"{letter}\r\n\x1b[2J\u202e{letter * 1000}"
            for odd in ({f"{name}=": 1}, {name: True}, {name: "a=b&c"}, {name: 1.5}, {"sign": name}, {"sign": 1}):
                body = {"type": "payment.paid", "data": {**PAID, "sign": "ab" * 32, **odd}}
                answers.append(await shop.receiver.receive(json.dumps(body).encode(), {}, "payment"))
    texts = [each.getMessage() for each in caplog.records]
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]

    assert [NO] * 60 == answers
    assert [*classes] == [next(words for words in classes if words in each) for each in warnings]
    assert [] == [each for each in texts if not each.isprintable() or len(each) > MAX_REASON + 50]


async def test_reason_is_one_short_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A reason is logged as one line of printable characters, which has an end."""
    error = InvalidSignatureError("refused", field="sign", reason=f"!\r\n\x1b[2J\u202e{'x' * 5000}")
    verification: Any = Mock(profile=UNSIGNED, examine=Mock(side_effect=error))
    async with aclosing(Tampered(tmp_path / "inbox.db", Clock())) as inbox:
        await Ingest(verification, inbox, clock=Clock(), on_stored=lambda: None).ingest(b"{}", {}, None)

    assert f"refused a notification: sign ! ?[2J?{'x' * (MAX_REASON - 13)}…" == caplog.messages[0]


async def test_refusal_is_explained_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The receiver logs the first refusal for a reason as a warning, and later ones for it only as information."""
    caplog.set_level(logging.INFO, "payasync.notifications")
    async with opened(tmp_path, max_bytes=1000) as shop:
        signed = shop.sign()
        await shop.receiver.receive(signed.raw + b" ", signed.headers)
        await shop.receiver.receive(signed.raw, {})
        await shop.receiver.receive(b" " * 1001, {})
        for age in (301, 302, 40_000):
            old = shop.sign(time=shop.clock.now - age)
            assert NO == await shop.receiver.receive(old.raw, old.headers)
    async with opened(tmp_path) as other:
        await other.receiver.receive(b"{}", {})

    refusals = [f"{each.levelname} {each.getMessage()}" for each in caplog.records if "refused" in each.getMessage()]
    assert (
        [
            *("WARNING webhook-signature", "WARNING webhook-id", "WARNING its", "WARNING webhook-timestamp"),
            *("INFO webhook-timestamp", "WARNING webhook-id"),  # the first late one was stored, and logged as held
        ]
        == [" ".join(text.replace("refused a notification: ", "").split()[:2]) for text in refusals]
    )


async def test_log_holds_nothing_of_a_notification(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has no data, header or key of a notification, whatever becomes of it."""
    caplog.set_level(logging.DEBUG, "payasync")
    async with opened(tmp_path) as shop:

        @shop.receiver.on("payment", expect=lambda _: {"totalAmt": 1})
        async def paid(_: object) -> None: ...

        for data in (PAID, {**PAID, "totalAmt": 451}, {"outTradeNo": "canary", "status": "canary"}):
            signed = shop.sign(data, id="msg_canary")
            await shop.receiver.receive(signed.raw, {**signed.headers, "X-Canary": "canary"})
            await shop.receiver.receive(signed.raw + b"canary", {**signed.headers, "X-Canary": "canary"})
        await shop.take({"outRefundNo": "canary"}, "refund")
        await shop.receiver.settle()

        assert ["held", "held", "held", "parked"] == await shop.states()
        assert caplog.records
        assert [] == [word for word in ("canary", "T1", "450", "451", "CAD", "whsec") if word in caplog.text]


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "headers"),
    [('{"received":false}', JSON), ("FAIL", {"Content-Type": "text/plain; charset=utf-8"}), ("", {})],
)
async def test_refusals_have_the_profiles_body(body: str, headers: dict[str, str], tmp_path: Path) -> None:
    """Each response that is no acknowledgement has the profile's `nack_body`."""
    profile = evolve(SIGNED, notification=evolve(SIGNED.notification, nack_status=422, nack_body=body))
    async with opened(tmp_path, profile=profile, max_bytes=1000) as shop:
        answers = [await shop.receiver.receive(raw, {}) for raw in (b"{}", b" " * 1001)]
        await shop.receiver.aclose()
        answers.append(await shop.take())

    retry = {**headers, "Retry-After": "5"}
    assert [Answer(422, body, headers), Answer(413, body, headers), Answer(503, body, retry)] == answers


def test_acknowledgement_that_no_server_could_send(tmp_path: Path) -> None:
    """A profile is refused if its status goes with no body, or if it leaves `ack_status` open: a guess could lose."""
    for which in ("ack", "nack"):
        for status in (204, 205, 304):
            changes: dict[str, Any] = {f"{which}_status": status, f"{which}_body": "OK"}
            profile = evolve(SIGNED, notification=evolve(SIGNED.notification, **changes))
            with pytest.raises(ConfigurationError, match="no body goes with") as refused:
                Shop(tmp_path, profile=profile)

            assert f"notification.{which}_body" == refused.value.field
    with pytest.raises(NotConfiguredError) as missing:
        Shop(tmp_path, profile=evolve(SIGNED, notification=evolve(SIGNED.notification, ack_status=None)))

    assert "notification.ack_status" == missing.value.field


REJECTED: Final = (400, '{"received":false}')
TOO_LONG: Final = (413, REJECTED[1])
ACCEPTED: Final = (200, '{"received":true}')
ROUTED: Final = evolve(SIGNED, notification=evolve(SIGNED.notification, kind="", kinds={}))
"""Notifications that do not say what they are about."""
LIMIT: Final = 2_000_000
Served = Callable[[Receiver], AbstractAsyncContextManager[str]]
"""Serves a receiver, and gives the address below which it is."""


@asynccontextmanager
async def by_aiohttp(receiver: Receiver, **settings: Any) -> AsyncGenerator[str]:
    """Serve a receiver's handler by aiohttp."""
    application = web.Application(**settings)
    for path in ("/notify/{kind}", "/notify/{kind}/here", "/fixed/refund", "/by/me"):
        application.router.add_post(path, receiver.aiohttp_handler)
    application.router.add_post("/refunds", partial(receiver.aiohttp_handler, kind="refund"))
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def by_uvicorn(application: Any, lifespan: str = "off") -> AsyncGenerator[str]:
    """Serve an ASGI application."""
    config = uvicorn.Config(application, log_config=None, lifespan=lifespan, timeout_graceful_shutdown=1)  # type: ignore[arg-type] # a literal
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        await until(lambda: server.started or serving.done())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


def fastapi(receiver: Receiver) -> FastAPI:
    """Return an application of FastAPI's, with the receiver in it."""
    application = FastAPI()
    application.mount("/refunds", partial(receiver.asgi, kind="refund"))
    application.mount("/notify", receiver.asgi)
    return application


def in_litestar(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Mount it in Litestar, which looks at the names of the arguments."""

    @asgi("/notify", is_mount=True, copy_scope=True)
    async def notify(scope: Any, receive: Any, send: Any) -> None:
        await receiver.asgi(scope, receive, send)

    @asgi("/refunds", is_mount=True, copy_scope=True)
    async def refunds(scope: Any, receive: Any, send: Any) -> None:
        await receiver.asgi(scope, receive, send, "refund")

    return by_uvicorn(Litestar([notify, refunds], logging_config=None))


def read_in_aiohttp(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Serve it behind a middleware that reads the body and allows longer bodies than the receiver."""

    @web.middleware
    async def reading(request: web.Request, handler: Any) -> web.StreamResponse:
        await request.read()
        answer: web.StreamResponse = await handler(request)
        return answer

    return by_aiohttp(receiver, middlewares=[reading], client_max_size=2 * LIMIT)


SERVED: Final[dict[str, Served]] = {
    "aiohttp": by_aiohttp,
    "aiohttp, undecoded": lambda receiver: by_aiohttp(receiver, handler_args={"auto_decompress": False}),
    "aiohttp, read": read_in_aiohttp,
    "FastAPI": lambda receiver: by_uvicorn(fastapi(receiver)),
    "Litestar": in_litestar,
}


def servers(*names: str) -> pytest.MarkDecorator:
    """Run a test with each of these servers."""
    return pytest.mark.parametrize("name", names)


async def post(url: str, body: bytes, headers: Mapping[str, str] = {}) -> tuple[int, str]:
    """Post a body, and return the response."""
    async with aiohttp.ClientSession() as http, http.post(url, data=BytesIO(body), headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.fixture
async def routed_shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver whose notifications do not say what they are about."""
    async with opened(tmp_path, profile=ROUTED, max_bytes=LIMIT) as routed_shop:
        yield routed_shop


@servers("aiohttp", "FastAPI", "Litestar")
async def test_address_says_the_kind(name: str, routed_shop: Shop) -> None:
    """The path's last part, the route's `{kind}`, or the caller says what a notification is about.

    What names no kind that there is says nothing: a genuine notification is not lost because of its address.
    """
    got = routed_shop.recording()
    kinds: dict[str, str | None] = {"/notify/refund": "refund", "/refunds": "refund", "/notify/refunds": None}
    if name == "aiohttp":
        kinds |= {"/notify/refund/here": "refund", "/fixed/refund": "refund", "/by/me": None}
    else:
        kinds |= {"/notify/refund/": "refund"}
    async with SERVED[name](routed_shop.receiver) as url:
        for number, path in enumerate(kinds):
            signed = routed_shop.sign({**REFUNDED, "outRefundNo": f"R{number}"}, None)
            assert ACCEPTED == await post(url + path, signed.raw, signed.headers)
        await routed_shop.receiver.settle()

    assert list(kinds.values()) == [each.kind for each in sorted(got, key=lambda each: str(each.out_refund_no))]


@servers("aiohttp", "FastAPI", "aiohttp, read")
async def test_body_is_verified_as_it_was_received(name: str, routed_shop: Shop) -> None:
    """The receiver verifies the exact bytes of the body, and applies its own limit of length.

    A framework's own limit, such as aiohttp's of one mebibyte, does not apply.
    """
    got = routed_shop.recording()
    signed = routed_shop.sign({**PAID, "note": "x" * 1_500_000}, None)
    async with SERVED[name](routed_shop.receiver) as url:
        bodies = (signed.raw, b" " + signed.raw, b" " * LIMIT, b" " * (LIMIT + 1))
        answers = [await post(f"{url}/notify/payment", body, signed.headers) for body in bodies]
        await routed_shop.receiver.settle()

    assert [ACCEPTED, REJECTED, REJECTED, TOO_LONG] == answers
    assert [signed.raw] == [each.raw for each in got]


@servers("aiohttp", "aiohttp, undecoded", "FastAPI")
@pytest.mark.parametrize("over", ["JSON", "gzip"])
async def test_body_in_gzip(name: str, over: str, routed_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The signature of a body in gzip may cover either form. The inbox has the JSON, so that it can be replayed.

    aiohttp unpacks a body before anybody sees it. If its gzip was signed, the log says how aiohttp leaves it.
    """
    got = routed_shop.recording()
    signed = routed_shop.sign(PAID, None)
    body, headers = gzip.compress(signed.raw), {**signed.headers, "Content-Encoding": "gzip"}
    if over == "gzip":
        number, sent = headers["webhook-id"], int(headers["webhook-timestamp"])
        key = routed_shop.credentials.notification_keys[0]
        headers["webhook-signature"] = sign_webhook(body, number=number, sent=sent, key=key)
    is_lost = name == "aiohttp" and over == "gzip"
    async with SERVED[name](routed_shop.receiver) as url:
        answer = await post(f"{url}/notify/payment", body, headers)
        await routed_shop.receiver.settle()

    assert ((REJECTED, []) if is_lost else (ACCEPTED, [signed.raw])) == (answer, [each.raw for each in got])
    assert [each.raw for each in got] == [each.raw for each in await routed_shop.receiver.events()]
    assert is_lost is ("web.Application(handler_args={'auto_decompress': False})" in caplog.text)


HEAD: Final = b"POST /notify/payment HTTP/1.1\r\nHost: a\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n\r\n"


@servers("aiohttp", "FastAPI")
async def test_body_that_never_ends_is_refused(name: str, routed_shop: Shop) -> None:
    """A body beyond the limit gets a response before its end, and no more of it is read."""
    async with SERVED[name](routed_shop.receiver) as url:
        parts = [b"10000\r\n" + b"x" * 0x10000 + b"\r\n"] * 32
        answered = await exchanged(url, HEAD + CHUNKED, *parts)

    assert b"413" == answered.split()[1]


@servers("aiohttp", "FastAPI")
async def test_body_that_drips_ends_after_ten_seconds(name: str, routed_shop: Shop) -> None:
    """A body that has not arrived after ten seconds gets 408, however steadily its bytes drip."""
    async with SERVED[name](routed_shop.receiver) as url:
        before, answer, closed = await dripped(url, HEAD + b"Content-Length: 1000\r\n\r\n", pause=3, drops=4)

    assert (b"", b"408", True) == (before, answer.split()[1], closed)
    assert b"connection: close" in answer.lower()


@servers("aiohttp", "FastAPI")
@pytest.mark.parametrize("framing", [CHUNKED + b"%x\r\n%b\r\n", b"X-Length: %x\r\nContent-Length: 9999\r\n\r\n%b"])
async def test_body_that_breaks_off_is_not_stored(
    name: str, framing: bytes, routed_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """A body that breaks off is not stored, even if its beginning is a signed notification.

    After the receiver is closed, its response is 503 with `Retry-After`.
    """
    signed, whole = routed_shop.sign(PAID, None), routed_shop.sign({**PAID, "outTradeNo": "T2"}, None)
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in signed.headers.items())
    routed_shop.recording()
    async with SERVED[name](routed_shop.receiver) as url:
        await exchanged(url, HEAD + lines + framing % (len(signed.raw), signed.raw), hang_up=True)
        answer = await post(f"{url}/notify/payment", whole.raw, whole.headers)
        keys = await routed_shop.keys()
        await routed_shop.receiver.aclose()
        length = b"Content-Length: %d\r\n\r\n%b" % (len(signed.raw), signed.raw)
        closed = await exchanged(url, HEAD + lines + b"Connection: close\r\n" + length)

    assert (ACCEPTED, ['payment:["T2","SBX_PAID"]']) == (answer, keys)
    assert (b"503", True) == (closed.split()[1], b"retry-after: 5" in closed.lower())
    assert [] == [each for each in caplog.records if each.levelname == "ERROR"]


async def test_application_may_stand_alone(routed_shop: Shop) -> None:
    """Served on its own, the ASGI application starts dispatching with the server, and closes the receiver with it."""
    got = routed_shop.recording()
    await routed_shop.handled()
    signed = routed_shop.sign({**PAID, "outTradeNo": "T2"})
    async with by_uvicorn(routed_shop.receiver.asgi, "on") as url:
        answer = await post(f"{url}/anywhere", signed.raw, signed.headers)
        await routed_shop.receiver.settle()

    assert (ACCEPTED, ["T1", "T2"], 503) == (answer, got.numbers, (await routed_shop.take()).status)


async def replied(receiver: Receiver, message: MutableMapping[str, Any] | None = None, **scope: Any) -> list[Any]:
    """Return the application's reply to a server's single message, or to none."""
    sent = list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return message or await asyncio.Event().wait()

    await receiver.asgi({"type": "http", "method": "POST", "path": "/payment", "headers": [], **scope}, receive, send)
    return sent


async def test_server_does_not_start_with_a_foreign_file(tmp_path: Path) -> None:
    """A file that is not an inbox keeps the server from starting."""
    file = tmp_path / "inbox.db"
    file.write_bytes(b"a diary" * 1000)
    async with opened(tmp_path, inbox=SqliteInbox(file)) as routed_shop:
        (failed,) = await replied(routed_shop.receiver, {"type": "lifespan.startup"}, type="lifespan")

    assert "lifespan.startup.failed" == failed["type"]
    assert failed["message"].startswith("ConfigurationError: ")


async def test_asgi_response(routed_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ASGI application accepts only POST. A body without a field is empty, and HTTP/2 gets no connection header."""
    cases: tuple[tuple[dict[str, Any], int, list[tuple[bytes, bytes]]], ...] = (
        ({"method": "GET"}, 405, [(b"allow", b"POST")]),
        ({"http_version": "1.1"}, 408, [(b"connection", b"close")]),
        ({"http_version": "2"}, 408, []),
        ({"message": {"type": "http.request"}}, 400, [(b"content-type", b"application/json")]),
    )
    for given, status, headers in cases:
        monkeypatch.setattr("payasync.notifications.web_adapters.BODY_SECONDS", 0 if status == 408 else 60)
        start, body = await replied(routed_shop.receiver, **given)
        length = (b"content-length", str(len(body["body"])).encode())

        assert (status, [*headers, length]) == (start["status"], start["headers"]), given


async def test_body_that_cannot_be_decoded_is_refused(routed_shop: Shop) -> None:
    """If the framing or the encoding of a body is broken, the response of aiohttp's server is 400."""
    async with by_aiohttp(routed_shop.receiver) as url:
        for rest in (CHUNKED + b"2\r\n{}XX\r\n0\r\n\r\n", b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"):
            answered = await exchanged(url, HEAD + b"Connection: close\r\n" + rest)

            assert b"400" == answered.split()[1], rest


async def test_asgi_response_without_a_body(tmp_path: Path) -> None:
    """204 is sent without a body and without a content type; a web socket is closed."""
    profile = evolve(SIGNED, notification=evolve(SIGNED.notification, ack_status=204, ack_body=""))
    async with opened(tmp_path, profile=profile) as shop:
        signed = shop.sign()
        headers = [(name.encode(), value.encode()) for name, value in signed.headers.items()]
        start, body = await replied(shop.receiver, {"type": "http.request", "body": signed.raw}, headers=headers)

        assert (204, [(b"content-length", b"0")], b"") == (start["status"], start["headers"], body["body"])
        assert [{"type": "websocket.close"}] == await replied(shop.receiver, type="websocket")
