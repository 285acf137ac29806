"""Data that a journal's file must never contain: keys, nonces, signatures and customer details."""

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import Credentials, OutcomeUnknownError, RetryPolicy, ServiceError, Session
from payasync.credentials import Secret
from payasync.journal import SqliteJournal
from payasync.profile.schema import AnswerShape
from payasync.resources.subscriptions import CreateSubscription
from payasync.sandbox import Sandbox
from payasync.signing.schemes import Signer, SortedPairs
from payasync.strict_json import dumps
from tests.building import PROFILE, codec
from tests.foreign.recorder import Recorder, answer

CUSTOMER: Final = {
    "email": "canary-mail@example.com",
    "name": "Canary Name",
    "address": {"street": "12 Canary Row"},
    "phone": 49151123456,
}
STATES: Final = [
    *("payments.create accepted", "orders.place accepted", "orders.close succeeded", "refunds.create succeeded"),
    *("subscriptions.create succeeded", "subscriptions.update succeeded", "subscriptions.update rejected"),
    "subscriptions.cancel unknown",
]
DETAILS: Final = ("canary-mail", "Canary Name", "Canary Row", "49151123456")


def written(folder: Path) -> bytes:
    """Return all that stands in the files of a folder."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


def secrets_of(credentials: Credentials) -> list[str]:
    """Return the texts of a merchant's keys."""
    given = (credentials.secret_key, credentials.public_key, credentials.signing_key)
    keys = (*given, *credentials.service_keys, *credentials.notification_keys)
    return [key.reveal() for key in keys if key]


async def all_writes(pay: Any) -> None:
    """Do every kind of write that a journal records, and a read; two of the writes fail."""
    await pay.payments.create(amount=1, currency="USD", description="canary-word")
    await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T2", extra={"email": CUSTOMER["email"]})
    await pay.orders.close("T2")
    await pay.refunds.create(
        out_trade_no="T1",
        out_refund_no="R1",
        total_amt=450,
        refund_amt=200,
        refund_desc="canary-word",
        notify_url="https://shop.example/?token=canary-address",
    )
    await pay.refunds.status("R1")
    made = await pay.subscriptions.create(
        frequency="monthly", amount=900, start_date=date(2999, 1, 1), customer=CUSTOMER
    )
    await pay.subscriptions.update(str(made.subscription_id), customer=CUSTOMER)
    with pytest.raises(ServiceError):
        await pay.subscriptions.update("none", customer=CUSTOMER, intent="a")
    with pytest.raises(OutcomeUnknownError):
        await pay.subscriptions.cancel(str(made.subscription_id))


async def test_file_holds_no_secret(journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After writes of all kinds, no file of the journal contains a key, a nonce, a signature or customer details.

    The journal records each write with its state, and no read.
    """
    nonces, signatures = list[str](), list[str]()
    prepared = SortedPairs.signer

    def signer(self: SortedPairs, key: Secret) -> Signer:
        sign = prepared(self, key)

        def signed(fields: Mapping[str, Any], path: str) -> str:
            nonces.append(fields["nonceStr"])
            signatures.append(sign(fields, path))
            return signatures[-1]

        return signed

    monkeypatch.setattr(SortedPairs, "signer", signer)
    async with Sandbox(clock="frozen") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        sandbox.faults.reset_after_commit("subscriptions.cancel")
        async with sandbox.session(journal=journal, retry=RetryPolicy(attempts=1)) as pay:
            await all_writes(pay)
            keys = secrets_of(sandbox.credentials)
    found = written(path.parent)

    assert STATES == [f"{each.operation} {each.state}" for each in await journal.list()]
    assert keys
    assert nonces
    assert signatures
    assert b"refunds.create:R1" in found
    forbidden = [
        *keys,
        *nonces,
        *signatures,
        *DETAILS,
        "canary-word",
        "canary-address",
        "nonceStr",
        '"sign"',
        "Bearer",
    ]
    assert [] == [text for text in forbidden if text.encode() in found]


@pytest.mark.parametrize("whole", [False, True])
async def test_service_that_repeats_everything_gives_nothing_away(path: Path, *, whole: bool) -> None:
    """If the service echoes the request or quotes it in an error, the journal stores no customer details or keys."""
    request = CreateSubscription(frequency="monthly", amount=900, start_date=date(2027, 1, 31), customer=CUSTOMER)
    fields = dict(codec().call(request).fields) | {"nonceStr": "canarynonce", "sign": "canarysign"}
    echo = {"request": fields, "to": CUSTOMER["email"], "said": f"welcome, {CUSTOMER['name']}", "call": 49151123456}
    echo |= {"message": "Authorization: Bearer sk_canary"}
    refused = {"message": f"{CUSTOMER['email']} of {CUSTOMER['name']} is unknown: Authorization: Bearer sk_canary"}
    profile = evolve(PROFILE, answer=AnswerShape(message="message"))
    with pytest.warns(DeprecationWarning, match="whole_answers") if whole else nullcontext():
        opened = SqliteJournal(path, whole_answers=whole)
    async with opened as journal:
        with Recorder([answer(200, dumps(echo)), answer(400, dumps(refused))]) as service:
            keys = Credentials("M1", secret_key="sk_canary", signing_key="signing_key_canary")
            async with Session(service.url, credentials=keys, profile=profile, journal=journal) as pay:
                await pay.send(request)
                with pytest.raises(ServiceError, match="canary-mail"):
                    await pay.send(request)
        states = [each.state for each in await journal.list()]
        found = written(path.parent)

    assert [] == [text for text in (*DETAILS, "canarynonce", "canarysign", "_canary") if text.encode() in found]
    assert (["succeeded", "rejected"], whole) == (states, b"welcome" in found)
