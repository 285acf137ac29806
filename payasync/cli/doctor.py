"""`payasync doctor`: what is configured, what is still open, and whether the service can be reached."""

import asyncio
import os
import shlex
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Literal

from attrs import frozen
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from yarl import URL

from payasync.credentials import Credentials, Environment
from payasync.endpoints import OPERATIONS
from payasync.errors import ConfigurationError, NotConfiguredError
from payasync.notifications.verification import check_secrets, check_sent_back
from payasync.profile.audit import Point, Status
from payasync.profile.consistency import refused_keys, short_keys
from payasync.profile.profile import Profile
from payasync.profile.schema import Parameter
from payasync.profile.signed_fields import check_answers_covered, proof_paths
from payasync.settings import environment_proxy, others_can_read, parse_base_url
from payasync.transport.send import describe_failure

Verdict = Literal["fine", "warning", "missing", "wrong"]
CONNECT_SECONDS: Final = 5.0
MERCHANT_ID: Final = "PAYASYNC_MERCHANT_ID"
BASE_URL: Final = "PAYASYNC_BASE_URL"
CONNECTION: Final = "Connection"
NONE_GIVEN: Final = "none given: what the service's document states, and nothing else"
SANDBOXS_OWN: Final = "the sandbox's own"

_ALL: Final = frozenset(operation.name for operation in OPERATIONS)


@frozen
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What it is.
        verdict: `fine`, `warning` where it works and is not safe, `missing` where something cannot be done without
            it, or `wrong`.
        words: What was found.
    """

    name: str
    verdict: Verdict
    words: str


@frozen
class Left:
    """What is left to do about all of one kind.

    Attributes:
        verdict: What they are; `fine`: there is nothing to do about any.
        many: How many they are.
        words: What to do.
    """

    verdict: Verdict | Literal["open"]
    many: int
    words: str


def left(points: Sequence[Point], source: str, findings: Sequence[Finding]) -> Iterator[Left]:
    """Yield what is left to do, the most urgent first.

    Args:
        points: Of the profile.
        source: Where the profile comes from.
        findings: All else that was looked at.
    """
    wrong, missing, warned = (
        [each.name for each in findings if each.verdict == verdict] for verdict in ("wrong", "missing", "warning")
    )
    if wrong:
        yield Left("wrong", len(wrong), f"mend {', '.join(wrong)}, as said above")
    if missing:
        unset = [BASE_URL if name == CONNECTION else name for name in missing]
        yield Left("missing", len(missing), f"set {', '.join(unset)}")
    if warned:
        yield Left("warning", len(warned), f"mend {', '.join(warned)}, as said above")
    if not wrong and not missing and not warned:
        yield Left("fine", len(findings), "nothing is missing or wrong")
    if still_open := sum(point.status == "open" for point in points):
        yield Left("open", still_open, _answering(source))


def _answering(source: str) -> str:
    if source == NONE_GIVEN:
        return "give the service's profile: --profile FILE, or PAYASYNC_PROFILE"
    return "none has to be answered here" if source == SANDBOXS_OWN else f"answer in {source} what your calls need"


def credentials(profile: Profile, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which of the keys that this profile needs are in the environment, and usable; no key is shown.

    Args:
        profile: Says what needs which key.
        environ: Holds the variables that `Credentials.from_env` reads.
    """
    yield _merchant(environ)
    public = {"public_key"} if getattr(profile.signature, "symmetric", False) else {"public_key", "service_keys"}
    for name, needed_by in _keys_needed(profile):
        variable = f"PAYASYNC_{name.upper()}"
        try:
            held = Credentials.from_env({MERCHANT_ID: "any", **_of(variable, environ)})
        except ConfigurationError as error:
            yield Finding(str(error.field or variable), "wrong", str(error))
            continue
        if getattr(held, name):
            tried = _tried(variable, profile, held)
            yield _held(variable, environ, public=name in public) if tried.verdict == "fine" else tried
        elif needed_by:
            yield Finding(variable, "missing", f"not set: needed by {needed_by}")
    yield from _believed(profile, environ)


