"""The signature of each attempt, and the key that travels as Bearer."""

import asyncio
import base64
import gc
import json
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import field, frozen

from payasync import RetryPolicy, Session
from payasync.credentials import Credentials, Secret
from payasync.endpoints import CREATE_PAYMENT, CREATE_REFUND
from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotConfiguredError,
    NotSentError,
    NotSentTimeoutError,
)
from payasync.journal import SqliteJournal
from payasync.middleware.chain import chain
from payasync.middleware.sign import authorize, require_signable, sign
from payasync.profile.profile import Profile
from payasync.profile.schema import Auth, HttpCodes
from payasync.signing.schemes import SortedPairs
from payasync.wire.call import Call, Layer, Reply, Send
from tests.building import bare_call, way
from tests.foreign.recorder import PATIENCE, Recorder, answer
from tests.foreign.signatures import hmac_sha256, signed_text

KEY: Final = Secret("sign_canary")


@frozen
class Scheme:
    """A merchant's own scheme.

    Args:
        made: Makes a signature, or a coroutine of one.
        blocking: Whether it must run in another thread.
        seen: The arguments that it received.
    """

    made: Callable[[], Any] = lambda: "signature"
    blocking: bool = False
    seen: list[tuple[dict[str, Any], str, Secret]] = field(factory=list)

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str | Awaitable[str]:
        """Make a signature."""
        self.seen.append((dict(fields), path, key))
        dict.clear(fields)  # type: ignore[arg-type] # a mistake that must be harmless
        signature: str | Awaitable[str] = self.made()
        return signature

    def verify(self, *_: Any, **__: Any) -> bool:
        """Verify nothing."""
        return False


def signed(scheme: Any, **fields: Any) -> Call:
    """Return a signed call with this scheme."""
    return bare_call(CREATE_REFUND, profile=Profile(signature=scheme), fields=fields, signed=True, reference="R1")


async def test_custom_scheme_is_given_all() -> None:
    """A scheme sees a copy of the fields, the endpoint's path and the key, still a secret."""
    end, scheme = way(), Scheme()
    await sign(KEY, end.send)(signed(scheme, a=1))
    sent = end.calls[0].fields
    given = {"a": 1, "nonceStr": sent["nonceStr"]}

    assert [(given, "/payment/refund", KEY)] == scheme.seen
    assert {**given, "sign": "signature"} == sent


async def test_coroutine_scheme() -> None:
    """`sign` may be a coroutine function, such as for a key in another machine."""
    for blocking in [False, True]:

        async def made() -> str:
            await asyncio.sleep(0)
            return "signature"

        end = way()
        await sign(KEY, end.send)(signed(Scheme(made, blocking=blocking)))

        assert "signature" == end.calls[0].fields["sign"]


@pytest.mark.parametrize("blocking", [False, True])
async def test_slow_schemes_leave_the_loop_free(*, blocking: bool) -> None:
    """`blocking` schemes sign in one other thread, fast ones in the thread of the loop."""
    threads: set[int] = set()

    def made() -> str:
        threads.add(threading.get_ident())
        return "signature"

    call = signed(Scheme(made, blocking=blocking))
    await asyncio.gather(*(sign(KEY, way().send)(call) for _ in range(20)))

    assert blocking == (threading.get_ident() not in threads)
    assert 1 == len(threads)


def test_slow_signatures_keep_no_loop() -> None:
    """After a loop has ended, nothing keeps it in memory, also if its signatures had to wait for each other."""

    async def sign_many() -> "weakref.ref[asyncio.AbstractEventLoop]":
        await asyncio.gather(*(sign(KEY, way().send)(signed(Scheme(blocking=True))) for _ in range(5)))
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(sign_many())
    gc.collect()

    assert loop() is None


async def test_scheme_that_hangs() -> None:
    """A signature scheme that hangs ends at the call's deadline."""
    end = way()
    call = signed(Scheme(asyncio.Event().wait)).derived(deadline=asyncio.get_running_loop().time())
    with pytest.raises(NotSentTimeoutError, match="the signature scheme took longer than the call had"):
        await asyncio.wait_for(sign(KEY, end.send)(call), PATIENCE)

    assert [] == end.calls


class BrokenError(Exception):
    """An error that a merchant's scheme may raise."""


