"""The journal that a command was given."""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import quote, urlencode

import click
from attrs import field, frozen
from yarl import URL

from payasync.cli.doctor import profile_named
from payasync.credentials import Environment, Hidden
from payasync.errors import ConfigurationError, PayasyncError
from payasync.journal import Journal, SqliteJournal
from payasync.session import PROFILE_PATH, Session
from payasync.transport.send import describe_failure

_QUOTED: Final = re.compile(r'"(\w+)"')
_SECRETS: Final = ("pass", "secret", "key", "://")
"""Behind these, what looks like a name may be part of a password."""


def mistyped(text: str) -> str:
    """Return what is wrong with a name in a connection string; nothing, where that cannot be told."""
    try:
        from psycopg import Error, pq  # noqa: PLC0415 - the extra may be missing
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - the same
    except ImportError:
        return ""
    try:
        conninfo_to_dict(text)
    except Error as error:
        refused = str(error)
    else:
        return ""
    return _wrong(text, refused, [each.keyword.decode() for each in pq.Conninfo.get_defaults()])


def _wrong(text: str, refused: str, known: Sequence[str]) -> str:
    quoted = _QUOTED.search(refused)
    found = quoted and re.search(rf"\b{quoted[1]}\s*=", text)
    if not quoted or not found:
        return ""
    meant = [f"{each!r} may be meant" for each in get_close_matches(quoted[1], known, n=1)]
    before = text[: found.start()].lower()
    if not any(each in before for each in _SECRETS):
        return ": ".join([f"no connection string has a {quoted[1]!r}", *meant])
    return ": ".join(["it has a name that no connection string has", *meant])


T = TypeVar("T")

POSTGRES: Final = ("postgresql://", "postgres://")
VARIABLE: Final = "PAYASYNC_JOURNAL"
_SHOWN: Final = frozenset({"host", "hostaddr", "port", "dbname", "service"})
"""Of what a URL says behind `?`: where the database is, and not how to get in."""
_SCHEME: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""What a URL begins with; taken for the name of a file, its password would be shown."""
_KEYWORDS: Final = re.compile(r"\s*\w+\s*=")
"""Such as `host=db dbname=pay`; taken for the name of a file, its password would be written down."""

_CREDENTIALS: Final = re.compile(r"@|passw|postgres.*:", re.IGNORECASE | re.DOTALL)
"""What a mistyped connection string holds, whose password must not be shown."""
_PLAIN: Final = re.compile(r"\.{1,2}[/\\].*|/(?!/)[^:]*", re.DOTALL)
"""What can only be meant as a path."""

_FORMS: Final = "give the path of a file, or a PostgreSQL connection string, which is postgresql://… or host=… dbname=…"
_FIELDS: Final = ("path", "dsn")
"""By what names a journal calls that which a command was given as `--journal`."""
_INSTEAD: Final = "do this as a user who may, or name another file"


@frozen
class Address:
    """Where a journal is.

    Attributes:
        text: The path of a file, or the URL or the connection string of a PostgreSQL database, which may hold a
            password.
    """

    text: str = field(repr=False)

    @property
    def is_file(self) -> bool:
        """Whether it is a path: neither a URL, nor the names and values that libpq reads; `./a=b` is one."""
        return not self.text.startswith(POSTGRES) and not _KEYWORDS.match(self.text)

    @property
    def shown(self) -> str:
        """It, as a person may see it: without a password."""
        if self.is_file:
            return self.text
        if not self.text.startswith(POSTGRES):
            return _shown(self.text)
        try:
            return _shown_url(URL(self.text))
        except ValueError:
            return POSTGRES[0]

    @property
    def option(self) -> str:
        """It, as a command that somebody types is given it; nothing, where the environment says it."""
        return "" if os.environ.get(VARIABLE) == self.text else f" --journal {shlex.quote(self.shown)}"

    def open(self) -> Journal:
        """Return the journal; nothing is asked of it yet.

        Raises:
            ConfigurationError: It is a database, and no connection string, or the extra `[postgres]` is not installed.
        """
        if self.is_file:
            return SqliteJournal(self.text)
        from payasync.journal import PostgresJournal  # noqa: PLC0415 - the extra may be missing

        return PostgresJournal(self.text)


def _shown_url(url: URL) -> str:
    # Of a password whose `/` or `?` stands there as it is, the rest would be taken for these.
    if "@" in url.raw_path_qs + url.raw_fragment:
        return POSTGRES[0]
    address = url.with_user(None) if url.raw_authority else url
    said = [(name, value) for name, value in url.query.items() if name in _SHOWN]
    query = urlencode(said, quote_via=quote, safe="/:,")
    where = f"{address.scheme}://{address.raw_authority}{address.raw_path}"
    return f"{where}?{query}" if query else where


def _shown(keywords: str) -> str:
    try:
        from payasync.storage.postgres import parse_dsn  # noqa: PLC0415 - the extra may be missing

        return parse_dsn(Hidden(keywords)).shown
    except (ImportError, ConfigurationError):
        return POSTGRES[0]


def session_with(journal: Journal, *, profile: str | None, base_url: str | None) -> Session:
    """Return the session of the environment, with a journal.

    Args:
        journal: Keeps its writes.
        profile: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
        base_url: The service's address; `None`: what `PAYASYNC_BASE_URL` says.

    Raises:
        ConfigurationError: A setting is wrong or missing; the profile, too: with an empty one the service could be
            asked about nothing, and all would be given to a person.
    """
    if profile is None and Environment(os.environ).optional(PROFILE_PATH) is None:
        raise ConfigurationError(
            f"the service's profile says how to ask it: give --profile, or set {PROFILE_PATH}", field=PROFILE_PATH
        )
    given: dict[str, Any] = {"profile": profile_named(profile)[0], "journal": journal}
    if base_url is not None:
        given["base_url"] = base_url
    return Session.from_env(**given)


def address_given(text: str) -> Address:
    """Return the address that was given, where a journal is, or may be made.

    Raises:
        click.BadParameter: It is neither a path nor a connection string, or is the path of what can be no journal.
    """
    found = Address(text)
    if not found.is_file:
        if why := mistyped(text):
            raise click.BadParameter(why)
        return found
    if not text:
        raise click.BadParameter(f"it is empty: {_FORMS}")
    if scheme := _SCHEME.match(text):
        raise click.BadParameter(f"no journal's address begins with {scheme[0]!r}: {_FORMS}")
    if _may_hold_password(text):
        raise click.BadParameter(
            f"there is no such file, and its name is not shown because it may hold a password: {_FORMS}. "
            "Write ./ before the name of a new file"
        )
    if why := _unusable(Path(text)):
        raise click.BadParameter(f"{text!r} {why}")
    return found


def _may_hold_password(text: str) -> bool:
    """Return whether a text may be a mistyped connection string: not, if it is written as a path, or if it exists."""
    if _PLAIN.fullmatch(text) or not _CREDENTIALS.search(text):
        return False
    return not os.path.exists(text)  # noqa: PTH110 - `Path.exists` raises where a folder may not be entered


def _unusable(path: Path) -> str:
    """Return why a path can be no journal's, and what to do then; nothing where it can, or there is nothing yet."""
    try:
        folder = S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except PermissionError:
        return f"is in a folder that you may not enter: {_INSTEAD}"
    except OSError as error:
        return f"cannot be used, {describe_failure(error)}: name another file"
    if folder:
        return "is a folder: name the journal's file in it"
    return "" if os.access(path, os.R_OK) else f"may not be read by you: {_INSTEAD}"


