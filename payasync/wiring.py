"""What a session is made of: its settings, checked, and the way that a call takes through them."""

import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import evolve, field, frozen
from yarl import URL

from payasync.addresses import base_url, environment_proxy, is_loopback, proxy_url, verifying
from payasync.calls import Call, Layer, Send, Wiring
from payasync.checks import check_function
from payasync.coverage import check_answers_covered
from payasync.credentials import Credentials, Environment
from payasync.errors import ConfigurationError
from payasync.events import Event
from payasync.keys import check_keys
from payasync.middleware.authorize import authorize
from payasync.middleware.chain import chain, users, wired
from payasync.middleware.observe import Teller, observe
from payasync.middleware.quota import Quota
from payasync.middleware.retry import Ask, Pace, Rules, retry
from payasync.middleware.sign import check, sign, signable
from payasync.middleware.verify import verify
from payasync.profile import Profile
from payasync.requests import Request, invalid
from payasync.responses import Response
from payasync.sandbox_profile import PROFILE as SANDBOX
from payasync.secret import Secret
from payasync.settings import RetryPolicy, Timeouts
from payasync.transport import PoolSettings, Transport

if TYPE_CHECKING:
    import aiohttp

PROFILE_PATH: Final = "PAYASYNC_PROFILE"
LONGEST_KEPT: Final = 3600.0
"""Seconds that a call may take with a journal: nobody asks about one that was cut off before they are over."""
SHORT_ENOUGH: Final = (
    f"at most {LONGEST_KEPT:.0f} seconds with a journal, which asks about a call that was cut off only after them"
)
ENVIRONMENT: Final = "environment"
"""The `proxy` that asks for the one in the environment."""


class Recorder(Protocol):
    """What a session uses of its journal."""

    def layer(self, merchant: str, service: str, tell: Callable[[Event], None] | None = None) -> Layer:
        """Return the layer that keeps one merchant's writes to one service, as `Session.service` says it."""
        ...

    async def queued(self, intent_id: int, merchant: str) -> Request[Response]:
        """Return a request that was queued."""
        ...


