"""Names in braces in `[constants]`: two are the time of the attempt, and the others are warned of."""

import json
import logging
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from payasync import Credentials, Profile, Session
from payasync.cli.commands import payasync
from tests.foreign.recorder import Recorder, answer
from tests.sessions import ended

ONLY: Final = "which is sent as it is. Only {timestamp} and {milliseconds} are replaced, and not in an object or a list"
WARNED: Final[list[tuple[Any, str]]] = [
    ("{time}", "{time}"),
    ("{ts}", "{ts}"),
    ("{Timestamp}", "{Timestamp}"),
    ("{ timestamp }", "{ timestamp }"),
    ("{merchant-id}", "{merchant-id}"),
    ("{timestamp}/${time}", "{time}"),
    ('{"at": "{time}"}', "{time}"),
    ({"of": {"at": ["{time}"]}}, "{time}"),
    ({"at": "{timestamp}"}, "{timestamp}"),
    (["{milliseconds}"], "{milliseconds}"),
]
"""Constants, each with the name in braces that is not filled in."""
FINE: Final[list[Any]] = [
    *("{timestamp}", "a-{milliseconds}-{timestamp}", '{"at": "{timestamp}"}'),
    *("", "{}", "{", "time}", '{"a":1}', '{"a": {"b": {}}}', "{a, b}"),
    *({}, {"a": {"b": 1}}, [[]], 1, True, None),
]
"""Constants that have no such name. Text in JSON is no such name."""


def profile_of(operation: str, value: Any) -> Profile:
    """Return a profile with one constant."""
    return Profile(signed=(), merchant=(), constants={operation: {"t": value}})


def test_audit_and_session_name_what_is_not_filled_in(caplog: pytest.LogCaptureFixture) -> None:
    """The audit and the log of a session name the key, the name in braces, and the names that are filled in."""
    values = [*WARNED, *((value, "") for value in FINE)]
    for operation, (value, found) in zip(cycle(["*", "orders.query", "orders.place"]), values, strict=False):
        caplog.clear()
        profile, key = profile_of(operation, value), f"constants.{operation}.t"
        Session("http://127.0.0.1:9", credentials=Credentials("M1"), profile=profile)
        points = [each for each in profile.audit() if each.name == key]
        logged = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]

        assert [f"{key} has {found}, {ONLY}"] * bool(found) == logged
        assert [f"has {found}, {ONLY}"] * bool(found) == [point.value for point in points]
        assert [10 if operation == "*" else 1] * bool(found) == [len(point.needed_by) for point in points]


async def test_what_is_warned_of_is_sent_as_it_is() -> None:
    """The warning is no refusal: the service gets the name in braces."""
    for value, found in WARNED:
        service = Recorder(otherwise=answer(200, b"{}"))
        await ended(
            lambda pay: pay.orders.place(total_amt=450, currency="CAD"), service, profile_of("orders.place", value)
        )
        sent = json.loads(service.only.body)["t"]

        assert (type(value), True) == (type(sent), found in str(sent))


def test_profile_check_warns_of_them(tmp_path: Path) -> None:
    """`profile check` warns of each constant in a line, and the exit code stays."""
    file = tmp_path / "my.toml"
    file.write_text('constants = {"*" = {t = "{time}", u = "{timestamp}"}, "orders.query" = {of = {at = "{ts}"}}}')
    result = CliRunner().invoke(payasync, ["profile", "check", str(file)], env={"COLUMNS": "200"})
    shown = [line.partition(",")[0] for line in result.output.splitlines() if line.startswith("Warning: ")]

    assert ["Warning: constants.*.t has {time}", "Warning: constants.orders.query.of has {ts}"] == shown
    assert 0 == result.exit_code
