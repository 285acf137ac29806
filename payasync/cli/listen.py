"""`payasync listen`: a receiver for development, which stores notifications and shows them."""

import asyncio
import json
import logging
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Literal

import click
from aiohttp import web
from attrs import asdict, evolve, frozen
from rich.console import Console

from payasync.cli.options import HOW_SIGNED, profile_named, profile_option
from payasync.cli.signals import stopped_by_signals
from payasync.cli.terminal import Lines, Part, existing_folder, fail, stray_logs_dropped
from payasync.cli.verify_notification import HttpMessage, read
from payasync.clocks import wall_time
from payasync.credentials import Credentials
from payasync.errors import ConfigurationError, PayasyncError, clean, plain
from payasync.notifications.inbox import Added
from payasync.notifications.ingest import OTHER_BODY, Answer, Ingest, IngestResult, explain
from payasync.notifications.notification import MAX_BYTES, Headers, Notification, Raw, unreadable
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.notifications.verification import verification_of
from payasync.notifications.web_adapters import answer_aiohttp
from payasync.profile.profile import Profile
from payasync.profile.schema import Kind
from payasync.profile.wire_names import names_of
from payasync.sandbox.server import Server, url_of
from payasync.sandbox.server import listen as bind
from payasync.strict_json import ABSENT

Verdict = Literal["verified", "hint", "held", "refused", "not kept"]

NO_KIND: Final = "its kind is unknown: give the service one of the addresses above"
TOO_MUCH: Final = {413: "it is too long", 503: "too many arrive at the same time"}
"""Why a notification is refused that nothing is wrong with, by the HTTP status of the response."""
CLOSING_SECONDS: Final = 0.5

_AMOUNTS: Final = ("refundAmt", "totalAmt", "amount")
"""Wire names of the common interface, the narrowest first."""
_UNSAVED: Final = frozenset(
    {
        *("authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token", "x-access-token"),
        *("transfer-encoding", "connection", "keep-alive"),
    }
)
"""Headers that let somebody in, or that describe the connection and not the notification."""
_STYLES: Final[dict[Verdict, str]] = {
    "verified": "green",
    "hint": "yellow",
    "held": "bold yellow",
    "refused": "bold red",
    "not kept": "bold red",
}
_USES: Final[dict[Kind, str]] = {
    "payment": "orders' notifyUrl",
    "refund": "refunds' notifyUrl",
    "subscription": "webhook endpoint",
}
_KEY: Final = 40
"""The greatest number of characters of a key that are shown: a hash says nothing to a person."""
_WIDE: Final = 120
"""Columns from which on there is room for the key, which repeats what stands before it."""
_HANG: Final = 20
"""The indent of continuation lines: the column of the event."""

_http_logger: Final = logging.getLogger("payasync.cli.listen.http")
"""Drops aiohttp's records of requests that are not HTTP; the clients get an error response."""
_http_logger.addHandler(logging.NullHandler())
_http_logger.propagate = False


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", default=8403, show_default=True, help="The port; 0 picks a free one.")
@click.option(
    "--inbox",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=existing_folder,
    default="payasync-inbox.db",
    show_default=True,
    metavar="FILE",
    help="The SQLite file that stores each notification.",
)
@profile_option
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also save each notification, even a refused one, as a file for verify-notification.",
)
@click.option("--json", is_flag=True, help="Print JSON: one line at the start, and one per notification.")
def listen(*, host: str, port: int, inbox: Path, profile: str | None, save: Path | None, json: bool) -> None:
    """Receive and show notifications on this machine.

    This is for development. Ctrl-C or SIGTERM stops it. It verifies each notification as the profile says, stores it
    in the inbox, and responds as your receiver would. No notification is handled until a Receiver opens the same
    inbox. The keys come from the environment, as for `Credentials.from_env`.

    \b
    Examples:
      payasync listen
      payasync listen --port 8403 --save notifications

    \b
    Exit codes:
      0    Ctrl-C or SIGTERM stopped it
      2    it cannot start
    """  # noqa: D301 - click does not wrap a paragraph after this character
    try:
        folder = None if save is None else save.absolute()
        screen = ListenScreen(json=json)
        asyncio.run(run(host, port, screen, inbox=inbox.absolute(), profile=profile, folder=folder))
    except PayasyncError as error:
        fail("listen", error)


