import ssl
from typing import Final

import pytest
from yarl import URL

from payasync.errors import ConfigurationError
from payasync.settings import check_tls, environment_proxy, is_loopback, parse_base_url, parse_proxy_url

LOOPBACK: Final = ["localhost", "LOCALHOST", "127.0.0.1", "127.9.8.7", "[::1]"]
ELSEWHERE: Final = [
    "pay.example.com",
    "localhost.example.com",
    "api.localhost",
    "127.0.0.1.example.com",
    "0.0.0.0",  # noqa: S104 - nothing listens
    "10.0.0.1",
    "[::2]",
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://pay.example.com", "https://pay.example.com"),
        ("HTTPS://pay.example.com", "https://pay.example.com"),
        ("https://pay.example.com:8443/gateway/v2/", "https://pay.example.com:8443/gateway/v2/"),
        (URL("https://pay.example.com/gateway"), "https://pay.example.com/gateway"),
        ("http://127.0.0.1:8080/api", "http://127.0.0.1:8080/api"),
    ],
)
def test_base_url_keeps_its_path(given: str | URL, expected: str) -> None:
    """A service may stand below a path; the port and the path stay as they are given."""
    assert URL(expected) == parse_base_url(given)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_plain_http_is_for_loopback_alone(host: str) -> None:
    """What moves money travels under TLS; a name that only looks like this machine's is not."""
    with pytest.raises(ConfigurationError, match="must be https") as caught:
        parse_base_url(f"http://{host}")

    assert "base_url" == caught.value.field
    assert not is_loopback(URL(f"http://{host}"))


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_may_be_plain_http(host: str) -> None:
    """The sandbox serves plain http on this machine."""
    assert "http" == parse_base_url(f"http://{host}:8080").scheme
    assert is_loopback(URL(f"http://{host}"))


def test_no_host_is_no_loopback() -> None:
    """A relative URL names no machine."""
    assert not is_loopback(URL("/path"))


@pytest.mark.parametrize(
    "given",
    [
        "",
        "pay.example.com",
        "/v1",
        "//pay.example.com",
        "ftp://pay.example.com",
        "file:///etc",
        "https://",
        "https://pay.example.com:0",
        "https://pay.example.com:99999",
        "https://pay.example.com:x",
        "https://\ud800",
        None,
        5,
    ],
)
def test_base_url_is_absolute(given: object) -> None:
    """Anything else is refused with an example of what it must be."""
    with pytest.raises(ConfigurationError, match="must be an absolute URL, such as https") as caught:
        parse_base_url(given)

    assert "base_url" == caught.value.field
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("https://user:canary@pay.example.com", "must not hold a user or a password"),
        ("https://canary@pay.example.com", "must not hold a user or a password"),
        ("https://:canary@pay.example.com", "must not hold a user or a password"),
        ("ftp://user:canary@pay.example.com", "must be an absolute URL"),
        ("https://user:canary@pay.example.com:99999", "must be an absolute URL"),
        ("https://user:canary@", "must be an absolute URL"),
        ("https://pay.example.com?key=canary", "must not hold a query or a fragment"),
        ("https://pay.example.com/#canary", "must not hold a query or a fragment"),
        ("https://pay.example.com/?", "must not hold a query or a fragment"),
        ("https://pay.example.com/#", "must not hold a query or a fragment"),
    ],
)
def test_base_url_holds_no_key(given: str, why: str) -> None:
    """A key does not belong into the address; an error never shows one that stands there."""
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse_base_url(given)

    assert "base_url" == caught.value.field
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("given", ["http://proxy.example:3128", "https://user:password@proxy.example:3128"])
def test_proxy_may_hold_a_password(given: str) -> None:
    """A proxy's user and password stand in its URL."""
    assert given == parse_proxy_url(given)


@pytest.mark.parametrize(
    "given", ["socks5://u:canary@h", "proxy.example:3128", "http://", "", 5, "http://u:canary@h:x"]
)
def test_proxy_is_absolute_http(given: object) -> None:
    """Any other proxy is refused, and its password is not shown."""
    with pytest.raises(ConfigurationError, match="proxy must be an absolute URL") as caught:
        parse_proxy_url(given)

    assert "proxy" == caught.value.field
    assert "canary" not in str(caught.value)


def unverified() -> ssl.SSLContext:
    """Return a context that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def any_name() -> ssl.SSLContext:
    """Return a context that takes any host's certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    return context


def optional() -> ssl.SSLContext:
    """Return a context that checks a certificate where there is one."""
    context = ssl.create_default_context()
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def old() -> ssl.SSLContext:
    """Return a context that speaks any TLS."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    return context


@pytest.mark.parametrize(
    ("context", "why"),
    [
        (unverified(), "must verify"),
        (any_name(), "must verify"),
        (optional(), "must verify"),
        (old(), "must demand TLS 1.2"),
        (False, "must be an ssl.SSLContext"),
        (None, "must be an ssl.SSLContext"),
    ],
)
def test_tls_always_verifies(context: object, why: str) -> None:
    """Verification cannot be switched off, and no TLS below 1.2 is spoken."""
    with pytest.raises(ConfigurationError, match=why) as caught:
        check_tls(context)

    assert "tls" == caught.value.field


def test_tls_context_that_verifies_is_taken() -> None:
    """A context with a CA bundle or a client certificate of the merchant's own is used as it is."""
    context = ssl.create_default_context()

    assert context is check_tls(context)


def test_no_host_has_no_proxy() -> None:
    """A relative URL is nobody's to reach."""
    assert environment_proxy(URL("/v1/payments")) is None


def test_proxy_is_that_of_the_scheme() -> None:
    """Whatever the environment says, nothing is found for a scheme that nobody has a proxy for."""
    assert environment_proxy(URL("nothing://pay.example.com")) is None
