"""Options that several commands have: the journal, the profile and the service's address."""

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import click
from attrs import field, frozen
from click.core import ParameterSource

from payasync.cli.terminal import existing_folder, fail, print_error
from payasync.credentials import QUOTES, Environment, Hidden, trim
from payasync.errors import ConfigurationError, InvalidArgumentError, NotConfiguredError, PayasyncError, StorageError
from payasync.journal import Journal, SqliteJournal
from payasync.notifications import Inbox, SqliteInbox
from payasync.profile.profile import Profile
from payasync.session import PROFILE_PATH, SANDBOX_WORD, Session, load_profile
from payasync.settings import invalid_setting
from payasync.wire.validators import NOTHING

S = TypeVar("S", bound="Journal | Inbox")
T = TypeVar("T")

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

BASE_URL: Final = "PAYASYNC_BASE_URL"
HOW_SIGNED: Final = "how notifications are signed (notification.verification)"
"""What a command that verifies notifications needs a profile for."""
NO_PROFILE: Final = "none given: only what the common interface states"
GIVE_PROFILE: Final = f"Give --profile FILE, or set {PROFILE_PATH}; for the sandbox, the word sandbox in place of FILE"
SANDBOX_PROFILE: Final = "the sandbox's own"

_JOURNAL: Final = "PAYASYNC_JOURNAL"
_POSTGRES: Final = ("postgresql://", "postgres://")
_SCHEME: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_KEYWORDS: Final = re.compile(r"\s*\w+\s*=")
_CREDENTIALS: Final = re.compile(r"@|passw|postgres.*:", re.IGNORECASE | re.DOTALL)
_WRITTEN_AS_PATH: Final = re.compile(r"\.{1,2}[/\\].*|/(?!/)[^:]*", re.DOTALL)
FORMS: Final = "give the path of a file, or a PostgreSQL connection string, which is postgresql://… or host=… dbname=…"
_SPELLED: Final = {"path": "--journal", "dsn": "--journal", "old": "OLD", "new": "NEW"}
"""What `--help` calls the arguments of a journal."""
_MISSING: Final = (
    "give the file that your program uses; a Session creates it at its first write, and payasync journal upgrade "
    "creates it, too"
)

_FILE: Final = click.Path(readable=False)
"""A text for which a shell completes the names of files; it is checked later."""


