"""Two merchants of one service, which signs for both with one key: M1's receiver, and all that M2 can post to it."""

import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from attrs import evolve
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from payasync import Credentials, Profile, Secret, Session
from payasync.journal import SqliteJournal
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.sandbox import PROFILE, Sandbox
from payasync.testing import sign_notification
from tests.examples.shops import EXAMPLES, NAMES
from tests.foreign.signatures import rsa_keys
from tests.notifications.merchant import Clock, pace
from tests.test_services import SERVICES, profile_of

Opened: TypeAlias = AsyncGenerator[tuple[Receiver, Callable[[], list[Any]]]]
Letters: TypeAlias = list[tuple[bytes, Mapping[str, str], str | None]]

WEBHOOK_KEY: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ADDRESSES: Final = (None, "payment", "refund", "subscription")
PLACED: Final[Mapping[str, Any]] = {"out_trade_no": "T1", "total_amt": 450, "currency": "CAD"}
REFUND: Final[Mapping[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
ROWS: Final = """
INSERT INTO orders VALUES ('T1', 'coffee', 450, 'open', '2027-01-31 00:00:00');
INSERT INTO refunds VALUES ('R1', 'T1', 200, 'processing', '', '2027-01-31 00:00:00', '2027-01-31 00:00:00');
CREATE VIEW done AS SELECT 'payment', 'paid', order_number FROM parcels
UNION ALL SELECT 'refund', state, number FROM refunds WHERE state = 'succeeded';
"""


def renamed(value: Any, old: str, new: str) -> Any:
    """Return a document that names another merchant; with no new name, it names nobody."""
    if not isinstance(value, dict):
        return new if value == old else value
    return {name: renamed(each, old, new) for name, each in value.items() if new or each != old}


async def letters_of_m2(profile: Profile, credentials: Credentials, key: str | None) -> Letters:
    """Return all that M2 can post: responses and notifications about his T1 and R1, with each name of an event."""
    async with Sandbox(profile) as sandbox, sandbox.receiver() as told, sandbox.session() as pay:
        sandbox.webhook_url = told.url
        await sandbox.given.paid_order(**PLACED)
        found: list[Any] = [dict((await pay.orders.query("T1")).document)]
        await pay.refunds.create(**REFUND)
        found.append(dict((await pay.refunds.status("R1", out_trade_no="T1")).document))
        await sandbox.settle()
        found += [each.document for each in told.received]
        named = [renamed(each, sandbox.credentials.merchant_id, name) for each in found for name in ("M2", "")]
    shape = profile.notification
    whole = evolve(profile, notification=evolve(shape, data=""))  # the envelope, if any, is in the document
    letters = [sign_notification(each, profile=whole, credentials=credentials, key=key) for each in named]
    headers = [{}, *({shape.kind_header: each[0]} for each in shape.kinds.values() if shape.kind_header)]
    return [(each.raw, {**each.headers, **more}, to) for each in letters for more in headers for to in ADDRESSES]


@asynccontextmanager
async def m1(name: str, folder: Path, pay: Session, clock: Clock, patch: pytest.MonkeyPatch) -> Opened:
    """Open M1's receiver, with a handler that notes its events or with those of a shop, and yield what was done."""
    done = list[Any]()
    inbox, database = SqliteInbox(folder / "inbox.db", clock=clock), folder / "shop.db"
    make = partial(Receiver, pace=pace(clock))
    if name not in NAMES:
        receiver = make(inbox=inbox, session=pay)

        @receiver.on("*")
        async def note(it: Notification) -> None:
            done.append((it.kind, it.state, it.out_refund_no or it.out_trade_no or it.subscription_id))

        async with receiver:
            yield receiver, lambda: list(done)
        return
    spec: Any = spec_from_file_location(f"{name}_of_m1", EXAMPLES / name / "shop.py")
    shop: Any = module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, shop)
    spec.loader.exec_module(shop)
    engine = create_async_engine(f"sqlite+aiosqlite:///{database}")
    if name == "aiohttp_shop":
        patch.setattr(shop, "Receiver", make)
        own = shop.Database(database)
        receiver = shop.receive(shop.Payments("http://shop.example", pay, own), pay.journal, inbox)
    else:
        async with engine.begin() as made:
            await made.run_sync(shop.Base.metadata.create_all)
        receiver = make(inbox=inbox, session=pay)
        own = async_sessionmaker(engine, expire_on_commit=False)
        shop.register_handlers(receiver, shop.Shop("http://shop.example", Secret("-"), pay, own), pay.journal)
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.executescript(getattr(shop, "TABLES", "") + ROWS)
        async with receiver:
            yield receiver, lambda: db.execute("SELECT * FROM done").fetchall()
    await engine.dispose()


@pytest.mark.parametrize("name", [*SERVICES, *NAMES])
async def test_only_his_own_events(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the service signed for M2 runs a handler of M1, at no address and under no unsigned event header.

    It may name M2 or nobody, and has the numbers of M1's own order and refund. M1's own events are handled once each.
    """
    profile = PROFILE if name in NAMES else profile_of(name)
    private, public = (file.read_text(encoding="ascii") for file in rsa_keys(tmp_path, owner="service"))
    asymmetric = getattr(profile.scheme, "symmetric", True) is False
    of_m2 = Credentials("M2", service_keys=public if asymmetric else "key of all", notification_keys=WEBHOOK_KEY)
    letters = await letters_of_m2(profile, of_m2, private if asymmetric else None)
    clock, payment, refund = Clock(time.time()), ("payment", "paid", "T1"), ("refund", "succeeded", "R1")
    async with Sandbox(profile, refunds="by hand") as sandbox, sandbox.receiver() as told:
        sandbox.webhook_url = told.url
        own = sandbox.credentials
        keys, hooks = own.service_keys + of_m2.service_keys, own.notification_keys + of_m2.notification_keys
        of_m1 = evolve(own, service_keys=keys, notification_keys=hooks)
        async with (
            SqliteJournal(tmp_path / "pay.db") as journal,
            sandbox.session(credentials=of_m1, journal=journal) as pay,
            Receiver(profile=profile, credentials=of_m2, inbox=SqliteInbox(tmp_path / "m2.db")),
            m1(name, tmp_path, pay, clock, monkeypatch) as (receiver, deeds),
        ):

            async def arrive(of_another: Letters | None = None) -> list[Any]:
                await sandbox.settle()
                mine: Letters = [(each.body.encode(), each.headers, None) for each in told.received]
                for raw, headers, address in mine * 2 if of_another is None else of_another:
                    await receiver.receive(raw, headers, address)
                for _ in range(10):
                    await receiver.settle()
                    clock.advance(1.0)
                return deeds()

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
