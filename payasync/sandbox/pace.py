"""How fast the sandbox's time goes: arithmetic, without a look at any clock."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from attrs import frozen

from payasync.errors import ConfigurationError
from payasync.sandbox.instants import BEGINNING

ClockSetting: TypeAlias = str | float | datetime
"""`real`, `frozen`, a moment at which it stands, or how many sandbox seconds a real one has: `60`, `"60x"`."""

FASTEST: Final = 100_000
"""Sandbox seconds in a real one: a day in about a second."""
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_FACTOR: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)x?")
_RULE: Final = f'"real", "frozen", an aware datetime, or a factor up to {FASTEST:_} such as 60 or "60x"'


@frozen
class Pace:
    """How the sandbox's time goes.

    Attributes:
        rate: Sandbox seconds in a real one; 0: it stands, and moves by `advance` only.
        start: Where it begins in a new database; `None`: at the time of this machine.
    """

    rate: float = 1.0
    start: datetime | None = None

    def resumed(self, latest: datetime, away: timedelta) -> datetime:
        """Return where the time of a database goes on.

        A real clock counts the time that the sandbox was not running; the others stand still meanwhile.

        Args:
            latest: The last moment that the database knows.
            away: What has passed since, by the clock of this machine, which may have been set back.
        """
        return latest + min(max(away, timedelta()), LATEST - latest) if self.rate == 1 else latest


def pace(setting: ClockSetting) -> Pace:
    """Return the pace that a setting means.

    Raises:
        ConfigurationError: It means none.
    """
    if isinstance(setting, datetime):
        return Pace(0.0, _aware(setting).astimezone(UTC))
    named = {"real": Pace(), "frozen": Pace(0.0)}.get(setting) if isinstance(setting, str) else None
    return named or Pace(_rate(setting))


def _rate(setting: object) -> float:
    if isinstance(setting, str) and (written := _FACTOR.fullmatch(setting)):
        setting = float(written[1])
    if isinstance(setting, bool) or not isinstance(setting, int | float):
        raise _no_clock(setting)
    if not (math.isfinite(setting) and 0 < setting <= FASTEST):
        raise _no_clock(setting)
    return float(setting)


def _aware(moment: datetime) -> datetime:
    if moment.utcoffset() is None or not BEGINNING <= moment < LATEST:
        raise _no_clock(moment)
    return moment


def _no_clock(setting: object) -> ConfigurationError:
    return ConfigurationError(f"clock must be {_RULE}, not {setting!r}", field="clock")