def _missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}: name a file that is there"
    made = "a Session makes its journal's file at its first write"
    return f"there is no file {path.name!r} in {str(path.parent)!r}: name the one that your program has; {made}"


def _address(_context: click.Context, _option: click.Parameter, text: str) -> Address:
    found, path = address_given(text), Path(text)
    # A mistyped name would be an empty journal.
    if found.is_file and not path.is_file():
        raise click.BadParameter(_missing(path.absolute()))
    return found


option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--journal",
    "address",
    required=True,
    envvar=VARIABLE,
    show_envvar=True,
    callback=_address,
    metavar="FILE|URL",
    help="The file of a SqliteJournal, or a PostgreSQL connection string: postgresql://… or host=… dbname=….",
)
"""`--journal`; a URL with a password is better kept in the environment, as others see what is on a command line."""


def run_with_journal(address: Address, work: Callable[[Journal], Awaitable[T]], *, command: str) -> T:
    """Return what is done with a journal; where it cannot be, say why in one line, and end with exit code 2."""

    async def run() -> T:
        journal = address.open()
        try:
            return await work(journal)
        finally:
            await journal.aclose()

    try:
        return asyncio.run(run())
    except PayasyncError as error:
        fail_command(command, error)


def fail_command(command: str, error: object) -> NoReturn:
    """Say in one line why a command cannot go on, and end with exit code 2."""
    words = " ".join(str(error).split())
    field = error.field if isinstance(error, ConfigurationError) else None
    if field in _FIELDS and words.startswith(field):
        words = f"--journal{words.removeprefix(field)}"
    click.echo(f"payasync {command}: {words}", err=True)
    sys.exit(2)
