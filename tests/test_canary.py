"""Canaries: each key of a merchant is searched for wherever it could have been recorded.

The canaries are looked up in a module's dict, within functions that have returned, or by expressions that no local
variable holds. So the tests' own frames hold none, and every frame of a traceback is searched with its variables,
those of payasync and of aiohttp. `test_error_reports` searches the errors of calls in the same way.
"""

import asyncio
import base64
import logging
import pickle
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import product
from typing import Any, Final, cast
from urllib.parse import quote

import pytest
from attrs import evolve

from payasync import (
    AnswerShape,
    Auth,
    Call,
    Credentials,
    Event,
    Parameter,
    PayasyncError,
    Profile,
    Reply,
    Response,
    Send,
    Session,
    SortedPairs,
)
from payasync.strict_json import dumps
from tests.foreign.recorder import RESET, Recorder, answer
from tests.reports import report
from tests.sessions import call_once, connect, create, query

CANARIES: Final = {
    "secret_key": "sk_canaryTweetSecretKey01",
    "public_key": "pk_canaryTweetPublicKey02",
    "signing_key": "canaryTweetSigningKey03",
    "service_keys": "canaryTweetServiceKey04",
    "notification_keys": "whsec_canaryTweetNotificationSecret005",
}
SONG: Final = "canaryTweet"
"""What all of them have in common, also if only a part of one were shown."""
GATE: Final = Profile(
    bearer=("payments.create", "orders.query", "payments.status"),
    signed=("orders.place", "orders.query", "orders.close", "refunds.create", "payments.status"),
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
    payment_status=Parameter("outTradeNo"),
)

Ask = Callable[[Session], Coroutine[Any, Any, Response]]


def keys(**others: Any) -> Credentials:
    """Return credentials with every canary."""
    given: dict[str, Any] = {**CANARIES, **others}
    return Credentials("M1", **given)


def session(service: Recorder, **settings: Any) -> Session:
    """Return a session that knows every canary."""
    return connect(service, **{"credentials": keys(), "profile": GATE, **settings})


async def get(pay: Session) -> Response:
    """Make a signed GET with Bearer."""
    return await pay.payments.status("T1")


ASKS: Final[tuple[Ask, ...]] = (create, query, get)


def written(error: BaseException) -> dict[str, str]:
    """Return all texts that an error can be recorded as, by name."""
    return {
        "str": str(error),
        "repr": repr(error),
        "facts": repr(vars(error)),
        "pickle": pickle.dumps(error).decode("latin-1"),
        "traceback": report(error, deep=False),
    }


