"""`payasync listen`: a receiver for development, which keeps what comes and shows it."""

import itertools
import json
import logging
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal

from aiohttp import web
from attrs import asdict, evolve, frozen
from rich.console import Console

from payasync import __version__
from payasync.cli.doctor import verifying_profile
from payasync.cli.signals import stopped_by_signals
from payasync.cli.terminal import Lines, Part, plain
from payasync.cli.verify_notification import HttpMessage
from payasync.credentials import Credentials
from payasync.documents import ABSENT
from payasync.errors import ConfigurationError, InvalidSignatureError
from payasync.notifications.inbox import Added
from payasync.notifications.ingest import (
    Answer,
    Arrival,
    Ingest,
    Limits,
    acknowledge,
    answer_aiohttp,
    choose_key,
    refuse,
)
from payasync.notifications.notification import Headers, Notification, Raw
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.notifications.verification import Verification, verification_of
from payasync.profile.profile import Profile
from payasync.profile.schema import Kind
from payasync.sandbox.server import Server, let_loop_turn, listen, url_of
from payasync.settings import Pace, new_private

Verdict = Literal["verified", "hint", "refused", "not kept"]

NO_KIND: Final = "nothing says its kind: give the service one of the addresses above"
TOO_MUCH: Final = "it is too long, or too many come at once"
OTHER_BODY: Final = "quarantined: another body came with this key"
AMOUNTS: Final = ("refundAmt", "totalAmt", "amount")
"""Wire names of the service's document, the narrowest first."""


@frozen(kw_only=True)
class Heard:
    """One notification, as it is shown.

    Attributes:
        at: When it came, aware.
        verdict: `verified` by its signature; `hint` where none is asked for; `refused`; or `not kept`, and to come
            again.
        status: The HTTP status that it was answered with.
        kind: `payment`, `refund` or `subscription`; empty where nothing says it, like all that follow.
        event: The service's own name of the event.
        reference: The number of the order, the refund or the subscription.
        amount: As it was told, in whatever unit that is.
        key: What says that two notifications are of one event.
        again: The same had come before.
        why: What there is to say of it.
        file: Where it was saved.
    """

    at: datetime
    verdict: Verdict
    status: int
    kind: str = ""
    event: str = ""
    reference: str = ""
    amount: str = ""
    key: str = ""
    again: bool = False
    why: str = ""
    file: str = ""

    def json(self) -> str:
        """Return all of it as one line."""
        return json.dumps({**asdict(self), "at": self.at.isoformat(timespec="milliseconds")})


def heard(arrival: Arrival, profile: Profile, at: datetime, kind: str | None = None) -> Heard:
    """Return what is told of a notification.

    Args:
        arrival: What became of it.
        profile: What the service does.
        at: When it came.
        kind: What its address is for.
    """
    told, status = arrival.notification, arrival.answer.status
    if told is None:
        return Heard(at=at, verdict="refused", status=status, kind=kind or "", why=_wrong(arrival.error))
    believed: Verdict = "verified" if told.verified else "hint"
    return Heard(
        at=at,
        verdict=believed if arrival.added else "not kept",
        status=status,
        kind=told.kind or "",
        event=told.event or "",
        reference=told.out_refund_no or told.out_trade_no or told.subscription_id or told.payment_id or "",
        amount=_amount(told, profile),
        key=choose_key(told),
        again=arrival.added is Added.AGAIN,
        why=_remark(told, arrival.added) if arrival.added else _wrong(arrival.error),
    )


def _wrong(error: Exception | None) -> str:
    if error is None:
        return TOO_MUCH
    return f"{error.field} {error.reason}" if isinstance(error, InvalidSignatureError) else str(error)


def _remark(told: Notification, added: Added | None) -> str:
    if added is Added.CONFLICT:
        return OTHER_BODY
    return "" if told.kind else NO_KIND


def _amount(told: Notification, profile: Profile) -> str:
    names = (*AMOUNTS, profile.fields.get("subscription_amount", ""))
    amount = next((found for name in names if name and (found := told.get(name, ABSENT)) is not ABSENT), None)
    if not (isinstance(amount, str) or type(amount) is int):
        return ""
    currency = told.get("currency")
    return f"{amount} {currency}" if isinstance(currency, str) else str(amount)


_STYLES: Final[dict[Verdict, str]] = {
    "verified": "green",
    "hint": "yellow",
    "refused": "bold red",
    "not kept": "bold red",
}
_MEANT: Final[dict[Kind, str]] = {
    "payment": "orders' notifyUrl",
    "refund": "refunds' notifyUrl",
    "subscription": "webhook endpoint",
}
_MOST: Final = 40
"""Characters of a key that are shown: one that is a hash says nothing to a person."""
_WIDE: Final = 120
"""Columns from which on there is room for the key, which repeats what stands before it."""
_HANG: Final = 20
"""The column where a line goes on below: that of the event."""


