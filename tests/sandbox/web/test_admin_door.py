"""Who may look at the sandbox and work its controls."""

import pytest
from multidict import CIMultiDict

from payasync.credentials import Secret
from payasync.sandbox.model import RefusedError
from payasync.sandbox.web.admin import AdminAccess, allowed_hosts

TOKEN = "the-admin-token"
ACCESS = AdminAccess(token=Secret(TOKEN), hosts=allowed_hosts("127.0.0.1", 8000), port=8000)
COOKIE = {ACCESS.cookie: ACCESS.key.reveal()}
HERE = {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"}


def refused(headers: dict[str, str], cookies: dict[str, str], *, changes: bool) -> int | None:
    """Return the status with which a request is refused, or `None` where it is let in."""
    try:
        ACCESS.check(headers, cookies, changes=changes)
    except RefusedError as error:
        return error.status
    return None


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"])
def test_names_of_this_machine_are_taken(host: str) -> None:
    """A request that names this machine and the sandbox's port is for the sandbox."""
    ACCESS.check_host(CIMultiDict({"Host": host}))


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        ["127.0.0.1"],
        ["127.0.0.1:8001"],
        ["evil.example:8000"],
        ["localhost.evil.example:8000"],
        ["localhost.:8000"],
        ["127.0.0.1:8000@evil.example"],
        ["127.0.0.1:8000", "127.0.0.1:8000"],
    ],
)
def test_other_hosts_are_refused(given: list[str]) -> None:
    """A name that somebody else points at this machine, another port, and no or two names are refused."""
    with pytest.raises(RefusedError) as caught:
        ACCESS.check_host(CIMultiDict([("Host", host) for host in given]))

    assert 421 == caught.value.status


@pytest.mark.parametrize(("bound", "port", "host"), [("::1", 9, "[::1]:9"), ("127.0.0.5", 9, "127.0.0.5:9")])
def test_bound_address_is_one_of_the_hosts(bound: str, port: int, host: str) -> None:
    """The address that the sandbox listens on names it, an IPv6 one in brackets."""
    assert host in allowed_hosts(bound, port)


def test_port_80_may_be_left_out() -> None:
    """Browsers leave out the port of http."""
    assert {"localhost", "localhost:80"} <= allowed_hosts("127.0.0.1", 80)
    assert "localhost" not in allowed_hosts("127.0.0.1", 8000)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": "Bearer \udcff"},
        {"Authorization": f"Bearer {ACCESS.key.reveal()}"},
    ],
)
def test_nothing_but_the_token_opens(headers: dict[str, str]) -> None:
    """Nearly the token is not the token, and the cookie's value is not either."""
    assert 401 == refused(headers, {}, changes=False)


@pytest.mark.parametrize("cookies", [{}, {ACCESS.cookie: ""}, {ACCESS.cookie: TOKEN}, {"other": ACCESS.key.reveal()}])
def test_nothing_but_the_cookie_stands_for_the_token(cookies: dict[str, str]) -> None:
    """A cookie of another name or value opens nothing; the token itself is in none."""
    assert 401 == refused(HERE, cookies, changes=False)


def test_cookie_opens_from_this_sandboxs_page() -> None:
    """To look, the cookie is enough; to change something, the form must come from this sandbox."""
    assert refused({}, COOKIE, changes=False) is None
    assert refused(HERE, COOKIE, changes=True) is None
    assert refused({**HERE, "Sec-Fetch-Site": "same-origin"}, COOKIE, changes=True) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8000"},
        {**HERE, "Origin": "null"},
        {**HERE, "Origin": "http://evil.example"},
        {**HERE, "Origin": "http://127.0.0.1:8001"},
        {**HERE, "Origin": "https://127.0.0.1:8000"},
        {**HERE, "Origin": "http://localhost:8000"},
        {**HERE, "Sec-Fetch-Site": "same-site"},
        {**HERE, "Sec-Fetch-Site": "cross-site"},
        {**HERE, "Sec-Fetch-Site": "none"},
    ],
)
def test_forms_of_others_change_nothing(headers: dict[str, str]) -> None:
    """A page of somebody else, on another port of this machine too, sends the cookie along: it is refused."""
    assert 403 == refused(headers, COOKIE, changes=True)
