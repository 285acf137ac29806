"""A session: its settings, lifetime, copies, layers and environment."""

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve

from payasync import (
    Attempted,
    Call,
    CreatePayment,
    Credentials,
    Event,
    Idempotency,
    Profile,
    QueryOrder,
    QueryRefund,
    Reply,
    Response,
    Retrying,
    RetryPolicy,
    Send,
    Session,
    Timeouts,
    Unknown,
    errors,
)
from payasync.journal import SqliteJournal
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from tests.foreign import signatures
from tests.foreign.recorder import RESET, SILENT, Answer, Recorder, Request, answer
from tests.sessions import FAST, KEYS, OK, OK_BODY, ONE_TRY, begin, connect, create, query
from tests.test_closing import WRITES
from tests.wire.ten import CREDENTIALS, DOCUMENTED, TEN

REMOTE: Final = "https://pay.example.com"
pay_with = partial(connect, profile=SANDBOX)
Ask = Callable[[Session], Awaitable[Response]]


def recorder(*script: Answer, **settings: Any) -> Recorder:
    """Return a recorder that responds with successes."""
    chosen: dict[str, Any] = {"otherwise": OK, **settings}
    return Recorder(script, **chosen)


def test_constructing_opens_nothing() -> None:
    """Making a session needs no event loop, opens no connection, and leaves nothing to close."""
    with recorder() as service:
        pay_with(service).with_options(retry=ONE_TRY).for_merchant(KEYS)
        gc.collect()

    assert [] == service.connections


async def listening(event: Event) -> None:
    """Be an `async` listener, which nobody would await."""
    raise AssertionError(event)


WRONG: Final[dict[str, list[Any]]] = {
    "base_url": ["https://user:password@pay.example.com", "http://pay.example.com"],
    "credentials": [{"merchant_id": "M1"}, None],
    "profile": ["sandbox", SANDBOX, evolve(SANDBOX, name="renamed"), None],
    "timeouts": [45, None],
    "retry": [3, None],
    "middleware": [None, 1, [None], ["layer"]],
    "on_event": ["print", listening, partial(listening)],
    "journal": [object(), False],
    "http": ["session"],
    "tls": [True, False],
    "proxy": ["proxy.example:3128", ""],
    "max_connections": [0, True, 1.5],
    "max_response_bytes": [0, "1"],
}


def test_wrong_setting_is_named() -> None:
    """A wrong or unsafe setting is refused by name when a session is made, or a copy of it."""
    for setting, value in [(name, value) for name, values in WRONG.items() for value in values]:
        settings: dict[str, Any] = {"base_url": REMOTE, "credentials": KEYS, "profile": Profile(), setting: value}
        with pytest.raises(errors.ConfigurationError) as caught:
            Session(settings.pop("base_url"), **settings)

        assert setting == caught.value.field
        assert setting in str(caught.value)
        assert "user:password" not in str(caught.value)
    wrong: list[dict[str, Any]] = [{"timeouts": 5}, {"timeouts": 0}, {"retry": 3}, {"retry": False}]
    for changes in wrong:
        with pytest.raises(errors.ConfigurationError) as caught:
            connect(REMOTE).with_options(**changes)

        assert [caught.value.field] == [*changes]


LOST: Final = errors.OutcomeUnknownError("lost", operation="refunds.create", reference="R1")
EACH_CALL: Final[list[Ask]] = [
    *(one.call for one in TEN),
    lambda pay: pay.request("POST", "/payment/bill"),
    lambda pay: pay.send(QueryOrder(out_trade_no="T1")),
    lambda pay: pay.reconcile(LOST),
]


