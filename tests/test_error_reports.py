"""Error reports: what an error tracker stores of an error holds no key, nothing that could be replayed, no customer.

A report is the traceback with the local variables of every frame, of all causes, contexts and groups. Besides what
`traceback` prints, the variables of all frames but the tests' own are searched deeply, through attributes and closures.
"""

import asyncio
import gzip
import json
import logging
import pickle
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus

import pytest
from attrs import evolve

from payasync import (
    Call,
    CancelSubscription,
    CreateSubscription,
    Credentials,
    Event,
    Parameter,
    Profile,
    Reply,
    Retrying,
    RetryPolicy,
    Secret,
    Send,
    Session,
    SortedPairs,
    Template,
    Timeouts,
    UpdateSubscription,
    errors,
)
from payasync.errors import LIBRARIES
from payasync.journal import SqliteJournal
from payasync.notifications import parse, verify
from payasync.profile.schema import AnswerShape, NotificationShape, States
from payasync.resources.refunds import CreateRefund
from tests.foreign.certificates import server_tls, trusting_tls
from tests.foreign.recorder import GONE, RESET, SILENT, Answer, Recorder, answer
from tests.reports import frames_of, report
from tests.sessions import begin, connect
from tests.test_canary import SONG, keys
from tests.wire.ten import DOCUMENTED, TEN, TenCall

CUSTOMER: Final[dict[str, Any]] = {
    "email": "canary-mail@example.com",
    "address": {"street": "12 Canary Row"},
    "phone": 49151123456,
}
DETAILS: Final = ("canary-mail", "Canary Row", "49151123456")
PIECES: Final = ("'nonceStr': '", '"nonceStr":', "nonceStr=", "'sign': '", '"sign":', "sign=")
"""Of a signed body, whatever stands in it. A profile's table of wire names has the same names, with other values."""
SERVICE_SIGNATURE: Final = "cd" * 32
"""Of a response or a notification, which could be replayed, too."""
SIGNED: Final[list[str]] = []
"""Each nonce and signature that `Recording` made, sent or not."""
PAIRS: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json")
GATE: Final = Profile(
    bearer=("orders.query", "refunds.create", "payments.status", "subscriptions.create"),
    signed=("orders.query", "refunds.create", "payments.status", "refunds.status", "subscriptions.create"),
    signature=PAIRS,
    fields={"frequency": "every", "subscription_amount": "price", "start_date": "from", "customer": "payer"},
    formats={"start_date": "%Y-%m-%d"},
    payment_status=Parameter("outTradeNo"),
    refund_status=Parameter("outRefundNo"),
    answer=AnswerShape(order_status="state"),
    states=States(order={"paid": ("PAID",)}),
)
FAST: Final = RetryPolicy(attempts=2, base_delay=0.001, max_delay=0.001)


class Recording:
    """A merchant's own scheme, which records what it signed."""

    symmetric = True

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign as `SortedPairs` does, and record it."""
        signature = PAIRS.sign(fields, path=path, key=key)
        SIGNED.extend((fields["nonceStr"], signature))
        return signature

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Verify as `SortedPairs` does."""
        return PAIRS.verify(fields, signature, path=path, key=key)


Ask = Callable[[Session], Coroutine[Any, Any, object]]

REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
SUBSCRIPTION: Final[dict[str, Any]] = {
    "frequency": "monthly",
    "amount": 900,
    "start_date": date(2027, 1, 31),
    "customer": CUSTOMER,
}


ASKS: Final[dict[str, Ask]] = {
    "refund": lambda pay: pay.refunds.create(**REFUND),
    "subscription": lambda pay: pay.subscriptions.create(**SUBSCRIPTION),
    "read": lambda pay: pay.orders.query("T1"),
    "get": lambda pay: pay.payments.status("T1"),
    "send": lambda pay: pay.send(CreateSubscription(**SUBSCRIPTION)),
    "request": lambda pay: pay.request("POST", "/plan", fields={"customer": CUSTOMER}, signed=True),
    "shielded": lambda pay: pay.subscriptions.create(**SUBSCRIPTION, shield=True),
}
IN_HEADER: Final = Template(
    algorithm="hmac-sha256", encoding="hex", text="{nonce}{body}", header="X-Sign", value="{nonce} {signature}"
)
SCHEMES: Final = {"usual": PAIRS, "own": Recording()}
DAILY: Final = {"subscription", "get"}
"""Between them they have all that a request can have: a body and a query, Bearer, a signature, a customer."""