@frozen(kw_only=True)
class Opening:
    """What it says of itself at its start.

    Attributes:
        url: Where it listens.
        routed: Only the address says the kind; else the payload does, too.
        inbox: The file that keeps what comes.
        saved: The folder where each is a file, too; empty where there is none.
        profile: The name of the profile.
        source: Where that comes from.
        checks: How notifications are verified, in words; empty where they are not.
        yes: The answer that acknowledges.
        no: The answer that refuses.
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
        """Where the service is to send notifications, by their kind."""
        return {kind: f"{self.url}/notify/{kind}" for kind in _MEANT}

    @property
    def webhook_url(self) -> str:
        """Where it is to send what has no address of its own."""
        return self.addresses["subscription"] if self.routed else f"{self.url}/notify"

    @property
    def command(self) -> str:
        """The command that has a sandbox tell it; listen with the keys that it prints."""
        return f"payasync sandbox --webhook-url {self.webhook_url}"

    def json(self) -> str:
        """Return all of it as one line."""
        return json.dumps({**asdict(self), "addresses": self.addresses, "webhook_url": self.webhook_url})


class ListenScreen:
    """The terminal, or whatever stands in its place.

    Args:
        json: Show lines of JSON, and no others.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console)
        self._json = json

    def opened(self, opening: Opening) -> None:
        """Say where it listens, and what it believes."""
        if self._json:
            self._lines.write(opening.json())
            return
        write = self._lines.write
        write(("payasync listen", "bold"), f" {__version__}: keeps and shows notifications; none is handled")
        write()
        self._facts(opening)
        write()
        write("  Addresses to give to the service:")
        write()
        self._addresses(opening)
        write()
        write(("  For a try, have the sandbox tell it:", "dim"))
        write()
        write(f"  {opening.command}")
        write()
        write(("  Ctrl-C ends it.", "dim"))
        write()

    def _facts(self, opening: Opening) -> None:
        row = self._lines.row
        row("Profile", f"{opening.profile or 'unnamed'}, {opening.source}", "bold")
        row("Verifies", opening.checks or "nothing: the profile says that they are not signed", "bold")
        if not opening.checks:
            row("", "What comes is a hint, confirmed by nobody: anybody could have sent it", "yellow")
        row("Answers", f"{opening.yes}; {opening.no} to what it refuses", "bold")
        row("Inbox", opening.inbox, "bold")
        if opening.saved:
            row("Saves", f"each as a file in {opening.saved}", "bold")

    def _addresses(self, opening: Opening) -> None:
        told: dict[str, tuple[str, str]] = {f"{kind}s": (opening.addresses[kind], _MEANT[kind]) for kind in _MEANT}
        if not opening.routed:
            told["any of them"] = opening.webhook_url, "payload says which"
        width = max(len(address) for address, _ in told.values())
        for name, (address, meant) in told.items():
            self._lines.write((f"  {name:13}  ", "dim"), (f"{address:{width}}  ", "bold cyan"), meant, hang=17)

    def heard(self, heard: Heard) -> None:
        """Show a notification."""
        if self._json:
            self._lines.write(heard.json())
            return
        key = _in_short(plain(heard.key)) if self._lines.width >= _WIDE else ""
        self._lines.write(
            (f"{heard.at.astimezone():%H:%M:%S}  ", "dim"),
            (f"{heard.verdict:8}  ", _STYLES[heard.verdict]),
            *(_told(heard) if heard.key else (f"{heard.kind or '-':12}  ",)),
            ("again  " if heard.again else "", "cyan"),
            (f"{plain(heard.why)}  " if heard.why else "", "yellow"),
            (key, "dim"),
            hang=_HANG,
        )

    def closed(self) -> None:
        """Say that it has ended."""
        if not self._json:
            self._lines.write()
            self._lines.write("It listens no more; the inbox keeps what came.")


def _told(heard: Heard) -> tuple[Part, ...]:
    return (
        f"{_event(heard):22}  ",
        (f"{plain(heard.reference) or '-':14}  ", "bold"),
        f"{plain(heard.amount):>10}  ",
    )


def _event(heard: Heard) -> str:
    """Return the event, which mostly begins with its kind; else both."""
    if heard.kind and heard.event.startswith(f"{heard.kind}."):
        return plain(heard.event)
    return " ".join(filter(None, (heard.kind, plain(heard.event)))) or "-"


def _in_short(key: str) -> str:
    return key if len(key) <= _MOST else f"{key[: _MOST - 1]}…"


LIMITS: Final = Limits()
CLOSING_SECONDS: Final = 0.5
SECRET_HEADERS: Final = frozenset(
    {"authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token", "x-access-token"}
)
"""They let somebody in, and are not saved."""
FRAMING: Final = frozenset({"transfer-encoding", "connection", "keep-alive"})
"""They tell of the connection, and not of the notification."""

quiet: Final = logging.getLogger("payasync.cli.listen.http")
"""aiohttp's: a client that speaks no HTTP is told so, and nobody else."""
quiet.addHandler(logging.NullHandler())
quiet.propagate = False

received: Final = logging.getLogger("payasync.notifications")
"""The receiver's: of what it refuses or could not keep there is a line already."""


