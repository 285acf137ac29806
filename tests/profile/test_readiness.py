"""What a profile is ready for."""

from datetime import date
from types import SimpleNamespace
from typing import Any, Final

import pytest

from payasync import Response, Session
from payasync.profile.profile import Profile
from payasync.profile.readiness import Group, Readiness, inspect_groups, optional_points
from payasync.profile.schema import OPEN_FIELDS
from payasync.sandbox import Sandbox

SIGNING: Final = "request signatures: signature.algorithm, signature.encoding"
PAIRS: Final = 'signature = {algorithm = "hmac-sha256", encoding = "hex"}\n'
OWN_SCHEME: Final[Any] = SimpleNamespace(sign=lambda *_, **__: "", verify=lambda *_, **__: True)


def readiness(group: Group, toml: str = "") -> Readiness:
    """Return whether a profile is ready for a group."""
    return next(each for each in inspect_groups(Profile.from_toml(toml)) if each.group == group)


def missing(group: Group, toml: str = "") -> list[str]:
    """Return what a group still needs."""
    return [f"{each.thing}: {', '.join(each.keys)}" for each in readiness(group, toml).missing]


def test_empty_profile() -> None:
    """An empty profile is ready for nothing, and each group names at most three things, each with its keys."""
    for group in inspect_groups(Profile()):
        assert (False, False) == (group.ready, group.begun)
        assert len(group.missing) in {1, 2, 3}
        assert all(each.thing and each.keys for each in group.missing)
    subscriptions = {key for each in readiness("subscriptions").missing for key in each.keys}
    assert {f"fields.{name}" for name in OPEN_FIELDS if name != "return_url"} <= subscriptions


ABSENT: Final = """codes.absent = ["N"]
        answer.message = "m\""""
READY: Final = {
    "payments": """
        status.payment.name = "id"
        answer.payment_status = "state"
        states.payment.paid = ["PAID"]
    """,
    "orders": """
        signature = {algorithm = "hmac-sha256", encoding = "hex"}
        answer.redirect_url = "url"
        answer.order_status = "state"
        states.order.paid = ["PAID"]
    """,
    "refunds": """
        signature = {algorithm = "hmac-sha256", encoding = "hex"}
        status.refund.name = "outRefundNo"
        answer.refund_status = "state"
        states.refund.succeeded = ["DONE"]
    """,
    "subscriptions": """
        fields = {frequency = "f", subscription_amount = "a", start_date = "d", customer = "c", subscription_id = "i"}
        formats.start_date = "%Y-%m-%d"
        answer = {subscription_id = "i", subscription_status = "s"}
        states.subscription.active = ["ON"]
    """,
    "recovery": """
        signature = {algorithm = "hmac-sha256", encoding = "hex"}
        status.refund.name = "outRefundNo"
        codes.absent = ["N"]
        answer.message = "m"
        recovery.quarantine = 60.0
    """,
    "notifications": """
        notification = {verification = "standard-webhooks", ack_status = 200}
    """,
}


@pytest.mark.parametrize("group", READY)
def test_least_profile_of_a_group(group: Group) -> None:
    """These keys make a group ready, and each of them is necessary."""
    keys = READY[group].strip().splitlines()

    assert [] == missing(group, READY[group])
    assert readiness(group, READY[group]).begun
    assert all(missing(group, "\n".join(keys[:place] + keys[place + 1 :])) for place in range(len(keys)))


def test_other_groups_stay_alone() -> None:
    """A profile of one group begins no other one, but for refunds, whose query recovery needs as well."""
    for group in READY:
        begun = [each.group for each in inspect_groups(Profile.from_toml(READY[group])) if each.begun]

        assert (["refunds", "recovery"] if group == "recovery" else [group]) == begun