def raises(error: Exception) -> Callable[[], str]:
    """Return a function that raises this error instead of signing."""

    def made() -> str:
        raise error

    return made


async def raises_later() -> str:
    """Raise when awaited."""
    raise BrokenError("canary")


async def test_scheme_that_fails_sends_nothing() -> None:
    """A broken scheme sends nothing, and its error is permanent. The error does not show the scheme's words."""
    for made, why in [
        (raises(BrokenError("canary")), "raised BrokenError"),
        (raises(TimeoutError("canary")), "raised TimeoutError"),
        (raises_later, "raised BrokenError"),
        (lambda: None, "returned NoneType, not a text"),
        (lambda: b"canary", "returned bytes, not a text"),
    ]:
        for blocking in [False, True]:
            end = way()
            with pytest.raises(NotSentError, match=f"the signature scheme {why}: nothing was sent") as caught:
                await sign(KEY, end.send)(signed(Scheme(made, blocking=blocking)))

            assert (True, False, "signing failed") == (caught.value.permanent, caught.value.sent, caught.value.reason)
            assert not isinstance(caught.value, TimeoutError)
            assert caught.value.__context__ is None
            assert "canary" not in str(caught.value)
            assert [] == end.calls


HMAC: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")


REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "total_amt": 450, "refund_amt": 1}


def verifies(fields: Mapping[str, Any]) -> bool:
    """Return whether fields have the HMAC that `openssl` makes."""
    return bool(hmac_sha256(signed_text(fields), KEY.reveal()) == fields["sign"])


def journalled(service: Recorder, journal: SqliteJournal, *layers: Layer) -> Session:
    """Return a session with a journal, whose second write is signed before the journal stores it."""
    return Session(
        service.url,
        credentials=Credentials("M1", signing_key=KEY),
        profile=Profile(signature=HMAC, http=HttpCodes(rate_limit_precedes_execution=True, uncoded=(401, 429))),
        retry=RetryPolicy(base_delay=0.001, max_delay=0.002),
        journal=journal,
        middleware=layers,
    )


async def test_value_that_rsa_cannot_sign() -> None:
    """A value that cannot be signed is refused as an argument, also by the signing thread."""
    end = way()
    with pytest.raises(InvalidArgumentError, match="the field 'a' cannot be signed"):
        await sign(KEY, end.send)(signed(SortedPairs(algorithm="rsa-sha256", encoding="hex"), a=1.5))

    assert [] == end.calls


async def test_slow_schemes_do_not_sign_beforehand() -> None:
    """The check before signing neither asks a merchant's own scheme nor makes an RSA signature."""
    for scheme in [Scheme(), SortedPairs(algorithm="rsa-sha256", encoding="hex")]:
        end = way()
        await require_signable(KEY)(signed(scheme, a=1), end.send)

        assert [] == getattr(scheme, "seen", [])
        assert 1 == len(end.calls)


class OwnPairs(SortedPairs):
    """A merchant's own form of a scheme of ours."""


async def test_each_call_is_checked_beforehand() -> None:
    """The check before the journal remembers that a key is usable, but only after it checked that for this scheme."""
    for kind in [SortedPairs, OwnPairs]:
        end, scheme = way(), kind(algorithm="hmac-sha256", encoding="hex")
        good, short = require_signable(KEY), require_signable(Secret("short"))
        await good(signed(scheme, a=1), end.send)
        with pytest.raises(InvalidArgumentError) as caught:
            await good(signed(scheme, a=1.5), end.send)
        with pytest.raises(NotConfiguredError):
            await good(signed(SortedPairs(algorithm="hmac-sha256"), a=1), end.send)
        await short(signed(scheme, a=1).derived(signed=False), end.send)
        with pytest.raises(ConfigurationError):
            await short(signed(scheme, a=1), end.send)

        assert 2 == len(end.calls)
        assert "refunds.create" == caught.value.operation


async def replace(call: Call, send: Send) -> Reply:
    """Send another description."""
    return await send(call.with_fields(refundDesc="late"))


async def overwrite(call: Call, send: Send) -> Reply:
    """Send another description, in a way that types forbid."""
    call.fields["refundDesc"] = "late"  # type: ignore[index] # a mistake that must be harmless
    return await send(call)


