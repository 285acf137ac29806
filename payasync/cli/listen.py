"""`payasync listen`: a receiver for development, which keeps what comes and shows it."""

import itertools
import logging
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web
from attrs import evolve, frozen

from payasync.cli.doctor import verifying_profile
from payasync.cli.heard import Heard, heard
from payasync.cli.http_message import HttpMessage
from payasync.cli.listen_screen import ListenScreen, Opening
from payasync.cli.stopping import stopped_by_signals
from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.files import new_private
from payasync.middleware.retry import Pace
from payasync.notifications.aiohttp_adapter import answered
from payasync.notifications.answers import Answer, acknowledgement, refusal
from payasync.notifications.intake import MAX_BYTES, Headers, Raw
from payasync.notifications.limits import ReceptionLimits
from payasync.notifications.reading import says_kind
from payasync.notifications.reception import Reception
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.notifications.verifications import Verification
from payasync.notifications.verifying import verification_of
from payasync.profile import Profile
from payasync.sandbox.door import Door
from payasync.sandbox.listening import listen, turns, url_of

LIMITS: Final = ReceptionLimits(max_bytes=MAX_BYTES, max_waiting=1000)
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
            reception = Reception(verification, inbox, LIMITS, Pace(clock=time.time), kept=lambda: None)
            listener = Listener(reception, profile, screen, options.save)
            async with _serving(listener, Door(listening)):
                screen.opened(_opening(options, verification, url_of(listening), source))
                await stop.wait()
        finally:
            await inbox.aclose()
    screen.closed()


class Listener:
    """Answers what comes as a receiver would, and shows it.

    Args:
        reception: Keeps what comes.
        profile: What the service does.
        screen: Shows it.
        folder: Where each is a file, too, if anywhere.
    """

    def __init__(self, reception: Reception, profile: Profile, screen: ListenScreen, folder: Path | None) -> None:
        self._reception = reception
        self._profile = profile
        self._screen = screen
        self._folder = folder

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        return await answered(partial(self._taken, request), request, kind=None, max_bytes=LIMITS.max_bytes)

    async def _taken(self, request: web.Request, raw: Raw, headers: Headers, kind: str | None = None) -> Answer:
        arrival = await self._reception.arrival(raw, headers, kind)
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
async def _serving(listener: Listener, door: Door) -> AsyncGenerator[None]:
    """Serve at every path: a service may have been given any."""
    application = web.Application()
    application.router.add_post("/{path:.*}", listener.answer)
    runner = web.AppRunner(
        application, access_log=None, auto_decompress=False, shutdown_timeout=CLOSING_SECONDS, logger=quiet
    )
    await runner.setup()
    try:
        if runner.server:
            await door.open(runner.server)
        yield
    finally:
        door.rest()
        await turns()  # what it has just accepted is known then, and is closed, too
        await runner.cleanup()
        await turns()


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
        routed=not says_kind(profile),
        inbox=str(options.inbox.absolute()),
        saved=str(options.save.absolute()) if options.save else "",
        profile=profile.name,
        source=source,
        checks=verification.checks if verification.proves else "",
        yes=_in_words(acknowledgement(shape)),
        no=_in_words(refusal(shape)),
    )


def _in_words(answer: Answer) -> str:
    return f"{answer.status} {answer.body}".strip()