async def pay(session: Session, sandbox: Sandbox, group: str) -> list[Response]:
    """Call each method of a group, and return the responses."""
    if group == "payments":
        created = await session.payments.create(amount=450, currency="CAD")
        return [created, await session.payments.status(str(created["paymentId"]))]
    if group == "subscriptions":
        begin = date(2030, 1, 1)
        made = await session.subscriptions.create(frequency="monthly", amount=9, start_date=begin, customer={"id": "C"})
        number = str(made.subscription_id)
        return [made, await session.subscriptions.update(number, amount=8), await session.subscriptions.cancel(number)]
    placed = await session.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
    if group == "refunds":
        await sandbox.customer.authorize("T1")
        refund = await session.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=450)
        return [refund, await session.refunds.status("R1")]
    assert placed.redirect_url
    return [placed, await session.orders.query("T1"), await session.orders.close("T1")]


async def test_ready_group_can_be_called() -> None:
    """If a group is ready, no method of the group asks for a key, and each response has a state."""
    for group in ["payments", "orders", "refunds", "subscriptions"]:
        profile = Profile.from_toml(READY[group])
        async with Sandbox(profile=profile) as sandbox, sandbox.session() as session:
            responses = await pay(session, sandbox, group)

        assert responses
        assert all(hasattr(each, "state") for each in responses)


ABSENT_BY_QUERY: Final = """codes."orders.query".absent = ["N"]
codes."refunds.status".absent = ["N"]
answer.message = "m"
"""
BODY: Final = 'notification = {verification = "body", ack_status = 200, id = {payment = ["no"]}}\n'
HEADER: Final = BODY.replace('"body"', '"header", header = {signature = "X-Signature"}')
NOBODY: Final = 'notification = {verification = "none", ack_status = 200}\n'
CONFIRMED: Final = """notification = {verification = "none", ack_status = 200, out_trade_no = "o", out_refund_no = "r"}
answer = {order_status = "s", refund_status = "s"}
states = {order = {paid = ["P"]}, refund = {succeeded = ["S"]}}
"""
"""Unsigned notifications, and all that asks about them."""
SENT: Final = f"{PAIRS}{HEADER}"
OF_REFUND: Final = ["duplicates: notification.id.refund"]


