"""Answers that the profile says are signed: each is checked before anybody believes it."""

from attrs import evolve

from payasync.answer_signature import service_keys, unverifiable, verified
from payasync.calls import Call, Reply, Send
from payasync.credentials import Credentials
from payasync.profile import not_configured


def verify(credentials: Credentials, send: Send) -> Send:
    """Return the way that notes on each reply whether its signature is the service's."""

    async def way(call: Call) -> Reply:
        scheme = call.profile.signature
        if scheme is None:
            raise not_configured("signature", "the scheme that the service signs its answers with")
        keys = service_keys(credentials, scheme, signed="answers", point="answer.signature")
        reply = await send(call)
        found = verified(call, reply, scheme, keys)
        return evolve(reply, verified=found, doubt=unverifiable(call, reply, scheme) if found is False else "")

    return way
