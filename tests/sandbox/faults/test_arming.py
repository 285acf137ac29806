"""Arming faults by method, by name and by form; wrong arguments are refused."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.profile.schema import HttpCodes
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.faults import KINDS, Fault, FaultNeverFiredError, Faults

NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


async def test_fault_that_never_fired_fails_the_test() -> None:
    """A fault that never fired is raised at the end of the sandbox, which is closed all the same."""
    sandbox = Sandbox()
    with pytest.raises(FaultNeverFiredError, match="reset_after_commit on refunds"):
        async with sandbox:
            sandbox.faults.reset_after_commit("refunds.create", times=1)
    with pytest.raises(ConfigurationError, match="does not run"):
        _ = sandbox.url


async def test_other_failure_goes_first() -> None:
    """If the test itself failed, its own error is raised instead of `FaultNeverFiredError`."""

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
    ("hang", {"times": 0}, "times", "an integer of 1 or more, or None"),
    ("hang", {"probability": 0}, "probability", "a number above 0 and up to 1"),
    ("hang", {"probability": 1.1}, "probability", "a number above 0 and up to 1"),
    ("hang", {"probability": float("nan")}, "probability", "a number above 0 and up to 1"),
    ("hang", {"seed": 1}, "seed", "given with a probability"),
    ("hang", {"seed": "1", "probability": 0.5}, "seed", "an integer"),
    ("hang", {"order": ""}, "order", "the number of an order"),
    ("server_error", {"status": 499}, "status", "a status from 500 to 599"),
    ("rate_limited", {"retry_after": -1}, "retry_after", "seconds, a timedelta"),
    ("rate_limited", {"retry_after": "1\r\nX: y"}, "retry_after", "seconds, a timedelta"),
    ("rate_limited", {"retry_after": NOON.replace(tzinfo=None)}, "retry_after", "seconds, a timedelta"),
    ("redirect", {"status": 304}, "status", "301, 302, 303, 307 or 308"),
    ("redirect", {"location": "/a b"}, "location", "an address"),
    ("huge_body", {"size": (1 << 30) + 1}, "size", "an integer from 1 to"),
    ("gzip_bomb", {"size": 1.0}, "size", "an integer from 1 to"),
    ("refuse", {"seconds": -1}, "seconds", "a number of seconds above 0, or None"),
    ("notifications.drop", {"about": "refunds.create"}, "about", "one of payment"),
    ("notifications.drop", {"phase": "after"}, "phase", "left out"),
    ("notifications.delay", {"seconds": 0}, "seconds", "a number of seconds above 0 and up to"),
    ("notifications.delay", {"seconds": 1e12}, "seconds", "a number of seconds above 0 and up to"),
    ("notifications.old_timestamp", {"seconds": 1.5}, "seconds", "an integer of seconds"),
    ("notifications.before_answer", {"operation": "refund"}, "operation", "one of payments.create"),
    ("notifications.before_answer", {"phase": "before"}, "phase", "after for notification.before_answer"),
]


@pytest.mark.parametrize(("method", "arguments", "field", "rule"), WRONG, ids=str)
def test_wrong_argument_is_refused(method: str, arguments: Mapping[str, Any], field: str, rule: str) -> None:
    """A wrong argument is refused with its name, rule and value, and nothing is armed."""
    faults = Faults()
    with pytest.raises(InvalidArgumentError) as caught:
        attrgetter(method)(faults)(**arguments)

    assert (field, arguments[field]) == (caught.value.field, caught.value.value) or arguments[field] != arguments[field]
    assert str(caught.value).startswith(f"{field} must be {rule}")
    assert [] == faults.armed()


TEXTS: Final[list[tuple[str, str | None, dict[str, str], str]]] = [
    ("reset_after_commit", "refunds.create", {}, "reset_after_commit on refunds.create"),
    ("latency", None, {"seconds": "0.5", "nth": "", "order": " T1 "}, "latency on * (order T1)"),
    ("server_error", None, {"status": "500", "nth": "2", "phase": "after"}, "server_error on * (from number 2)"),
    ("hang", None, {"probability": "0.5", "seed": "7"}, "hang on * (probability 0.5, seed 7)"),
    ("rate_limited", None, {"retry_after": "past", "times": "always"}, "rate_limited on *"),
    ("redirect", None, {"status": "307", "location": "/x"}, "redirect on *"),
    ("gzip_bomb", None, {"size": "1000"}, "gzip_bomb on *"),
    ("notification.drop", "refund", {"times": "2"}, "notification.drop on refund"),
    ("notification.old_timestamp", None, {"seconds": "3600"}, "notification.old_timestamp on *"),
    ("notification.before_answer", "orders.close", {}, "notification.before_answer on orders.close"),
]


@pytest.mark.parametrize(("kind", "on", "texts", "expected"), TEXTS, ids=str)
def test_faults_from_texts(kind: str, on: str | None, texts: dict[str, str], expected: str) -> None:
    """A form can arm the same faults as a test; an empty text is ignored."""
    assert expected == str(Faults().arm(kind, on, **KINDS[kind].read(texts)))


@pytest.mark.parametrize(
    ("kind", "on", "texts", "field"),
    [
        ("hang", None, {"seconds": "1"}, "option"),
        ("hang", None, {"nth": "two"}, "nth"),
        ("hang", None, {"times": "often"}, "times"),
        ("hang", None, {"probability": "many"}, "probability"),
        ("hang", "refund", {}, "operation"),
        ("latency", None, {"seconds": "1e999"}, "seconds"),
        ("reset_before", None, {"phase": "after"}, "phase"),
        ("notification.drop", "refunds.create", {}, "about"),
    ],
    ids=str,
)
def test_wrong_text_is_refused(kind: str, on: str | None, texts: dict[str, str], field: str) -> None:
    """A text that cannot be read is refused by the name of its option, and nothing is armed."""
    faults = Faults()
    with pytest.raises(InvalidArgumentError) as caught:
        faults.arm(kind, on, **KINDS[kind].read(texts))

    assert field == caught.value.field
    assert [] == faults.armed()


@pytest.mark.parametrize("kind", ["explode", "arm", "clear", "notification.explode", "notifications"])
def test_unknown_fault_is_refused(kind: str) -> None:
    """An unknown fault is refused, and the error lists the known ones."""
    with pytest.raises(InvalidArgumentError, match="kind must be one of latency, hang") as caught:
        Faults().arm(kind)

    assert ("kind", kind) == (caught.value.field, caught.value.value)


def test_refusing_needs_a_sandbox_that_runs() -> None:
    """`refuse` without an operation needs a running sandbox; with one it can be armed before the start."""
    faults = Faults()
    with pytest.raises(ConfigurationError, match="does not run"):
        faults.refuse()
    with pytest.raises(ConfigurationError, match="does not run"):
        faults.arm("refuse", seconds=1)
    later = faults.arm("refuse", "*", seconds=1)

    assert [later] == faults.armed()


@pytest.mark.parametrize(
    "arm",
    [lambda faults: faults.rate_limited(phase="after"), lambda faults: faults.arm("rate_limited", phase="after")],
    ids=["method", "name"],
)
def test_rate_limit_after_the_commit_contradicts_some_profiles(arm: Callable[[Faults], Fault]) -> None:
    """If the profile says that a 429 precedes execution, no fault can send a 429 after the commit."""
    faults = Sandbox().faults
    with pytest.raises(InvalidArgumentError, match=r"http\.rate_limit_precedes_execution") as caught:
        arm(faults)

    assert ("phase", "after", []) == (caught.value.field, caught.value.value, faults.armed())
    assert "rate_limited on *" == str(arm(Sandbox(evolve(PROFILE, http=HttpCodes())).faults))
