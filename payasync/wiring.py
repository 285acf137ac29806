"""What a session is made of: its settings, checked, and the way that a call takes through them."""

import ssl
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen
from yarl import URL

from payasync.addresses import base_url, environment_proxy, is_loopback, proxy_url, verifying
from payasync.calls import Layer, Send
from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.events import Event
from payasync.middleware.authorize import authorize
from payasync.middleware.chain import chain, held
from payasync.middleware.nonce import nonce
from payasync.middleware.observe import Teller, observe
from payasync.middleware.quota import Quota
from payasync.middleware.retry import retry
from payasync.middleware.sign import sign
from payasync.middleware.verify import verify
from payasync.profile import Profile
from payasync.requests import invalid
from payasync.sandbox_profile import PROFILE as SANDBOX
from payasync.secret import Secret
from payasync.settings import RetryPolicy, Timeouts
from payasync.transport import PoolSettings, Transport

if TYPE_CHECKING:
    import aiohttp

ENVIRONMENT: Final = "environment"
"""The `proxy` that asks for the one in the environment."""


def _layers(given: Iterable[Layer]) -> tuple[Layer, ...]:
    layers = tuple(given) if isinstance(given, Iterable) else (given,)
    for layer in layers:
        if not callable(layer):
            raise ConfigurationError(f"middleware must be a list of layers, not {layer!r}", field="middleware")
    return layers


@frozen(kw_only=True)
class Setup:
    """What makes one session differ from another that shares its connections.

    Raises:
        ConfigurationError: A setting of another type.
    """

    credentials: Credentials
    profile: Profile
    timeouts: Timeouts
    retry: RetryPolicy
    middleware: tuple[Layer, ...] = field(converter=_layers)
    on_event: Callable[[Event], None] | None = field(repr=False)

    def __attrs_post_init__(self) -> None:
        kinds = {"credentials": Credentials, "profile": Profile, "timeouts": Timeouts, "retry": RetryPolicy}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise ConfigurationError(f"{name} must be a {kind.__name__}, not {value!r}", field=name)
        if self.on_event is not None and (not callable(self.on_event) or iscoroutinefunction(self.on_event)):
            raise ConfigurationError(f"on_event must be a plain function, not {self.on_event!r}", field="on_event")

    def way(self, quota: Quota, transport: Send) -> Send:
        """Return the way of a call: each layer wraps those below it."""
        tell = Teller(self.on_event)
        return chain(
            [
                retry(self.retry, quota, tell),
                *([verify(self.credentials)] if self.profile.answer.signature else []),
                *map(held, self.middleware),
                nonce,
                sign(self.credentials.signing_key),
                authorize(self.credentials.secret_key),
                observe(tell),
            ],
            transport,
        )

    def times(self, seconds: float | None) -> Timeouts:
        """Return the times of one call, whose own total goes before the session's.

        Raises:
            InvalidArgumentError: It is no number of seconds above 0.
        """
        if seconds is None:
            return self.timeouts
        try:
            return evolve(self.timeouts, total=seconds)
        except ConfigurationError:
            pass
        raise invalid("timeout", "a number of seconds above 0", seconds)


def transport(
    address: str,
    profile: Profile,
    *,
    http: "aiohttp.ClientSession | None",
    tls: ssl.SSLContext | None,
    proxy: str | None,
    max_connections: int,
    max_response_bytes: int,
) -> Transport:
    """Return the transport for these settings; it opens nothing yet.

    Raises:
        ConfigurationError: A setting that is wrong, or that would not be safe.
    """
    url = base_url(address)
    sandbox = profile.name == SANDBOX.name or evolve(profile, name=SANDBOX.name) == SANDBOX
    if sandbox and not is_loopback(url):
        raise ConfigurationError(
            f"profile is the sandbox's own, and {address!r} is not on this machine: its answers are not the "
            "service's; write a profile of the service",
            field="profile",
        )
    for name, value in (("max_connections", max_connections), ("max_response_bytes", max_response_bytes)):
        if type(value) is not int or value < 1:
            raise ConfigurationError(f"{name} must be an integer of 1 or more, not {value!r}", field=name)
    if http is not None and not (tls is None and proxy is None):
        raise ConfigurationError("http has its own tls and proxy: give them to it, not beside it", field="http")
    return Transport(
        url,
        pools=PoolSettings(
            tls=None if tls is None else verifying(tls),
            max_connections=max_connections,
            http=http,
        ),
        headers=profile.headers,
        proxy=_proxy(url, proxy),
        max_response_bytes=max_response_bytes,
    )


def _proxy(url: URL, given: str | None) -> Secret | None:
    found = environment_proxy(url) if given == ENVIRONMENT else given
    return None if found is None else Secret(proxy_url(found))
