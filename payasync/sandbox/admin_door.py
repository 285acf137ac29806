"""Who may look at the sandbox and work its controls; plain decisions over a request's headers.

Three things are asked, in this order: is the request for this sandbox (its Host header: a name that somebody else
points at this machine is none), does it know the token, and, where it changes something by the cookie that a
browser sends along by itself, does it come from a page of this sandbox.
"""

import hmac
from collections.abc import Collection, Mapping
from typing import Final

from attrs import frozen
from multidict import MultiMapping

from payasync.sandbox.values import RefusedError
from payasync.secret import Secret

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_COOKIE_TEXT: Final = b"payasync sandbox: the dashboard's cookie"


def hosts(bound: str, port: int) -> frozenset[str]:
    """Return what a Host header may say.

    Args:
        bound: The address that the sandbox listens on.
        port: Its port; 80 may be left out, as it is in `http` addresses.
    """
    names = {*_LOOPBACK, f"[{bound}]" if ":" in bound else bound.lower()}
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())  # noqa: PLR2004


@frozen(kw_only=True)
class AdminDoor:
    """The way to the dashboard and its controls.

    Attributes:
        token: Opens it.
        hosts: What a Host header may say.
        port: Names the cookie: browsers give a host's cookies to all of its ports.
    """

    token: Secret
    hosts: Collection[str]
    port: int

    @property
    def cookie(self) -> str:
        """The cookie's name."""
        return f"payasync_sandbox_{self.port}"

    @property
    def key(self) -> Secret:
        """The cookie's value: it opens the door from a page of this sandbox, and tells nobody the token."""
        return Secret(hmac.new(self.token.reveal().encode(), _COOKIE_TEXT, "sha256").hexdigest())

    def opened_by(self, token: str) -> bool:
        """Return whether a text is the token; it takes as long wherever they differ."""
        return _equal(token, self.token)

    def check_host(self, headers: MultiMapping[str]) -> None:
        """Check that a request is for this sandbox.

        Raises:
            RefusedError: It names another host, several, or none.
        """
        given = headers.getall("Host", [])
        if len(given) != 1 or given[0].lower() not in self.hosts:
            expected = ", ".join(sorted(self.hosts))
            raise RefusedError("invalid", f"this sandbox answers to these hosts only: {expected}", status=421)

    def check(self, headers: Mapping[str, str], cookies: Mapping[str, str], *, changes: bool) -> None:
        """Check that a request may look, or change something.

        Args:
            headers: The request's.
            cookies: Its cookies.
            changes: It is not only to look.

        Raises:
            RefusedError: It knows no token, or it comes from a page of somebody else.
        """
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.opened_by(token.strip()):
            return
        if not _equal(cookies.get(self.cookie, ""), self.key):
            raise RefusedError("unauthenticated", "The sandbox's admin token is missing or wrong", status=401)
        if changes and not _from_here(headers):
            raise RefusedError("unauthenticated", "The form must be sent from this sandbox's own page", status=403)


def _from_here(headers: Mapping[str, str]) -> bool:
    origin, site = headers.get("Origin", ""), headers.get("Sec-Fetch-Site", "same-origin")
    return site == "same-origin" and origin.lower() == f"http://{headers.get('Host', '')}".lower()


def _equal(given: str, expected: Secret) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogateescape"), expected.reveal().encode())
