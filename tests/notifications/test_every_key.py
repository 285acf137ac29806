"""Every key of a profile's `[notification]` has an effect: the same notifications, with its line and without it."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import fields, frozen
from standardwebhooks import Webhook

from payasync import NotConfiguredError, Profile, Session
from payasync.notifications import verify
from payasync.profile.schema import NotificationShape
from tests.foreign.signatures import hmac_sha256, signed_text
from tests.notifications.merchant import CREDENTIALS, NOW, Shop, opened

Look = Callable[[Shop], Awaitable[Any]]
NOWHERE: Final = Session("http://127.0.0.1:1", credentials=CREDENTIALS, profile=Profile())
"""Whoever is sent what is not signed must be able to ask; nobody does here."""


@frozen
class Effect:
    """What one key does.

    Attributes:
        key: As TOML writes it.
        line: The line that gives it.
        look: What is seen of it.
        seen: What that is with the line, and what without it.
        base: Lines that both profiles have.
        other: A line in place of the key's, where there must be one.
    """

    key: str
    line: str
    look: Look
    seen: tuple[Any, Any]
    base: str
    other: str = ""

    async def shown(self, line: str, folder: Path) -> Any:
        """Return what is seen with a profile of these lines, or which point is open."""
        profile = Profile.from_toml(f"{self.base}\n{line}")
        try:
            async with opened(folder, profile=profile, session=NOWHERE) as shop:
                shop.recording()
                return await self.look(shop)
        except NotConfiguredError as error:
            return f"open: {error.field}"


def in_headers(raw: bytes, message: str = "m1", at: float = NOW) -> dict[str, str]:
    """Return the headers that the scheme's own package makes."""
    (key,) = CREDENTIALS.notification_keys
    sent = datetime.fromtimestamp(at, UTC)
    signed = Webhook(key.reveal()).sign(message, sent, raw.decode())
    return {"webhook-id": message, "webhook-timestamp": str(int(at)), "webhook-signature": signed}


def in_body(name: str = "sign", **told: Any) -> bytes:
    """Return a body that has its signature, which openssl makes, under a name of its own."""
    return json.dumps({**told, name: hmac_sha256(signed_text(told), "signing key of M1")}).encode()


def fact(name: str, raw: bytes) -> Look:
    """See an attribute of a notification that is signed in its headers."""

    async def look(shop: Shop) -> Any:
        told = verify(raw, in_headers(raw), profile=shop.profile, credentials=CREDENTIALS, clock=shop.clock)
        return getattr(told, name)

    return look


def answer(name: str, raw: bytes, headers: dict[str, str]) -> Look:
    """See an attribute of what a notification is answered with."""

    async def look(shop: Shop) -> Any:
        return getattr(await shop.receiver.receive(raw, headers, "payment"), name)

    return look


def events(*bodies: bytes) -> Look:
    """See what becomes of payments that are told one after the other."""

    async def look(shop: Shop) -> list[str]:
        for number, raw in enumerate(bodies):
            await shop.receiver.receive(raw, in_headers(raw, f"m{number}"), "payment")
        await shop.receiver.settle()
        return await shop.states()

    return look


ACKNOWLEDGED: Final = "notification.ack_status = 200"
HEADERS: Final = f'{ACKNOWLEDGED}\nnotification.verification = "standard-webhooks"'
SCHEME: Final = f'{ACKNOWLEDGED}\nsignature.algorithm = "hmac-sha256"\nsignature.encoding = "hex"'
STATE: Final = 'answer.order_status = "state"\nstates.order.paid = ["paid"]'
BODY: Final = f'{SCHEME}\n{STATE}\nnotification.verification = "body"'
PAID: Final = b'{"no":"T1","is":"paid"}'
TRIES: Final = (b'{"no":"T1","try":1}', b'{"no":"T1","try":2}')
NESTED: Final = b'{"data":[{"no":"T1"}],"no":"outside"}'
SENT: Final = in_headers(PAID)
STALE: Final = "2027-01-15T07:00:00Z"
"""An hour before `NOW`."""


def number(name: str) -> Effect:
    """Return that a path leads to a number inside the payload, and that without it nobody looks."""
    base = f'{HEADERS}\nnotification.data = "data.0"'
    return Effect(f"notification.{name}", f'notification.{name} = "no"', fact(name, NESTED), ("T1", None), base)


