"""Arming faults: what they can be aimed at, whose turn it is, and which arguments are refused."""

import asyncio
import pickle
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.errors import ConfigurationError, InvalidArgumentError, PayasyncError
from payasync.profile.schema import HttpCodes
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.faults import KINDS, Fault, FaultNeverFiredError, Faults, options_of
from payasync.sandbox.faults.armed_faults import PLAIN, Armoury, corrupted
from payasync.sandbox.faults.catalogue import Corrupt, Latency, OldTimestamp, ServerError, StaleKeepAlive
from payasync.sandbox.faults.wire import header

NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
NONE: Final = frozenset[str]()


def calls(armoury: Armoury, count: int, operation: str = "orders.query", *numbers: str) -> list[int]:
    """Return which of so many calls meet a fault, counted from 1."""
    met = (armoury.for_call(operation, frozenset(numbers), reused=False) for _ in range(count))
    return [number for number, fault in enumerate(met, 1) if fault]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1]),
        ({"times": 2}, [1, 2]),
        ({"times": None}, [1, 2, 3, 4, 5]),
        ({"nth": 3}, [3]),
        ({"nth": 2, "times": 3}, [2, 3, 4]),
        ({"probability": 1}, [1, 2, 3, 4, 5]),
        ({"probability": 1.0, "nth": 4, "times": 1}, [4]),
    ],
    ids=str,
)
def test_calls_that_a_fault_takes(options: Any, expected: list[int]) -> None:
    """`nth` says where it begins, `times` how often; once by default, and without end with a probability."""
    armoury = Armoury()
    armoury.arm(Latency(), "*", options)

    assert expected == calls(armoury, 5)


def test_what_a_fault_is_aimed_at() -> None:
    """Only calls of its operation, with its number, are counted; `*` is any."""
    armoury = Armoury()
    aimed = armoury.arm(Latency(), "refunds.create", {"order": "T1", "times": None})
    other = calls(armoury, 2, "orders.query", "T1") + calls(armoury, 2, "refunds.create", "T2", "R2")
    same = calls(armoury, 2, "refunds.create", "T1", "R1")

    assert ([], [1, 2]) == (other, same)
    assert (2, 2) == (aimed.seen, aimed.fired)


def test_first_armed_comes_first() -> None:
    """A call meets one fault; the others wait for the next call."""
    armoury = Armoury()
    first, second = armoury.arm(Latency(), "*", {}), armoury.arm(ServerError(), "*", {})
    met = [armoury.for_call("orders.query", NONE, reused=False) for _ in range(3)]

    assert [first, second, None] == met
    assert (1, 2) == (first.seen, second.seen)


def test_same_seed_same_calls() -> None:
    """The seed can be read from the fault, and draws the same calls again; another seed draws others."""
    armoury = Armoury()
    drawn = armoury.arm(Latency(), "*", {"probability": 0.3})
    first = calls(armoury, 200)
    drawn.disarm()
    armoury.arm(Latency(), "*", {"probability": 0.3, "seed": drawn.seed})
    again = calls(armoury, 200)
    other = Armoury(seed=lambda: 1)
    other.arm(Latency(), "*", {"probability": 0.3})

    assert first == again
    assert 30 < len(first) < 90
    assert first != calls(other, 200)
    assert f"probability 0.3, seed {drawn.seed}" in str(drawn)


def test_stale_connections_are_reused_ones() -> None:
    """The first call over a connection does not count for a connection that was kept."""
    armoury = Armoury()
    fault = armoury.arm(StaleKeepAlive(), "*", {})
    fresh = armoury.for_call("orders.query", NONE, reused=False)
    seen = fault.seen

    assert (None, 0) == (fresh, seen)
    assert fault is armoury.for_call("orders.query", NONE, reused=True)


def test_fault_shows_itself() -> None:
    """A failing test shows what a fault is, and how often it has fired."""
    fault = Armoury().arm(Latency(), "refunds.create", {})

    assert "<Fault latency on refunds.create, fired 0, seen 0>" == repr(fault)