async def test_calls_after_the_end_are_refused() -> None:
    """Every call on a closed session raises `SessionClosedError` and sends nothing. Closing it again does nothing."""
    with recorder() as service:
        async with pay_with(service) as pay:
            await create(pay)
        await pay.aclose()
        for ask in EACH_CALL:
            with pytest.raises(errors.SessionClosedError) as caught:
                await ask(pay)
            assert caught.value.sent is False
            assert caught.value.operation is not None
        with pytest.raises(errors.SessionClosedError):
            await pay.inquire(QueryOrder(out_trade_no="T1"))
        with pytest.raises(errors.SessionClosedError):
            await anext(pay.bulk([QueryOrder(out_trade_no="T1")]))

    assert 1 == len(service.requests)
    assert "closed" in repr(pay)


REFUSED: Final[list[tuple[Ask, str, str | None]]] = [
    (lambda pay: pay.orders.query("T 1"), "orders.query", "T 1"),
    (lambda pay: pay.orders.place(total_amt=1, currency="C&D", out_trade_no="T1"), "orders.place", "T1"),
    (lambda pay: pay.request("POST", "/payment/bill", timeout=0), "POST /payment/bill", None),
    (lambda pay: pay.payments.create(amount=0, currency="USD"), "payments.create", None),
    (lambda pay: pay.request("POST", "/payment/bill", fields={"a": object()}), "POST /payment/bill", None),
]


async def test_refused_argument_names_the_call() -> None:
    """An error that refuses an argument names the call."""
    with recorder() as service:
        async with pay_with(service) as pay:
            for ask, *named in REFUSED:
                with pytest.raises(errors.InvalidArgumentError) as caught:
                    await ask(pay)

                assert named == [caught.value.operation, caught.value.reference]
    assert [] == service.connections


async def test_copies_share_the_connections() -> None:
    """Copies use the connections that are there. A copy for another merchant sends, and signs as, that merchant."""
    other = Credentials("M2", secret_key="sk_2", signing_key="signing key of M2")
    with recorder() as service:
        async with pay_with(service) as pay:
            copies = [pay, pay.with_options(timeouts=Timeouts(total=9)), pay.for_merchant(other)]
            for each in copies:
                await create(each)
            await query(copies[-1])
    *payments, asked = service.requests
    sent = signatures.fields(asked)

    assert [1, 1, 1] == [request.connection for request in payments]
    assert ["Bearer sk_1", "Bearer sk_1", "Bearer sk_2"] == [each.header("Authorization")[0] for each in payments]
    assert [("M1", SANDBOX), ("M1", SANDBOX), ("M2", SANDBOX)] == [(each.merchant_id, each.profile) for each in copies]
    assert "M2" == sent["merchantId"]
    assert signatures.hmac_sha256(signatures.signed_text(sent), "signing key of M2") == sent["sign"]


async def test_inquiry_returns_the_call_and_the_unread_reply() -> None:
    """`inquire` returns the call and the unread reply, takes a timeout, and raises as other calls do."""
    with recorder(OK, answer(400, b'{"code":"SBX_OTHER"}')) as service:
        async with pay_with(service, retry=ONE_TRY) as pay:
            call, came = await pay.inquire(QueryOrder(out_trade_no="T1"), timeout=7.0)
            with pytest.raises(errors.ServiceError):
                await pay.inquire(QueryOrder(out_trade_no="T1"))
            with pytest.raises(errors.InvalidArgumentError, match="timeout"):
                await pay.inquire(QueryOrder(out_trade_no="T1"), timeout=0)

    assert ("orders.query", "T1", 7.0) == (call.operation.name, call.reference, call.timeouts.total)
    assert (200, OK_BODY) == (came.status, came.body)
    assert 2 == len(service.requests)


REFUSED_AGAIN: Final[dict[str, tuple[Callable[[Session], Session], int]]] = {
    "other times": (lambda pay: pay.with_options(timeouts=Timeouts(total=9)), 1),
    "other waits": (lambda pay: pay.with_options(retry=RetryPolicy(base_delay=0, max_delay=0, quota=10)), 1),
    "other merchant": (lambda pay: pay.for_merchant(KEYS), 1),
    "other budget": (lambda pay: pay.with_options(retry=RetryPolicy(base_delay=0, quota=11)), 3),
}


