"""The Authorization header, on the operations that the profile's `bearer` lists (spec: Authentication, 2 and 5)."""

from collections.abc import Awaitable

from payasync.calls import Call, Reply, Send
from payasync.errors import ConfigurationError
from payasync.secret import Secret

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