async def run(
    host: str, port: int, screen: "ListenScreen", *, inbox: Path, profile: str | None, folder: Path | None
) -> None:
    """Listen until SIGINT or SIGTERM comes.

    Raises:
        ConfigurationError: A setting is invalid or missing, the port is taken, or the inbox is another file.
        StorageError: The inbox cannot be read or written.
    """
    chosen, source = profile_named(profile, needed=HOW_SIGNED)
    try:
        credentials = Credentials.from_env()
    except ConfigurationError as error:
        hint = f". To try it, `payasync sandbox --webhook-url http://{host}:{port}/notify` prints all settings"
        raise ConfigurationError(f"{error}{hint if 'is not set' in str(error) else ''}", field=error.field) from None
    verification = verification_of(chosen, credentials)
    stop = stopped_by_signals()
    because = "a tunnel or a proxy can forward notifications to this address"
    with closing(bind(host, port, because=because)) as listening, stray_logs_dropped():
        store = SqliteInbox(inbox, migrate=not await asyncio.to_thread(inbox.exists))
        try:
            await store.next_due()  # a file that is no inbox is refused here
            ingest = Ingest(verification, store, clock=wall_time, on_stored=lambda: None)
            info = ListenerInfo(
                url=url_of(listening),
                routed=not ((chosen.notification.kind and chosen.notification.kinds) or chosen.notification.tells),
                inbox=str(inbox),
                saved=str(folder or ""),
                profile=chosen.name,
                source=source,
                checks=verification.checks if verification.proves else "",
                yes=_answer_text(ingest.acknowledgement),
                no=_answer_text(ingest.refusal),
            )
            listener = Listener(ingest=ingest, profile=chosen, screen=screen, folder=folder)
            application = web.Application()
            # A service may have been given any path.
            application.router.add_post("/{path:.*}", listener.answer)
            async with Server(listening).serve(application, shutdown_timeout=CLOSING_SECONDS, logger=_http_logger):
                screen.opened(info)
                await stop.wait()
        finally:
            await store.aclose()
    screen.closed()


def _answer_text(answer: Answer) -> str:
    return f"{answer.status} {answer.body}".strip()


