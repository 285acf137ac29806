"""Answers that the profile says are signed: each is checked before anybody believes it."""

from attrs import evolve

from payasync.answer_signature import verified
from payasync.calls import Call, Layer, Reply, Send
from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.profile import not_configured
from payasync.secret import Secret
from payasync.signing import SignatureScheme


def verify(credentials: Credentials) -> Layer:
    """Return the layer that notes on each reply whether its signature is the service's."""

    async def layer(call: Call, send: Send) -> Reply:
        scheme = call.profile.signature
        if scheme is None:
            raise not_configured("signature", "the scheme that the service signs its answers with")
        keys = _keys(credentials, scheme)
        reply = await send(call)
        return evolve(reply, verified=verified(call, reply, scheme, keys))

    return layer


def _keys(credentials: Credentials, scheme: SignatureScheme) -> tuple[Secret, ...]:
    """Return the service's keys, or the merchant's own where the scheme is symmetric."""
    if credentials.service_keys:
        return credentials.service_keys
    if credentials.signing_key is not None and getattr(scheme, "symmetric", False):
        return (credentials.signing_key,)
    raise ConfigurationError(
        "credentials.service_keys is empty (PAYASYNC_SERVICE_KEYS in the environment): the profile says that answers "
        "are signed (answer.signature), and they are verified with it",
        field="credentials.service_keys",
    )
