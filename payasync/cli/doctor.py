"""`payasync doctor`: what is configured, what is still open, and whether the service can be reached."""

import asyncio
import json as json_text
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Literal

import click
from attrs import asdict, frozen
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from yarl import URL

from payasync.cli.options import BASE_URL, GIVE_PROFILE, NO_PROFILE, asks_service, profile_named
from payasync.cli.terminal import Lines, Terminal, fail, new_table
from payasync.credentials import Credentials
from payasync.endpoints import ARGUMENTS
from payasync.errors import ConfigurationError
from payasync.notifications.verification import check_secrets, check_sent_back
from payasync.profile.audit import Point
from payasync.profile.consistency import refused_keys, weak_keys
from payasync.profile.profile import Profile
from payasync.profile.readiness import Readiness, inspect_groups, key_of, optional_points
from payasync.profile.signed_fields import check_answers_covered, response_only_paths
from payasync.profile.wire_names import IDENTIFIER_OF, operation_of
from payasync.settings import environment_proxy, make_default_tls, others_can_read, parse_base_url
from payasync.signing.algorithms import MIN_RSA_BITS
from payasync.transport.send import describe_failure

Verdict = Literal["fine", "warning", "missing", "wrong", "open"]
CONNECT_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.3
"""How long the service may take to close a new connection: a round trip of a slow network."""
MERCHANT_ID: Final = "PAYASYNC_MERCHANT_ID"
CONNECTION: Final = "Connection"
_REACH: Final = (
    "Check the host, the port, the firewall and the proxy, and that the service runs. To start the sandbox, run: "
    "payasync sandbox"
)
_CLIENT: Final = (
    "If the service demands a client certificate, load it into the tls= of your program's Session; commands have none"
)
_MEND: Final = "correct {}: see below"
_STEPS: Final[dict[Verdict, str]] = {"wrong": _MEND, "missing": "set {}", "warning": _MEND}
"""What to do about findings, the most urgent ones first."""


@click.command()
@asks_service
@click.option("--all", "every", is_flag=True, help="Also list each point, with its value or what to set.")
@click.option("--json", is_flag=True, help="Print one line of JSON, which holds each point.")
def doctor(*, profile: str | None, base_url: str | None, every: bool, json: bool) -> None:
    """Check configuration, open points and the connection.

    It shows what is configured, what the profile is ready for, and whether the service can be reached. It opens a
    connection to the service, and sends no request.

    \b
    Examples:
      payasync doctor
      payasync doctor --profile service.toml --all

    \b
    Exit codes:
      0    nothing is wrong; points may be open, and keys may be missing
      1    a key is refused, or the service cannot be reached
      2    the profile is invalid
    """  # noqa: D301 - click does not wrap a paragraph after this character
    try:
        chosen, source = profile_named(profile)
    except ConfigurationError as error:
        fail("doctor", error)
    groups = inspect_groups(chosen)
    findings = [*inspect_credentials(chosen, os.environ), asyncio.run(inspect_connection(base_url))]
    if json:
        document = {
            "profile": chosen.name,
            "source": source,
            "groups": [{**asdict(each), "ready": each.ready} for each in groups],
            "findings": list(map(asdict, findings)),
            "points": list(map(asdict, chosen.audit())),
        }
        click.echo(json_text.dumps(document))
    else:
        screen = DoctorScreen()
        screen.findings("In short", next_steps(groups, source, findings))
        screen.findings("Environment", findings)
        screen.profile(chosen, source, every=every)
    sys.exit(1 if "wrong" in {each.verdict for each in findings} else 0)


@frozen
class Finding:
    """One thing that was inspected, or all things of one verdict.

    Attributes:
        name: What it is; of several things, how many they are.
        verdict: `fine`; `warning` if it works but is not safe; `missing` if something cannot be done without it;
            `wrong`; or `open` for open points of the profile.
        words: The finding or the next step.
    """

    name: str
    verdict: Verdict
    words: str