def singing(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the texts that contain a canary."""
    return [name for name, text in texts.items() if SONG in text]


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Collect the records of all loggers, and search them after each test."""
    caplog.set_level(logging.DEBUG)
    for name in ("payasync", "aiohttp.client", "aiohttp.internal", "asyncio"):
        caplog.set_level(logging.DEBUG, name)
    yield caplog
    for record in (*caplog.get_records("setup"), *caplog.get_records("call")):
        assert SONG not in caplog.handler.format(record)
        assert SONG not in repr(vars(record))


def loud() -> None:
    """Make asyncio log each step, with the arguments of its calls."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0


async def failure(service: Recorder, ask: Ask, **settings: Any) -> PayasyncError:
    """Return the error with which a call fails."""
    loud()
    async with session(service, **settings) as pay:
        with pytest.raises(PayasyncError) as caught:
            await ask(pay)
    return caught.value


KEYED: Final = evolve(
    GATE, auth=Auth(header="X-Auth", value="Basic {basic}", headers={"X-Keys": "{public_key}/{secret_key}"})
)
"""A service that wants both keys, in headers of its own."""


def basic() -> str:
    """Return both keys in base64."""
    return base64.b64encode(f"{CANARIES['public_key']}:{CANARIES['secret_key']}".encode()).decode()


async def test_keys_travel_in_the_headers_that_the_profile_names() -> None:
    """Keys are sent in the headers that the profile names, by default the secret key alone, and nowhere else."""
    received = list[str]()
    for profile in (GATE, KEYED):
        with Recorder() as service:
            async with session(service, profile=profile) as pay:
                for ask in ASKS:
                    await ask(pay)
                await pay.orders.close("T1")
        received.append(service.received.decode())
    usual, keyed = received

    assert 3 == usual.count(SONG) == usual.count(f"Authorization: Bearer {CANARIES['secret_key']}\r\n")
    both = f"X-Keys: {CANARIES['public_key']}/{CANARIES['secret_key']}\r\n"
    assert 6 == keyed.count(SONG) == 2 * keyed.count(both)
    assert 3 == keyed.count(basic()) == keyed.count(f"X-Auth: Basic {basic()}\r\n")
    assert "Authorization" not in keyed


@pytest.mark.parametrize("profile", [GATE, KEYED], ids=["usual", "own headers"])
async def test_nothing_shows_a_key(profile: Profile) -> None:
    """Sessions, credentials, profiles, calls, events, responses and errors show no key, not even in base64."""
    loud()
    seen: list[object] = []

    async def layer(call: Call, send: Send) -> Reply:
        seen.append(call)
        reply = await send(call)
        seen.append(reply)
        return reply

    with Recorder([answer(), answer(), RESET]) as service:
        async with session(service, profile=profile, middleware=[layer], on_event=seen.append) as pay:
            copy = pay.for_merchant(keys())
            seen += [await create(copy), await query(copy)]
            with pytest.raises(PayasyncError) as caught:
                await create(pay)
            seen += [caught.value, pay, copy, *vars(pay).values(), *vars(pay.payments).values(), keys()]
            seen += [pay.profile, pay.profile.auth, profile.to_toml(), pickle.dumps(profile)]
            seen += vars(vars(pay)["_transport"]).values()
            texts = [*(f"{each} {each!r}" for each in seen), *written(caught.value).values()]

    assert 30 < len(texts)
    assert [] == [text for text in texts if SONG in text or basic()[:24] in text]


async def test_events_and_responses_pickle_without_a_key() -> None:
    """Pickled events and responses hold no key; a session and its credentials do not pickle."""
    events: list[Event] = []
    with Recorder([answer(), RESET]) as service:
        async with session(service, on_event=events.append) as pay:
            response = await query(pay)
            with pytest.raises(PayasyncError):
                await create(pay)

    assert 3 == len(events)
    assert SONG.encode() not in pickle.dumps([*events, response])
    for kept in (keys(), pay):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            pickle.dumps(kept)


def repeats() -> list[bytes]:
    """Return bodies in which a service repeats the keys that it received: in JSON, escaped, and in no JSON."""
    sent = f"bad Authorization: Bearer {CANARIES['secret_key']}, {CANARIES['public_key']}, Basic {basic()}"
    escaped = dumps({"message": sent}).replace(b"canary", b"c\\u0061nary")
    return [dumps({"message": sent, sent: [sent]}), escaped, sent.encode()]


async def test_key_that_the_service_repeats() -> None:
    """If the service repeats the keys, neither its response nor the error of the call shows them.

    The public key is no secret, and stays.
    """
    loud()
    profile, public = evolve(KEYED, answer=AnswerShape(message="message")), CANARIES["public_key"]
    for place, status in product(range(3), (200, 400, 500)):
        with Recorder([answer(status, repeats()[place], ("X-Echo", CANARIES["secret_key"]))]) as service:
            async with session(service, profile=profile) as pay:
                try:
                    response, texts = await query(pay), dict[str, str]()
                except PayasyncError as error:
                    response, texts = cast("Response", error.response), written(error)

        texts |= {"document": str(response.document), "body": repr(response.body), "headers": str(response.headers)}
        texts |= {"pickle of the response": pickle.dumps(response).decode("latin-1")}
        secret = {name: text.replace(public, "") for name, text in texts.items()}
        assert [] == [name for name, text in secret.items() if SONG in text or basic()[:24] in text]
        assert f"Bearer ***, {public}, Basic ***".encode() in response.body


WRITTEN: Final[dict[str, tuple[str, bytes, bytes]]] = {
    "in an address": ("sk+canary/Tweet==", b'{"at": "/?key=sk%2Bcanary%2FTweet%3D%3D"}', b'{"at":"/?key=***"}'),
    "base64 in an address": (
        "sk_canary~~Tweet???",
        f'{{"at": "/?{quote(base64.b64encode(b"sk_canary~~Tweet???:").decode(), safe="")}"}}'.encode(),
        b'{"at":"/?***"}',
    ),
    "JSON in a text": ("sk/canary/Tweet", rb"bad {sk\/canary\/Tweet}", b"bad {***}"),
    "JSON in JSON": ("sk/canary/Tweet", rb'{"raw": "{sk\\/canary\\/Tweet}"}', b'{"raw":"{***}"}'),
    "number": ("1234567890123456", b'{"n": 1234567890123456, "m": 1, "b": true}', b'{"n":"***","m":1,"b":true}'),
    "a quote": ('sk"canary\\Tweet', rb'{"at": "sk\"canary\\Tweet"}', b'{"at":"***"}'),
    "beside digits": ("sk_canary_Tweet", b'["sk_canary_Tweet",%b]' % (b"7" * 5000), b'["***",%b]' % (b"7" * 5000)),
}
"""A secret key, what the service says, and what is left of it."""


async def test_key_that_the_service_writes_in_another_form() -> None:
    """A key is also masked percent-encoded, with an escaped slash, and as a JSON number.

    One of a few characters, or digits, such as `test` or an order number, does not change a response.
    """
    auth = evolve(GATE, auth=Auth(value="Basic {basic_user}"))
    for key, body, masked in WRITTEN.values():
        with Recorder([answer(400, body, ("X-Echo", quote(key, safe="")))]) as service:
            error = await failure(service, query, profile=auth, credentials=keys(secret_key=key))
        response = cast("Response", error.response)

        assert (masked, "***") == (response.body, response.headers["X-Echo"])
    for key in ("test", "a/+b", "12345678", "123456789012345"):
        said = rf'"test", "a\/+b", "{quote(key, safe="")}", "{key}", 12345678, 123456789012345'
        body = f'{{"said": [{said}]}}'.encode()
        response = await call_once(query, answer(200, body), credentials=keys(secret_key=key), profile=GATE)
        assert body == response.body


async def test_what_is_no_secret_stays() -> None:
    """The merchant's number and public key are not masked, because a number or an address may hold them."""
    number = "shop-20261124"
    body = dumps({"outTradeNo": number, "url": f"https://pay.example.com/{number}/1"})
    known = Credentials(number, secret_key=CANARIES["secret_key"], public_key=number, signing_key="signing key of M1")
    for given in (Auth(value="{public_key}"), Auth(value="Basic {basic}"), KEYED.auth):
        auth = evolve(given, headers={**given.headers, "X-Merchant": "{merchant_id}"})
        profile, echo = evolve(GATE, auth=auth), answer(200, body, ("X-Merchant", number))
        response = await call_once(lambda pay: pay.orders.query(number), echo, profile=profile, credentials=known)

        assert (body, number) == (response.body, response.headers["X-Merchant"])


REFUSED: Final[dict[str, Callable[[], object]]] = {
    "no merchant": lambda: Credentials("", **dict(CANARIES.items())),  # texts become secrets
    "merchant of another type": lambda: Credentials(1, **dict(CANARIES.items())),  # type: ignore[arg-type] # as above
    "lone surrogate": lambda: Credentials("M1", secret_key=f"{CANARIES['secret_key']}\ud800"),
    "lone surrogate among several": lambda: Credentials("M1", service_keys=[f"{CANARIES['service_keys']}\ud800"]),
    "bytes": lambda: Credentials("M1", secret_key=CANARIES["secret_key"].encode()),  # type: ignore[arg-type] # a mistake
    "environment": lambda: Credentials.from_env(environ(PAYASYNC_MERCHANT_ID="")),
    "environment says it twice": lambda: Credentials.from_env(environ(PAYASYNC_SIGNING_KEY_FILE="/nowhere")),
    "environment without an address": lambda: Session.from_env(environ()),
    "environment with a bad profile": lambda: Session.from_env(environ(PAYASYNC_PROFILE="/nowhere")),
    "session without a profile": lambda: connect("https://pay.example.com", credentials=keys(), profile=None),
}


def environ(**others: str) -> dict[str, str]:
    """Return an environment with every canary."""
    return {"PAYASYNC_MERCHANT_ID": "M1"} | {f"PAYASYNC_{name.upper()}": key for name, key in CANARIES.items()} | others


async def test_refused_credentials() -> None:
    """If credentials or a session are refused, no error and no frame of payasync shows a key.

    A key that would split a header is refused before anything is sent.
    """
    for name, make in REFUSED.items():
        with pytest.raises(PayasyncError) as caught:
            make()

        assert [] == singing(written(caught.value)), name
    for end in ("\r\nX-Evil: 1", "ÿ", " "):
        with Recorder() as service:
            error = await failure(service, create, credentials=keys(secret_key=f"{CANARIES['secret_key']}{end}"))

        assert [] == singing(written(error))
        assert (False, []) == (error.sent, service.connections)
