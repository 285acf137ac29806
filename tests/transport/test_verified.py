"""TLS is always verified, whatever the user lends or changes. No byte of a request reaches an unknown server."""

import asyncio
import socket
import ssl
import zlib
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from payasync import ConfigurationError, NotSentError, OutcomeUnknownError, Profile, RetryPolicy, ServiceError, Session
from tests.foreign.certificates import authority, server_tls, trusting_tls
from tests.foreign.recorder import HOST, Recorder, answer
from tests.sessions import ONE_TRY, connect, create

NAME: Final = "pay.example"
session = partial(connect, retry=RetryPolicy(attempts=3, base_delay=0))


async def refused(pay: Session) -> NotSentError:
    """Return the permanent error of a payment that was not sent."""
    with pytest.raises(NotSentError) as caught:
        await create(pay)

    assert (False, True, 1) == (caught.value.sent, caught.value.permanent, caught.value.attempts)
    return caught.value


def unverified(context: ssl.SSLContext) -> None:
    """Let a context accept any certificate."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE


def verified(context: ssl.SSLContext) -> None:
    """Let a context verify again."""
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = True


def default_tls() -> ssl.SSLContext:
    """Return a context that verifies, and does not trust the authority of the tests."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # not the default of each system's Python
    return context


def any_name(context: ssl.SSLContext) -> None:
    """Let a context accept a certificate for any name."""
    context.check_hostname = False


def any_version(context: ssl.SSLContext) -> None:
    """Let a context accept TLS 1.0."""
    context.minimum_version = ssl.TLSVersion.TLSv1


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated")
async def test_a_context_that_is_weakened_later() -> None:
    """A TLS context that was weakened later opens no new connection."""
    for weaken, rule in [
        (unverified, "tls must verify"),
        (any_name, "tls must verify"),
        (any_version, "tls must demand TLS 1.2"),
    ]:
        for lent in [False, True]:
            tls = trusting_tls()
            with Recorder([answer(200, b"{}", ("Connection", "close"))], tls=server_tls()) as service:
                async with (
                    aiohttp.ClientSession() as http,
                    session(service.url, tls=tls, http=http if lent else None) as pay,
                ):
                    await create(pay)
                    weaken(tls)
                    error = await refused(pay)

            assert rule in str(error)
            assert (1, 1) == (len(service.requests), len(service.connections))


async def test_a_context_that_is_weakened_on_the_way() -> None:
    """If the context is weakened during the handshake, the connection is not used."""
    tls = default_tls()

    def opened(_: object) -> socket.socket:
        unverified(tls)
        return socket.socket()

    connector = aiohttp.TCPConnector(socket_factory=opened)
    with Recorder(tls=server_tls()) as service:
        async with aiohttp.ClientSession(connector=connector) as http, session(service.url, http=http, tls=tls) as pay:
            error = await refused(pay)

    assert "tls must verify" in str(error)
    assert (1, b"") == (len(service.connections), service.received)


async def test_weak_ciphers_that_are_set_later() -> None:
    """A connection without a certificate, or without encryption, is not used."""
    for ciphers in ["aNULL:!eNULL", "eNULL:!aNULL"]:
        server, client = server_tls(), trusting_tls()
        async with Recorder(tls=server) as service, session(service.url, tls=client) as pay:
            for each in (server, client):
                each.maximum_version = ssl.TLSVersion.TLSv1_2
                each.set_ciphers(f"{ciphers}:@SECLEVEL=0")
            error = await refused(pay)

        assert "tls must not allow anonymous ciphers or NULL ciphers" in str(error)
        assert (1, b"") == (len(service.connections), service.received)


WEAK: Final = ["NULL", "eNULL", "aNULL", "ALL", "HIGH:NULL-SHA256", "HIGH:aNULL", "ALL:eNULL:@SECLEVEL=0"]


def test_weak_ciphers_are_refused() -> None:
    """A TLS context with ciphers that do not encrypt, or need no certificate, is refused when the session is made."""
    for ciphers in WEAK:
        client = trusting_tls()
        client.set_ciphers(ciphers)
        with pytest.raises(ConfigurationError, match="tls must not allow ") as caught:
            session("https://pay.example", tls=client)

        assert "tls" == caught.value.field


@pytest.fixture(name="log")
def make_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that `SSLKEYLOGFILE` names."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys.log"))
    return tmp_path / "keys.log"