every_ask = pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
some_asks = pytest.mark.parametrize(
    "ask", [pytest.param(ASKS[each], id=each, marks=[] if each in DAILY else pytest.mark.long) for each in ASKS]
)


def sent(service: Recorder) -> list[str]:
    """Return the parts of received requests that could be replayed: each body, nonce and signature."""
    found = []
    for request in service.requests:
        fields = json.loads(request.body) if request.body else {n: v[0] for n, v in parse_qs(request.query).items()}
        in_header = " ".join(request.header("X-Sign")).split()
        found += [request.body.decode() or request.query, *(in_header or (fields["nonceStr"], fields["sign"]))]
    return found


def leaks(text: str, service: Recorder | None = None) -> list[str]:
    """Return the secrets and replayable texts that a report contains."""
    secret = [SONG, *DETAILS, *PIECES, SERVICE_SIGNATURE, *SIGNED, *(sent(service) if service else [])]
    return [each for each in secret if each in text]


class Reports(logging.Handler):
    """A log handler that makes a report of each logged error, as an error tracker does."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Report a record's error."""
        error = record.exc_info[1] if record.exc_info else None
        self.made.append(self.format(record) + (report(error) if error else ""))


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Reports]:
    """Search every log record after each test."""
    SIGNED.clear()
    caplog.set_level(logging.DEBUG)
    reports = Reports()
    logging.getLogger().addHandler(reports)
    yield reports
    logging.getLogger().removeHandler(reports)
    assert [] == leaks("".join(reports.made))


def session(url: str, scheme: Any = PAIRS, **settings: Any) -> Session:
    """Return a session; the variables of this frame are gone when it returns."""
    profile = settings.pop("profile", GATE)
    return connect(url, profile=evolve(profile, signature=scheme), **{"credentials": keys(), "retry": FAST, **settings})


async def failure(pay: Session, ask: Ask, kind: type[BaseException] = errors.PayasyncError) -> BaseException:
    """Return the error with which a call ends, while asyncio logs each step with its arguments."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0
    async with pay:
        with pytest.raises(kind) as caught:
            await ask(pay)
    assert SONG.encode() not in pickle.dumps(caught.value)
    return caught.value


HALF: Final = Answer(answer().raw[:-1])
FAILING: Final = {
    "reset": RESET,
    "closed": GONE,
    "not HTTP": Answer(b"SSH-2.0-OpenSSH_9.9\r\n", then="close"),
    "bad header": Answer(b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n", then="close"),
    "endless header": Answer(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", then="close"),
    "bad length": Answer(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", then="close"),
    "cut": Answer(HALF.raw, then="close"),
    "bad chunk": Answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", then="close"),
    "too large": answer(200, b"x" * 2000),
    "cut gzip": answer(200, gzip.compress(b"{}")[:-1], ("Content-Encoding", "gzip")),
    "endless gzip": answer(200, gzip.compress(b" " * 2000), ("Content-Encoding", "gzip")),
    "malformed": answer(200, b"<html>"),
    "redirect": answer(302, b"", ("Location", "https://elsewhere.example")),
    "unauthorized": answer(401, b"{}", ("WWW-Authenticate", "Bearer")),
    "too many": answer(429, b"{}", ("Retry-After", "99")),
    "broken": answer(503),
}


async def fails_before(call: Call, send: Send) -> Reply:
    """Be a layer that fails before it sends."""
    del send, call
    return json.loads("{")  # type: ignore[no-any-return] # it raises


async def fails_after(call: Call, send: Send) -> Reply:
    """Be a layer that fails after it has sent."""
    await send(call)
    raise ValueError("a bug")


async def hangs(call: Call, send: Send) -> Reply:
    """Be a layer that waits for ever."""
    await send(call)
    await asyncio.Event().wait()
    raise AssertionError


async def forgets(call: Call, send: Send) -> Any:
    """Be a layer that returns the response's body instead of the reply."""
    return (await send(call)).body