def test_calls_and_notifications_are_counted_apart() -> None:
    """A fault of notifications leaves calls alone, and one of calls notifications."""
    armoury = Armoury()
    armoury.arm(Corrupt(), "refund", {})
    met = calls(armoury, 1)
    armoury.arm(Latency(), "*", {})
    other = armoury.for_notification("payment", NONE, timed=True)
    passage = armoury.for_notification("refund", NONE, timed=True)

    assert ([], PLAIN) == (met, other)
    assert passage.corrupted


def test_what_has_no_time_has_no_old_one() -> None:
    """Where a profile's notifications carry no time, an old one is missed, and not pretended."""
    armoury = Armoury()
    fault = armoury.arm(OldTimestamp(), "*", {})

    assert PLAIN is armoury.for_notification("refund", NONE, timed=False)
    assert 0 == fault.fired
    assert 86_400 == armoury.for_notification("refund", NONE, timed=True).age


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"a": 95}', '{"a": 96}'),
        ('{"a": 9}', '{"a": 1}'),
        ('{"a": "T0"}', '{"a": "T1"}'),
        ('{"a": ""}', '{"a": ""'),
        ('{"nonceStr":"ab12","n":1}', '{"nonceStr":"0b12","n":1}'),
        ('{"nonceStr": "0b12","n":1}', '{"nonceStr": "1b12","n":1}'),
    ],
)
def test_corrupted_body(body: str, expected: str) -> None:
    """One character is another, of the nonce or else the last digit; without both, the end is lost."""
    assert expected == corrupted(body)


def test_disarmed_is_over() -> None:
    """What was disarmed fires no more, is not listed, and is not missed; a second time changes nothing."""
    faults = Faults()
    fault, other = faults.latency(), faults.hang("orders.query")
    listed = faults.armed()
    fault.disarm()
    fault.disarm()

    assert [fault, other] == listed
    assert [other] == faults.armed()
    assert not fault.armed
    faults.clear()
    faults.check()
    assert [] == faults.armed()


def test_missed_fault_is_named() -> None:
    """The error names what was armed, and what it saw; it is ours, a failed assertion, and crosses processes."""
    faults = Faults()
    faults.reset_after_commit("refunds.create", order="R1", nth=2)
    with pytest.raises(FaultNeverFiredError) as caught:
        faults.check()
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made here

    assert "reset_after_commit on refunds.create (order R1, from number 2), which saw 0 of these" in str(caught.value)
    assert isinstance(caught.value, PayasyncError)
    assert isinstance(caught.value, AssertionError)
    assert (FaultNeverFiredError, str(caught.value)) == (type(again), str(again))


async def test_fault_that_never_fired_fails_the_test() -> None:
    """Leaving the sandbox says that the test has not tested what it arms; the sandbox is closed all the same."""
    sandbox = Sandbox()
    with pytest.raises(FaultNeverFiredError, match="reset_after_commit on refunds"):
        async with sandbox:
            sandbox.faults.reset_after_commit("refunds.create", times=1)
    with pytest.raises(ConfigurationError, match="does not run"):
        _ = sandbox.url


async def test_other_failure_goes_first() -> None:
    """What went wrong in the test is what it reports."""

    async def fail(error: BaseException) -> None:
        async with Sandbox() as sandbox:
            sandbox.faults.hang()
            raise error

    with pytest.raises(ZeroDivisionError):
        await fail(ZeroDivisionError())
    with pytest.raises(asyncio.CancelledError):
        await fail(asyncio.CancelledError())