@frozen(kw_only=True)
class Listener:
    """Responds to notifications as a receiver would, and shows them.

    Attributes:
        ingest: Verifies and stores them.
        profile: Says what the service does.
        screen: Shows them.
        folder: Where each is saved as a file, if anywhere.
    """

    ingest: Ingest
    profile: Profile
    screen: "ListenScreen"
    folder: Path | None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request."""
        return await answer_aiohttp(partial(self._receive, request), request, kind=None, max_bytes=MAX_BYTES)

    async def _receive(self, request: web.Request, raw: Raw, headers: Headers, kind: str | None = None) -> Answer:
        result = await self.ingest.ingest(raw, headers, kind)
        seen = inspect(result, self.profile, datetime.now(UTC), kind)
        if self.folder and len(raw) <= MAX_BYTES:
            seen = save(seen, request, bytes(raw), self.folder)
        self.screen.received(seen)
        return result.answer


@frozen(kw_only=True)
class Inspection:
    """One notification, as it is shown.

    Attributes:
        at: When it came, aware.
        verdict: `verified` by its signature; `hint` if that proves nothing; `held` if it is genuine, and cannot
            be used as it is; `refused`; or `not kept`, so that the service sends it again.
        status: The HTTP status that it was answered with.
        kind: `payment`, `refund` or `subscription`; empty if unknown, like all that follow.
        event: The service's own name of the event.
        event_time: The event's own time; `None` if unknown.
        reference: The number of the order, the refund or the subscription.
        amount: The amount, in whatever unit it has.
        key: The key that two notifications of one event share.
        again: The same had come before.
        why: A remark.
        file: Where it was saved.
    """

    at: datetime
    verdict: Verdict
    status: int
    kind: str = ""
    event: str = ""
    event_time: datetime | None = None
    reference: str = ""
    amount: str = ""
    key: str = ""
    again: bool = False
    why: str = ""
    file: str = ""


def inspect(result: IngestResult, profile: Profile, at: datetime, kind: str | None = None) -> Inspection:
    """Return the facts to show of a notification.

    Args:
        result: What became of it.
        profile: Says what the service does.
        at: When it came.
        kind: What its address is for.
    """
    received, error, status = result.received, result.error, result.answer.status
    why = TOO_MUCH.get(status, "") if error is None else explain(error)
    if received is None:
        return Inspection(at=at, verdict="refused", status=status, kind=kind or "", why=why)
    raw, headers, kind = received.raw, received.headers, received.kind
    parsed = read(raw, headers, profile, kind) or unreadable(raw, headers, kind, received.received_at)
    verdict: Verdict = "not kept"
    if result.added:
        verdict, why = "verified" if received.verified else "hint", "" if parsed.kind else NO_KIND
    if result.added is Added.CONFLICT or (result.added and received.held):
        verdict, why = "held", received.held or OTHER_BODY
        why += ". It is not acknowledged, so the service sends it again" if error else ""
    return Inspection(
        at=at,
        verdict=verdict,
        status=status,
        kind=parsed.kind or kind or "",
        event=parsed.event or received.event or "",
        event_time=received.event_time,
        reference=parsed.out_refund_no or parsed.out_trade_no or parsed.subscription_id or parsed.payment_id or "",
        amount=_amount(parsed, profile),
        key=received.key,
        again=result.added is Added.AGAIN,
        why=why,
    )


def _amount(parsed: Notification, profile: Profile) -> str:
    names = (*_AMOUNTS, *names_of(profile, "amount"), *names_of(profile, "total_amt"), *names_of(profile, "refund_amt"))
    amount = next((found for name in names if (found := parsed.get(name, ABSENT)) is not ABSENT), None)
    if not (isinstance(amount, str) or type(amount) is int):
        return ""
    currency = parsed.get("currency")
    return f"{amount} {currency}" if isinstance(currency, str) else str(amount)


def save(seen: Inspection, request: web.Request, body: bytes, folder: Path) -> Inspection:
    """Write a notification into a file that only its owner can read; say where, or why not."""
    headers = tuple((name, value) for name, value in request.headers.items() if name.lower() not in _UNSAVED)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        begin, end = f"{seen.at:%Y%m%dT%H%M%S.%f}-", f"-{seen.kind or 'notification'}.http"
        with NamedTemporaryFile(dir=folder, prefix=begin, suffix=end, delete=False) as file:
            file.write(HttpMessage(body, headers, request.raw_path).to_bytes())
    except OSError as error:
        return evolve(seen, why=f"{seen.why} (not saved: {error.strerror})".lstrip())
    return evolve(seen, file=file.name)


@frozen(kw_only=True)
class ListenerInfo:
    """What the command shows at its start.

    Attributes:
        url: Where it listens.
        routed: Only the address says the kind; otherwise the payload does, too.
        inbox: The file of the inbox.
        saved: The folder of saved notifications, or an empty text.
        profile: The name of the profile.
        source: Where the profile comes from.
        checks: How notifications are verified, in words; empty if they are not.
        yes: The response that acknowledges.
        no: The response that refuses.
    """

    url: str
    routed: bool
    inbox: str
    saved: str
    profile: str
    source: str
    checks: str
    yes: str
    no: str

    @property
    def addresses(self) -> dict[Kind, str]:
        """Where the service is to send notifications, by kind."""
        return {kind: f"{self.url}/notify/{kind}" for kind in _USES}

    @property
    def webhook_url(self) -> str:
        """Where the service is to send notifications that have no address of their own."""
        return self.addresses["subscription"] if self.routed else f"{self.url}/notify"


class ListenScreen:
    """What a person or a script sees of the command.

    Args:
        json: Show lines of JSON, and no others.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console)
        self._json = json

    def opened(self, info: ListenerInfo) -> None:
        """Show the address and the settings."""
        write, row = self._lines.write, self._lines.row
        if self._json:
            facts = {**asdict(info), "addresses": info.addresses, "webhook_url": info.webhook_url}
            write(json.dumps(facts))
            return
        self._lines.title("listen", "stores and shows notifications; none is handled")
        row("Profile", f"{info.profile or 'unnamed'}, {info.source}", "bold")
        row("Verifies", info.checks or "nothing: the profile says that notifications are not signed", "bold")
        if not info.checks:
            row("", "Each notification is only a hint, because anybody could have sent it", "yellow")
        row("Responds", f"{info.yes}; {info.no} if it refuses", "bold")
        row("Inbox", info.inbox, "bold")
        if info.saved:
            row("Saves", f"each as a file in {info.saved}", "bold")
        write()
        self._lines.paragraph("  Addresses to give to the service:")
        uses = {f"{kind}s": (info.addresses[kind], use) for kind, use in _USES.items()}
        if not info.routed:
            uses["any of them"] = info.webhook_url, "the payload says which"
        width = max(len(address) for address, _ in uses.values())
        for name, (address, use) in uses.items():
            write((f"  {name:13}  ", "dim"), (f"{address:{width}}  ", "bold cyan"), use, hang=17)
        write()
        self._lines.paragraph(("  To try it, let the sandbox send notifications:", "dim"))
        self._lines.paragraph(f"  payasync sandbox --webhook-url {info.webhook_url}")
        self._lines.paragraph(("  Press Ctrl-C to stop.", "dim"))

    def received(self, seen: Inspection) -> None:
        """Show a notification."""
        if self._json:
            self._lines.write(json.dumps(asdict(seen), default=partial(datetime.isoformat, timespec="milliseconds")))
            return
        facts: tuple[Part, ...] = (f"{seen.kind or '-':12}  ",)
        if seen.key:
            reference = (f"{clean(seen.reference) or '-':14}  ", "bold")
            facts = f"{_event(seen):22}  ", reference, f"{clean(seen.amount):>10}  "
        key = plain(seen.key) if self._lines.width >= _WIDE else ""
        self._lines.write(
            (f"{seen.at.astimezone():%H:%M:%S}  ", "dim"),
            (f"{seen.verdict:8}  ", _STYLES[seen.verdict]),
            *facts,
            ("again  " if seen.again else "", "cyan"),
            (f"{plain(seen.why)}  " if seen.why else "", "yellow"),
            (key if len(key) <= _KEY else f"{key[: _KEY - 1]}…", "dim"),
            hang=_HANG,
        )

    def closed(self) -> None:
        """Say that it has ended."""
        if not self._json:
            self._lines.write()
            self._lines.write("Stopped. The inbox has all notifications that were received.")


def _event(seen: Inspection) -> str:
    """Return the event, with its kind before it if it does not begin with that."""
    if seen.kind and seen.event.startswith(f"{seen.kind}."):
        return clean(seen.event)
    return " ".join(filter(None, (seen.kind, clean(seen.event)))) or "-"