LAYERS: Final = (fails_before, fails_after, hangs, forgets)
SIGNED_ANSWER: Final = json.dumps({"state": "OPEN", "nonceStr": "5", "sign": SERVICE_SIGNATURE}).encode()
FORGED: Final = evolve(
    GATE,
    answer=AnswerShape(signature="sign", order_status="state", refund_status="state", subscription_status="state"),
)
FAILED: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    **{name: ({"otherwise": failing}, {"max_response_bytes": 1000}) for name, failing in FAILING.items()},
    "forged": ({"otherwise": answer(200, SIGNED_ANSWER)}, {"profile": FORGED}),
    "read timeout": ({"otherwise": SILENT}, {"timeouts": Timeouts(read=0.02)}),
    "total timeout": ({"otherwise": SILENT}, {"timeouts": Timeouts(total=1.0)}),
    **{layer.__name__: ({}, {"middleware": [layer], "timeouts": Timeouts(total=1.0)}) for layer in LAYERS},
}
"""By what fails, the settings of the service and of the session."""
CASES: Final = [
    *(pytest.param(PAIRS, name, id=name) for name in FAILED),
    *(pytest.param(IN_HEADER, name, id=f"{name}, signed in a header") for name in ("reset", "cut", "broken")),
    *(pytest.param(Recording(), name, id=f"{name}, own scheme", marks=pytest.mark.long) for name in FAILED),
]


@some_asks
@pytest.mark.parametrize(("scheme", "name"), CASES)
async def test_failed_calls(scheme: Any, name: str, ask: Ask) -> None:
    """No error shows a sent request, or the headers that sign it, whatever fails, including a user's own layer."""
    server, settings = FAILED[name]
    with Recorder(**server) as service:
        error = await failure(session(service.url, scheme, **settings), ask, Exception)

    assert service.requests or "middleware" in settings
    assert scheme is not IN_HEADER or all(request.header("X-Sign") for request in service.requests)
    assert [] == leaks(report(error), service)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@some_asks
async def test_unsent(ask: Ask, scheme: Any) -> None:
    """No error shows a signed request that was not sent: its unused nonce could be replayed."""
    times = Timeouts(connect=0.02)
    with Recorder(listening=False) as refusing, Recorder(tls=server_tls()) as untrusted, Recorder() as silent:
        secure = silent.url.replace("http:", "https:")
        sessions = [
            session(refusing.url, scheme),
            session(untrusted.url, scheme),
            session("https://no-such-host.invalid:1", scheme, timeouts=times),
            session(secure, scheme, timeouts=times, tls=trusting_tls()),
        ]
        raised = [await failure(pay, ask, errors.NotSentError) for pay in sessions]

    assert [] == [leak for error in raised for leak in leaks(report(error))]
    assert (scheme is PAIRS) == (SIGNED == [])


@every_ask
async def test_waiting_for_a_connection(ask: Ask) -> None:
    """No error shows a signed request that waited for a connection of the pool."""
    with Recorder(otherwise=SILENT) as service:
        async with session(service.url, Recording(), max_connections=1) as pay:
            first = [asyncio.create_task(ASKS[name](pay)) for name in ("refund", "read")]
            await asyncio.to_thread(service.wait_for_request)
            await asyncio.to_thread(service.wait_for_request)
            with pytest.raises(errors.NotSentError) as caught:
                await ask(pay.with_options(timeouts=Timeouts(total=0.05)))
            for each in first:
                each.cancel()
            await asyncio.gather(*first, return_exceptions=True)

    assert [] == leaks(report(caught.value), service)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@some_asks
async def test_cancelled(ask: Ask, scheme: Any) -> None:
    """A call that is cancelled before its first step, or at any step, also by a timeout, does not show the request."""
    waits = asyncio.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, Retrying):
            waits.set()

    patient = {"retry": RetryPolicy(base_delay=30, max_delay=30), "on_event": on_event}
    with Recorder() as secure, Recorder(otherwise=HALF) as service, Recorder(listening=False) as refusing:
        https = session(secure.url.replace("http:", "https:"), scheme, tls=trusting_tls())
        unbegun = await cancelled(session(service.url, scheme), ask)
        raised = [
            await cancelled(https, ask, asyncio.to_thread(secure.wait_for_connection)),
            await cancelled(session(service.url, scheme), ask, asyncio.to_thread(service.wait_for_request)),
            await cancelled(session(refusing.url, scheme, **patient), ask, waits.wait()),
        ]
        async with session(service.url, scheme) as pay:
            with pytest.raises(TimeoutError) as late:
                async with asyncio.timeout(0.05):
                    await ask(pay)
        raised.append(late.value)

    assert service.requests
    assert [] == leaks(report(unbegun, deep=False) + "".join(map(report, raised)), service)


