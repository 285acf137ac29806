"""The profile against Fir's document. The sandbox plays the profile, so it cannot find a mistake in the profile."""

from typing import Any

import pytest
from fir import PROFILE, PROFILE_2

from payasync import Call, Credentials, Profile, Reply, Secret, Send, Session

KEY = Secret("the key of the document")
CHECKSUM = "A3A86AEEA59E3BBC055EA3F67879436CB34353D251CDE39A938887C98654D3ED"
CHECKSUM_2 = "0b0106f42ab01a3ed7ccf7f41c8060c6bfc985805b593ab2f058cae9209e69e4"
REFUND = {
    "shop": "S1",
    "order_no": "T1",
    "refund_no": "R-T1",
    "order_cents": 450,
    "refund_cents": 200,
}
RESPONSE = b"""
{"result": "OK", "payload": {"order_no": "T1", "refund_no": "R-T1", "refund_cents": 200, "refund_state": "QUEUED",
 "salt": "y3", "checksum": "BAE9E2328DE068A5A8F14C495D0B9DC2666DEDD189B9BDA18D581C6E8FEBCBD2"}}
"""


@pytest.mark.parametrize(
    ("profile", "checksum"),
    [(PROFILE, CHECKSUM), (PROFILE_2, CHECKSUM_2)],
    ids=["fir", "fir-2"],
)
def test_checksum_of_the_document(profile: Profile, checksum: str) -> None:
    """The request of the document has the checksum of the document."""
    signature: Any = profile.signature

    assert (
        signature.sign({**REFUND, "salt": "x9"}, path="/refund", key=KEY) == checksum
    )


async def test_refund_of_the_document() -> None:
    """The request has the address and the fields of the document, and its response is understood."""
    sent: list[Any] = []

    async def fir(call: Call, _send: Send) -> Reply:
        sent.append((call.operation.method, call.operation.path, call.fields))
        return Reply(200, {"Content-Type": "application/json"}, RESPONSE)

    credentials = Credentials("S1", signing_key=KEY)
    async with Session(
        "https://fir.example/api",
        credentials=credentials,
        profile=PROFILE,
        middleware=[fir],
    ) as pay:
        refund = await pay.refunds.create(
            out_trade_no="T1", out_refund_no="R-T1", total_amt=450, refund_amt=200
        )

    assert sent == [("POST", "/refund", REFUND)]
    assert refund.state == "processing"