def _trimmed(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Return a value; one of the environment without what is around it there, as keys are read."""
    if not text or context.get_parameter_source(option.name or "") is not ParameterSource.ENVIRONMENT:
        return text
    if {(inner := trim(text))[:1], inner[-1:]} <= QUOTES:
        raise click.BadParameter("it has quotes around it, which would be part of the value: remove them")
    return inner


profile_option: Decorator = click.option(
    "--profile",
    type=_FILE,
    metavar="FILE",
    help="The service's profile, a TOML file, or the word sandbox. Default: PAYASYNC_PROFILE.",
)
base_url_option: Decorator = click.option(
    "--base-url",
    envvar=BASE_URL,
    callback=_trimmed,
    metavar="URL",
    help="The service's address. Default: PAYASYNC_BASE_URL.",
)


def asks_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name the service."""
    return profile_option(base_url_option(command))


@frozen
class Address:
    """Where a journal is.

    Attributes:
        text: The path of a file, or a PostgreSQL connection string, which may hold a password.
    """

    text: str = field(repr=False)

    @property
    def is_file(self) -> bool:
        """Whether it is a path: neither a URL, nor the names and values that libpq reads; `./a=b` is one."""
        return not self.text.startswith(_POSTGRES) and not _KEYWORDS.match(self.text)

    @property
    def shown(self) -> str:
        """The address without a password."""
        if self.is_file:
            return self.text
        try:
            from payasync.storage.postgres import parse_dsn  # noqa: PLC0415 - the extra may be missing

            return parse_dsn(Hidden(self.text)).shown
        except (ImportError, ConfigurationError):
            return _POSTGRES[0]

    @property
    def option(self) -> str:
        """The option with which a command uses this journal; empty if the environment names it."""
        return "" if os.environ.get(_JOURNAL) == self.text else f" --journal {shlex.quote(self.shown)}"

    def open(self, *, make: bool = False, schema: str | None = None) -> Journal:
        """Return the journal; nothing is read or written yet. Missing and older tables are refused.

        Args:
            make: Make a missing SQLite file.
            schema: The schema of the tables in PostgreSQL.

        Raises:
            ConfigurationError: The connection string is invalid, or the extra `[postgres]` is not installed.
        """
        if self.is_file:
            return SqliteJournal(self.text, migrate=make and not Path(self.text).exists())
        from payasync.journal import PostgresJournal  # noqa: PLC0415 - the extra may be missing

        return PostgresJournal(self.text, schema=schema, migrate=False)

    def open_inbox(self, *, schema: str | None = None) -> Inbox:
        """Return the inbox at this place, as `open` returns a journal; its tables are made or migrated by `upgrade`."""
        if self.is_file:
            return SqliteInbox(self.text, migrate=False)
        from payasync.notifications import PostgresInbox  # noqa: PLC0415 - the extra may be missing

        return PostgresInbox(self.text, schema=schema, migrate=False)


def journal_option(*, existing: bool, required: bool = True, help: str) -> Decorator:  # noqa: A002 - as click calls it
    """Return the option `--journal`; a connection string with a password belongs in its environment variable.

    Args:
        existing: Refuse a file that does not exist: a mistyped name would be an empty journal.
        required: Refuse to run without a journal.
        help: Its line of `--help`.
    """

    def address(context: click.Context, option: click.Parameter, text: str | None) -> Address | None:
        text = _trimmed(context, option, text)
        if text is None:
            return None
        found = Address(text)
        if not found.is_file:
            return found
        if not text:
            raise click.BadParameter(f"it is empty: {FORMS}")
        if scheme := _SCHEME.match(text):
            raise click.BadParameter(f"no journal's address begins with {scheme[0]!r}: {FORMS}")
        path = Path(text)
        try:
            path.stat()
        except OSError as error:
            if _CREDENTIALS.search(text) and not _WRITTEN_AS_PATH.fullmatch(text):
                raise click.BadParameter(
                    f"there is no such file, and its name is not shown because it may hold a password: {FORMS}. "
                    "Write ./ before the name of a new file"
                ) from None
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise click.BadParameter(f"{text!r} cannot be used: {error.strerror}. Name another file") from None
            existing_folder(context, option, path)
            if existing:
                raise click.BadParameter(f"there is no file {text!r}: {_MISSING}") from None
        click.Path(dir_okay=False).convert(text, option, context)
        return found

    return click.option(
        "--journal",
        "address",
        required=required,
        envvar=_JOURNAL,
        show_envvar=True,
        callback=address,
        type=_FILE,
        metavar="FILE|URL",
        help=help,
    )


existing_journal: Final = journal_option(
    existing=True, help="An SQLite file, or a PostgreSQL connection string: postgresql://… or host=… dbname=…"
)


def profile_named(path: str | None, *, needed: str = "") -> tuple[Profile, str]:
    """Return the profile that a session would use, and its source.

    Args:
        path: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
        needed: What only a profile says; empty if the command works without a profile.

    Raises:
        ConfigurationError: The file cannot be read, or is not a valid profile; or a profile is needed, and missing.
    """
    named = path or Environment(os.environ).optional(PROFILE_PATH)
    if named is None and needed:
        raise NotConfiguredError(f"no profile is given, so nothing says {needed}. {GIVE_PROFILE}", field=PROFILE_PATH)
    if named is None:
        return Profile(), NO_PROFILE
    named = named.strip()
    chosen = profile_from(named, PROFILE_PATH if path is None else "--profile")
    return chosen, SANDBOX_PROFILE if named == SANDBOX_WORD else named


def is_profile_given(path: str | None) -> bool:
    """Return whether `--profile` or the environment names a profile."""
    return bool(path or Environment(os.environ).optional(PROFILE_PATH))


def profile_from(path: str, option: str = "--profile") -> Profile:
    """Return the profile of a file.

    Args:
        path: A TOML file, or the word `sandbox`.
        option: The option or environment variable that names it; an error about the file begins with it.

    Raises:
        ConfigurationError: The file cannot be read, or is not a valid profile.
    """
    try:
        return load_profile(path)
    except ConfigurationError as error:
        if (words := str(error)).startswith("profile: "):
            error.args = (f"{option}{words.removeprefix('profile')}",)
        raise


def session_with(
    journal: Journal | None, *, profile: str | None, base_url: str | None, needed: str = "how to query the service"
) -> Session:
    """Return the session of the environment.

    Args:
        journal: Records its writes.
        profile: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
        base_url: The service's address; `None`: what `PAYASYNC_BASE_URL` says.
        needed: What only a profile says; empty if the command works without a profile.

    Raises:
        ConfigurationError: A setting is invalid or missing.
    """
    chosen, _ = profile_named(profile, needed=needed)
    given: dict[str, Any] = {} if base_url is None else {"base_url": base_url}
    return Session.from_env(profile=chosen, journal=journal, **given)


def require_keys(session: Session, operation: str, why: str = "") -> None:
    """Refuse to begin without a key that an operation needs: nobody is asked first, and nothing is sent.

    Raises:
        ConfigurationError: The key is missing; `why` says more.
    """
    profile = session.profile
    for name, operations in (*((key, profile.bearer) for key in profile.auth.needs), ("signing_key", profile.signed)):
        if operation in operations and getattr(session.credentials, name) is None:
            unset = f"is not set (PAYASYNC_{name.upper()} in the environment)"
            raise invalid_setting(f"credentials.{name}", f"{unset}: {operation} needs it{why}. Nothing was sent")


def service_options(profile: str | None, base_url: str | None) -> str:
    """Return the options with which another command uses the same service; empty if the environment names it."""
    given = {"--profile": profile, "--base-url": None if os.environ.get(BASE_URL) == base_url else base_url}
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given.items() if value)