async def cancelled(pay: Session, ask: Ask, reached: Awaitable[object] | None = None) -> BaseException:
    """Return the error of a call that is cancelled once it has reached a point, or before its first step."""
    async with pay:
        flying = asyncio.create_task(ask(pay))
        if reached:
            await reached
        flying.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await flying
    return caught.value


@every_ask
async def test_closed_sessions(ask: Ask) -> None:
    """A session that is closed before or during a call does not show the request."""
    raised: list[BaseException] = []
    with Recorder(otherwise=SILENT) as service:
        pay = session(service.url, Recording())
        flying = await begin(ask(pay), service)
        await pay.aclose()
        for each in (flying, ask(pay)):
            with pytest.raises(errors.PayasyncError) as caught:
                await each
            raised.append(caught.value)

    assert isinstance(raised[1], errors.SessionClosedError)
    assert [] == leaks("".join(map(report, raised)), service)


@some_asks
@pytest.mark.parametrize("failing", [RESET, None], ids=["reset", "unsent"])
async def test_reports_made_by_a_layer(failing: Answer | None, ask: Ask) -> None:
    """An error that reaches a user's layer shows nothing of the layers below it, and none reaches `on_event`."""
    reports, handled = list[str](), list[BaseException | None]()

    def on_event(event: Event) -> None:
        handled.append(sys.exception())
        raise ValueError(type(event).__name__)

    async def reporting(call: Call, send: Send) -> Reply:
        try:
            return await send(call)
        except errors.PayasyncError as error:
            reports.append(report(error))
            raise

    with Recorder(otherwise=failing, listening=failing is not None) as service:
        await failure(session(service.url, Recording(), middleware=[reporting, reporting], on_event=on_event), ask)

    assert len(reports) > 1
    assert {None} == set(handled)
    assert [] == leaks("".join(reports), service)


@pytest.mark.parametrize("ask", [ASKS["refund"], ASKS["subscription"]], ids=["refund", "subscription"])
async def test_on_event_that_fails_while_a_call_is_cancelled(ask: Ask, logged: Reports) -> None:
    """The log of an `on_event` error shows the cancellation behind it, but nothing of the call."""

    def on_event(event: Event) -> None:
        raise ValueError(type(event).__name__)

    with Recorder(otherwise=SILENT) as service:
        async with session(service.url, Recording(), on_event=on_event) as pay:
            flying = await begin(ask(pay), service)
            flying.cancel()
            await asyncio.wait([flying])

    assert [] == leaks("".join(logged.made), service)
    assert any("CancelledError" in each for each in logged.made)


class Failing(Recording):
    """A merchant's own scheme that fails after signing, with an error that holds the key."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign, and fail."""
        raise ValueError(super().sign(fields, path=path, key=key)) from KeyError(key.reveal())


@every_ask
async def test_failing_scheme(ask: Ask) -> None:
    """The error of a merchant's own scheme is not passed on."""
    with Recorder() as service:
        error = await failure(session(service.url, Failing()), ask, errors.NotSentError)

    assert [] == leaks(report(error))
    assert SIGNED


def subscribe(**others: Any) -> Ask:
    """Return a function that makes a subscription with these arguments changed."""
    return lambda pay: pay.subscriptions.create(**{**SUBSCRIPTION, **others})


FREE: Final[dict[str, Any]] = {**SUBSCRIPTION, "amount": 0}
REFUSED: Final[dict[str, Ask]] = {
    "unsignable": subscribe(customer={**CUSTOMER, "note": "a=b&c"}),
    "unsendable": subscribe(customer={**CUSTOMER, "size": float("nan")}),
    "text": subscribe(customer=f"{CUSTOMER['email']}\ud800"),
    "wire name left open": lambda pay: pay.subscriptions.update("S1", customer=CUSTOMER),
    "amount": subscribe(amount=0),
    "timeout": subscribe(timeout=0),
    "object": lambda pay: pay.send(CreateSubscription(**FREE)),
    "update": lambda pay: pay.send(UpdateSubscription(subscription_id="", customer=CUSTOMER)),
    "list": subscribe(customer=[CUSTOMER["email"]]),
    "fields": lambda pay: pay.request("POST", "/plan", fields={"customer": {**CUSTOMER, "size": float("inf")}}),
}


