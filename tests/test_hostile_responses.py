"""What a hostile response leaves behind: short printable texts in errors, events, logs, spans, journals and pickles."""

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from payasync import (
    Accept,
    AnswerShape,
    Event,
    InvalidArgumentError,
    Parameter,
    PayasyncError,
    Profile,
    ResultCodes,
    SortedPairs,
)
from payasync.errors import SHOWN, clean, describe_error, plain
from payasync.integrations.otel import OpenTelemetry
from payasync.journal import SqliteJournal
from tests.foreign.recorder import Recorder, answer
from tests.profile.refusal import refusal
from tests.sessions import call_once, connect, create, query

FILLER: Final = "ж"
"""A letter that no words of payasync have."""
ODD: Final = (
    "\r\n2027-01-31 INFO paid\r\n\x1b[2J\x1b]0;\x07\x08\x80\x85\x9b\x9f\x7f\u2028\u2029"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
)
"""Line ends, terminal sequences, C1, separators and overrides."""
HOSTILE: Final = {"odd": FILLER + ODD, "long": FILLER * 20_000, "all": f"{ODD}{FILLER}" * 1_000}
REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 100}
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
CODED: Final = Profile(
    signature=SCHEME,
    answer=AnswerShape(code="code", ok=("OK",), message="why", refund_status="state"),
    codes=ResultCodes(not_executed=("NO",)),
    refund_status=Parameter("outRefundNo"),
)
LIVE: Final = evolve(CODED, answer=evolve(CODED.answer, must={"live": True}))
SIGNED: Final = Profile(signature=SCHEME, answer=AnswerShape(signature="sign", refund_status="state"))
PLACES: Final[dict[str, tuple[Profile, int, Callable[[str], object]]]] = {
    "message": (CODED, 400, lambda text: {"code": "NO", "why": text}),
    "message in doubt": (CODED, 503, lambda text: {"code": "BUSY", "why": text}),
    "code": (CODED, 418, lambda text: {"code": text}),
    "value": (CODED, 200, lambda text: {"code": "OK", "outRefundNo": text}),
    "value of must": (LIVE, 200, lambda text: {"code": "OK", "live": text}),
    "name": (SIGNED, 200, lambda text: {text: 1.5, "sign": "00"}),
}
"""By what a text of the service is, the profile, the status and the document."""


def words_of(error: BaseException) -> Iterator[str]:
    """Yield the texts of an error, but those of its response."""
    yield str(error)
    yield repr(error.args[0])[1:-1]
    for name in ("reason", "message", "code", "objection"):
        value: Any = getattr(error, name, None)
        yield from words_of(value) if isinstance(value, BaseException) else [str(getattr(value, "words", value))]


def words_of_span(span: ReadableSpan) -> Iterator[str]:
    """Yield the texts of a span and of its events."""
    yield from (span.name, str(span.status.description))
    attributes = [span.attributes, *(each.attributes for each in span.events)]
    yield from (str(value) for each in attributes for value in (each or {}).values())


async def left_behind(
    caplog: pytest.LogCaptureFixture, path: Path, profile: Profile, status: int, document: object
) -> dict[str, list[str]]:
    """Return the texts in each channel after a refund with this response."""
    caplog.set_level(logging.DEBUG, "payasync")
    exporter, tracers, events = InMemorySpanExporter(), TracerProvider(), list[Event]()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    said = answer(status, json.dumps(document, ensure_ascii=False).encode())
    watched: dict[str, Any] = {"middleware": [OpenTelemetry(tracer_provider=tracers)], "on_event": events.append}
    with Recorder([said] * 4) as service:
        async with (
            SqliteJournal(path / "pay.db") as journal,
            connect(service, profile=profile, journal=journal, **watched) as pay,
        ):
            with pytest.raises(PayasyncError) as caught:
                await pay.refunds.create(**REFUND)
            kept = await journal.get(1)
    assert kept
    return {
        "error": list(words_of(caught.value)),
        "pickle": list(words_of(pickle.loads(pickle.dumps(caught.value)))),  # noqa: S301 - made in the same line
        "events": [str(getattr(each, "reason", "")) for each in events] + list(map(str, events)),
        "log": [text for each in caplog.records for text in (each.getMessage(), str(getattr(each, "reason", "")))],
        "spans": [text for each in exporter.get_finished_spans() for text in words_of_span(each)],
        "journal": [kept.reason],
    }


