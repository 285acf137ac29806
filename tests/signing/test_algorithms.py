import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.signing.algorithms import decode_base64


@given(raw=st.binary())
def test_base64_is_read_back(raw: bytes) -> None:
    """What bytes are in base64 is read back as these bytes."""
    assert raw == decode_base64(base64.b64encode(raw).decode())


@given(text=st.text("AQgw+/=", max_size=12))
def test_only_base64_with_the_padding_that_is_due(text: str) -> None:
    """A text that is read has as many characters as the base64 of its bytes, on each Python."""
    with suppress(ValueError):
        assert len(text) == len(base64.b64encode(decode_base64(text)))


@pytest.mark.parametrize(
    "text", ["=", "====", "TQ=+", "TWFu=", "TWFu==", "TWFu====", "TQ=", "TQ===", "TQ==\n", "TQ==TQ==", "T"]
)
def test_what_is_not_base64(text: str) -> None:
    """Padding that is missing, or more than what is due, is refused."""
    with pytest.raises(ValueError, match=r"padding|base64"):
        decode_base64(text)
