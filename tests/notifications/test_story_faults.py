"""Every fault of notifications that the sandbox can inject: events are late or repeated, but handled once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from payasync import Profile
from payasync.sandbox.faults import Fault, NotificationFaults
from tests.notifications.shop import ORDER, opened

OTHER: Final = "OTHER"
REFUND: Final = "REFUND"
FAULTS: Final[Mapping[str, Callable[[NotificationFaults], Fault]]] = {
    "drop": lambda faults: faults.drop(order=ORDER, times=3),
    "duplicate": lambda faults: faults.duplicate(times=None),
    "reorder": lambda faults: faults.reorder(order=ORDER),
    "delay": lambda faults: faults.delay(order=ORDER, seconds=1800),
    "corrupt": lambda faults: faults.corrupt("payment", times=2),
    "old_timestamp": lambda faults: faults.old_timestamp("payment", times=2),
    "before_answer": lambda faults: faults.before_answer("refunds.create"),
}
REFUSED: Final = {"corrupt", "old_timestamp"}
"""What a signature shows."""


def test_every_fault_of_the_catalogue_is_tried() -> None:
    """`FAULTS` has every notification fault of the sandbox."""
    known = {name for name in vars(NotificationFaults) if not name.startswith("_")}

    assert known == FAULTS.keys()


@pytest.mark.parametrize("name", FAULTS)
async def test_handled_once_under_a_fault(name: str, profile: Profile, tmp_path: Path) -> None:
    """Under any fault of notifications, each event has its effect once. The receiver refuses corrupt and old ones."""
    async with opened(profile, tmp_path) as shop:
        fault = FAULTS[name](shop.sandbox.faults.notifications)
        await shop.paid(ORDER, OTHER)
        await shop.refund(REFUND)
        await shop.pass_time()
        believed = REFUSED & {name} and fault.fired and profile.notification.verification != "none"
        left_out(fault, profile)
        no = profile.notification.nack_status

        assert [ORDER, OTHER, REFUND] == shop.books.of("credited")
        assert [ORDER, OTHER, REFUND] == shop.books.of("mailed")
        assert ([no, no] if believed else []) == [each for each in shop.answers if each == no]


def left_out(fault: Fault, profile: Profile) -> None:
    """Disarm a fault that could not fire, because the notifications have no time."""
    shape = profile.notification
    if fault.fired == 0 and shape.verification != "standard-webhooks" and not shape.time:
        fault.disarm()