async def check(pay: Session) -> None:
    """Let a session check a request that its profile cannot send."""
    pay.check(CreateSubscription(**SUBSCRIPTION))


async def test_refused_arguments() -> None:
    """The error of a refused argument, a missing key or `check` shows no detail of a customer, and no object."""
    with Recorder() as service:
        raised = [await failure(session(service.url), ask) for ask in REFUSED.values()]
        keyless = [session(service.url, credentials=Credentials("M1")) for _ in ASKS]
        raised += [await failure(pay, ask) for pay, ask in zip(keyless, ASKS.values(), strict=True)]
        raised.append(await failure(session(service.url, profile=evolve(GATE, fields={})), check))

    assert [] == leaks("".join(map(report, raised)))
    assert [] == service.connections
    assert not any(isinstance(getattr(each, "value", None), Mapping) for each in raised)


@pytest.mark.parametrize("ask", [ASKS[name] for name in ("refund", "subscription", "shielded")])
async def test_journalled_writes(ask: Ask, tmp_path: Path) -> None:
    """With a journal, the errors of two equal writes show no request, and neither does that of a closed journal."""
    for place, failing in enumerate((RESET, SILENT, None)):
        with Recorder(otherwise=failing, listening=failing is not None) as service:
            async with SqliteJournal(tmp_path / f"{place}.db") as journal:
                settings: dict[str, Any] = {"journal": journal, "timeouts": Timeouts(total=0.05)}
                raised = [await failure(session(service.url, Recording(), **settings), ask) for _ in range(2)]
            sent_before = len(service.requests)
            raised.append(await failure(session(service.url, **settings), ask))

        assert [] == leaks("".join(map(report, raised)), service)
        assert sent_before == len(service.requests)


