"""What the sandbox's answers are about stands where the profile says, so that a client believes each of them."""

from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    AnswerShape,
    DuplicateError,
    HttpCodes,
    Profile,
    Recovery,
    Response,
    ResultCodes,
    RetryPolicy,
    ServiceError,
    Session,
)
from payasync.sandbox import PROFILE, Sandbox

FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
PLACES: Final = {
    "out_trade_no": "about.order",
    "out_refund_no": "about.refund",
    "total_amt": "about.total",
    "refund_amt": "about.part",
    "currency": "money.unit",
    "merchant_id": "shop",
}


def answering(**points: Any) -> Profile:
    """Return the sandbox's own profile with other points of an answer."""
    return evolve(PROFILE, answer=evolve(PROFILE.answer, **points))


ABOUT: Final = evolve(
    answering(**PLACES),
    constants={"*": {"currency": "CAD"}},
    merchant=["payments.create", "orders.place", "refunds.create"],
)
"""Every path is given, so that each success must say what its request did; `currency` goes with all ten."""

Ask = Callable[[Session], Awaitable[Response]]
CALLS: Final[dict[str, tuple[Ask, dict[str, Any]]]] = {
    "payments.create": (
        lambda pay: pay.payments.create(amount=9, currency="USD"),
        {"total": 9, "unit": "USD", "shop": "SANDBOX"},
    ),
    "orders.place": (
        lambda pay: pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T2"),
        {"order": "T2", "total": 450, "unit": "CAD", "shop": "SANDBOX"},
    ),
    "orders.query": (lambda pay: pay.orders.query("T1"), {"order": "T1", "total": 450, "unit": "CAD"}),
    "orders.close": (lambda pay: pay.orders.close("T0"), {"order": "T0", "unit": "CAD"}),
    "refunds.create": (
        lambda pay: pay.refunds.create(out_trade_no="T1", out_refund_no="R2", total_amt=450, refund_amt=2),
        {"order": "T1", "refund": "R2", "total": 450, "part": 2, "unit": "CAD", "shop": "SANDBOX"},
    ),
    "payments.status": (lambda pay: pay.payments.status("T1"), {"order": "T1", "total": 450, "unit": "CAD"}),
    "refunds.status": (lambda pay: pay.refunds.status("R1"), {"refund": "R1", "total": 450, "part": 1, "unit": "CAD"}),
    "subscriptions.create": (
        lambda pay: pay.subscriptions.create(
            frequency="monthly", amount=9, start_date=date(2999, 1, 31), customer={"a": "b"}
        ),
        {"amount": 9, "unit": "CAD"},
    ),
}


@pytest.mark.parametrize(("ask", "expected"), CALLS.values(), ids=CALLS)
async def test_successes_name_what_they_are_about(ask: Ask, expected: dict[str, Any]) -> None:
    """A path that is given must be there in a success: the client believes each, and reads the request's own in it."""
    async with Sandbox(ABOUT) as sandbox, sandbox.session(retry=FAST) as pay:
        await sandbox.given.pending_order(out_trade_no="T0")
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=1)
        document = (await ask(pay)).document
    told = {**document.get("about", {}), **document["money"], "shop": document["shop"]}
    told |= {name: document[name] for name in {"amount"} & set(document)}

    assert expected == {name: told[name] for name in expected}
    assert ("amount" in expected) is ("amount" in document)
    assert not {"outTradeNo", "outRefundNo", "totalAmt", "refundAmt", "currency", "merchantId"} & set(document)


async def test_recovered_by_what_it_is_about() -> None:
    """A query after a lost answer is held to the write's amounts and merchant, which it does not send itself."""
    async with Sandbox(ABOUT) as sandbox, sandbox.session(retry=FAST) as pay:
        sandbox.faults.reset_after_commit("orders.place")
        sandbox.faults.reset_after_commit("refunds.create")
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        await sandbox.customer.authorize("T1")
        refunded = await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=1)

    assert [True, True] == [placed.recovered, refunded.recovered]


async def test_number_that_an_answer_tells() -> None:
    """A test may give an answer in place of a number, wherever the number stands in it."""
    async with Sandbox(ABOUT) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD")
        await sandbox.customer.authorize(placed)
        found = await pay.orders.query(placed.document["about"]["order"])

    assert "paid" == found.state


async def test_what_is_not_compared_gives_way() -> None:
    """Where `outTradeNo` is said to be something else, the sandbox tells that there, and the number nowhere."""
    profile = answering(out_trade_no="", payment_id="outTradeNo")
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        found = await pay.payments.status("T1")

    assert "T1" != found.payment_id
    assert placed.document["outTradeNo"] == found.payment_id


async def test_path_that_takes_the_place_of_an_open_point() -> None:
    """What the profile answers stands where it says; what it leaves open is not told at the same place."""
    open_ = AnswerShape(code="code", ok=["OK"], total_amt="paymentId")
    async with Sandbox(evolve(PROFILE, answer=open_)) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")

    assert 450 == placed.document["paymentId"]


SIGNED: Final = evolve(answering(signature="sign"), recovery=Recovery(quarantine=0.0))


@pytest.mark.parametrize(("said", "signed"), [(True, True), (False, False), (None, True)])
async def test_refusals_are_signed_as_the_profile_says(*, said: bool | None, signed: bool) -> None:
    """Where the profile does not say, the sandbox signs them; either way "absent" is final."""
    profile = evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=said))
    async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
        with pytest.raises(ServiceError) as caught:
            await pay.orders.query("T9")
        number = await sandbox.given.paid_order(total_amt=450)
        sandbox.faults.reset_before("refunds.create")
        made = await pay.refunds.create(out_trade_no=number, out_refund_no="R1", total_amt=450, refund_amt=1)
        asked = [len(sandbox.ledger.calls(name)) for name in ("refunds.create", "refunds.status")]

    assert caught.value.response is not None
    document: Any = caught.value.response.document
    assert signed == ("sign" in document)
    assert ("SBX_NOT_FOUND", True) == (document["code"], "sign" in made.document)
    assert [1, 1] == asked


UNCODED: Final = evolve(
    answering(code="", ok=()),
    codes=ResultCodes(),
    http=HttpCodes(duplicate=(410, 409), not_executed=(404, 422), absent=(404,)),
)


@pytest.mark.parametrize(
    ("statuses", "expected"), [((409,), 409), ((410,), 410), ((423, 410), 423), ((410, 409), 409), ((), 409)]
)
async def test_used_before_is_told_by_a_status_of_the_profile(statuses: tuple[int, ...], expected: int) -> None:
    """Without a code the status alone says it: one that the profile reads so, and 409 where that is one."""
    profile = evolve(UNCODED, http=evolve(UNCODED.http, duplicate=statuses))
    kind: type[Exception] = DuplicateError if statuses else Exception
    async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
        await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        with pytest.raises(kind):
            await pay.orders.place(total_amt=451, currency="CAD", out_trade_no="T1")
        statuses_told = [each.status for each in sandbox.ledger.calls("orders.place")]

    assert [200, expected] == statuses_told


async def test_used_before_inside_200() -> None:
    """A service that tells refusals inside HTTP 200 tells this one there, too."""
    profile = evolve(PROFILE, http=HttpCodes(not_executed=(), duplicate=(410,)))
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        with pytest.raises(DuplicateError) as caught:
            await pay.orders.place(total_amt=451, currency="CAD", out_trade_no="T1")

    assert 200 == caught.value.http_status