class Recording(Protocol):
    """A journal, as a session sees it."""

    @property
    def recorder(self) -> Recorder:
        """What keeps the writes."""
        ...

    async def note(self, intent_id: int, reason: str) -> bool:
        """Keep why what waits to be sent cannot be."""
        ...


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
        ConfigurationError: A setting of another type, a profile by which anybody could write what is believed, or a key
            that cannot sign or verify.
    """

    credentials: Credentials
    profile: Profile
    timeouts: Timeouts
    retry: RetryPolicy
    middleware: tuple[Layer, ...] = field(converter=_layers)
    on_event: Callable[[Event], None] | None = field(repr=False)
    journal: Recording | None = None

    def __attrs_post_init__(self) -> None:
        kinds = {"credentials": Credentials, "profile": Profile, "timeouts": Timeouts, "retry": RetryPolicy}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                # A value of another type may still hold keys.
                found = type(value).__name__ if name == "credentials" else repr(value)
                raise ConfigurationError(f"{name} must be a {kind.__name__}, not {found}", field=name)
        check_answers_covered(self.profile)
        check_keys(self.profile, self.credentials)
        if self.on_event is not None:
            check_function("on_event", self.on_event)
        if self.journal is not None and not hasattr(getattr(self.journal, "recorder", None), "layer"):
            raise ConfigurationError(
                f'journal must be a journal, such as SqliteJournal("pay.db"), not {self.journal!r}', field="journal"
            )
        if self._too_long(self.timeouts):
            raise ConfigurationError(f"Timeouts.total must be {SHORT_ENOUGH}", field="Timeouts.total")

    def way(self, quota: Quota, ask: Ask, pace: Pace, transport: Transport) -> Send:
        """Return the way of a call: each layer wraps those below it."""
        tell = Teller(self.on_event)
        return chain(
            [
                *self._recording(service(self.profile, transport.base), tell),
                partial(retry, Rules(policy=self.retry, quota=quota, tell=tell, ask=ask, pace=pace)),
                *([partial(verify, self.credentials)] if self.profile.answer.signature else []),
                *(users(layer) for layer in self.middleware),
                partial(sign, self.credentials.signing_key),
                partial(authorize, self.credentials.secret_key),
                partial(observe, tell),
            ],
            transport.send,
        )

    def check(self, call: Call, *, keyless: bool = False) -> None:
        """Refuse a call that cannot be signed.

        Args:
            call: Which.
            keyless: Who has no key may keep it for others, who have.

        Raises:
            ConfigurationError: The scheme or the key is missing.
            InvalidArgumentError: A field has what the scheme does not sign.
        """
        key = self.credentials.signing_key
        if key is not None or not keyless:
            check(call, key)

    def _recording(self, service: str, tell: Teller) -> list[Wiring]:
        """Return the layers of a session with a journal: what cannot be signed is not kept there."""
        if self.journal is None:
            return []
        recorder, merchant = self.journal.recorder, self.credentials.merchant_id
        keeping = wired(recorder.layer(merchant, service, tell))
        return [partial(signable, self.credentials.signing_key), keeping]

    def times(self, seconds: float | None) -> Timeouts:
        """Return the times of one call, whose own total goes before the session's.

        Raises:
            InvalidArgumentError: It is no number of seconds above 0, or too long for a journal.
        """
        if seconds is None:
            return self.timeouts
        try:
            times = evolve(self.timeouts, total=seconds)
        except ConfigurationError:
            times = None
        if times is None:
            raise invalid("timeout", "a number of seconds above 0", seconds)
        if self._too_long(times):
            raise invalid("timeout", SHORT_ENOUGH, seconds)
        return times

    def _too_long(self, times: Timeouts) -> bool:
        return self.journal is not None and times.total > LONGEST_KEPT


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
    if _is_sandbox(profile) and not is_loopback(url):
        raise ConfigurationError(
            f"profile is the sandbox's own, and {address!r} is not on this machine: its answers are not the "
            "service's; write a profile of the service",
            field="profile",
        )
    for name, value in (("max_connections", max_connections), ("max_response_bytes", max_response_bytes)):
        if type(value) is not int or value < 1:
            raise ConfigurationError(f"{name} must be an integer of 1 or more, not {value!r}", field=name)
    via = _proxy(url, proxy)
    return Transport(
        url,
        pools=PoolSettings(
            tls=None if tls is None else verifying(tls),
            max_connections=max_connections,
            secure=url.scheme == "https" or (via is not None and URL(via.reveal()).scheme == "https"),
            http=http,
        ),
        headers=profile.headers,
        proxy=via,
        max_response_bytes=max_response_bytes,
    )


def service(profile: Profile, base: str) -> str:
    """Return by what a journal tells a service from others: its base URL, or the sandbox's name.

    A sandbox moves no money, and has another port with each start: all of them are one, and none is a real service.
    """
    return SANDBOX.name if _is_sandbox(profile) else base


def _is_sandbox(profile: Profile) -> bool:
    return profile.name == SANDBOX.name or evolve(profile, name=SANDBOX.name) == SANDBOX


def _proxy(url: URL, given: str | None) -> Secret | None:
    found = environment_proxy(url) if given == ENVIRONMENT else given
    if found is None:
        return None
    proxy = proxy_url(found)
    if url.scheme == "http" and not is_loopback(URL(proxy)):
        raise ConfigurationError(
            "proxy is not on this machine, and base_url is plain http: keys would leave it in plain text. Use https, "
            'or no proxy (with proxy="environment", name the host in NO_PROXY)',
            field="proxy",
        )
    return Secret(proxy)


def from_environment(read: Environment, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session's settings: those that are given, and the others read from the environment.

    Raises:
        ConfigurationError: A variable is missing, empty or wrong.
    """
    chosen = dict(settings)
    if "credentials" not in chosen:
        chosen["credentials"] = Credentials.from_env(read.variables)
    if "profile" not in chosen:
        chosen["profile"] = _profile(read)
    if "base_url" not in chosen:
        chosen["base_url"] = read.required("PAYASYNC_BASE_URL")
    return chosen


def _profile(read: Environment) -> Profile:
    if f"{PROFILE_PATH}_FILE" in read.variables:
        raise ConfigurationError(f"{PROFILE_PATH} is itself a path: use it without _FILE", field=PROFILE_PATH)
    given = read.optional(PROFILE_PATH)
    if given is None:
        return Profile()
    return SANDBOX if given.strip() == "sandbox" else Profile.from_file(given.strip())