@pytest.mark.parametrize("given", [False, True], ids=["default", "tls="])
@pytest.mark.parametrize("lent", [False, True], ids=["own pool", "lent connector"])
async def test_no_keys_are_written(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, given: bool, lent: bool
) -> None:
    """No keys of a connection are written to the file that `SSLKEYLOGFILE` names."""
    trusted = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with Recorder(tls=server_tls()) as service:
        async with (
            aiohttp.ClientSession() as http,
            session(service.url, tls=default_tls() if given else None, http=http if lent else None) as pay,
        ):
            await create(pay)

    assert 1 == len(service.requests)
    assert [] == [path for path in log.parent.glob(log.name) if b"SECRET" in path.read_bytes()]


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("later", [False, True], ids=["from the start", "later"])
async def test_a_key_log_of_the_program_is_refused(tmp_path: Path, *, later: bool) -> None:
    """A TLS context whose keys the program itself writes to a file is refused, and nothing is sent."""
    client = trusting_tls()
    with Recorder(tls=server_tls()) as service:
        if later:
            pay = session(service.url, tls=client)
            client.keylog_filename = str(tmp_path / "own.log")
            error: Exception = await refused(pay)
            await pay.aclose()
        else:
            client.keylog_filename = str(tmp_path / "own.log")
            with pytest.raises(ConfigurationError) as caught:
                session(service.url, tls=client)
            error = caught.value

    assert "tls must not write keys, which decrypt requests" in str(error)
    assert b"" == service.received


async def test_a_weakened_context_gives_no_password_to_a_proxy() -> None:
    """An https proxy is verified before it receives its password."""
    tls = default_tls()
    with Recorder(tls=server_tls()) as proxy:
        async with session(f"https://{NAME}", tls=tls, proxy=proxy.url.replace("//", "//user:word@")) as pay:
            unverified(tls)
            await refused(pay)

    assert b"" == proxy.received


async def test_a_lent_connector_that_does_not_verify() -> None:
    """Our requests verify on a lent connector with `ssl=False`, and do not reuse its connections."""
    for used in [False, True]:
        with Recorder(tls=server_tls()) as service:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http:
                if used:
                    await (await http.get(service.url)).read()
                async with session(service.url, http=http) as pay:
                    error = await refused(pay)

        flaw, advice = "unable to get local issuer certificate", "trust this CA by tls= or SSL_CERT_FILE"
        words = (
            f"the certificate of the service cannot be trusted ({flaw}): if a CA of your own has signed it, {advice}"
        )
        assert words == error.reason
        assert b"payments" not in service.received
        assert used == bool(service.requests)


async def test_a_connection_that_was_opened_while_the_context_was_weak() -> None:
    """A connection that the user's own request opened without verification is not used."""
    tls = default_tls()
    with Recorder(tls=server_tls()) as service:
        async with aiohttp.ClientSession() as http, session(service.url, http=http, tls=tls) as pay:
            unverified(tls)
            await (await http.get(service.url, ssl=tls)).read()
            verified(tls)
            error = await refused(pay)

    assert "the connection was not verified" in str(error)
    assert (1, b"payments" in service.received) == (len(service.requests), False)


class Careless(aiohttp.TCPConnector):
    """A user's own connector, which accepts a certificate for any name."""

    def _get_ssl_context(self, req: aiohttp.ClientRequest) -> ssl.SSLContext | None:
        assert req.is_ssl()
        context = trusting_tls()
        any_name(context)
        return context


async def test_a_lent_connector_that_ignores_the_context() -> None:
    """A connection that a lent connector opened with another context is not used."""
    tls = trusting_tls()
    with Recorder(tls=server_tls(NAME)) as service:
        async with aiohttp.ClientSession(connector=Careless()) as http, session(service.url, http=http, tls=tls) as pay:
            error = await refused(pay)

    assert "the connector of http must use the TLS context of each request" in str(error)
    assert (1, b"") == (len(service.connections), service.received)


async def test_a_lent_connector_without_tls(tmp_path: Path) -> None:
    """A lent connector that cannot do TLS gets nothing in plain text."""
    received: list[bytes] = []
    ended = asyncio.Event()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()
        ended.set()

    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(served, path):
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as http,
            session(f"https://{NAME}", http=http) as pay,
        ):
            await refused(pay)
        await ended.wait()

    assert [b""] == received


class OneAddress(aiohttp.ThreadedResolver):
    """A resolver that resolves every name to this machine."""

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> Any:
        """Return the address of this machine."""
        return [{**found, "hostname": host} for found in await super().resolve(HOST, port, family)]


