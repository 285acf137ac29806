"""Which proxies a session may use."""

import pytest

from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.session import Session
from tests.building import CREDENTIALS

REMOTE = "http://u:canary@proxy.example:3128"


def made(address: str, proxy: str | None) -> Session:
    """Return a session with an address through a proxy."""
    return Session(address, credentials=CREDENTIALS, profile=Profile(), proxy=proxy)


def refusal(address: str, proxy: str) -> ConfigurationError:
    """Return the error that a proxy is refused with."""
    with pytest.raises(ConfigurationError) as caught:
        made(address, proxy)
    return caught.value


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://localhost", "http://[::1]:8080/gate"])
@pytest.mark.parametrize("proxy", [REMOTE, "https://proxy.example", "http://10.0.0.1:3128"])
def test_plain_http_leaves_this_machine_by_no_proxy(address: str, proxy: str) -> None:
    """Plain http is for loopback alone: a proxy elsewhere would carry the keys over the network in plain text."""
    error = refusal(address, proxy)

    assert str(error).startswith("proxy is not on this machine, and base_url is plain http: keys would leave it")
    assert "canary" not in str(error)
    assert "proxy" == error.field


def test_nor_by_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment gives is as far away; an address that it exempts needs none."""
    monkeypatch.setenv("http_proxy", REMOTE)
    monkeypatch.setenv("no_proxy", "")
    error = refusal("http://127.0.0.1:1", "environment")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    assert "NO_PROXY" in str(error)
    assert "http://127.0.0.1:1" == made("http://127.0.0.1:1", "environment").service


@pytest.mark.parametrize(
    ("address", "proxy"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:3128"),
        ("http://127.0.0.1:1", "http://u:p@localhost:3128"),
        ("http://127.0.0.1:1", None),
        ("https://pay.example.com", REMOTE),
        ("https://127.0.0.1:1", REMOTE),
    ],
)
def test_other_proxies_are_taken(address: str, proxy: str | None) -> None:
    """A proxy on this machine sees what this machine sees anyway, and TLS goes through any proxy as it is."""
    assert address == made(address, proxy).service
