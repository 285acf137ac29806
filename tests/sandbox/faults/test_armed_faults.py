"""Armed faults: which calls trigger them, how often they fire, and which were missed."""

from typing import Any, Final

from payasync.sandbox.faults import Faults
from payasync.sandbox.faults.armed_faults import UNALTERED, corrupt_body

NONE: Final = frozenset[str]()


def calls(armed: Faults, count: int, operation: str = "orders.query", *numbers: str) -> list[int]:
    """Return which of these calls meet a fault, counted from 1."""
    met = (armed.fire_for_call(operation, frozenset(numbers), reused=False) for _ in range(count))
    return [number for number, fault in enumerate(met, 1) if fault]


def test_calls_that_trigger_a_fault() -> None:
    """`nth` says when it begins, `times` how often it fires: once by default, without limit with a probability."""
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [1]),
        ({"times": 2}, [1, 2]),
        ({"times": None}, [1, 2, 3, 4, 5]),
        ({"nth": 3}, [3]),
        ({"nth": 2, "times": 3}, [2, 3, 4]),
        ({"probability": 1}, [1, 2, 3, 4, 5]),
        ({"probability": 1.0, "nth": 4, "times": 1}, [4]),
    ]
    for options, expected in cases:
        armed = Faults()
        armed.arm("latency", **options)

        assert expected == calls(armed, 5), options


def test_what_a_call_must_name() -> None:
    """Only calls of its operation that name its number are counted; `*` is any operation.

    Faults of notifications ignore calls, and faults of calls ignore notifications.
    """
    armed = Faults()
    fault = armed.latency("refunds.create", order="T1", times=None)
    other = calls(armed, 2, "orders.query", "T1") + calls(armed, 2, "refunds.create", "T2", "R2")
    same = calls(armed, 2, "refunds.create", "T1", "R1")

    assert ([], [1, 2]) == (other, same)
    assert "<Fault latency on refunds.create (order T1), fired 2, seen 2>" == repr(fault)
    fault.disarm()
    armed.notifications.corrupt()
    assert [] == calls(armed, 1)
    armed.arm("latency", "*")
    assert armed.plan_delivery("refund", NONE, timed=True).corrupted
    assert UNALTERED is armed.plan_delivery("refund", NONE, timed=True)


def test_corrupted_body() -> None:
    """A corrupted body has one other character, in the nonce or else the last digit. Without both, its end is cut."""
    for body, expected in (
        ('{"a": 95}', '{"a": 96}'),
        ('{"a": 9}', '{"a": 1}'),
        ('{"a": "T0"}', '{"a": "T1"}'),
        ('{"a": ""}', '{"a": ""'),
        ('{"nonceStr":"ab12","n":1}', '{"nonceStr":"0b12","n":1}'),
        ('{"nonceStr": "0b12","n":1}', '{"nonceStr": "1b12","n":1}'),
    ):
        assert expected == corrupt_body(body)


def test_same_seed_same_calls() -> None:
    """The seed can be read from the fault and repeats its draws; another seed draws others."""
    armed = Faults()
    drawn = armed.latency(probability=0.3)
    first = calls(armed, 200)
    drawn.disarm()
    armed.latency(probability=0.3, seed=drawn.seed)
    again = calls(armed, 200)
    other = Faults()
    other.latency(probability=0.3, seed=1)

    assert first == again
    assert 30 < len(first) < 90
    assert first != calls(other, 200)
    assert f"probability 0.3, seed {drawn.seed}" in str(drawn)
