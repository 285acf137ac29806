"""Every fault of notifications that the sandbox can inject: events are late or repeated, but handled once."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from payasync import Profile
from payasync.sandbox.faults import Fault, NotificationFaults
from tests.notifications.shop import ORDER, Middle, Shop, opened

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


def test_every_fault_of_the_catalogue_is_told() -> None:
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


async def test_the_same_without_a_fault(profile: Profile, tmp_path: Path) -> None:
    """Without a fault, the receiver acknowledges three notifications, each at the first delivery."""
    async with opened(profile, tmp_path) as shop:
        await shop.paid(ORDER, OTHER)
        await shop.refund(REFUND)
        await shop.pass_time()

        assert [ORDER, OTHER, REFUND] == shop.books.of("credited")
        assert [profile.notification.ack_status] * 3 == shop.answers


Received = Callable[[], Awaitable[web.StreamResponse]]


async def fails(_request: web.Request, received: Received) -> web.StreamResponse:
    """Store the notification, and respond with 500."""
    await received()
    return web.Response(status=500)


async def says_something_else(_request: web.Request, received: Received) -> web.StreamResponse:
    """Store the notification, and respond with another body."""
    return web.Response(status=(await received()).status, text="something else")


async def leads_elsewhere(_request: web.Request, received: Received) -> web.StreamResponse:
    """Store the notification, and redirect the service to another address."""
    await received()
    return web.Response(status=302, headers={"Location": "/elsewhere"})


async def hangs_up(request: web.Request, received: Received) -> web.StreamResponse:
    """Store the notification, and cut the connection before the response."""
    answer = await received()
    assert request.transport
    request.transport.abort()
    return answer


async def is_overloaded(_request: web.Request, _received: Received) -> web.StreamResponse:
    """Respond with 503, and store nothing."""
    return web.Response(status=503, headers={"Retry-After": "5"})


BAD: Final = (fails, says_something_else, leads_elsewhere, hangs_up, is_overloaded)


@pytest.mark.parametrize("badly", BAD, ids=lambda each: each.__name__)
async def test_handled_once_where_the_shop_answers_badly(badly: Middle, profile: Profile, tmp_path: Path) -> None:
    """If the shop's response is no acknowledgement, the service delivers again, and the event is handled once."""
    async with opened(profile, tmp_path) as shop:
        shop.middle = badly
        await shop.paid()
        await shop.refund(REFUND)
        before = shop.books.of("credited")
        shop.middle = None
        await shop.pass_time()
        attempts = {each: acknowledged(shop, each) for each in told(shop)}

        assert ([] if badly is is_overloaded else [ORDER, REFUND]) == before
        assert [ORDER, REFUND] == shop.books.of("credited")
        assert [ORDER, REFUND] == shop.books.of("mailed")
        assert [[False, True]] * 2 == [*attempts.values()]


def told(shop: Shop) -> list[str]:
    """Return the numbers of the service's notifications."""
    return [each.notification_id for each in shop.sandbox.ledger.notifications()]


def acknowledged(shop: Shop, notification_id: str) -> list[bool]:
    """Return whether each delivery of a notification was acknowledged."""
    attempts = shop.sandbox.ledger.deliveries()
    return [each.acknowledged for each in attempts if each.notification_id == notification_id]
