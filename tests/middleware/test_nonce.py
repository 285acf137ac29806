import re

from payasync.middleware.nonce import nonce
from payasync.operations import CREATE_PAYMENT, CREATE_REFUND
from tests.building import bare_call, way


async def test_each_attempt_has_its_own_nonce() -> None:
    """A signed call carries 32 hexadecimal digits that no other attempt has (spec: Authentication, 3)."""
    end, call = way(), bare_call(CREATE_REFUND, fields={"a": 1}, signed=True)
    for _ in range(100):
        await nonce(call, end.send)
    drawn = {sent.fields["nonceStr"] for sent in end.calls}

    assert 100 == len(drawn)
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in drawn)
    assert {"a": 1} == call.fields
    assert 1 == end.calls[0].fields["a"]


async def test_unsigned_call_has_no_nonce() -> None:
    """A call that is not signed goes on as it is."""
    end, call = way(), bare_call(CREATE_PAYMENT)
    await nonce(call, end.send)

    assert [call] == end.calls
