"""A hop between a session and its service that sends each POST twice, or responds itself."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
import pytest
from aiohttp import web
from attrs import evolve

from payasync import OutcomeUnknownError, Profile, Recovery, RetryPolicy, Session
from payasync.errors import DuplicateError
from payasync.journal import SqliteJournal
from payasync.sandbox import Sandbox
from payasync.sandbox.dialect import Dialect
from tests.test_services import SERVICES, profile_of

Forward: TypeAlias = Callable[[], Awaitable[web.Response]]
FIR: Final = Path(__file__).parents[2] / "examples" / "custom_profile" / "fir.toml"


async def twice(send: Forward, request: web.Request) -> web.StreamResponse:
    """Send a POST twice, and return the second response."""
    first = await send()
    return await send() if request.method == "POST" else first


async def page(send: Forward, request: web.Request) -> web.StreamResponse:
    """Lose the response to a POST, and respond to a query with an error page of the hop's own."""
    if request.method == "POST":
        await send()
        assert request.transport is not None
        request.transport.abort()
    return web.Response(status=404, text="<html>default backend - 404</html>", content_type="text/html")


@asynccontextmanager
async def hop(service: str, answers: Callable[[Forward, web.Request], Awaitable[Any]]) -> AsyncGenerator[str]:
    """Yield the address of a hop between a session and a service."""

    async def forward(request: web.Request) -> web.StreamResponse:
        body, headers = await request.read(), {"Content-Type": "application/json"}

        async def send() -> web.Response:
            url = f"{service}{request.path_qs}"
            async with http.request(request.method, url, data=body, headers=headers) as response:
                return web.Response(status=response.status, body=await response.read(), headers=headers)

        answered: web.StreamResponse = await answers(send, request)
        return answered

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    async with aiohttp.ClientSession() as http:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@pytest.mark.parametrize("journalled", [False, True])
async def test_a_request_that_a_hop_sent_twice_may_have_been_done(tmp_path: Path, *, journalled: bool) -> None:
    """If the service says that the nonce was used, no error says that the write was not carried out."""
    async with Sandbox() as sandbox, hop(sandbox.url, twice) as address, SqliteJournal(tmp_path / "pay.db") as journal:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        kept = journal if journalled else None
        async with Session(address, credentials=sandbox.credentials, profile=sandbox.profile, journal=kept) as pay:
            with pytest.raises((DuplicateError, OutcomeUnknownError)) as refunded:
                await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
        states = [(each.operation, each.state) for each in await journal.list()]

        assert 1 == sandbox.ledger.refunds()
        assert refunded.value.sent is not False
        assert ([("refunds.create", "unknown")] if journalled else []) == states


async def test_an_error_page_is_no_news_about_a_refund() -> None:
    """By the sandbox's profile, a 404 without a code never ends a doubt: the refund is not sent again."""
    async with Sandbox() as sandbox, hop(sandbox.url, page) as address:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        profile = evolve(sandbox.profile, recovery=Recovery(quarantine=0.001))
        retry = RetryPolicy(base_delay=0)
        async with Session(address, credentials=sandbox.credentials, profile=profile, retry=retry) as pay:
            with pytest.raises(OutcomeUnknownError):
                await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
        sent = [each for each in sandbox.ledger.calls() if each.operation == "refunds.create"]

        assert 1 == len(sent)


def test_used_nonce_is_a_duplicate() -> None:
    """No profile that we show says that a request with a used nonce was not carried out."""
    shown = [Sandbox().profile, Profile.from_toml(FIR.read_text(encoding="utf-8")), *map(profile_of, SERVICES)]
    for profile in shown:
        code = Dialect(profile).names.code("nonce_used")
        meanings = {profile.codes.meaning(each, [code]) for each in profile.signed if code}

        assert {"duplicate"} >= meanings, profile.name