@pytest.mark.parametrize(("copied", "attempts"), REFUSED_AGAIN.values(), ids=REFUSED_AGAIN)
async def test_copies_share_the_retry_budget(copied: Callable[[Session], Session], attempts: int) -> None:
    """Copies share the retry quota, unless one is made with another quota."""
    with recorder(listening=False) as service:
        async with pay_with(service, retry=RetryPolicy(base_delay=0, quota=10)) as pay:
            copy = copied(pay)
            with pytest.raises(errors.NotSentError) as first:
                await create(pay)
            with pytest.raises(errors.NotSentError) as second:
                await create(copy)

    assert (3, attempts) == (first.value.attempts, second.value.attempts)


COPIES: Final[tuple[Callable[[Session], Session], ...]] = (
    lambda pay: pay.with_options(retry=ONE_TRY),
    lambda pay: pay.for_merchant(KEYS),
)


async def test_closing_the_owner_closes_all() -> None:
    """Closing a session closes its copies, and copies of copies. None of them can be entered again."""
    for copied in COPIES:
        with recorder() as service:
            async with pay_with(service) as pay:
                copy = copied(copied(pay))
                await create(copy)
            with pytest.raises(errors.SessionClosedError):
                await create(copy)
            with pytest.raises(errors.SessionClosedError, match="the session is closed: make another"):
                await copy.__aenter__()

        assert 1 == len(service.requests)
        assert "closed" in repr(copy)


@pytest.mark.parametrize(("copied", "grace"), [(lambda pay: pay, float("inf")), (COPIES[0], 30)], ids=["it", "copy"])
async def test_grace_lets_a_call_finish(copied: Callable[[Session], Session], grace: float) -> None:
    """`aclose(grace=...)` waits for calls in flight. Until then no new call starts, not even on a copy."""
    go = threading.Event()
    with recorder(answer(200, OK_BODY, after=go)) as service:
        pay = pay_with(service)
        copy = copied(pay)
        flying = await begin(create(copy), service)
        closing = asyncio.create_task(pay.aclose(grace=grace))
        await asyncio.sleep(0)
        with pytest.raises(errors.SessionClosedError):
            await create(copy)
        go.set()
        await closing

        assert flying.done()
        assert 200 == (await flying).http_status
    assert 1 == len(service.requests)


async def test_grace_covers_a_call_that_made_another() -> None:
    """`aclose(grace=...)` waits for a call whose layer makes another call."""
    go = threading.Event()

    async def asking(call: Call, send: Send) -> Reply:
        if not call.read:
            await query(pay)
        return await send(call)

    with recorder(OK, answer(200, OK_BODY, after=go)) as service:
        pay = pay_with(service, middleware=[asking])
        flying = await begin(create(pay), service)
        await asyncio.to_thread(service.wait_for_request)
        closing = asyncio.create_task(pay.aclose(grace=30))
        await asyncio.sleep(0)
        go.set()
        await closing

        assert 200 == (await flying).http_status


async def test_close_that_is_cancelled_closes_all_the_same() -> None:
    """If `aclose` is cancelled during its grace, the calls in flight are cut off, and connections are closed."""
    with recorder(SILENT) as service:
        pay = pay_with(service)
        flying = await begin(create(pay), service)
        await query(pay)
        closing = asyncio.create_task(pay.aclose(grace=60))
        await asyncio.sleep(0)
        closing.cancel()
        async with asyncio.timeout(10):  # before the call, or an idle connection, would end by itself
            with pytest.raises(errors.OutcomeUnknownError):
                await flying
            with pytest.raises(asyncio.CancelledError):
                await closing
            await asyncio.to_thread(service.wait_for_ends)

    assert [1, 2] == [request.connection for request in service.requests]


