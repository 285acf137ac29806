"""The whole story: each event is handled once, with any profile and any verification."""

from datetime import timedelta
from pathlib import Path

from payasync import Profile
from tests.notifications.shop import ORDER, opened


async def test_paid_on_the_page_and_handled_once(profile: Profile, tmp_path: Path) -> None:
    """A payment on the gateway's page is notified, acknowledged and handled once, and so is each of its refunds.

    No redelivery follows, however much time passes (docs/reference/service.md#notifications).
    """
    async with opened(profile, tmp_path) as shop:
        await shop.paid()
        first = shop.books.of("credited"), shop.books.of("mailed")
        for each in ("RA", "RB"):
            await shop.refund(each)
        await shop.pass_time()
        acknowledged = [each.acknowledged for each in shop.sandbox.ledger.deliveries()]

        assert ([ORDER], [ORDER]) == first
        assert [ORDER, "RA", "RB"] == shop.books.of("credited") == shop.books.of("mailed")
        assert [True] * 3 == acknowledged


async def test_thirteen_renewals_are_thirteen_events(profile: Profile, tmp_path: Path) -> None:
    """Each monthly renewal of a subscription is handled as one event (docs/reference/service.md#notifications)."""
    async with opened(profile, tmp_path) as shop:
        subscription = await shop.sandbox.given.subscription("monthly")
        await shop.sandbox.clock.advance(timedelta(days=397))
        await shop.settle()
        renewed = shop.books.of("credited")

        assert sorted(f"{subscription} {period}" for period in range(2, 15)) == renewed
        assert renewed == shop.books.of("mailed")
