"""Arming faults by method, by name and by form; wrong arguments are refused."""

import asyncio
import pickle
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.errors import ConfigurationError, InvalidArgumentError, PayasyncError
from payasync.profile.schema import HttpCodes
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.faults import KINDS, FaultNeverFiredError, Faults

NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


async def test_fault_that_never_fired_fails_the_test() -> None:
    """A fault that never fired is raised at the end of the sandbox, which is closed all the same.

    The error names the fault and what it saw, is an `AssertionError`, and pickles.
    """
    sandbox = Sandbox()
    words = r"reset_after_commit on refunds.create \(order R1, from number 2\), which saw 0 of these"
    with pytest.raises(FaultNeverFiredError, match=words) as missed:
        async with sandbox:
            sandbox.faults.reset_after_commit("refunds.create", order="R1", nth=2)
    again = pickle.loads(pickle.dumps(missed.value))  # noqa: S301 - made here
    assert (FaultNeverFiredError, str(missed.value)) == (type(again), str(again))
    assert isinstance(missed.value, PayasyncError)
    assert isinstance(missed.value, AssertionError)
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


SECONDS: Final = "a number of seconds above 0"
COUNT: Final = "an integer of 1 or more"
SHARE: Final = "a number above 0 and up to 1"
WRONG: Final[dict[tuple[str, str], tuple[str, list[Any]]]] = {
    ("latency", "operation"): ("one of payments.create", ["refund.create"]),
    ("latency", "seconds"): (SECONDS, [0, True]),
    ("latency", "phase"): ("before or after for latency", ["during"]),
    ("reset_before", "phase"): ("before for reset_before", ["after"]),
    ("reset_after_commit", "phase"): ("after for reset_after_commit", ["before"]),
    ("hang", "nth"): (COUNT, [0, True]),
    ("hang", "times"): (f"{COUNT}, or None", [0]),
    ("hang", "probability"): (SHARE, [0, 1.1]),
    ("hang", "seed"): ("given with a probability", [1]),
    ("hang", "order"): ("the number of an order", [""]),
    ("server_error", "status"): ("a status from 500 to 599", [499]),
    ("rate_limited", "retry_after"): ("seconds, a timedelta", [-1, "1\r\nX: y", NOON.replace(tzinfo=None)]),
    ("redirect", "status"): ("301, 302, 303, 307 or 308", [304]),
    ("redirect", "location"): ("an address", ["/a b"]),
    ("huge_body", "size"): ("an integer from 1 to", [(1 << 30) + 1]),
    ("gzip_bomb", "size"): ("an integer from 1 to", [1.0]),
    ("refuse", "seconds"): (f"{SECONDS}, or None", [-1]),
    ("notifications.drop", "about"): ("one of payment", ["refunds.create"]),
    ("notifications.drop", "phase"): ("left out", ["after"]),
    ("notifications.delay", "seconds"): (f"{SECONDS} and up to", [0, 1e12]),
    ("notifications.old_timestamp", "seconds"): ("an integer of seconds", [1.5]),
    ("notifications.before_answer", "operation"): ("one of payments.create", ["refund"]),
    ("notifications.before_answer", "phase"): ("after for notification.before_answer", ["before"]),
}


def test_wrong_argument_is_refused() -> None:
    """A wrong argument is refused with its name, rule and value, and nothing is armed."""
    faults = Faults()
    for (method, field), (rule, values) in WRONG.items():
        for value in values:
            with pytest.raises(InvalidArgumentError, match=f"^{field} must be {rule}") as caught:
                attrgetter(method)(faults)(**{field: value})

            assert (field, value) == (caught.value.field, caught.value.value)
    for method, field, rule in (("latency", "seconds", SECONDS), ("hang", "probability", SHARE)):
        with pytest.raises(InvalidArgumentError, match=f"^{field} must be {rule}"):
            attrgetter(method)(faults)(**{field: float("nan")})
    with pytest.raises(InvalidArgumentError, match=r"^seed must be an integer"):
        faults.arm("hang", seed="1", probability=0.5)
    assert [] == faults.armed()


def test_faults_from_texts() -> None:
    """A form can arm the same faults as a test; an empty text is ignored."""
    texts: list[tuple[str, str | None, dict[str, str], str]] = [
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
    for kind, on, given, expected in texts:
        assert expected == str(Faults().arm(kind, on, **KINDS[kind].read(given)))


def test_wrong_text_is_refused() -> None:
    """A text that cannot be read is refused by the name of its option, and an unknown fault with the known ones.

    Nothing is armed.
    """
    faults = Faults()
    texts: list[tuple[str, str | None, dict[str, str], str]] = [
        ("hang", None, {"seconds": "1"}, "option"),
        ("hang", None, {"nth": "two"}, "nth"),
        ("hang", None, {"times": "often"}, "times"),
        ("hang", None, {"probability": "many"}, "probability"),
        ("hang", "refund", {}, "operation"),
        ("latency", None, {"seconds": "1e999"}, "seconds"),
        ("reset_before", None, {"phase": "after"}, "phase"),
        ("notification.drop", "refunds.create", {}, "about"),
    ]
    for kind, on, given, field in texts:
        with pytest.raises(InvalidArgumentError) as caught:
            faults.arm(kind, on, **KINDS[kind].read(given))

        assert field == caught.value.field
    for kind in ("explode", "arm", "clear", "notification.explode", "notifications"):
        with pytest.raises(InvalidArgumentError, match="kind must be one of latency, hang") as caught:
            faults.arm(kind)

        assert ("kind", kind) == (caught.value.field, caught.value.value)
    assert [] == faults.armed()


def test_refusing_needs_a_sandbox_that_runs() -> None:
    """`refuse` without an operation needs a running sandbox; with one it can be armed before the start."""
    faults = Faults()
    with pytest.raises(ConfigurationError, match="does not run"):
        faults.refuse()
    with pytest.raises(ConfigurationError, match="does not run"):
        faults.arm("refuse", seconds=1)
    later = faults.arm("refuse", "*", seconds=1)

    assert [later] == faults.armed()


def test_rate_limit_after_the_commit_contradicts_some_profiles() -> None:
    """If the profile says that a 429 precedes execution, no fault can send a 429 after the commit."""
    faults, other = Sandbox().faults, Sandbox(evolve(PROFILE, http=HttpCodes())).faults
    for arm in (faults.rate_limited, partial(faults.arm, "rate_limited")):
        with pytest.raises(InvalidArgumentError, match=r"http\.rate_limit_precedes_execution") as caught:
            arm(phase="after")

        assert ("phase", "after", []) == (caught.value.field, caught.value.value, faults.armed())
    assert "rate_limited on *" == str(other.rate_limited(phase="after"))