def _believed(profile: Profile, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield why a session or a receiver would refuse the profile: somebody else could write what it believes."""
    try:
        keys = Credentials.from_env({**environ, MERCHANT_ID: "any"})
    except ConfigurationError:  # said above
        return
    for check in (
        check_answers_covered,
        partial(proof_paths, credentials=keys),
        partial(check_sent_back, credentials=keys),
    ):
        try:
            check(profile)
        except ConfigurationError as error:
            yield Finding(str(error.field), "wrong", str(error))


def _tried(variable: str, profile: Profile, held: Credentials) -> Finding:
    """Return whether the profile's scheme can use each key of one variable."""
    if refused := [*map(str, refused_keys(profile, held)), *_refused_webhook_keys(profile, held)]:
        return Finding(variable, "wrong", "; ".join(refused))
    if short := [*short_keys(profile, held)]:
        return Finding(variable, "warning", "; ".join(short))
    return Finding(variable, "fine", "set")


def _refused_webhook_keys(profile: Profile, held: Credentials) -> Iterator[str]:
    if held.notification_keys and profile.notification.verification == "standard-webhooks":
        try:
            check_secrets(held.notification_keys)
        except ConfigurationError as error:
            yield str(error)


def _merchant(environ: Mapping[str, str]) -> Finding:
    given = _of(MERCHANT_ID, environ)
    try:
        return Finding(MERCHANT_ID, "fine", Credentials.from_env(given).merchant_id)
    except ConfigurationError as error:
        return Finding(str(error.field or MERCHANT_ID), "wrong" if given else "missing", str(error))


def _held(variable: str, environ: Mapping[str, str], *, public: bool) -> Finding:
    file = environ.get(f"{variable}_FILE")
    if file is None or public or not others_can_read(file):
        return Finding(variable, "fine", "set")
    return Finding(variable, "warning", f"set; other users can read its file. Run: chmod go-r {shlex.quote(file)}")


def _of(variable: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return one setting of an environment, in both of its forms: each is looked at, whatever is wrong with others."""
    return {name: environ[name] for name in (variable, f"{variable}_FILE") if name in environ}


def _keys_needed(profile: Profile) -> Iterator[tuple[str, str]]:
    symmetric = getattr(profile.signature, "symmetric", False)
    believed = [*(["answers"] if profile.answer.signature else [])]
    if profile.notification.verification == "body":
        believed.append("notifications")
    yield "secret_key", _listed(profile.bearer)
    yield "public_key", ""
    yield "signing_key", _listed(profile.signed) or (" and ".join(believed) if symmetric else "")
    yield "service_keys", "" if symmetric else " and ".join(believed)
    yield "notification_keys", "notifications" if profile.notification.verification == "standard-webhooks" else ""


def needed_by(point: Point) -> str:
    """Return which methods need a point, in as few words as that takes."""
    return _listed(point.needed_by) or "notifications"


def _listed(methods: tuple[str, ...]) -> str:
    """Return methods by their namespaces: `orders.place, .query`."""
    if set(methods) >= _ALL:
        return "all methods"
    spaces = groupby(methods, lambda name: name.partition(".")[0])
    return ", ".join(space + ", ".join(name.removeprefix(space) for name in names) for space, names in spaces)


async def connection(address: str | None, *, seconds: float = CONNECT_SECONDS) -> Finding:
    """Return whether the service's host takes a connection; nothing is sent over it.

    Args:
        address: The base URL; `None` where nobody gave one.
        seconds: How long it may take.
    """
    if address is None:
        return Finding(CONNECTION, "missing", f"no address: give --base-url, or set {BASE_URL}")
    try:
        url = parse_base_url(address)
    except ConfigurationError as error:
        return Finding(CONNECTION, "wrong", str(error))
    via = " (a proxy stands in the environment; a session uses it only where it is told to)"
    aside = via if environment_proxy(url) else ""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            secured = await _connected(url)
    except TimeoutError:
        return Finding(CONNECTION, "wrong", f"{url.origin()}: no connection within {seconds:g} s{aside}")
    except OSError as error:
        return Finding(CONNECTION, "wrong", f"{url.origin()}: {describe_failure(error)}{aside}")
    took = (time.perf_counter() - started) * 1000
    return Finding(CONNECTION, "fine", f"{url.origin()} took one in {took:.0f} ms, {secured}{aside}")


async def _connected(url: URL) -> str:
    """Connect, and hang up; return how the connection was secured."""
    context = None
    if url.scheme == "https":
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
    try:
        secured = writer.get_extra_info("ssl_object")
        return f"{secured.version()}, with a certificate that holds" if secured else "plain, on this machine alone"
    finally:
        writer.transport.abort()


def profile_named(path: str | None, environ: Mapping[str, str] = os.environ) -> tuple[Profile, str]:
    """Return the profile that a session would have, and where it comes from.

    Args:
        path: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
        environ: The environment.

    Raises:
        ConfigurationError: The file cannot be read, or is no profile.
    """
    named = path or Environment(environ).optional("PAYASYNC_PROFILE")
    if named is None:
        return Profile(), NONE_GIVEN
    if named.strip() == "sandbox" and path is None:
        from payasync.profile.sandbox_profile import PROFILE  # noqa: PLC0415 - few look at it

        return PROFILE, SANDBOXS_OWN
    return Profile.from_file(named.strip()), named.strip()


def verifying_profile(path: str | None, environ: Mapping[str, str] = os.environ) -> tuple[Profile, str]:
    """Return the profile by which notifications are verified, and where it comes from; as `profile_named`.

    Raises:
        NotConfiguredError: None is given: nobody could know how they are signed.
    """
    profile, source = profile_named(path, environ)
    if source == NONE_GIVEN:
        raise NotConfiguredError(
            "no profile is given: --profile FILE, or PAYASYNC_PROFILE. Without one notification.verification is open: "
            "nothing says how notifications are signed",
            field="notification.verification",
        )
    return profile, source


_MARKS: Final[dict[Verdict, str]] = {
    "fine": "[green]ok[/]",
    "warning": "[yellow]warning[/]",
    "missing": "[yellow]missing[/]",
    "wrong": "[bold red]wrong[/]",
}
_STYLES: Final[dict[Status, str]] = {"open": "yellow", "assumed": "cyan", "answered": "green"}
_ORDER: Final[tuple[Status, ...]] = ("open", "assumed", "answered")

_POINT: Final = "Point"
_VALUE: Final = "Value, or what to put there"
_NEEDED: Final = "Needed by"
_WIDE: Final = 100
_LAYOUTS: Final[tuple[tuple[int, tuple[tuple[str, ...], ...]], ...]] = (
    (_WIDE, ((_POINT,), (_VALUE,), (_NEEDED,))),
    (80, ((_POINT, _NEEDED), (_VALUE,))),
    (0, ((_POINT, _VALUE, _NEEDED),)),
)
"""From how many columns on what stands side by side, and what below: no name is ever broken."""
_LEAST_NEEDED: Final = 21
"""Columns of the longest name of a method, with its comma."""


class DoctorScreen:
    """The terminal.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)

    def profile(self, name: str, source: str, points: Sequence[Point]) -> None:
        """Show every point that the service's document leaves open, the open ones first."""
        counts = Counter(point.status for point in points)
        said = ", ".join(f"[{_STYLES[status]}]{counts[status]} {status}[/]" for status in _ORDER)
        self._console.print(f"\n[bold]Profile[/]  {escape(name or 'unnamed')}  [dim]{escape(source)}[/]\n{said}\n")
        self._console.print(_points(points, self._console.width))

    def findings(self, title: str, findings: Iterable[Finding]) -> None:
        """Show what was looked at, and what was found."""
        self._console.print(f"\n[bold]{title}[/]\n")
        table = _table()
        for _ in range(2):
            table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.show_header = False
        for each in findings:
            table.add_row(_MARKS[each.verdict], escape(each.name), escape(each.words))
        self._console.print(table)

    def left(self, steps: Iterable[Left]) -> None:
        """Show what is left to do: last, where whoever waits for the end looks."""
        self._console.print("\n[bold]In short[/]\n")
        table = _table()
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        table.show_header = False
        for each in steps:
            mark = f"[{_STYLES['open']}]open[/]" if each.verdict == "open" else _MARKS[each.verdict]
            table.add_row(mark, str(each.many), escape(each.words))
        self._console.print(table)


def _points(points: Sequence[Point], width: int) -> Table:
    layout = next(columns for least, columns in _LAYOUTS if width >= least)
    longest = max(len(point.name) for point in points)
    widths: dict[tuple[str, ...], int] = {
        (_POINT,): longest,
        (_POINT, _NEEDED): longest,
        (_NEEDED,): _LEAST_NEEDED + (width - _WIDE) // 3,
    }
    table = _table()
    table.add_column(no_wrap=True)
    for column in layout:
        table.add_column("\n".join(column), overflow="fold", width=widths.get(column))
    for point in sorted(points, key=lambda each: _ORDER.index(each.status)):
        cells = _cells(point)
        shown = ("\n".join(cells[name] for name in column) for column in layout)
        table.add_row(f"[{_STYLES[point.status]}]{point.status}[/]", *shown)
    return table


def _cells(point: Point) -> dict[str, str]:
    return {
        _POINT: f"[bold]{escape(point.name)}[/]",
        _VALUE: escape(point.means if point.status == "open" or point.value in (None, "") else _said(point.value)),
        _NEEDED: f"[dim]{escape(needed_by(point))}[/]",
    }


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def _said(value: object) -> str:
    """Return a value of a profile in words."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_said(each)}" for name, each in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value.name}, in the {value.place}" if isinstance(value, Parameter) else str(value)