async def test_check_refuses_as_sending_would() -> None:
    """`check` raises what `send` would raise, passes other requests, and sends nothing."""
    profile = evolve(SANDBOX, accept=evolve(SANDBOX.accept, length={"description": 3}), refund_status=None)
    wrong: dict[str, Any] = {
        "description": CreatePayment(amount=100, currency="USD", description="too long"),
        "refund_status": QueryRefund(identifier="R1"),
        "request": {"out_trade_no": "T1"},
    }
    with recorder() as service:
        async with pay_with(service, profile=profile) as pay:
            for field, request in wrong.items():
                with pytest.raises((errors.InvalidArgumentError, errors.NotConfiguredError)) as checked:
                    pay.check(request)
                with pytest.raises(type(checked.value)) as sent:
                    await pay.send(request)
                refused: Any = checked.value

                assert (repr(sent.value), field) == (repr(refused), refused.field)
            pay.check(CreatePayment(amount=100, currency="USD"))

    assert [] == service.connections


async def test_request_reaches_what_we_do_not_know() -> None:
    """`request` sends fields by their wire names to any endpoint, signed and with Bearer if asked."""
    with recorder() as service:
        async with pay_with(service) as pay:
            response = await pay.request("POST", "/payment/bill", fields={"billDate": "20270101"}, signed=True)
            await pay.request("GET", "/payment/bill", fields={"billDate": "a&b", "page": 2}, bearer=True, read=True)
    post, get = service.requests
    sent = signatures.fields(post)

    assert (Response, 200) == (type(response), response.http_status)
    assert ("POST", "/payment/bill") == (post.method, post.target)
    assert {"billDate", "nonceStr", "sign"} == set(sent)
    assert signatures.hmac_sha256(signatures.signed_text(sent), "signing key of M1") == sent["sign"]
    assert [] == post.header("Authorization")
    assert ("GET", {"billDate": "a&b", "page": "2"}) == (get.method, signatures.fields(get))
    assert ["Bearer sk_1"] == get.header("Authorization")


WRONG_REQUESTS: Final[dict[str, list[dict[str, Any]]]] = {
    "method": [{"method": "get"}],
    "path": [{"path": "payment/bill"}, {"path": "/a/../b"}],
    "fields": [{"fields": {"a": float("nan")}}, {"fields": {"sign": "forged"}, "signed": True}],
    "timeout": [{"timeout": 0}],
    "bearer": [{"bearer": 1}],
    "signed": [{"signed": "false"}],
    "read": [{"read": None}],
}


async def test_request_refuses_before_it_sends() -> None:
    """`request` names an invalid argument, or a field that only the session sets, and sends nothing."""
    with recorder() as service:
        async with pay_with(service) as pay:
            for field, arguments in [(name, each) for name, several in WRONG_REQUESTS.items() for each in several]:
                chosen: dict[str, Any] = {"method": "POST", "path": "/payment/bill", **arguments}
                with pytest.raises(errors.InvalidArgumentError) as caught:
                    await pay.request(**chosen)

                assert field == caught.value.field
    assert [] == service.connections


async def test_request_is_a_write_unless_it_says_otherwise() -> None:
    """If the response to `request` is lost, the outcome is unknown unless `read=True`."""
    with recorder(RESET, RESET) as service:
        async with pay_with(service, retry=ONE_TRY) as pay:
            with pytest.raises(errors.OutcomeUnknownError):
                await pay.request("POST", "/payment/bill")
            with pytest.raises(errors.NoAnswerError):
                await pay.request("POST", "/payment/bill", read=True)

    assert 2 == len(service.requests)


async def test_intent_of_a_write() -> None:
    """Layers see the `intent` of a call; it is not sent to the service. One that is no text is refused by name."""
    seen: list[str | None] = []

    async def layer(call: Call, send: Send) -> Reply:
        seen.append(call.intent)
        return await send(call)

    wrong: list[Any] = ["", " ", 42, True, "\ud800"]
    with Recorder() as service:
        async with pay_with(service, profile=DOCUMENTED, credentials=CREDENTIALS, middleware=[layer]) as pay:
            for name, ask in WRITES.items():
                await ask(pay, intent="invoice-42")
                await ask(pay, intent=None)
                for intent in wrong:
                    with pytest.raises(errors.InvalidArgumentError, match="intent must be a text that is") as caught:
                        await ask(pay, intent=intent)
                    assert ("intent", name) == (caught.value.field, caught.value.operation)

    assert ["invoice-42", None] * len(WRITES) == seen
    assert (2 * len(WRITES), False) == (len(service.requests), b"invoice-42" in service.received)


