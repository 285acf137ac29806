"""The nonce: a random text, unique for each request (spec: Authentication, 3)."""

import secrets
from collections.abc import Awaitable

from payasync.calls import Call, Reply, Send
from payasync.profile import NONCE


def nonce(call: Call, send: Send) -> Awaitable[Reply]:
    """Give each attempt of a signed call its own `nonceStr`.

    It is drawn here and never kept: a buffer of random bytes would repeat itself after a fork.
    """
    return send(call.derived(fields={**call.fields, NONCE: secrets.token_hex(16)}) if call.signed else call)