def test_what_is_missing() -> None:
    """What a group needs depends on what the profile says of other points."""
    cases: list[tuple[Group, str, list[str]]] = [
        # What a group needs follows from what is signed.
        ("payments", f'signed = ["payments.create"]\n{READY["payments"]}', [SIGNING]),
        ("payments", f"answer.signature = 'sign'\n{READY['payments']}", [SIGNING]),
        ("orders", f"signed = []\n{READY['orders'].replace(PAIRS.strip(), '')}", []),
        ("recovery", f"signed = []\nrecovery.quarantine = 1.0\n{ABSENT}", ["how to query: status.refund.name"]),
        # A service says "not found" by a code or a message, which must be found itself.
        ("recovery", READY["recovery"].replace(ABSENT, 'answer.message = "m"'), ["'not found': codes.absent"]),
        ("recovery", READY["recovery"].replace(ABSENT, 'codes.absent = ["N"]'), ["'not found': answer.code"]),
        ("recovery", READY["recovery"].replace(ABSENT, ABSENT_BY_QUERY), []),
        ("recovery", READY["recovery"].replace(ABSENT, ABSENT_BY_QUERY.splitlines()[0]), ["'not found': codes.absent"]),
        # The parts of an address are as good as the address.
        ("orders", READY["orders"].replace('redirect_url = "url"', 'redirect_template = "https://a.example/{no}"'), []),
        # What a subscription is created with counts, whatever further arguments a change may have.
        (
            "subscriptions",
            READY["subscriptions"]
            .replace("fields =", 'fields.subscription_id = "i"\nfields."subscriptions.create" =')
            .replace("subscription_amount", "amount")
            .replace(', subscription_id = "i"}', "}"),
            [],
        ),
        # A value that has no effect yet is not asked for again.
        ("recovery", f"answer.signature = 'sign'\n{READY['recovery']}", ["when it is final: answer.refusals_signed"]),
        # Only where responses are signed is it a question whether refusals are.
        *(
            ("recovery", f"{signed}{READY['recovery']}\nanswer.refusals_signed = {said}", [])
            for signed in ("", "answer.signature = 'sign'\n")
            for said in ("true", "false")
        ),
        (
            "refunds",
            READY["refunds"].replace('answer.refund_status = "state"', ""),
            ["its states: answer.refund_status"],
        ),
        # A signed response may hold the address of the payment page, whatever stands in it.
        ("orders", f"answer.signature = 'sign'\n{READY['orders']}", []),
        # Notifications are verified, or else confirmed by a query.
        ("notifications", f"{PAIRS}{BODY}", ["its signature: notification.signature"]),
        ("notifications", BODY, ["its signature: notification.signature, signature.algorithm, signature.encoding"]),
        ("notifications", f"signed = []\n{HEADER}", ["its signature: signature.algorithm, signature.encoding"]),
        ("notifications", SENT, []),
        # Else a hash of the body identifies an event, and a redelivery may differ in it.
        ("notifications", SENT.replace(', id = {payment = ["no"]}', ""), ["duplicates: notification.id"]),
        ("notifications", SENT.replace("id = ", 'kinds = {refund = ["R"], payment = ["P"]}, id = '), OF_REFUND),
        ("notifications", SENT.replace("id = ", 'tells = {payment = "p", refund = "r"}, id = '), OF_REFUND),
        (
            "notifications",
            NOBODY,
            [
                (
                    "how to confirm it: notification.out_trade_no, answer.order_status, states.order, "
                    "notification.out_refund_no, status.refund.name, answer.refund_status, states.refund, "
                    "signature.algorithm, signature.encoding"
                )
            ],
        ),
        ("notifications", f"signed = []\nstatus.refund.name = 'outRefundNo'\n{CONFIRMED}", []),
        (
            "notifications",
            f"signed = []\nstatus.refund.name = 'outRefundNo'\n{CONFIRMED}".replace('order_status = "s", ', ""),
            ["how to confirm it: answer.order_status"],
        ),
        # Where the file tells all kinds, nothing is needed for a kind that the service never sends.
        ("notifications", f"signed = []\n{CONFIRMED}".replace('out_refund_no = "r"', 'kinds = {payment = ["P"]}'), []),
    ]
    for group, toml, expected in cases:
        assert expected == missing(group, toml)


def test_codes_of_success_need_a_place() -> None:
    """A group is not ready with `answer.ok` alone: nothing reads its codes, and a refusal in HTTP 200 is a success."""
    cases: list[Group] = ["payments", "orders", "refunds", "subscriptions"]
    for group in cases:
        code = "the result code: answer.code"

        assert code == missing(group, "[answer]\nok = [0]")[0]
        assert code not in missing(group, '[answer]\nok = [0]\ncode = "c"')


def test_own_scheme_answers_signatures() -> None:
    """A scheme of your own leaves nothing of signatures open."""
    profile = Profile(signature=OWN_SCHEME)
    things = [each.thing for group in inspect_groups(profile) for each in group.missing]

    assert "request signatures" not in things


def test_a_needed_table_is_not_optional() -> None:
    """A point is optional only if no key of its table is needed."""
    needed = BODY.replace("id = ", "kinds = ")
    optional = [{each.name for each in optional_points(Profile.from_toml(toml))} for toml in (needed, NOBODY)]

    assert [False, True] == ["notification.id" in names for names in optional]


def test_other_open_points_are_optional() -> None:
    """Each open point is needed by a group, or optional."""
    profile = Profile()
    needed = {key for each in inspect_groups(profile) for one in each.missing for key in one.keys}
    optional = {each.name for each in optional_points(profile)}
    still_open = {each.name for each in profile.audit() if each.status == "open"}

    assert still_open - optional == needed - {"status.payment.name", "status.refund.name"} | {
        "payment_status",
        "refund_status",
    }
    assert set() == optional & needed
