from typing import Any, Final

import pytest

from payasync.errors import ConfigurationError
from payasync.settings import RetryPolicy, Timeouts

TIMES: Final[list[tuple[type[Any], str]]] = [(Timeouts, "total"), (Timeouts, "connect"), (Timeouts, "read")]
DELAYS: Final[list[tuple[type[Any], str]]] = [(RetryPolicy, "base_delay"), (RetryPolicy, "max_delay")]


NO_SECONDS: Final[list[object]] = [-1, -0.001, float("nan"), float("inf"), 10**400, True, False, "5", None]


@pytest.mark.parametrize("value", [0, 0.0, *NO_SECONDS])
@pytest.mark.parametrize(("kind", "name"), TIMES)
def test_seconds_are_finite_numbers_above_0(kind: type[Any], name: str, value: object) -> None:
    """A time that is no time would wait for ever, or never: it is refused, and named."""
    with pytest.raises(ConfigurationError, match="a number of seconds above 0") as caught:
        kind(**{name: value})

    assert f"{kind.__name__}.{name}" == caught.value.field


@pytest.mark.parametrize("value", NO_SECONDS)
@pytest.mark.parametrize(("kind", "name"), DELAYS)
def test_delays_are_finite_numbers_of_0_or_more(kind: type[Any], name: str, value: object) -> None:
    """A wait that is no time is refused, and named, as a time-out is."""
    with pytest.raises(ConfigurationError, match="a number of seconds, 0 or more") as caught:
        kind(**{name: value})

    assert f"{kind.__name__}.{name}" == caught.value.field


@pytest.mark.parametrize("value", [0, 0.0])
@pytest.mark.parametrize(("kind", "name"), DELAYS)
def test_a_delay_may_be_none(kind: type[Any], name: str, value: float) -> None:
    """Who does not want to wait between attempts says 0."""
    assert 0 == getattr(kind(**{name: value}), name)


@pytest.mark.parametrize("value", [1, 0.001, 10**300])
@pytest.mark.parametrize(("kind", "name"), [*TIMES, *DELAYS])
def test_seconds_may_be_whole_or_not(kind: type[Any], name: str, value: float) -> None:
    """An int and a float are both seconds."""
    assert value == getattr(kind(**{name: value}), name)


@pytest.mark.parametrize(("name", "least"), [("attempts", 1), ("quota", 0)])
def test_counts_have_a_least_value(name: str, least: int) -> None:
    """There is at least one attempt; a quota of 0 allows no retry."""
    with pytest.raises(ConfigurationError, match=f"an integer of {least} or more") as caught:
        RetryPolicy(**{name: least - 1})

    assert f"RetryPolicy.{name}" == caught.value.field
    assert least == getattr(RetryPolicy(**{name: least}), name)


@pytest.mark.parametrize("value", [1.0, True, "1", None])
@pytest.mark.parametrize("name", ["attempts", "quota"])
def test_counts_are_integers(name: str, value: Any) -> None:
    """Nothing is rounded or converted."""
    with pytest.raises(ConfigurationError, match="an integer"):
        RetryPolicy(**{name: value})