async def test_middleware() -> None:
    """A user's layers see each attempt once, without nonce, signature or key; the first of the list is outermost.

    What a layer adds is sent and signed.
    """
    seen, order = list[Call](), list[str]()

    async def outer(call: Call, send: Send) -> Reply:
        seen.append(call)
        order.append("outer in")
        try:
            return await send(call.with_fields(deviceNo="7").with_headers({"X-Device": "7"}))
        finally:
            order.append("outer out")

    async def inner(call: Call, send: Send) -> Reply:
        order.append("inner")
        return await send(call)

    with recorder(listening=False) as service:
        async with pay_with(service, middleware=[outer, inner], retry=FAST, on_event=opening(service)) as pay:
            await query(pay)
    sent = signatures.fields(service.only)

    assert [1, 2] == [call.attempt for call in seen]
    assert [{"merchantId": "M1", "outTradeNo": "T1"}] * 2 == [dict(call.fields) for call in seen]
    assert [{}] * 2 == [dict(call.headers) for call in seen]
    assert ["outer in", "inner", "outer out"] * 2 == order
    assert ("7", ["7"]) == (sent["deviceNo"], service.only.header("X-Device"))
    assert "deviceNo=7" in signatures.signed_text(sent)
    assert signed_by_m1(service.only)


def opening(service: Recorder) -> Callable[[Event], None]:
    """Return an `on_event` that lets the service listen before the second attempt."""

    def on_event(event: Event) -> None:
        if isinstance(event, Retrying) and event.attempt == 2:
            service.listen()

    return on_event


async def test_events_of_a_call(caplog: pytest.LogCaptureFixture) -> None:
    """`on_event` receives each attempt, retry and unknown outcome, in order, with the call's reference.

    An error of `on_event` is logged, and the call goes on.
    """
    told: list[Event] = []
    with recorder(RESET, listening=False) as service:
        open_door = opening(service)

        def on_event(event: Event) -> None:
            told.append(event)
            open_door(event)
            raise ValueError(event)

        async with pay_with(service, on_event=on_event, retry=FAST) as pay:
            with pytest.raises(errors.OutcomeUnknownError):
                await pay.subscriptions.cancel("S1")

    assert [Attempted, Retrying, Attempted, Unknown] == [type(event) for event in told]
    assert "subscriptions.cancel S1: outcome unknown: " in str(told[-1])
    assert [("subscriptions.cancel", "S1")] * 4 == [(event.operation, event.reference) for event in told]
    assert [(1, "NotSentError"), (2, "NoAnswerError")] == [
        (event.attempt, event.error) for event in told if isinstance(event, Attempted)
    ]
    assert ["on_event raised; the call goes on"] * 4 == [each.message for each in caplog.records if each.exc_info]


ENVIRON: Final = {
    "PAYASYNC_MERCHANT_ID": "M1",
    "PAYASYNC_SECRET_KEY": "sk_1",
    "PAYASYNC_SIGNING_KEY": "signing key of M1",
}


def signed_by_m1(request: Request) -> bool:
    """Return whether a request is of merchant M1, and has its signature."""
    sent = signatures.fields(request)
    made = signatures.hmac_sha256(signatures.signed_text(sent), "signing key of M1")
    return ("M1", made) == (sent["merchantId"], sent["sign"])


