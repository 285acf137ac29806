"""How fast the time goes: what the setting means, and where a restarted sandbox goes on."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import pytest

from payasync.errors import ConfigurationError
from payasync.sandbox.clock import FASTEST, LATEST, Pace, pace

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("real", Pace(1.0)),
        ("frozen", Pace(0.0)),
        (60, Pace(60.0)),
        (0.5, Pace(0.5)),
        ("60x", Pace(60.0)),
        ("1.5", Pace(1.5)),
        (FASTEST, Pace(FASTEST)),
        (NOON.astimezone(timezone(timedelta(hours=9))), Pace(0.0, NOON)),
    ],
)
def test_settings(setting: Any, expected: Pace) -> None:
    """A word, a factor, or the moment at which the time stands."""
    assert expected == pace(setting)


@pytest.mark.parametrize(
    "setting",
    [
        *("", "fast", "x", "-1x", "60 x", "0x", "1e5", "infx"),
        *(0, -1, float("nan"), float("inf"), FASTEST + 1, True, None, [60]),
        *(datetime(2027, 1, 31), LATEST, datetime(1969, 12, 31, tzinfo=UTC)),  # noqa: DTZ001 - it is to be refused
    ],
)
def test_what_is_no_clock(setting: Any) -> None:
    """Anything else is a mistake in the configuration, which says what is allowed."""
    with pytest.raises(ConfigurationError, match='clock must be "real", "frozen"') as refused:
        pace(setting)

    assert "clock" == refused.value.field


@pytest.mark.parametrize(
    ("rate", "away", "expected"),
    [
        (1.0, timedelta(hours=1), NOON + timedelta(hours=1)),
        (1.0, timedelta(hours=-1), NOON),
        (1.0, timedelta(days=4_000_000), LATEST),
        (0.0, timedelta(hours=1), NOON),
        (60.0, timedelta(hours=1), NOON),
    ],
)
def test_restart(rate: float, away: timedelta, expected: datetime) -> None:
    """A real clock counts the time in between, the others stood still, and none goes backwards."""
    assert expected == Pace(rate).resumed(NOON, away)