WRONG: Final[list[tuple[str, Any, str, str]]] = [
    ("latency", {"operation": "refund.create"}, "operation", "one of payments.create"),
    ("latency", {"seconds": 0}, "seconds", "a number of seconds above 0"),
    ("latency", {"seconds": float("nan")}, "seconds", "a number of seconds above 0"),
    ("latency", {"seconds": True}, "seconds", "a number of seconds above 0"),
    ("latency", {"phase": "during"}, "phase", "before or after for latency"),
    ("reset_before", {"phase": "after"}, "phase", "before for reset_before"),
    ("reset_after_commit", {"phase": "before"}, "phase", "after for reset_after_commit"),
    ("hang", {"nth": 0}, "nth", "an integer of 1 or more"),
    ("hang", {"nth": True}, "nth", "an integer of 1 or more"),
    ("hang", {"times": 0}, "times", "an integer of 1 or more, or none"),
    ("hang", {"probability": 0}, "probability", "a number above 0 and up to 1"),
    ("hang", {"probability": 1.1}, "probability", "a number above 0 and up to 1"),
    ("hang", {"probability": float("nan")}, "probability", "a number above 0 and up to 1"),
    ("hang", {"seed": 1}, "seed", "given with a probability"),
    ("hang", {"seed": "1", "probability": 0.5}, "seed", "an integer"),
    ("hang", {"order": ""}, "order", "a number, as a text"),
    ("server_error", {"status": 499}, "status", "a status from 500 to 599"),
    ("rate_limited", {"retry_after": -1}, "retry_after", "seconds, a timedelta"),
    ("rate_limited", {"retry_after": "1\r\nX: y"}, "retry_after", "seconds, a timedelta"),
    ("rate_limited", {"retry_after": NOON.replace(tzinfo=None)}, "retry_after", "seconds, a timedelta"),
    ("redirect", {"status": 304}, "status", "301, 302, 303, 307 or 308"),
    ("redirect", {"location": "/a b"}, "location", "an address"),
    ("huge_body", {"size": (1 << 30) + 1}, "size", "an integer from 1 to"),
    ("gzip_bomb", {"size": 1.0}, "size", "an integer from 1 to"),
    ("refuse", {"seconds": -1}, "seconds", "a number of seconds above 0, or none"),
]


@pytest.mark.parametrize(("method", "arguments", "field", "rule"), WRONG, ids=str)
def test_wrong_argument_is_refused(method: str, arguments: Mapping[str, Any], field: str, rule: str) -> None:
    """What cannot be is refused as it is armed, by name, rule and value; nothing is armed."""
    faults = Faults()
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(faults, method)(**arguments)

    assert (field, arguments[field]) == (caught.value.field, caught.value.value) or arguments[field] != arguments[field]
    assert str(caught.value).startswith(f"{field} must be {rule}")
    assert [] == faults.armed()


@pytest.mark.parametrize(
    ("method", "arguments", "field"),
    [
        ("drop", {"about": "refunds.create"}, "about"),
        ("drop", {"phase": "after"}, "phase"),
        ("delay", {"seconds": 0}, "seconds"),
        ("delay", {"seconds": 1e12}, "seconds"),
        ("old_timestamp", {"seconds": 1.5}, "seconds"),
        ("before_answer", {"operation": "refund"}, "operation"),
        ("before_answer", {"phase": "before"}, "phase"),
    ],
    ids=str,
)
def test_wrong_argument_for_a_notification(method: str, arguments: Mapping[str, Any], field: str) -> None:
    """Notifications are told apart by what they are about, and have no phase."""
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(Faults().notifications, method)(**arguments)

    assert field == caught.value.field


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("absent", None),
        (0, "0"),
        (7, "7"),
        (timedelta(seconds=2), "Sat, 31 Jan 2026 12:00:02 GMT"),
        ("date", "Sat, 31 Jan 2026 12:00:02 GMT"),
        ("past", "Fri, 30 Jan 2026 12:00:00 GMT"),
        (NOON, "Sat, 31 Jan 2026 12:00:00 GMT"),
        ("nonsense", "soon"),
        ("huge", "9" * 30),
        ("-1", "-1"),
    ],
    ids=str,
)
def test_retry_after(given: Any, expected: str | None) -> None:
    """Every kind of Retry-After can be sent: none, seconds, a date, a past one, nonsense, a huge one."""
    assert expected == header(given, NOON)