@pytest.mark.parametrize("place", PLACES)
async def test_text_of_the_service_is_short_and_printable(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever text a service sends, each channel holds 200 printable characters of it at most."""
    profile, status, document = PLACES[place]
    for kind, hostile in HOSTILE.items():
        caplog.clear()
        (folder := tmp_path / kind).mkdir()
        channels = await left_behind(caplog, folder, profile, status, document(hostile))

        assert all(channels.values())
        for channel, texts in channels.items():
            long = [text[:300] for text in texts if not text.isprintable() or text.count(FILLER) > SHOWN]
            assert [] == long, (kind, channel)
        assert any(FILLER in text for text in channels["error"])


@frozen
class Dated:
    """A class that a response is read as."""

    paid: date


async def test_data_that_does_not_fit_a_class() -> None:
    """The error of `Response.to` quotes 200 printable characters at most."""
    for text in HOSTILE.values():
        body = json.dumps({"code": "OK", "paid": text}, ensure_ascii=False).encode()
        response = await call_once(query, answer(200, body), profile=CODED)
        with pytest.raises(InvalidArgumentError) as caught:
            response.to(Dated)

        texts = words_of(caught.value)
        assert [] == [each[:300] for each in texts if not each.isprintable() or each.count(FILLER) > SHOWN]


async def test_code_keeps_its_type_if_it_can_be_shown() -> None:
    """A result code is a text or an integer, as it was received, unless it is too long or does not print."""
    codes: dict[object, object] = {"NO": "NO", 7: 7, "N\x1bO": "N?O", "9" * 201: f"{'9' * 199}…"}
    for code, kept in {**codes, 10**300: f"1{'0' * 198}…"}.items():
        with pytest.raises(PayasyncError) as caught:
            await call_once(query, answer(401, json.dumps({"code": code}).encode()), profile=CODED)
        error: Any = caught.value

        assert (type(kept), kept) == (type(error.code), error.code)
        assert {"code": code} == error.response.document


def test_cleaned_text() -> None:
    """White space becomes one space, and what does not print `?`; letters of any script stay."""
    assert "T?1 Zoë 日本" == clean("T\x071\r\n\tZoë\u3000日本") == clean("T\u202e1\u2029Zoë 日本")
    assert "a  b?" == plain("a  b\ud800")
    assert ("x" * 200, "x" * 199 + "…") == (clean("x" * 200), clean("x" * 201))
    assert "ValueError: a b?" == describe_error(ValueError("a\nb\x1b"))


ALLOWED: Final = (
    *("https://pay.example/p?no=1#top", "HTTPS://PAY.EXAMPLE", "https://pay.example:8443/p@q?a=b@c"),
    *("https://[2001:db8::1]/p", "https://käse.example/ä", "upi://pay?pa=me@bank"),
    *("http://127.0.0.1:8080/p", "http://localhost/p", "http://[::1]/p"),
)
"""Addresses to which a browser may be sent, if `upi` is listed besides `https`."""
NOT_ALLOWED: Final = (
    *("http://pay.example/p", "http://127.0.0.1.pay.example/p", "http://127.0.0.1@pay.example/p"),
    *("weixin://wxpay/bizpayurl?pr=1", "file:///etc/passwd", "vbscript:x", "blob:https://pay.example/1"),
    *("javascript:alert(1)", "JavaScript://pay.example/%0aalert(1)", "java\tscript:alert(1)", "data:text/html,x"),
    *("//pay.example/p", "/p", "p", "", "https:pay.example", "https:/pay.example", "https:///pay.example"),
    *("https://", "https://:443/p", "https://pay.example:99999/p", "https://[::1/p", "https://xn--a/p"),
    *("https://user@pay.example/p", "https://user:word@pay.example/p", "https://@pay.example/p"),
    *("https://pay.example\\@evil.example/p", "https:\\\\pay.example/p", "https://pay.example/\\evil.example"),
    *("https://käse.example/\\evil.example", "https://pay.example\uff0f.evil.example/"),
    *(" https://pay.example/p", "https://pay.example/p\n", "https://pay.example/\r\nSet-Cookie: a=b"),
    *(f"https://pay.example/{end}" for end in ("a b", "\u00a0", "\x00", "\x1b", "\x9b", "\u202egnp", "\u2028")),
)


async def test_address_for_a_browser(caplog: pytest.LogCaptureFixture) -> None:
    """An address that is not for a browser is `None`, and a warning names the keys. `data` has what was received."""
    profile = Profile(answer=AnswerShape(redirect_url="payUrl"), accept=Accept(redirect_schemes=["https", "upi"]))
    for address in (*ALLOWED, *NOT_ALLOWED):
        caplog.clear()
        paid = await call_once(create, answer(200, json.dumps({"payUrl": address}).encode()), profile=profile)
        found, allowed = paid.redirect_url, address in ALLOWED
        warned = [each for each in caplog.records if getattr(each, "event_name", "") == "address_refused"]

        assert (address if allowed else None, address) == (found, paid["payUrl"])
        fields = [each.__dict__["field"] for each in warned]
        assert ([] if allowed or not address else ["answer.redirect_url"]) == fields, address
        assert all("accept.redirect_schemes" in each.getMessage() for each in warned)


async def test_address_of_parts_for_a_browser(caplog: pytest.LogCaptureFixture) -> None:
    """An address that is made of parts keeps the same rule."""
    cases = {"https://pay.example/p?no={no}": True, "http://localhost/{no}": True}
    for template, allowed in {**cases, "http://pay.example/{no}": False, "https://pay.example\\x/{no}": False}.items():
        caplog.clear()
        profile = Profile(answer=AnswerShape(redirect_template=template))
        paid = await call_once(create, answer(200, b'{"no":"1"}'), profile=profile)

        assert (template.replace("{no}", "1") if allowed else None) == paid.redirect_url
        assert allowed is ("answer.redirect_template" not in caplog.text)


def test_scheme_that_no_profile_lists() -> None:
    """A scheme that runs code or reads files, plain http, and what is no scheme, are refused with the key."""
    for scheme in ("javascript", "data", "file", "vbscript", "blob", "http", "HTTPS", "https:", "", "a b", "1a"):
        field, words = refusal(Accept, redirect_schemes=["https", scheme])

        assert ("accept.redirect_schemes", True) == (field, f"not ['https', {scheme!r}]" in words)
    assert "accept.redirect_schemes" == refusal(Accept, redirect_schemes=[])[0]
