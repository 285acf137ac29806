from typing import Final

import pytest

from payasync.credentials import Secret
from payasync.endpoints import CREATE_PAYMENT
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.middleware.sign import authorize
from tests.building import bare_call, way

KEY: Final = Secret("sk_canary")


async def test_key_travels_as_bearer() -> None:
    """A call that the profile lists carries the secret key (spec: Authentication, 2), and stays a secret on its way."""
    end = way()
    await authorize(KEY, end.send)(bare_call(CREATE_PAYMENT, bearer=True, headers={"X-A": "1"}))
    sent = end.calls[0]

    assert {"X-A": "1", "Authorization": Secret("Bearer sk_canary")} == sent.headers
    assert "canary" not in f"{sent!r} {sent.headers!r} {dict(sent.headers)}"


@pytest.mark.parametrize("key", [KEY, None])
async def test_key_goes_nowhere_else(key: Secret | None) -> None:
    """A call that the profile does not list needs no key, and is shown none."""
    end, call = way(), bare_call(CREATE_PAYMENT)
    await authorize(key, end.send)(call)

    assert [call] == end.calls


async def test_missing_key() -> None:
    """Without a key nothing is sent; the error says which credential to set."""
    end = way()
    with pytest.raises(ConfigurationError, match=r"payments\.create carries it as Authorization: Bearer") as caught:
        await authorize(None, end.send)(bare_call(CREATE_PAYMENT, bearer=True))

    assert "credentials.secret_key" == caught.value.field
    assert [] == end.calls


async def test_key_cannot_break_the_request_apart() -> None:
    """A key with a line end in it is refused, and not shown."""
    end = way()
    with pytest.raises(InvalidArgumentError, match="'Authorization' must be of visible ASCII") as caught:
        await authorize(Secret("canary\r\nX-B: c"), end.send)(bare_call(CREATE_PAYMENT, bearer=True))

    assert "canary" not in f"{caught.value} {caught.value.value!r}"
    assert [] == end.calls