TEXTS: Final[list[tuple[str, dict[str, str], str]]] = [
    ("reset_after_commit", {"on": "refunds.create"}, "reset_after_commit on refunds.create"),
    ("latency", {"seconds": "0.5", "on": "", "order": " T1 "}, "latency on * (order T1)"),
    ("server_error", {"status": "500", "nth": "2", "phase": "after"}, "server_error on * (from number 2)"),
    ("hang", {"probability": "0.5", "seed": "7"}, "hang on * (probability 0.5, seed 7)"),
    ("rate_limited", {"retry_after": "past", "times": "always"}, "rate_limited on *"),
    ("redirect", {"status": "307", "location": "/x"}, "redirect on *"),
    ("gzip_bomb", {"size": "1000"}, "gzip_bomb on *"),
    ("notification.drop", {"on": "refund"}, "notification.drop on refund"),
    ("notification.old_timestamp", {"seconds": "3600"}, "notification.old_timestamp on *"),
    ("notification.before_answer", {"on": "orders.close"}, "notification.before_answer on orders.close"),
]


@pytest.mark.parametrize(("kind", "options", "expected"), TEXTS, ids=str)
def test_faults_from_texts(kind: str, options: dict[str, str], expected: str) -> None:
    """A form and a command line arm what a test can arm; an empty text is none."""
    assert expected == str(Faults().arm(kind, options))


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        ("explode", {}, "kind"),
        ("hang", {"seconds": "1"}, "option"),
        ("hang", {"nth": "two"}, "nth"),
        ("hang", {"times": "often"}, "times"),
        ("hang", {"probability": "many"}, "probability"),
        ("hang", {"on": "refund"}, "operation"),
        ("latency", {"seconds": "1e999"}, "seconds"),
        ("reset_before", {"phase": "after"}, "phase"),
        ("notification.drop", {"on": "refunds.create"}, "about"),
        ("refuse", {}, "seconds"),
    ],
    ids=str,
)
def test_wrong_text_is_refused(kind: str, options: dict[str, str], field: str) -> None:
    """A text that means nothing is refused by name; whoever shuts the door must say until when."""
    faults = Faults()
    with pytest.raises(InvalidArgumentError) as caught:
        faults.arm(kind, options)

    assert field == caught.value.field
    assert [] == faults.armed()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_method(kind: str) -> None:
    """Each kind is a method of its name, and the options that a form offers are those that it takes."""
    faults = Faults()
    group, _, name = kind.rpartition(".")
    fault: Fault = getattr(faults.notifications if group else faults, name)(times=1)

    assert kind == fault.kind
    assert {"on", "order", "nth", "times", "probability", "seed"} <= set(options_of(kind))
    assert ("phase" in options_of(kind)) == (len(fault.effect.phases) > 1)


def test_refusing_needs_a_sandbox_that_runs() -> None:
    """At once is now: where nobody listens, nobody can stop; at a call, it can be armed before."""
    faults = Faults()
    with pytest.raises(ConfigurationError, match="does not run"):
        faults.refuse()
    with pytest.raises(ConfigurationError, match="does not run"):
        faults.arm("refuse", {"seconds": "1"})
    later = faults.arm("refuse", {"on": "*", "seconds": "1"})

    assert [later] == faults.armed()


@pytest.mark.parametrize(
    "arm",
    [
        lambda faults: faults.rate_limited(phase="after"),
        lambda faults: faults.arm("rate_limited", {"phase": "after"}),
    ],
    ids=["method", "texts"],
)
def test_rate_limit_after_the_commit_contradicts_some_profiles(arm: Callable[[Faults], Fault]) -> None:
    """Where the profile says that a 429 was not executed, a client sends again: no fault makes it pay twice."""
    faults = Sandbox().faults
    with pytest.raises(InvalidArgumentError, match=r"http\.rate_limit_precedes_execution") as caught:
        arm(faults)

    assert ("phase", "after", []) == (caught.value.field, caught.value.value, faults.armed())
    assert "rate_limited on *" == str(arm(Sandbox(evolve(PROFILE, http=HttpCodes())).faults))