EFFECTS: Final = (
    Effect(
        "notification.verification",
        'notification.verification = "standard-webhooks"',
        answer("status", PAID, SENT),
        (200, "open: notification.verification"),
        ACKNOWLEDGED,
    ),
    Effect(
        "notification.verification",
        'notification.verification = "standard-webhooks"',
        answer("status", PAID, {}),
        (400, 200),
        ACKNOWLEDGED,
        'notification.verification = "none"',
    ),
    Effect(
        "notification.verification",
        'notification.verification = "body"',
        answer("status", in_body(state="paid", no="T1"), {}),
        (200, 400),
        f'{SCHEME}\n{STATE}\nnotification.signature = "sign"',
        'notification.verification = "standard-webhooks"',
    ),
    Effect(
        "notification.data",
        'notification.data = "data.0"',
        fact("data", NESTED),
        ({"no": "T1"}, {"data": [{"no": "T1"}], "no": "outside"}),
        HEADERS,
    ),
    Effect(
        "notification.signature",
        'notification.signature = "seal"',
        answer("status", in_body("seal", state="paid", no="T1"), {}),
        (200, 400),
        BODY,
        'notification.signature = "sign"',
    ),
    Effect(
        "notification.kind",
        'notification.kind = "is"',
        fact("kind", PAID),
        ("payment", None),
        f'{HEADERS}\nnotification.kinds.payment = ["paid"]',
    ),
    Effect(
        "notification.kinds",
        'notification.kinds.refund = ["paid"]',
        fact("kind", PAID),
        ("refund", None),
        f'{HEADERS}\nnotification.kind = "is"',
    ),
    Effect(
        "notification.time",
        'notification.time = "at"',
        answer("status", in_body(state="paid", no="T1", at=STALE), {}),
        (400, 200),
        f'{BODY}\nnotification.signature = "sign"',
    ),
    Effect(
        "notification.tolerance",
        "notification.tolerance = 400",
        answer("status", PAID, in_headers(PAID, at=NOW - 350)),
        (200, 400),
        HEADERS,
    ),
    Effect(
        "notification.tolerance",
        "notification.tolerance = 4000",
        answer("status", in_body(state="paid", no="T1", at=STALE), {}),
        (200, 400),
        f'{BODY}\nnotification.signature = "sign"\nnotification.time = "at"',
    ),
    Effect(
        "notification.id",
        'notification.id.payment = ["no"]',
        events(PAID, PAID),
        (["done"], ["done", "done"]),
        HEADERS,
    ),
    number("out_trade_no"),
    number("out_refund_no"),
    number("subscription_id"),
    Effect(
        "notification.volatile",
        'notification.volatile = ["try"]',
        events(*TRIES),
        (["done"], ["done", "quarantined"]),
        f'{HEADERS}\nnotification.id.payment = ["no"]',
    ),
    Effect(
        "notification.ack_status",
        "notification.ack_status = 202",
        answer("status", PAID, SENT),
        (202, "open: notification.ack_status"),
        'notification.verification = "standard-webhooks"',
    ),
    Effect("notification.ack_body", 'notification.ack_body = "YES"', answer("body", PAID, SENT), ("YES", ""), HEADERS),
    Effect(
        "notification.nack_status", "notification.nack_status = 403", answer("status", PAID, {}), (403, 400), HEADERS
    ),
    Effect("notification.nack_body", 'notification.nack_body = "NO"', answer("body", PAID, {}), ("NO", ""), HEADERS),
)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.key)
async def test_effect(effect: Effect, tmp_path: Path) -> None:
    """With its line the key has its effect, and without it none: nobody ignores what a profile says."""
    folders = [tmp_path / "with", tmp_path / "without"]
    for folder in folders:
        folder.mkdir()
    lines = (effect.line, effect.other)
    seen = [await effect.shown(line, folder) for line, folder in zip(lines, folders, strict=True)]

    assert effect.seen == tuple(seen)


def test_no_key_is_forgotten() -> None:
    """Each key that a profile knows of notifications is in the table above."""
    known = {f"notification.{each.name}" for each in fields(NotificationShape)}

    assert sorted(known) == sorted({effect.key for effect in EFFECTS})
