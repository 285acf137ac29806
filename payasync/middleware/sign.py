"""The nonce and signature of each attempt, and the headers with keys (docs/reference/service.md#authentication)."""

import asyncio
import base64
import concurrent.futures
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

from yarl import URL

from payasync import signing
from payasync.clocks import wall_time
from payasync.credentials import SENDER, Credentials, Secret
from payasync.errors import ConfigurationError, NotSentError, PayasyncError
from payasync.middleware.chain import await_in_time
from payasync.settings import invalid_setting, not_configured
from payasync.signing.templates import TIMES, fill, fill_times, names_in
from payasync.strict_json import is_flat
from payasync.wire.call import Call, Encoded, Layer, Reply, Send, Signature
from payasync.wire.encode import encode, path_of

if TYPE_CHECKING:
    from payasync.profile import Auth
    from payasync.signing.schemes import RequestScheme, Scheme, SignatureScheme, Signer

SCHEME: Final = "the signature scheme"
QUEUED: Final = 2
"""The most signatures of a loop in the signing thread. The loop would go on with all that are ready in one turn."""
# A semaphore refers to its loop. The calls that use it keep it alive, and with it the loop as a key.
_queues: Final[WeakValueDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakValueDictionary()


class Sender(NamedTuple):
    """What a signature of a whole request may cover besides the call.

    Attributes:
        base_url: The address of the service, before each path.
        merchant_id: The merchant's number.
        now: Returns Unix seconds.
    """

    base_url: str = ""
    merchant_id: str = ""
    now: Callable[[], float] = wall_time


def add_times(constants: Mapping[str, Mapping[str, Any]], send: Send, now: Callable[[], float] = wall_time) -> Send:
    """Return a `send` that writes the time of each attempt into the constants of the profile that hold `{timestamp}`.

    So each query can have an address of its own, that no cache knows.
    """
    texts = [(name, text) for table in constants.values() for name, text in table.items() if isinstance(text, str)]
    timed = [(name, text) for name, text in texts if TIMES.search(text)]

    def send_with_times(call: Call) -> Awaitable[Reply]:
        moment = now()
        changes = {name: fill_times(text, moment) for name, text in timed if call.fields.get(name) == text}
        return send(call.with_fields(**changes))

    return send_with_times if timed else send


def sign(key: Secret | None, send: Send, sender: Sender = Sender()) -> Send:
    """Return a `send` that adds a new nonce and the signature to each attempt.

    The call's profile names the scheme. A `blocking` scheme, such as RSA, signs in a thread of its own, so that the
    loop stays free.
    """
    prepared: tuple[Scheme | None, Signer | None] = None, None

    def send_signed(call: Call) -> Awaitable[Reply]:
        nonlocal prepared
        if not call.signed:
            return send(call)
        scheme = call.profile.scheme
        if scheme is None or key is None:
            raise _missing_error(call)
        prepared_for, signer = prepared
        if prepared_for is not scheme:
            signer = _fast_signer(scheme, key)
            prepared = scheme, signer
        if signer is None:
            if hasattr(scheme, "sign_request"):
                return _sign_request_and_send(cast("RequestScheme", scheme), key, call, send, sender)
            return _sign_and_send(cast("Any", scheme), key, call, send)
        early = call.progress.signature
        if early is None or early.fields is not call.fields or early.key is not key:
            return send(call.derived(fields=_sign_fields(call, signer)))
        call.progress.signature = None  # if the call is sent again, it needs another nonce
        layout = call.layout
        return send(call.derived(fields={**call.fields, layout.nonce: early.nonce, layout.signature: early.text}))

    return send_signed


def _fast_signer(scheme: "Scheme", key: Secret) -> "Signer | None":
    """Return the signer of a fast scheme of ours: only such a scheme can prepare its key once for many calls."""
    return scheme.signer(key) if type(scheme) is signing.SortedPairs and not scheme.blocking else None


def _sign_fields(call: Call, signer: "Signer") -> dict[str, Any]:
    layout = call.layout
    # Not from a buffer of random bytes, which would repeat itself after a fork.
    fields = {**call.fields, layout.nonce: os.urandom(16).hex()}
    fields[layout.signature] = signer(fields, path_of(call) if layout.in_path else call.operation.path)
    return fields


def require_signable(key: Secret | None, *, early: bool = False) -> Layer:
    """Return the layer that refuses a call that cannot be signed before the journal stores it.

    A merchant's own scheme is not asked here: it refuses a call only when it signs it.

    Args:
        key: Signs the call.
        early: Sign the first attempt here if the scheme is fast. A check alone takes almost as long.
    """
    able: object = None
    try_to_sign: Callable[[Call], object] | None = None

    def layer(call: Call, send: Send) -> Awaitable[Reply]:
        nonlocal able, try_to_sign
        scheme = call.profile.scheme
        if call.signed and (scheme is None or scheme is not able):
            check_signable(call, key)
            try_to_sign = _trial_of(cast("Any", scheme), cast("Any", key), early=early)
            # A subclass may write another text: each call asks it.
            able = None if isinstance(scheme, signing.SortedPairs) and try_to_sign is None else scheme
        elif call.signed and try_to_sign is not None:
            # The scheme and the key are able to sign; only the values of this call may not be.
            try:
                try_to_sign(call)
            except PayasyncError as error:
                error.add(operation=call.operation.name, reference=call.reference)
                raise
        return send(call)

    return layer


def _trial_of(scheme: "Scheme", key: Secret, *, early: bool) -> Callable[[Call], object] | None:
    """Return a function that refuses a call whose values cannot be signed; `None` if the scheme must be asked."""
    if type(scheme) is not signing.SortedPairs:
        return None
    join = scheme.pair_joiner()
    signer = _fast_signer(scheme, key) if early else None

    def try_to_sign(call: Call) -> None:
        # A key in a field is set later, so this signature would be wasted. A nested value may change until then.
        if signer is None or call.profile.idempotency.field or not is_flat(call.fields):
            join(call.fields, path_of(call))
        else:
            signed, layout = _sign_fields(call, signer), call.layout
            # Not all fields: many calls may wait for the journal.
            call.progress.signature = Signature(call.fields, key, signed[layout.nonce], signed[layout.signature])

    return try_to_sign


def check_signable(call: Call, key: Secret | None) -> None:
    """Refuse a call that must be signed and cannot be.

    Args:
        call: The call.
        key: Signs it.

    Raises:
        ConfigurationError: The scheme or the key is missing.
        InvalidArgumentError: The scheme does not sign the value of a field.
    """
    if not call.signed:
        return
    scheme = call.profile.scheme
    try:
        if scheme is None or key is None:
            raise _missing_error(call)
        if isinstance(scheme, signing.SortedPairs):
            scheme.text(call.fields, path=path_of(call))
        if isinstance(scheme, signing.SortedPairs | signing.Template) and not scheme.blocking:
            # They refuse a scheme that leaves its encoding open.
            (scheme.signer if isinstance(scheme, signing.SortedPairs) else scheme.text_signer)(key)
    except PayasyncError as error:
        error.add(operation=call.operation.name, reference=call.reference)
        raise


def _missing_error(call: Call) -> ConfigurationError:
    if call.profile.scheme is None:
        return not_configured("signature", "the signature scheme of the service, such as SortedPairs(...)")
    why = f"is not set (PAYASYNC_SIGNING_KEY in the environment): {call.operation.name} is signed with it"
    return invalid_setting("credentials.signing_key", why)


async def _sign_and_send(scheme: "Scheme", key: Secret, call: Call, send: Send) -> Reply:
    layout = call.layout
    call = call.with_fields(**{layout.nonce: os.urandom(16).hex()})
    make = partial(cast("SignatureScheme", scheme).sign, dict(call.fields), path=path_of(call), key=key)
    signature = await await_in_time(call, _run_scheme(scheme, make), SCHEME)
    if not isinstance(signature, str):
        raise _failed_error(f"returned {type(signature).__name__}, not a text")
    return await send(call.with_fields(**{layout.signature: signature}))


async def _sign_request_and_send(scheme: "RequestScheme", key: Secret, call: Call, send: Send, sender: Sender) -> Reply:
    """Sign what is sent, and send exactly that: the call keeps its encoded form."""
    encoded = encode(call)
    make = partial(scheme.sign_request, _request_of(call, encoded, sender), key=key)
    headers = await await_in_time(call, _run_scheme(scheme, make), SCHEME)
    if not isinstance(headers, Mapping) or not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise _failed_error(f"returned {type(headers).__name__}, not a table of texts")
    return await send(call.derived(encoded=encoded).with_headers(headers))


def _request_of(call: Call, encoded: Encoded, sender: Sender) -> "signing.UnsignedRequest":
    url = URL(sender.base_url + encoded.path, encoded=True)
    url = url.with_query(encoded.query) if encoded.query else url
    headers = {**call.profile.headers, **encoded.headers, **call.headers}
    return signing.UnsignedRequest(
        method=call.operation.method,
        url=str(url),
        path=url.raw_path,
        query=url.raw_query_string,
        headers={name: value for name, value in headers.items() if isinstance(value, str)},
        body=encoded.body,
        timestamp=int(sender.now()),
        nonce=os.urandom(16).hex(),
        merchant_id=sender.merchant_id,
    )


async def _run_scheme(scheme: object, make: Callable[[], object]) -> object:
    """Return what a scheme makes; a `blocking` one makes it in the signing thread."""
    try:
        made = await _run_in_thread(make) if getattr(scheme, "blocking", False) else make()
        return await made if inspect.isawaitable(made) else made
    except PayasyncError:
        raise
    except Exception as error:  # noqa: BLE001 - a merchant's own scheme may raise anything
        failure = f"raised {type(error).__name__}"
    raise _failed_error(failure)


async def _run_in_thread(make: Callable[[], object]) -> object:
    loop = asyncio.get_running_loop()
    if (queue := _queues.get(loop)) is None:
        queue = _queues[loop] = asyncio.Semaphore(QUEUED)
    async with queue:
        return await loop.run_in_executor(_signing_thread(os.getpid()), make)


def _failed_error(failure: str) -> NotSentError:
    return NotSentError(f"{SCHEME} {failure}: nothing was sent", reason="signing failed", permanent=True)


@cache
def _signing_thread(process: int) -> concurrent.futures.Executor:  # noqa: ARG001 - a fork leaves the parent's thread behind
    """Return the one signing thread of a process."""
    return concurrent.futures.ThreadPoolExecutor(1, "payasync-sign")


def authorize(auth: "Auth", credentials: Credentials, send: Send) -> Send:
    """Return a `send` that adds the headers by which the service knows the merchant, such as `Authorization: Bearer`.

    The values are built once, and stay `Secret` until the transport writes them.
    """
    missing = next((name for name in auth.needs if getattr(credentials, name) is None), "")
    headers = {} if missing else {name: _fill(value, credentials) for name, value in auth.all_headers.items()}

    def send_authorized(call: Call) -> Awaitable[Reply]:
        if not call.bearer:
            return send(call)
        if missing:
            carried = ", ".join(f"{name}: {value}" for name, value in auth.all_headers.items())
            raise invalid_setting(
                f"credentials.{missing}",
                f"is not set: {call.operation.name} carries it as {carried} "
                f"(PAYASYNC_{missing.upper()} in the environment)",
            )
        return send(call.with_headers(headers))

    return send_authorized


def _fill(value: str, credentials: Credentials) -> Secret:
    return Secret(fill(value, {name: reveal(credentials, name) for name in names_in(value)}).decode())


def reveal(credentials: Credentials, name: str) -> str:
    """Return what a placeholder of `auth` stands for."""
    if name in {"basic", "basic_user"}:
        user, password = (*(reveal(credentials, each) for each in SENDER[name]), "")[:2]
        return base64.b64encode(f"{user}:{password}".encode()).decode()
    value = getattr(credentials, name)
    return value.reveal() if isinstance(value, Secret) else str(value)