def next_steps(groups: Sequence[Readiness], source: str, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the next steps, the most urgent first.

    Args:
        groups: What the profile is ready for.
        source: Where the profile comes from.
        findings: All other findings.
    """
    for verdict, step in _STEPS.items():
        if names := [each.name for each in findings if each.verdict == verdict]:
            unset = [BASE_URL if verdict == "missing" and name == CONNECTION else name for name in names]
            yield Finding(f"{len(names):>2}", verdict, step.format(", ".join(unset)))
    if {each.verdict for each in findings} == {"fine"} and source != NO_PROFILE:
        ready = sum(each.ready for each in groups)
        yield Finding(f"{len(findings) + ready:>2}", "fine", "nothing is missing or wrong")
    if unready := sum(not each.ready for each in groups):
        words = f"set in {source} what your calls need: see below"
        if source == NO_PROFILE:
            words = f"no profile is given. {GIVE_PROFILE}. To write a file: payasync profile init"
        yield Finding(f"{unready:>2}", "open", words)


def inspect_credentials(profile: Profile, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which of the keys that this profile needs are in the environment, and usable; no key is shown.

    Args:
        profile: Determines which key is needed for what.
        environ: Holds the variables that `Credentials.from_env` reads.
    """
    given = _variable(MERCHANT_ID, environ)
    try:
        yield Finding(MERCHANT_ID, "fine", Credentials.from_env(given).merchant_id)
    except ConfigurationError as error:
        words = str(error) if given else "not set: needed by all methods"
        yield Finding(str(error.field or MERCHANT_ID), "wrong" if given else "missing", words)
    public = {"public_key"} if _is_symmetric(profile) else {"public_key", "service_keys"}
    for name, needed in _keys_needed(profile, environ):
        variable = f"PAYASYNC_{name.upper()}"
        try:
            keys = Credentials.from_env({MERCHANT_ID: "any", **_variable(variable, environ)})
        except ConfigurationError as error:
            yield Finding(str(error.field or variable), "wrong", str(error))
            continue
        if getattr(keys, name):
            file = None if name in public else environ.get(f"{variable}_FILE")
            yield _inspect_key(variable, profile, keys, file)
        elif needed:
            yield Finding(variable, "missing", f"not set: needed by {needed}")
    if (least := getattr(profile.scheme, "min_rsa_bits", MIN_RSA_BITS)) < MIN_RSA_BITS:
        words = f"is {least}: keys of fewer than {MIN_RSA_BITS} bits could be broken. Ask the service for longer ones"
        yield Finding("signature.min_rsa_bits", "warning", words)
    yield from _inspect_signed_fields(profile, environ)


def _inspect_key(variable: str, profile: Profile, keys: Credentials, file: str | None) -> Finding:
    """Return whether the profile's scheme can use each key of one variable, and whether others can read its file."""
    refused = [str(each) for each in refused_keys(profile, keys)]
    if keys.notification_keys and profile.notification.verification == "standard-webhooks":
        refused += map(str, list_refusals(partial(check_secrets, keys.notification_keys)))
    if refused:
        return Finding(variable, "wrong", "; ".join(refused))
    if weak := list(weak_keys(profile, keys)):
        return Finding(variable, "warning", "; ".join(weak))
    if file and others_can_read(file):
        return Finding(variable, "warning", f"set; other users can read its file. Run: chmod go-r {shlex.quote(file)}")
    if keys.notification_keys and (used := profile.notification.verification) in {"body", "header", "none"}:
        return Finding(variable, "fine", f'set, and not used: notification.verification is "{used}"')
    return Finding(variable, "fine", "set")


def _inspect_signed_fields(profile: Profile, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield why a session or a receiver would refuse the profile: somebody else could write what it believes."""
    try:
        keys = Credentials.from_env({**environ, MERCHANT_ID: "any"})
    except ConfigurationError:  # it is among the findings already
        return
    of_session = partial(check_answers_covered, profile), partial(response_only_paths, profile, keys)
    for error in list_refusals(*of_session, partial(check_sent_back, profile, keys)):
        yield Finding(str(error.field), "wrong", str(error))


def list_refusals(*checks: Callable[[], object]) -> Iterator[ConfigurationError]:
    """Yield why checks refuse what they check."""
    for check in checks:
        try:
            check()
        except ConfigurationError as error:
            yield error


def _variable(name: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return one variable in both of its forms, so that each is inspected whatever is wrong with others."""
    return {each: environ[each] for each in (name, f"{name}_FILE") if each in environ}


def _is_symmetric(profile: Profile) -> bool:
    """Return whether the key that signs also verifies; while the algorithm is open, that is unknown."""
    scheme = profile.signature
    return getattr(scheme, "algorithm", "open") != "" and bool(getattr(scheme, "symmetric", False))


def _keys_needed(profile: Profile, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each key with its purpose; of two that serve one purpose, the usual one if neither is given."""
    verification = profile.notification.verification
    for name in ("secret_key", "public_key"):
        yield name, list_methods(profile.bearer) if name in profile.auth.needs else ""
    yield "signing_key", list_methods(profile.signed)
    signed = {"responses": profile.answer.signed, "notifications": verification in {"body", "header"}}
    purpose = " and ".join(thing for thing, has_signature in signed.items() if has_signature)
    if purpose and _is_symmetric(profile):
        has_signing_key = profile.signed or _variable("PAYASYNC_SIGNING_KEY", environ)
        purpose = "" if has_signing_key else f"{purpose}. PAYASYNC_SIGNING_KEY serves, too"
    yield "service_keys", purpose
    yield "notification_keys", "notifications" if verification == "standard-webhooks" else ""


def list_methods(methods: tuple[str, ...]) -> str:
    """Return methods by their namespaces: `orders.place, .query`."""
    return "all methods" if set(methods) >= ARGUMENTS.keys() else list_keys(methods)


def list_keys(keys: Iterable[str]) -> str:
    """Return dotted names by their first step: `answer.order_status, .refund_status`."""
    spaces = groupby(keys, lambda key: key.partition(".")[0])
    return ", ".join(space + ", ".join(key.removeprefix(space) for key in names) for space, names in spaces)


async def inspect_connection(address: str | None, *, seconds: float = CONNECT_SECONDS) -> Finding:
    """Return whether the service's host accepts a connection; nothing is sent over it.

    Args:
        address: The base URL; `None` if nobody gave one.
        seconds: The timeout.
    """
    if address is None:
        return Finding(CONNECTION, "missing", f"give --base-url, or set {BASE_URL}")
    try:
        url = parse_base_url(address)
    except ConfigurationError as error:
        return Finding(CONNECTION, "wrong", str(error))
    proxy = " (the environment names a proxy; a session uses it only if you ask for it)"
    aside = proxy if environment_proxy(url) else ""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await _connect(url)
    except TimeoutError:
        return Finding(CONNECTION, "wrong", f"{url.origin()}: no connection within {seconds:g} s{aside}. {_REACH}")
    except OSError as error:
        advice = f". {_REACH}" if isinstance(error, ConnectionError) else ""
        return Finding(CONNECTION, "wrong", f"{url.origin()}: {describe_failure(error)}{aside}{advice}")
    took = (time.perf_counter() - started) * 1000
    try:
        secured = writer.get_extra_info("ssl_object")
        if secured and await _is_closed(reader):
            words = f"accepted a connection, and closed it after the TLS handshake: {url.origin()}{aside}. {_CLIENT}"
            return Finding(CONNECTION, "warning", words)
    finally:
        writer.transport.abort()
    how = f"{secured.version()}, with a valid certificate" if secured else "without TLS, on this machine only"
    return Finding(CONNECTION, "fine", f"accepted a connection in {took:.0f} ms: {url.origin()}, {how}{aside}")


async def _connect(url: URL) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection on which nothing was sent."""
    tls = make_default_tls() if url.scheme == "https" else None
    return await asyncio.open_connection(url.host, url.port, ssl=tls)


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the service closes the connection: in TLS 1.3 it checks our certificate after the handshake."""
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except OSError:
        return True


_MARKS: Final[dict[Verdict, str]] = {
    "fine": "[green]ok[/]",
    "warning": "[yellow]warning[/]",
    "missing": "[yellow]missing[/]",
    "wrong": "[bold red]wrong[/]",
    "open": "[yellow]open[/]",
}
_STYLES: Final = {"open": "yellow", "optional": "dim", "assumed": "cyan", "answered": "green"}
"""In the order in which points are shown."""
_WIDE: Final = 100
"""Columns from which on the three columns of points stand side by side."""


class DoctorScreen:
    """Shows what was inspected.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Terminal()
        self._print_table = Lines(self._console, strict=True).print

    def profile(self, profile: Profile, source: str, *, every: bool = False) -> None:
        """Show what a profile is ready for, and how many open points are optional; or every point."""
        points, optional = profile.audit(), optional_points(profile)
        self._console.print(f"\n[bold]Profile[/]  {escape(profile.name or 'unnamed')}  [dim]{escape(source)}[/]")
        self._print_table(group_table(inspect_groups(profile)))
        if every:
            self._console.print("\n[bold]Points[/]\n")
            self._print_table(_point_table(profile, points, {each.name for each in optional}, self._console.width))
        else:
            self._console.print(f"\nOpen, but optional: {len(optional)}. payasync doctor --all shows every point.")

    def findings(self, title: str, findings: Iterable[Finding]) -> None:
        """Show a section of findings."""
        table = _table(unbroken=2)
        for each in findings:
            table.add_row(_MARKS[each.verdict], escape(each.name), escape(each.words))
        self._console.print(f"\n[bold]{title}[/]")
        self._print_table(table)


def group_table(groups: Sequence[Readiness]) -> Table:
    """Return what each group needs, with the keys to give."""
    table = _table(unbroken=3)
    for each in groups:
        begin = _MARKS["fine" if each.ready else "open"], f"[bold]{each.group}[/]"
        if each.ready:
            table.add_row(*begin, "ready")
        for place, missing in enumerate(each.missing):
            table.add_row(*(("", "") if place else begin), missing.thing, f"[cyan]{list_keys(missing.keys)}[/]")
    return table


def _table(*, unbroken: int) -> Table:
    """Return a table without a header: columns that are never broken, and a last one that may be."""
    table = new_table(header=False)
    for _ in range(unbroken):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _point_table(profile: Profile, points: Sequence[Point], optional: Collection[str], width: int) -> Table:
    """Return the points as a table, optional ones after other open ones.

    On a narrow terminal, what needs a point stands below its name.
    """
    longest = max(len(key_of(point.name)) for point in points)
    table = new_table()
    table.add_column(no_wrap=True)
    table.add_column("Point" if width >= _WIDE else "Point\nNeeded by", width=longest)
    table.add_column("Value, or what to set", overflow="fold")
    if width >= _WIDE:
        table.add_column("Needed by", width=21 + (width - _WIDE) // 3)
    for status, style in _STYLES.items():
        for point in points:
            if status == ("optional" if point.name in optional else point.status):
                name = f"[bold]{escape(key_of(point.name))}[/]"
                unset = point.status == "open" or point.value in (None, "")
                shown = escape(point.means if unset else _in_words(profile, point))
                needed = f"[dim]{escape(list_methods(point.needed_by) or 'notifications')}[/]"
                cells = [name, shown, needed] if width >= _WIDE else [f"{name}\n{needed}", shown]
                table.add_row(f"[{style}]{status}[/]", *cells)
    return table


def _in_words(profile: Profile, point: Point) -> str:
    """Return the value of a point of a profile in words."""
    value = point.value
    for operation in (operation_of(profile, each) for each in ARGUMENTS):
        if point.name == IDENTIFIER_OF.get(operation.name):
            place = "path" if "identifier" in operation.in_path else operation.place
            return f"{value.name}, in the {place or ('body' if operation.has_body else 'query')}"
        if point.name == f"endpoints.{operation.name}":
            further = {"in the": value.place, "with": ", ".join(value.with_)}
            given = (f", {word} {text}" for word, text in further.items() if text)
            return f"{operation.method} {operation.path}{''.join(given)}"
    return _value_in_words(value)


def _value_in_words(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_value_in_words(each)}" for name, each in value.items())
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple | list) else str(value)