@pytest.mark.parametrize("layer", [replace, overwrite])
async def test_signature_covers_what_a_layer_changes(tmp_path: Path, layer: Layer) -> None:
    """If a layer changes a call after the journal has stored it, the changed fields are sent and signed."""
    with Recorder() as service:
        async with SqliteJournal(tmp_path / "pay.db") as journal, journalled(service, journal, layer) as pay:
            for number in ("R1", "R2"):
                await pay.refunds.create(**REFUND, out_refund_no=number, refund_desc="early")
        sent = [json.loads(each.body) for each in service.requests]

    assert ["late", "late"] == [each["refundDesc"] for each in sent]
    assert all(map(verifies, sent))


async def test_each_attempt_of_a_journalled_call_is_signed_anew(tmp_path: Path) -> None:
    """Each attempt at a write in the journal has its own nonce and signature."""
    with Recorder([answer(), answer(status=429)]) as service:
        async with SqliteJournal(tmp_path / "pay.db") as journal, journalled(service, journal) as pay:
            for number in ("R1", "R2"):
                await pay.refunds.create(**REFUND, out_refund_no=number)
        sent = [json.loads(each.body) for each in service.requests]

    assert ["R1", "R2", "R2"] == [each["outRefundNo"] for each in sent]
    assert 3 == len({each["nonceStr"] for each in sent})
    assert all(map(verifies, sent))


async def test_early_signature_is_sent_once() -> None:
    """If a call that was signed early is sent twice, or with other fields, it is signed again."""
    end, signable = way(), require_signable(KEY, early=True)
    sign_and_send = sign(KEY, end.send)

    async def layer(call: Call, send: Send) -> Reply:
        await send(call.with_fields(a=2))
        await send(call)
        return await send(call)

    for _ in range(2):  # the first call of a scheme is never signed early
        await chain([signable, layer], sign_and_send)(signed(HMAC, a=1))
    sent = [each.fields for each in end.calls]

    assert [2, 1, 1] * 2 == [each["a"] for each in sent]
    assert 6 == len({each["nonceStr"] for each in sent})
    assert all(map(verifies, sent))


async def test_nested_value_is_signed_as_it_is_sent() -> None:
    """If a nested value changes after the check, the signature is that of the new value."""
    end, nested = way(), {"name": "early"}
    sign_and_send = sign(KEY, end.send)

    async def layer(call: Call, send: Send) -> Reply:
        nested["name"] = "late"
        return await send(call)

    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json")
    signable = require_signable(KEY, early=True)
    for _ in range(2):  # the first call of a scheme is never signed early
        nested["name"] = "early"
        await chain([signable, layer], sign_and_send)(signed(scheme, customer=nested, a=1))

    assert all(verifies({**each.fields, "customer": '{"name":"late"}'}) for each in end.calls)


NO_KEYS: Final = Credentials("M1")


async def test_header_without_all_keys() -> None:
    """`{basic_user}` needs the secret key only, with nothing behind its colon; a merchant's number needs no key."""
    encoded = base64.b64encode(b"sk_canary:").decode()
    for auth, keys, sent in [
        (Auth(value="Basic {basic_user}"), Credentials("M1", secret_key="sk_canary"), f"Basic {encoded}"),
        (Auth(value="{merchant_id}"), NO_KEYS, "M1"),
    ]:
        end = way()
        await authorize(auth, keys, end.send)(bare_call(CREATE_PAYMENT, bearer=True))

        assert {"Authorization": Secret(sent)} == end.calls[0].headers


async def test_missing_key_of_a_header() -> None:
    """Without a key nothing is sent; the error says which credential to set, and which header carries it."""
    for auth, missing, carried in [
        (Auth(), "secret_key", "Authorization: Bearer {secret_key}"),
        (Auth(header="X-Key", value="{public_key}"), "public_key", "X-Key: {public_key}"),
        (
            Auth(value="{merchant_id}", headers={"X-B": "{basic}"}),
            "secret_key",
            "Authorization: {merchant_id}, X-B: {basic}",
        ),
    ]:
        end = way()
        with pytest.raises(ConfigurationError) as caught:
            await authorize(auth, NO_KEYS, end.send)(bare_call(CREATE_PAYMENT, bearer=True))

        assert f"credentials.{missing}" == caught.value.field
        assert f"{carried} (PAYASYNC_{missing.upper()} in the environment)" in str(caught.value)
        assert [] == end.calls