def run_with_journal(address: Address, work: Callable[[Journal], Awaitable[T]], *, command: str) -> T:
    """Return what `work` returns about a journal; on an error, say why in one line and end with exit code 2."""
    return run_with_store(address.open, work, command=command)


def run_with_store(
    open_store: Callable[[], S], work: Callable[[S], Awaitable[T]], *, command: str, option: str = "--journal"
) -> T:
    """Return what `work` returns about a journal or an inbox, as `run_with_journal` does."""

    async def run() -> T:
        store = open_store()
        try:
            return await work(store)
        finally:
            await close_journal(command, store)

    try:
        return asyncio.run(run())
    except PayasyncError as error:
        fail_with_journal(command, error, {"path": option, "dsn": option})


async def close_journal(command: str, journal: Journal | Inbox) -> None:
    """Close a journal. An error is shown, and changes no exit code: what was done is done, and recorded."""
    try:
        await journal.aclose()
    except (PayasyncError, OSError) as error:
        print_error(command, f"the journal could not be closed: {error}")


def fail_with_journal(command: str, error: PayasyncError, spelled: Mapping[str, str] = NOTHING) -> NoReturn:
    """Say why a command cannot go on, and end with exit code 2.

    Args:
        command: Its words.
        error: Why.
        spelled: By field of an error, what `--help` calls it; a journal's are known.
    """
    spelled = {**_SPELLED, **spelled}
    words = " ".join(str(error).split())
    field = error.field if isinstance(error, ConfigurationError | InvalidArgumentError) else None
    if field and field in spelled and words.startswith(field):
        words = f"{spelled[field]}{words.removeprefix(field)}"
    fail(command, words)


def fail_unsent(command: str, error: PayasyncError, *, made: str = "") -> NoReturn:
    """Say why the journal lets nothing be sent, and end with exit code 2.

    Args:
        command: Its words.
        error: Why.
        made: The option that repeats a number that was made here.
    """
    error.add(operation=None, reference=None)
    if isinstance(error, StorageError):
        again = f" with {made}" if made else ""
        error.args = (f"{error.args[0]}. Remove the cause, and run the same command again{again}",)
    fail_with_journal(f"{command}: nothing was sent", error)
