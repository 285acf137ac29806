"""Two merchants of one service, which signs for both with one key: M1's receiver, and all that M2 can post to it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from attrs import evolve

from payasync import Credentials, Profile
from payasync.journal import SqliteJournal
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.sandbox import Sandbox
from payasync.testing import sign_notification
from tests.foreign.signatures import rsa_keys
from tests.notifications.merchant import Clock, pace
from tests.test_services import SERVICES, profile_of

Letters: TypeAlias = list[tuple[bytes, Mapping[str, str], str | None]]
WEBHOOK_KEY: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ADDRESSES: Final = (None, "payment", "refund", "subscription")
PLACED: Final[Mapping[str, Any]] = {"out_trade_no": "T1", "total_amt": 450, "currency": "CAD"}
REFUND: Final[Mapping[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}


def renamed(value: Any, old: str, new: str) -> Any:
    """Return a document that names another merchant; with no new name, it names nobody."""
    if not isinstance(value, dict):
        return new if value == old else value
    return {name: renamed(each, old, new) for name, each in value.items() if new or each != old}


async def letters_of_m2(profile: Profile, credentials: Credentials, key: str | None) -> Letters:
    """Return all that M2 can post: responses and notifications about his T1 and R1, with each name of an event."""
    async with Sandbox(profile) as sandbox, sandbox.receiver() as endpoint, sandbox.session() as pay:
        sandbox.webhook_url = endpoint.url
        await sandbox.given.paid_order(**PLACED)
        found: list[Any] = [dict((await pay.orders.query("T1")).document)]
        await pay.refunds.create(**REFUND)
        found.append(dict((await pay.refunds.status("R1", out_trade_no="T1")).document))
        await sandbox.settle()
        found += [each.document for each in endpoint.received]
        named = [renamed(each, sandbox.credentials.merchant_id, name) for each in found for name in ("M2", "")]
    shape = profile.notification
    whole = evolve(profile, notification=evolve(shape, data=""))  # the envelope, if any, is in the document
    letters = [sign_notification(each, profile=whole, credentials=credentials, key=key) for each in named]
    headers = [{}, *({shape.kind_header: each[0]} for each in shape.kinds.values() if shape.kind_header)]
    return [(each.raw, {**each.headers, **more}, to) for each in letters for more in headers for to in ADDRESSES]


@pytest.mark.parametrize("name", SERVICES)
async def test_only_his_own_events(name: str, tmp_path: Path) -> None:
    """Nothing that the service signed for M2 runs a handler of M1, at no address and under no unsigned event header.

    It may name M2 or nobody, and has the numbers of M1's own order and refund. M1's own events are handled once each.
    """
    profile, done = profile_of(name), list[Any]()
    private, public = (file.read_text(encoding="ascii") for file in rsa_keys(tmp_path, owner="service"))
    asymmetric = getattr(profile.scheme, "symmetric", True) is False
    of_m2 = Credentials("M2", service_keys=public if asymmetric else "key of all", notification_keys=WEBHOOK_KEY)
    letters = await letters_of_m2(profile, of_m2, private if asymmetric else None)
    clock, payment, refund = Clock(time.time()), ("payment", "paid", "T1"), ("refund", "succeeded", "R1")
    async with Sandbox(profile, refunds="by hand") as sandbox, sandbox.receiver() as endpoint:
        sandbox.webhook_url = endpoint.url
        own = sandbox.credentials
        keys, hooks = own.service_keys + of_m2.service_keys, own.notification_keys + of_m2.notification_keys
        of_m1 = evolve(own, service_keys=keys, notification_keys=hooks)
        async with (
            SqliteJournal(tmp_path / "pay.db") as journal,
            sandbox.session(credentials=of_m1, journal=journal) as pay,
            Receiver(profile=profile, credentials=of_m2, inbox=SqliteInbox(tmp_path / "m2.db")),
            Receiver(inbox=SqliteInbox(tmp_path / "m1.db", clock=clock), session=pay, pace=pace(clock)) as receiver,
        ):

            @receiver.on("*")
            async def note(it: Notification) -> None:
                done.append((it.kind, it.state, it.out_refund_no or it.out_trade_no or it.subscription_id))

            async def arrive(of_another: Letters | None = None) -> list[Any]:
                await sandbox.settle()
                mine: Letters = [(each.body.encode(), each.headers, None) for each in endpoint.received]
                for raw, headers, address in mine * 2 if of_another is None else of_another:
                    await receiver.receive(raw, headers, address)
                for _ in range(10):
                    await receiver.settle()
                    clock.advance(1.0)
                return [*done]

            order = await pay.orders.place(**PLACED)
            seen = [await arrive(letters)]
            await sandbox.customer.authorize(order)
            seen += [await arrive(), await arrive(letters)]
            await pay.refunds.create(**REFUND)
            seen.append(await arrive(letters))
            await sandbox.bank.settle_refund("R1")
            seen.append(await arrive())
            clock.advance(7200)
            seen.append(await arrive([]))

    assert [[], *[[payment]] * 3, *[[payment, refund]] * 2] == seen
