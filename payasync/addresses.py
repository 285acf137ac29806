"""Where a session may go: https, or plain http on this machine alone."""

import ipaddress
import ssl
from typing import Final
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from payasync.errors import ConfigurationError

_HTTP: Final = frozenset({"http", "https"})


def base_url(given: object) -> URL:
    """Return a base URL; its path is kept.

    Raises:
        ConfigurationError: It is no absolute https URL (http is for loopback only), or it holds a user, a query
            or a fragment.
    """
    url = _parsed(given)
    if url is None or url.scheme not in _HTTP or not url.host:
        raise _refused(given, "must be an absolute URL, such as https://pay.example.com")
    if url.user is not None or url.password is not None:
        raise _refused(given, "must not hold a user or a password: keys belong into Credentials")
    if url.raw_query_string or url.raw_fragment or "?" in str(given) or "#" in str(given):
        raise _refused(given, "must not hold a query or a fragment")
    if url.scheme == "http" and not is_loopback(url):
        raise _refused(given, "must be https: plain http is for loopback alone")
    return url


def shown(url: URL) -> str:
    """Return a base URL as a text, in which each that leads to the same place is the same."""
    return str(url).rstrip("/")


def _parsed(given: object) -> URL | None:
    if not isinstance(given, str | URL):
        return None
    try:
        url = URL(given)
    except ValueError:
        return None
    return url if url.port else None


def _refused(given: object, why: str) -> ConfigurationError:
    shown = "" if {"@", "?", "#"}.intersection(str(given)) else f"; it is {given!r}"  # a key may stand there
    return ConfigurationError(f"base_url {why}{shown}", field="base_url")


def is_loopback(url: URL) -> bool:
    """Return whether an address is this machine's own: `localhost`, 127.0.0.0/8 or ::1."""
    host = url.host or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def environment_proxy(url: URL) -> str | None:
    """Return the proxy that the environment gives for an address; only that is taken from it, and no netrc."""
    if url.host is None or proxy_bypass(url.host):
        return None
    return getproxies().get(url.scheme)


def proxy_url(given: object) -> str:
    """Return a proxy's URL, which may hold a user and a password.

    Raises:
        ConfigurationError: It is no absolute http(s) URL.
    """
    url = _parsed(given)
    if url is None or url.scheme not in _HTTP or not url.host:
        raise ConfigurationError(
            'proxy must be an absolute URL, such as http://proxy.example:3128, or "environment"', field="proxy"
        )
    return str(url)


def verifying(context: object) -> ssl.SSLContext:
    """Return a TLS context that verifies.

    Raises:
        ConfigurationError: It does not check certificates or host names, or allows TLS below 1.2.
    """
    if not isinstance(context, ssl.SSLContext):
        raise ConfigurationError(
            f"tls must be an ssl.SSLContext, such as ssl.create_default_context(), not {context!r}", field="tls"
        )
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "tls must verify: to trust a certificate of your own, load it with load_verify_locations()", field="tls"
        )
    if context.minimum_version < ssl.TLSVersion.TLSv1_2:
        raise ConfigurationError("tls must demand TLS 1.2: set minimum_version to TLSv1_2 or later", field="tls")
    return context