async def test_keep_with_a_bug(tmp_path: Path) -> None:
    """The report of a failing `keep` ends at the user's own frame."""

    def keep(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        del arguments
        raise ValueError(operation)

    with Recorder() as service:
        async with SqliteJournal(tmp_path / "pay.db", keep=keep) as journal:
            error = await failure(session(service.url, journal=journal), ASKS["subscription"], ValueError)

    assert [] == leaks(report(error))
    assert "keep" == list(frames_of(error))[-1].f_code.co_name


async def test_queued_writes(tmp_path: Path) -> None:
    """The journal does not queue a customer's details, and a queued refund that fails shows nothing."""
    with Recorder(otherwise=RESET) as service:
        async with SqliteJournal(tmp_path / "pay.db") as journal:
            with pytest.raises(errors.InvalidArgumentError) as refused:
                await journal.add(CreateSubscription(**SUBSCRIPTION), merchant="M1")
            queued = await journal.add(CreateRefund(**REFUND), merchant="M1")
            error = await failure(session(service.url, Recording(), journal=journal), lambda pay: pay.execute(queued))

    assert isinstance(error, errors.OutcomeUnknownError)
    assert [] == leaks(report(refused.value) + report(error), service)


async def test_waiting_for_a_state() -> None:
    """After a failed `wait`, the error holds the last response, and no frame shows it."""
    with Recorder(otherwise=answer(200, SIGNED_ANSWER)) as service:
        pay = session(service.url, Recording())
        error: Any = await failure(pay, lambda pay: pay.orders.wait("T1", until="paid", timeout=1.0))

    assert "OPEN" == error.response.data["state"]
    assert [] == leaks(report(error), service)


async def test_reconciling() -> None:
    """`reconcile` shows neither the signature of its query nor that of the response."""
    with Recorder([RESET], otherwise=answer(200, SIGNED_ANSWER)) as service:
        async with session(service.url, Recording(), retry=RetryPolicy(attempts=1, quota=0)) as pay:
            with pytest.raises(errors.OutcomeUnknownError) as lost:
                await ASKS["refund"](pay)
            lost.value.add(asked={"totalAmt": 1})
            shape = evolve(GATE, answer=AnswerShape(data="nothing", order_status="state"))
            asking = session(service.url, Recording(), profile=shape)
            error = await failure(asking, lambda pay: pay.reconcile(lost.value))

    assert [] == leaks(report(error), service)


async def test_bulk() -> None:
    """Neither the errors of the results, nor an error that ends the loop, show a request."""
    requests = [CreateSubscription(**SUBSCRIPTION) for _ in range(5)]
    with Recorder(otherwise=RESET) as service:
        async with session(service.url, Recording()) as pay:
            results = [result async for result in pay.bulk(requests, limit=2)]
        raised = [getattr(result, "error") for result in results]  # noqa: B009 - each result has one
        raised.append(await failure(session(service.url, middleware=[fails_before]), bulked, ValueError))
        raised.append(await failure(session(service.url, credentials=Credentials("M1")), bulked))

    assert 7 == len(raised)
    assert [] == leaks("".join(map(report, raised)), service)


async def bulked(pay: Session) -> None:
    """Send several requests; the tests' frame holds none of them."""
    async for _ in pay.bulk(CreateSubscription(**SUBSCRIPTION) for _ in range(3)):
        pass


NOTIFIED: Final = Profile(
    notification=NotificationShape(verification="body", signature="sign", time="at"), signature=PAIRS
)
LOOKS: Final[dict[str, Callable[[], object]]] = {
    "verify": lambda: verify(SIGNED_ANSWER, {}, profile=NOTIFIED, credentials=keys()),
    "parse": lambda: parse(SIGNED_ANSWER + b"{", {}, profile=NOTIFIED),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_notifications(look: Callable[[], object]) -> None:
    """The error of a refused notification does not show it, because it may be genuine and could be replayed."""
    with pytest.raises((errors.InvalidSignatureError, errors.InvalidArgumentError)) as caught:
        look()

    assert [] == leaks(report(caught.value))


TEXT: Final = "a text of a customer's"


@pytest.mark.parametrize("one", TEN, ids=lambda one: one.name)
async def test_texts_of_customers(one: TenCall) -> None:
    """No error shows a field of `extra`, although frames of payasync held it."""

    async def ask(pay: Session) -> None:
        await one.call(pay, extra={"payer": TEXT})

    with Recorder(otherwise=RESET) as service:
        error = await failure(connect(service, profile=DOCUMENTED), ask)

    assert TEXT in unquote_plus(service.requests[0].raw.decode())
    assert TEXT not in report(error)


async def test_own_frames_stay() -> None:
    """A report shows the user's own frames, and no frame of a library below them."""
    with Recorder() as service:
        error = await failure(session(service.url, middleware=[fails_before]), ASKS["read"], ValueError)
    names = [frame.f_code.co_name for frame in frames_of(error)]

    assert ["failure", "_send", "fails_before"] == names
    assert "Expecting property name" in str(error)


async def while_handling(pay: Session) -> None:
    """Make a call that fails while an error is handled."""
    try:
        json.loads("{")
    except ValueError:
        await pay.orders.query("T1")


async def test_what_the_caller_handles_stays() -> None:
    """An error that the caller was already handling keeps its traceback."""
    pay = session("https://pay.example.com", credentials=Credentials("M1"))
    error = await failure(pay, while_handling, errors.ConfigurationError)

    assert isinstance(error.__context__, ValueError)
    assert "raw_decode" == list(frames_of(error.__context__))[-1].f_code.co_name


async def test_a_bug_of_ours_can_be_found() -> None:
    """An error that a bug of payasync causes has a note of where it was raised."""
    with Recorder() as service:
        pay = session(service.url)
        del vars(pay)["_options"]  # a bug
        error = await failure(pay, lambda pay: pay.send(CancelSubscription(subscription_id="S1")), AttributeError)

    assert ["session.py"] == [note.rpartition("/")[2].partition(":")[0] for note in error.__notes__]


def test_every_dependency_is_a_library() -> None:
    """Every dependency counts as a library, whose frames are removed."""
    import tomllib  # noqa: PLC0415 - for this test alone

    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["postgres"], *extras["procrastinate"], *extras["rsa"]]

    assert set() == {name.partition(">")[0].partition("[")[0] for name in wanted} - LIBRARIES
