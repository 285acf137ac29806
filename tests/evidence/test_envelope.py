"""Without the envelope of `answer.data`, the payload is empty, whatever else the document holds."""

from itertools import product
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from attrs import evolve

from payasync.errors import OutcomeUnknownError, ServiceError
from payasync.journal import SqliteJournal
from payasync.profile import AnswerShape, ResultCodes, States
from tests import sessions
from tests.foreign.recorder import Recorder, answer
from tests.wire.ten import CREDENTIALS, DOCUMENTED, TEN, TenCall

LOCATED: Final = ("payment_id", "redirect_url")
STATES: Final = ("payment_status", "order_status", "refund_status", "subscription_status")
AT_STATUS: Final[dict[str, Any]] = dict.fromkeys((*LOCATED, *STATES), "status")
SHAPE: Final = AnswerShape(data="data", **AT_STATUS)
CODED: Final = evolve(SHAPE, code="code", ok=(0,))
PROFILE: Final = evolve(
    DOCUMENTED,
    answer=SHAPE,
    states=States(
        order={"paid": ("OK",)},
        payment={"paid": ("OK",)},
        refund={"succeeded": ("OK",)},
        subscription={"active": ("OK",)},
    ),
    codes=ResultCodes(not_executed=(9,), absent=(4,)),
)
NAMES: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "subscriptionId": "S1", "merchantId": "M1"}
BY_NAME: Final = {each.name: each for each in TEN}


async def ended(call: TenCall, document: object, shape: AnswerShape = SHAPE) -> Any:
    """Return the response or the error of a call to a service that always responds with a document."""
    service = Recorder(otherwise=answer(200, orjson.dumps(document)))
    return await sessions.ended(call.call, service, evolve(PROFILE, answer=shape), CREDENTIALS)


async def test_success_without_the_envelope() -> None:
    """It stays a success, by its code or by 2xx. No field beside the envelope is a state, a number or an address."""
    coded: dict[str, Any] = {"status": "OK", "code": 0}
    cases = [({"status": "OK"}, SHAPE), ({"status": True, "message": "done"}, SHAPE), (coded, CODED)]
    for call, (document, shape) in product(TEN, cases):
        found = await ended(call, document, shape)
        located = [getattr(found, name) for name in (*LOCATED, *STATES) if hasattr(found, name)]

        assert (document, 1, None, {None}) == (found.data, found.attempts, found.state, {None, *located})


@pytest.mark.parametrize("document", [{"status": True}, {"status": "OK", "subscriptionId": "S1"}])
async def test_done_cancel_without_the_envelope(tmp_path: Path, document: dict[str, Any]) -> None:
    """A cancel that is only acknowledged is done, also where each success with a state must name the subscription."""
    profile = evolve(PROFILE, answer=evolve(SHAPE, subscription_id="subscriptionId"))
    service = Recorder(otherwise=answer(200, orjson.dumps(document)))
    async with SqliteJournal(tmp_path / "pay.db") as journal:
        cancel = BY_NAME["subscriptions.cancel"].call
        found = await sessions.ended(cancel, service, profile, CREDENTIALS, journal=journal)
        states = [each.state for each in await journal.list()]

    assert (None, None, ["succeeded"]) == (found.state, found.subscription_id, states)


async def test_given_path_is_missing_without_the_envelope() -> None:
    """A path that each success must have is in the payload: what stands beside the envelope does not count."""
    for call, path in product(TEN, ["no", "its.no"]):
        key, number = ("out_refund_no", "R1") if call.name.startswith("refunds.") else ("out_trade_no", "T1")
        given: dict[str, Any] = {key: path}
        found = await ended(call, {"no": number, "its": {"no": number}}, evolve(SHAPE, **given))
        numbered = call.name.startswith(("orders.", "refunds.")) or call.name == "payments.status"

        assert numbered is (f"the response lacks {path}" in str(found))


async def test_another_number_beside_the_missing_envelope() -> None:
    """Neither a success nor a refusal counts if it names another number, wherever it stands."""
    for field in ["merchantId", "outTradeNo", "outRefundNo"]:
        for code in [0, 9, 4]:
            found = await ended(BY_NAME["refunds.create"], {**NAMES, field: "X9", "code": code}, CODED)

            assert OutcomeUnknownError is type(found)
            assert f"{field} is X9 in the response" in str(found)


async def test_not_found_without_the_envelope() -> None:
    """The status of an envelope does not contradict "not found": it is no state of the order or the refund."""
    for name in ["orders.query", "refunds.status"]:
        found = await ended(BY_NAME[name], {"code": 4, "status": "OK"}, CODED)

        assert isinstance(found, ServiceError)
        assert found.absent


async def test_null_in_place_of_the_payload() -> None:
    """A payload that is null is empty, too."""
    found = await ended(TEN[1], {"data": None, "status": "OK"})

    assert (None, None, None) == (found.data, found.state, found.order_status)


async def test_address_of_parts_without_the_envelope() -> None:
    """The parts of an address are in the payload: what stands beside the envelope does not count."""
    shape = AnswerShape(data="data", redirect_template="https://pay.example/{status}")
    found = await ended(BY_NAME["orders.place"], {"status": "OK"}, shape)

    assert found.redirect_url is None
