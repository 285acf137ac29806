"""The nonce and signature of each attempt, and the Authorization header (spec: Authentication)."""

import asyncio
import inspect
import os
from collections.abc import Awaitable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

from payasync.credentials import Secret
from payasync.errors import ConfigurationError, NotSentError, PayasyncError
from payasync.middleware.chain import in_time
from payasync.profile.profile import not_configured
from payasync.profile.schema import NONCE, SIGN
from payasync.signing.schemes import SignatureScheme, Signer, SortedPairs
from payasync.wire.call import Call, Reply, Send


def sign(key: Secret | None, send: Send) -> Send:
    """Return the way that signs with a merchant's key, over a nonce of each attempt's own.

    The nonce is drawn here and never kept: a buffer of random bytes would repeat itself after a fork. The scheme is
    that of the call's profile; one that is `blocking` (RSA) works in one thread of its own, and leaves the loop free.
    """
    prepared: tuple[SignatureScheme | None, Signer | None] = None, None

    def way(call: Call) -> Awaitable[Reply]:
        nonlocal prepared
        if not call.signed:
            return send(call)
        scheme = call.profile.signature
        if scheme is None or key is None:
            raise _missing(call)
        whose, signer = prepared
        if whose is not scheme:
            signer = _at_once(scheme, key)
            prepared = scheme, signer
        fields = {**call.fields, NONCE: os.urandom(16).hex()}
        if signer is None:
            return _signed_in_time(scheme, key, call.derived(fields=fields), send)
        fields[SIGN] = signer(fields, call.operation.path)
        return send(call.derived(fields=fields))

    return way


def _at_once(scheme: SignatureScheme, key: Secret) -> Signer | None:
    """Return what signs without a wait, or `None` where a scheme takes its time, or is the merchant's own."""
    return scheme.signer(key) if type(scheme) is SortedPairs and not scheme.blocking else None


def signable(key: Secret | None, send: Send) -> Send:
    """Return the way that refuses what cannot be signed, before the layers behind it do anything.

    A scheme of the merchant's own says only as it signs what it refuses.
    """

    def way(call: Call) -> Awaitable[Reply]:
        check(call, key)
        return send(call)

    return way


def check(call: Call, key: Secret | None) -> None:
    """Refuse a call that is to be signed, and cannot be.

    Raises:
        ConfigurationError: The scheme or the key is missing.
        InvalidArgumentError: A field has what the scheme does not sign.
    """
    if not call.signed:
        return
    try:
        _check(call, key)
    except PayasyncError as error:
        error.add(operation=call.operation.name, reference=call.reference)
        raise


def _check(call: Call, key: Secret | None) -> None:
    scheme = call.profile.signature
    if scheme is None or key is None:
        raise _missing(call)
    if isinstance(scheme, SortedPairs):
        # The text costs nothing; a signature that is no work tells whether the scheme is complete, too.
        make = scheme.text if scheme.blocking else partial(scheme.sign, key=key)
        make(call.fields, path=call.operation.path)


def _missing(call: Call) -> ConfigurationError:
    if call.profile.signature is None:
        return not_configured("signature", "the signature scheme of the service, such as SortedPairs(...)")
    return ConfigurationError(
        f"credentials.signing_key is not set (PAYASYNC_SIGNING_KEY in the environment): {call.operation.name} "
        "is signed with it",
        field="credentials.signing_key",
    )


async def _signed_in_time(scheme: SignatureScheme, key: Secret, call: Call, send: Send) -> Reply:
    """Sign with a scheme that takes its time, or that is the merchant's own."""
    return await send(
        call.with_fields(**{SIGN: await in_time(call, _signature(scheme, key, call), "the signature scheme")})
    )


async def _signature(scheme: SignatureScheme, key: Secret, call: Call) -> str:
    make = partial(scheme.sign, dict(call.fields), path=call.operation.path, key=key)
    try:
        made: Any = await _off_loop(make) if getattr(scheme, "blocking", False) else make()
        signature = await made if inspect.isawaitable(made) else made
    except PayasyncError:
        raise
    except Exception as error:  # noqa: BLE001 - a merchant's own scheme may raise anything
        failure = f"raised {type(error).__name__}"
    else:
        if isinstance(signature, str):
            return signature
        failure = f"returned {type(signature).__name__}, not a text"
    raise NotSentError(f"the signature scheme {failure}: nothing was sent", reason="signing failed", permanent=True)


async def _off_loop(make: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_executor(), make)


_executors: dict[int, Executor] = {}


def _executor() -> Executor:
    """Return this process's one signing thread; a fork leaves the parent's thread behind."""
    executor = _executors.get(os.getpid())
    if executor is None:
        executor = _executors[os.getpid()] = ThreadPoolExecutor(1, "payasync-sign")
    return executor


AUTHORIZATION = "Authorization"


def authorize(key: Secret | None, send: Send) -> Send:
    """Return the way that adds `Authorization: Bearer` with a merchant's secret key.

    The header's value stays a `Secret` until the transport writes it.
    """
    header = None if key is None else Secret(f"Bearer {key.reveal()}")

    def way(call: Call) -> Awaitable[Reply]:
        if not call.bearer:
            return send(call)
        if header is None:
            raise ConfigurationError(
                f"credentials.secret_key is not set: {call.operation.name} carries it as Authorization: Bearer "
                "(PAYASYNC_SECRET_KEY in the environment)",
                field="credentials.secret_key",
            )
        return send(call.with_headers({AUTHORIZATION: header}))

    return way