async def test_session_from_the_environment(tmp_path: Path) -> None:
    """The environment, as values or files, makes a session. White space and byte order marks at the ends are removed.

    Without a profile payments can be made, because the document shows how.
    """
    toml = tmp_path / "service.toml"
    toml.write_text('[signature]\nalgorithm = "hmac-sha256"\nencoding = "hex"\n', encoding="utf-8")
    with recorder() as service:
        environ = ENVIRON | {"PAYASYNC_BASE_URL": f"{service.url}/gate"}
        for name, value in environ.items():
            (tmp_path / f"{name}_FILE").write_text(f"{value}\n", encoding="utf-8")
        files = {f"{name}_FILE": str(tmp_path / f"{name}_FILE") for name in environ}
        known = environ | {"PAYASYNC_PROFILE": "sandbox"}
        padded = [{name: f"{end}{known[name]}{end}" for name in known} for end in ("\n", "\r\n", " ", "\ufeff")]
        for each in (known, files | {"PAYASYNC_PROFILE": str(toml)}, *padded):
            async with Session.from_env(each) as pay:
                await query(pay)
        async with Session.from_env(environ) as bare:
            await create(bare)
    *queries, payment = service.requests

    assert {("/gate/payment/orderquery", True)} == {(each.path, signed_by_m1(each)) for each in queries}
    assert (6, ["Bearer sk_1"]) == (len(queries), payment.header("Authorization"))


async def test_arguments_go_before_the_environment() -> None:
    """An argument replaces its variable, which is then not read."""
    wrong = {"PAYASYNC_PROFILE": "/nowhere", "PAYASYNC_BASE_URL": "nonsense"}
    with recorder() as service:
        given: dict[str, Any] = {"credentials": KEYS, "profile": SANDBOX, "retry": ONE_TRY}
        async with Session.from_env(wrong, base_url=service.url, **given) as pay:
            await create(pay)

    assert 1 == len(service.requests)


WRONG_ENVIRON: Final[list[tuple[dict[str, str | None], str]]] = [
    ({"PAYASYNC_BASE_URL": None}, "PAYASYNC_BASE_URL"),
    ({"PAYASYNC_BASE_URL": " "}, "PAYASYNC_BASE_URL"),
    ({"PAYASYNC_BASE_URL_FILE": "/nowhere"}, "PAYASYNC_BASE_URL"),
    ({"PAYASYNC_BASE_URL": "http://pay.example.com"}, "base_url"),
    ({"PAYASYNC_MERCHANT_ID": None}, "PAYASYNC_MERCHANT_ID"),
    ({"PAYASYNC_SECRET_KEY": ""}, "PAYASYNC_SECRET_KEY"),
    ({"PAYASYNC_PROFILE": ""}, "PAYASYNC_PROFILE"),
    ({"PAYASYNC_PROFILE_FILE": "/nowhere/service.toml"}, "PAYASYNC_PROFILE"),
    ({"PAYASYNC_PROFILE": "sandbox", "PAYASYNC_PROFILE_FILE": "/nowhere"}, "PAYASYNC_PROFILE"),
    ({"PAYASYNC_PROFILE": "/nowhere/service.toml"}, "profile"),
    ({"PAYASYNC_PROFILE": "sandbox"}, "profile"),
]


def test_environment_that_is_wrong() -> None:
    """A missing, empty or wrong variable is named; the sandbox's profile is refused for other machines."""
    for change, field in WRONG_ENVIRON:
        environ = ENVIRON | {"PAYASYNC_BASE_URL": REMOTE} | change
        with pytest.raises(errors.ConfigurationError) as caught:
            Session.from_env({name: value for name, value in environ.items() if value is not None})

        assert field == caught.value.field


@pytest.mark.parametrize("lent", [False, True], ids=["own pool", "lent connector"])
async def test_proxy_that_is_asked_for(*, lent: bool) -> None:
    """With a proxy, requests go to the proxy, with its password, and never to the service directly."""
    with Recorder() as proxy:
        via = proxy.url.replace("//", "//u:p@")
        async with (
            aiohttp.ClientSession() as http,
            connect("http://localhost:1", proxy=via, http=http if lent else None) as pay,
        ):
            await create(pay)

    assert "http://localhost:1/v1/payments" == proxy.only.target
    assert ["Basic dTpw"] == proxy.only.header("Proxy-Authorization")