@frozen(kw_only=True)
class Options:
    """What the command was given.

    Attributes:
        host: Where it listens.
        port: Where it listens; 0: a free port.
        inbox: The file that keeps what comes.
        profile: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
        save: A folder in which each is a file, too.
    """

    host: str
    port: int
    inbox: Path
    profile: str | None
    save: Path | None


async def run(options: Options, screen: ListenScreen) -> None:
    """Listen until SIGINT or SIGTERM comes.

    Args:
        options: What the command was given.
        screen: Shows it.

    Raises:
        ConfigurationError: A setting is wrong or missing, the port is taken, or the inbox is none of ours.
        StorageError: The inbox cannot be read or written.
    """
    profile, source = verifying_profile(options.profile)
    verification = verification_of(profile, _credentials(options))
    received.addHandler(logging.NullHandler())
    stop = stopped_by_signals()
    because = "a tunnel or a proxy can bring notifications here from elsewhere"
    with closing(listen(options.host, options.port, because=because)) as listening:
        inbox = SqliteInbox(options.inbox)
        try:
            await inbox.next_due()  # a file that is none of ours says so now
            ingest = Ingest(verification, inbox, LIMITS, Pace(clock=time.time), notify=lambda: None)
            listener = Listener(ingest, profile, screen, options.save)
            async with _serving(listener, Server(listening)):
                screen.opened(_opening(options, verification, url_of(listening), source))
                await stop.wait()
        finally:
            await inbox.aclose()
    screen.closed()


class Listener:
    """Answers what comes as a receiver would, and shows it.

    Args:
        ingest: Keeps what comes.
        profile: What the service does.
        screen: Shows it.
        folder: Where each is a file, too, if anywhere.
    """

    def __init__(self, ingest: Ingest, profile: Profile, screen: ListenScreen, folder: Path | None) -> None:
        self._ingest = ingest
        self._profile = profile
        self._screen = screen
        self._folder = folder

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        return await answer_aiohttp(partial(self._taken, request), request, kind=None, max_bytes=LIMITS.max_bytes)

    async def _taken(self, request: web.Request, raw: Raw, headers: Headers, kind: str | None = None) -> Answer:
        arrival = await self._ingest.arrive(raw, headers, kind)
        seen = heard(arrival, self._profile, datetime.now(UTC), kind)
        if self._folder and len(raw) <= LIMITS.max_bytes:
            seen = saved(seen, message(request, bytes(raw)), self._folder)
        self._screen.heard(seen)
        return arrival.answer


def message(request: web.Request, body: bytes) -> HttpMessage:
    """Return a request as it is kept in a file: without what lets somebody in, or tells of its connection alone."""
    left_out = SECRET_HEADERS | FRAMING
    kept = tuple((name, value) for name, value in request.headers.items() if name.lower() not in left_out)
    return HttpMessage(body, kept, request.raw_path)


def saved(seen: Heard, kept: HttpMessage, folder: Path) -> Heard:
    """Write a notification into a file of its own, which nobody else may read; say where, or why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file, descriptor = _new_file(folder, f"{seen.at:%Y%m%dT%H%M%S.%f}-{seen.kind or 'notification'}")
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(kept.written())
    except OSError as error:
        return evolve(seen, why=f"{seen.why} (not saved: {error.strerror})".lstrip())
    return evolve(seen, file=str(file))


def _new_file(folder: Path, name: str) -> tuple[Path, int]:
    for number in itertools.count():
        file = folder / f"{name}{f'-{number}' if number else ''}.http"
        try:
            return file, new_private(file)
        except FileExistsError:
            continue
    raise AssertionError  # pragma: no cover - the numbers do not end


@asynccontextmanager
async def _serving(listener: Listener, server: Server) -> AsyncGenerator[None]:
    """Serve at every path: a service may have been given any."""
    application = web.Application()
    application.router.add_post("/{path:.*}", listener.answer)
    runner = web.AppRunner(
        application, access_log=None, auto_decompress=False, shutdown_timeout=CLOSING_SECONDS, logger=quiet
    )
    await runner.setup()
    try:
        if runner.server:
            await server.open(runner.server)
        yield
    finally:
        server.rest()
        await let_loop_turn()  # what it has just accepted is known then, and is closed, too
        await runner.cleanup()
        await let_loop_turn()


def _credentials(options: Options) -> Credentials:
    try:
        return Credentials.from_env()
    except ConfigurationError as error:
        text, field = str(error), error.field
    if "is not set" in text:
        url = f"http://{options.host}:{options.port}/notify"
        text = f"{text}. For a try, `payasync sandbox --webhook-url {url}` prints all that is needed"
    raise ConfigurationError(text, field=field)


def _opening(options: Options, verification: Verification, url: str, source: str) -> Opening:
    profile = verification.profile
    shape = profile.notification
    return Opening(
        url=url,
        routed=not (shape.kind and shape.kinds),
        inbox=str(options.inbox.absolute()),
        saved=str(options.save.absolute()) if options.save else "",
        profile=profile.name,
        source=source,
        checks=verification.checks if verification.proves else "",
        yes=_in_words(acknowledge(shape)),
        no=_in_words(refuse(shape)),
    )


def _in_words(answer: Answer) -> str:
    return f"{answer.status} {answer.body}".strip()