async def test_a_lent_connector_is_used_with_our_tls() -> None:
    """With `tls` and `http`, the connector connects, and our context verifies the name."""
    with Recorder(tls=server_tls(NAME)) as service:
        resolver = OneAddress()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=resolver, ssl=False)) as http,
            session(f"https://{NAME}:{service.port}", http=http, tls=trusting_tls()) as pay,
            session(f"https://other.example:{service.port}", http=http, tls=trusting_tls()) as other,
        ):
            await create(pay)
            error = await refused(other)

    assert "the certificate of the service cannot be trusted (Hostname mismatch, " in str(error.reason)
    assert [f"{NAME}:{service.port}"] == service.only.header("Host")


@pytest.mark.filterwarnings("ignore:.*auth.*:DeprecationWarning")
async def test_nothing_else_is_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers, cookies, keys, middlewares and the proxy of the user's session are not used.

    Nor are its redirects, its decompression and its `raise_for_status`.
    """
    (tmp_path / "netrc").write_text("machine localhost login user password netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    seen: list[object] = []

    async def layer(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        seen.append(request)
        return await handler(request)

    jar, profile = aiohttp.CookieJar(), Profile(headers={"X-Version": "2"})
    headers = {"X-Team": "7", "Authorization": "Bearer theirs", "Content-Type": "text/plain", "Cookie": "a=b"}
    settings: dict[str, Any] = {
        "connector": aiohttp.TCPConnector(),
        "cookie_jar": jar,
        "middlewares": [layer],
        "trust_env": True,
        "raise_for_status": True,
        "auto_decompress": True,
        "proxy": "http://user:word@127.0.0.1:9",
    }
    zipped = answer(200, zlib.compress(b"{}"), ("Content-Encoding", "deflate"))
    script = answer(200, b"{}", ("Set-Cookie", "theirs=1")), answer(), answer(307, b"{}", ("Location", "/else")), zipped
    with Recorder([*script, answer(400)]) as service:
        async with (
            aiohttp.ClientSession(cookies={"c": "d"}, headers=headers, **settings) as http,
            session(service.url.replace(HOST, "localhost"), http=http, profile=profile, retry=ONE_TRY) as pay,
        ):
            await create(pay)
            await create(pay)
            for _ in range(2):
                with pytest.raises(OutcomeUnknownError):
                    await create(pay)
            with pytest.raises(ServiceError):
                await create(pay)
            kept = {cookie.key for cookie in jar}

    assert ([], {"c"}) == (seen, kept)
    for request in service.requests:
        names = (
            "Authorization",
            "X-Version",
            "Content-Type",
            "Accept-Encoding",
            "X-Team",
            "Cookie",
            "Proxy-Authorization",
        )
        usual = ["Bearer sk_1"], ["2"], ["application/json"], ["identity"]
        assert [*usual, [], [], []] == [request.header(name) for name in names]
    assert [1] * 5 == [request.connection for request in service.requests]


async def test_trace_configs_are_lent() -> None:
    """Trace configs of the injected session see each step of our requests."""
    steps: list[str] = []

    async def noted(name: str, *_: object) -> None:
        steps.append(name)

    trace = aiohttp.TraceConfig()
    names = ("request_start", "connection_create_start", "request_headers_sent", "request_chunk_sent", "request_end")
    for name in names:
        getattr(trace, f"on_{name}").append(partial(noted, name))
    with Recorder() as service:
        async with aiohttp.ClientSession(trace_configs=[trace]) as http, session(service.url, http=http) as pay:
            await create(pay)

    assert list(names) == steps
    assert 1 == len(service.requests)


async def test_a_closed_session_lends_nothing() -> None:
    """A closed injected session is refused, or its calls were not sent; no error of aiohttp escapes."""
    with Recorder() as service:
        async with aiohttp.ClientSession() as http:
            unused = session(service.url, http=http)
            used = session(service.url, http=http, retry=ONE_TRY)
            await create(used)
        with pytest.raises(ConfigurationError, match="http is closed") as rejected:
            await create(unused)
        with pytest.raises(NotSentError) as unsent:
            await create(used)
        await used.aclose()

    assert ("http", False, False) == (rejected.value.field, rejected.value.sent, unsent.value.sent)
    assert 1 == len(service.requests)


async def test_strong_ciphers_are_accepted() -> None:
    """A TLS context whose ciphers all encrypt and verify is used."""
    for ciphers in ["DEFAULT", "HIGH:!aNULL", "ECDHE+AESGCM", "ALL:!aNULL:!eNULL", "DEFAULT@SECLEVEL=0"]:
        client = trusting_tls()
        client.set_ciphers(ciphers)
        async with Recorder(tls=server_tls()) as service, session(service.url, tls=client) as pay:
            await create(pay)

        assert 1 == len(service.requests)