@pytest.mark.parametrize("asked", [False, True], ids=["not asked", "asked"])
async def test_environment_gives_a_proxy_if_asked_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    """A proxy of the environment is used only with `proxy="environment"`. Passwords in .netrc are never sent."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password canary\ndefault login u password canary\n", encoding="utf-8")
    netrc.chmod(0o600)
    for name in os.environ:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with Recorder() as service, Recorder() as proxy:
        for name, value in {"NETRC": str(netrc), "HTTP_PROXY": proxy.url, "http_proxy": proxy.url}.items():
            monkeypatch.setenv(name, value)
        async with connect(service, proxy="environment" if asked else None) as pay:
            await create(pay)
            await pay.request("POST", "/payment/bill")
    paid, other = [*service.requests, *proxy.requests]

    assert ((0, 2) if asked else (2, 0)) == (len(service.requests), len(proxy.requests))
    assert (["Bearer sk_1"], []) == (paid.header("Authorization"), other.header("Authorization"))
    assert [[], []] == [request.header("Proxy-Authorization") for request in (paid, other)]
    assert b"canary" not in service.received + proxy.received


ELSEWHERE = "http://u:canary@proxy.example:3128"


def test_plain_http_leaves_this_machine_by_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain http through a remote proxy, also of the environment, is refused: keys would travel in plain text.

    A proxy on loopback is allowed for plain http, and any proxy for https.
    """
    why = "proxy is not on this machine, and base_url is plain http: keys would leave it"
    plain = "http://127.0.0.1:1", "http://localhost", "http://[::1]:8080/gate"
    for address, proxy in product(plain, (ELSEWHERE, "https://proxy.example", "http://10.0.0.1:3128")):
        with pytest.raises(errors.ConfigurationError) as caught:
            connect(address, proxy=proxy)

        assert (True, "proxy") == (str(caught.value).startswith(why), caught.value.field)
        assert "canary" not in str(caught.value)
    for address, allowed in ((plain[0], "http://127.0.0.1:3128"), (plain[0], "http://u:p@localhost:3128")):
        assert address == connect(address, proxy=allowed).service
    for address in (REMOTE, "https://127.0.0.1:1"):
        assert address == connect(address, proxy=ELSEWHERE).service
    monkeypatch.setenv("http_proxy", ELSEWHERE)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(errors.ConfigurationError, match="NO_PROXY"):
        connect(plain[0], proxy="environment")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert plain[0] == connect(plain[0], proxy="environment").service


KEYED: Final = Profile(idempotency=Idempotency(header="Idempotency-Key", lifetime=60.0))


@pytest.mark.parametrize("profile", [Profile(), KEYED], ids=["no keys", "idempotency keys"])
async def test_intent_without_a_journal(profile: Profile, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first write with `intent=` and no journal logs a warning, once for a session with all its copies.

    A write with a journal or without `intent=`, and a read, log none.
    """
    with Recorder() as service:
        async with SqliteJournal(tmp_path / "pay.db") as journal, connect(service, journal=journal) as kept:
            await kept.payments.create(amount=1, currency="USD", intent="invoice-42")
        async with connect(service, profile=profile) as pay:
            await create(pay)
            await pay.request("GET", "/payment/bill", read=True)
            before = list(caplog.messages)
            for each in (pay, pay, pay.with_options(retry=ONE_TRY), pay.for_merchant(KEYS)):
                await each.payments.create(amount=1, currency="USD", intent="invoice-42")
            await pay.request("POST", "/payment/bill", intent="invoice-42")

    assert ([], journal) == (before, pay.with_options(journal=journal).journal)
    assert [("intent_without_journal", "WARNING")] == [
        (getattr(record, "event_name", ""), record.levelname) for record in caplog.records
    ]
    assert caplog.messages[0].startswith("payments.create has an intent, but no journal remembers it: a repeat may be")
