"""Commands that make one call each: their options, the confirmation of a write, and the call itself."""

import asyncio
import json as json_text
import os
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from inspect import cleandoc, iscoroutinefunction
from typing import Any, Final, TypeAlias

import click
from attrs import asdict, evolve, fields_dict, frozen

from payasync.cli import FAILED, INTERRUPTED
from payasync.cli.call_result import EXIT_CODES, NOT_READ, Caller, CallResult, result_of_error, result_of_response
from payasync.cli.options import (
    GIVE_PROFILE,
    Address,
    asks_service,
    close_journal,
    fail_unsent,
    fail_with_journal,
    is_profile_given,
    journal_option,
    require_keys,
    service_options,
    session_with,
)
from payasync.cli.signals import stopped_by_signals
from payasync.cli.terminal import Lines, error_lines, fail, print_error, stray_logs_dropped
from payasync.endpoints import ARGUMENTS, CREATE_REFUND, FURTHER, PLACE_ORDER, Argument, Kind, Operation
from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotConfiguredError,
    PayasyncError,
    StorageError,
    clean,
    plain,
)
from payasync.journal import Journal
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.profile.schema import format_amount
from payasync.session import Session
from payasync.strict_json import ABSENT, loads_exact
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import AMOUNTS

Send: TypeAlias = Callable[..., Awaitable[Response]]
"""Sends a request with a session; it is also given the values of further options."""

NUMBERED: Final = (PLACE_ORDER, CREATE_REFUND)
"""The writes whose number is made if none is given."""

_ARGUMENTS: Final = {
    "amount": ("Amount", "The amount, an integer in the service's unit: 450 for 4.50."),
    "currency": ("Currency", "The currency code, such as CAD."),
    "description": ("Description", "What the payment is for."),
    "total_amt": ("Order total", "The amount of the whole order, an integer in the service's unit: 450 for 4.50."),
    "subject": ("Subject", "A short title."),
    "body": ("Details", "A longer description."),
    "notify_url": ("Notify", "Where the service sends its notification."),
    "scene_type": ("Scene", "The payment scene, such as JSAPI."),
    "return_url": ("Return to", "Where the customer returns to."),
    "out_trade_no": ("Order", "Your number of the order."),
    "out_refund_no": ("Refund", "Your number of the refund."),
    "refund_amt": ("To refund", "The amount to refund, an integer in the same unit."),
    "refund_desc": ("Reason", "Why it is refunded."),
    "frequency": ("Frequency", "How often the customer is billed, in the service's words, such as monthly."),
    "start_date": ("First day", "The first day, such as 2027-01-31."),
    "customer": ("Customer", "A detail of the customer; can be repeated. Or a JSON object, or the customer's number."),
    "subscription_id": ("Subscription", ""),
}
"""By argument, what a person calls it, and its line of `--help`."""
_MADE: Final = " Default: made from the time and random digits."

_WRITE_CODES: Final = """
\b
Exit codes:
  0    the service accepted it
  1    it was not done: refused, or not sent
  2    it cannot start; nothing was sent
  3    it may have been done: see the command that is shown
  130  interrupted; a line says whether it may have been done"""
_QUERY_CODES: Final = """
\b
Exit codes:
  0    the service responded
  1    the service refused, or sent no usable response
  2    it cannot start; nothing was sent
  130  interrupted"""

_INTEGER: Final = re.compile(r"[0-9]{1,16}")
_WIDTH: Final = 12
"""The width of the names of facts."""


def call_command(
    group: click.Group, kind: type[Request[Response]], *options: Callable[[Any], Any]
) -> Callable[[Send | Callable[[], None]], click.Command]:
    """Return a decorator that makes a command which sends a request.

    The command has the function's name, and its docstring as `--help`; the exit codes are added. A coroutine function
    sends the request itself, and takes the values of `options`; any other function only describes the command.

    Args:
        group: The command that it is part of.
        kind: The class of its request; its arguments become options.
        options: Further options.
    """
    operation = kind.operation
    decorators: list[Callable[[Any], Any]] = [
        *(_parameter(each, operation) for each in _arguments_of(operation)),
        *options,
        _fields_option("extra", "A field that the common interface does not have; can be repeated."),
        *([] if operation.read else _write_options(operation)),
        asks_service,
        click.option("--json", is_flag=True, help="Print one JSON object on standard output."),
    ]

    def decorate(function: Send | Callable[[], None]) -> click.Command:
        words = f"{group.name} {function.__name__}"
        send = function if iscoroutinefunction(function) else Session.send

        def run(profile: str | None, base_url: str | None, *, json: bool, **given: Any) -> None:
            spelled = {name: f"--{name.replace('_', '-')}" for name in given}
            spelled |= {each.name: _spell(each, operation) for each in _arguments_of(operation)}
            command = CallCommand(words, kind, send, json=json, yes=given.pop("yes", True))
            try:
                sys.exit(command.run(profile, base_url, given))
            except (ConfigurationError, InvalidArgumentError, StorageError) as error:
                error.add(operation=None, reference=None)
                if isinstance(error, NotConfiguredError) and not is_profile_given(profile):
                    why = f"no profile is given, and {operation.name} needs one ({error.field}). {GIVE_PROFILE}"
                    error.args = (why,)
                fail_with_journal(words, error, spelled)

        for option in reversed(decorators):
            option(run)
        # click does not wrap a paragraph after "\b".
        help = cleandoc(function.__doc__ or "").replace("Example:", "\b\nExample:")  # noqa: A001 - as click calls it
        return group.command(function.__name__, help=f"{help}\n{_QUERY_CODES if operation.read else _WRITE_CODES}")(run)

    return decorate


def _arguments_of(operation: Operation) -> tuple[Argument, ...]:
    return ARGUMENTS[operation.name] + FURTHER.get(operation.name, ())


def _is_positional(argument: Argument, operation: Operation) -> bool:
    return argument.name == operation.reference and operation not in NUMBERED


def _spell(argument: Argument, operation: Operation) -> str:
    return "NUMBER" if _is_positional(argument, operation) else f"--{argument.name.replace('_', '-')}"


def _parameter(argument: Argument, operation: Operation) -> Callable[[Any], Any]:
    """Return the option, or the argument of the command line, for an argument of a request."""
    name, option = argument.name, _spell(argument, operation)
    if _is_positional(argument, operation):
        return click.argument(name, metavar="NUMBER")
    made = name == operation.reference
    help = _ARGUMENTS[name][1] + (_MADE if made else "")  # noqa: A001 - as click calls it
    required = argument.required and not made
    if name == "customer":
        return _fields_option(name, help, required=required)
    if name in AMOUNTS:
        return click.option(option, callback=_parse_amount, metavar="INTEGER", required=required, help=help)
    if name == "start_date":
        return click.option(option, callback=_parse_date, metavar="DATE", required=required, help=help)
    return click.option(option, metavar="TEXT", required=required, help=help)


def _write_options(operation: Operation) -> list[Callable[[Any], Any]]:
    named = click.option("--intent", metavar="TEXT", help="Your own name of this write; the journal sends it once.")
    return [
        *([named] if operation.kind is Kind.UNKEYED else []),
        journal_option(existing=True, required=False, help="Records the write before it is sent."),
        click.option("--yes", is_flag=True, help="Do not ask before it is sent."),
    ]


def _parse_amount(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is not None and not _INTEGER.fullmatch(text):
        rule = "it must be an integer of at most 16 digits, in the unit that the service counts in"
        raise click.BadParameter(f"{rule}; got {text!r}. If the service counts in cents, give 450 for 4.50")
    return None if text is None else int(text)


def _parse_date(_context: click.Context, _option: click.Parameter, text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"it must be a date such as 2027-01-31; got {text!r}") from None


def _fields_option(name: str, help: str, *, required: bool = False) -> Callable[[Any], Any]:  # noqa: A002
    form = "NAME=VALUE|JSON"
    return click.option(f"--{name}", multiple=True, required=required, callback=_parse_fields, metavar=form, help=help)


def _parse_fields(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Any] | str | None:
    """Return the fields of all texts; for a customer also a single text that holds none."""
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if text.startswith("{"):
            document = loads_exact(text.encode(errors="surrogateescape"), received=False)
            if not isinstance(document, dict):
                raise click.BadParameter('it must be a JSON object such as {"name": "value"}, and is not valid JSON')
            fields |= document
        elif name and equals:
            fields[name] = value
        elif option.name == "customer" and len(texts) == 1:
            return text
        else:
            raise click.BadParameter('it must be NAME=VALUE, or a JSON object such as {"name": "value"}')
    return fields or None


@frozen
class CallCommand:
    """One run of a command.

    Attributes:
        words: The command's words.
        kind: The class of its request.
        send: Sends the request.
        json: Print JSON, and nothing else, on standard output.
        yes: Do not ask.
    """

    words: str
    kind: type[Request[Response]]
    send: Send
    json: bool
    yes: bool

    def run(self, profile: str | None, base_url: str | None, given: dict[str, Any]) -> int:
        """Make the call, and return the exit code.

        Args:
            profile: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
            base_url: The service's address; `None`: what `PAYASYNC_BASE_URL` says.
            given: The values of the other options, by their names.

        Raises:
            PayasyncError: It cannot start; nothing was sent.
        """
        address: Address | None = given.pop("address", None)
        journal = address.open() if address else None
        session = session_with(journal, profile=profile, base_url=base_url, needed="")
        arguments = {name: given.pop(name) for name in fields_dict(self.kind) if name in given}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        require_keys(session, self.kind.operation.name)
        request = self._request(arguments, session)
        if given.get("intent") is None:
            given.pop("intent", None)
        elif journal is None and not session.profile.idempotency.used:
            raise InvalidArgumentError("intent has no effect without a journal: give --journal", field="intent")
        name = str(request.operation.reference)
        made = request.operation in NUMBERED and name not in arguments
        again = f"--{name.replace('_', '-')} {request.reference}" if made else ""
        options, has_profile = service_options(profile, base_url), is_profile_given(profile)
        caller = Caller(session, request, address, options, again, has_profile=has_profile)
        try:
            if request.operation.read or self._confirmed(caller, base_url or session.service):
                return asyncio.run(self._call(caller, journal, given))
        except (ConfigurationError, StorageError) as error:
            if request.operation.read:
                raise
            fail_unsent(self.words, error, made=again)
        except KeyboardInterrupt:
            if not request.operation.read:
                print_error(self.words, "interrupted; nothing was sent")
            return INTERRUPTED
        print_error(self.words, "nothing was sent")
        return 1

    def _request(self, arguments: dict[str, Any], session: Session) -> Request[Response]:
        """Return a request that the session can send; an order or a refund without a number gets one."""
        operation, name = self.kind.operation, str(self.kind.operation.reference)
        if operation not in NUMBERED or name in arguments:
            request = self.kind(**arguments)
            session.check(request)
            return request
        now = datetime.now(UTC)
        # The second one is for services that take digits only.
        for number in f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}", f"{now:%y%m%d%H%M%S}{secrets.randbelow(10**8):08}":
            numbered: dict[str, Any] = {**arguments, name: number}
            request = self.kind(**numbered)
            try:
                session.check(request)
            except InvalidArgumentError as error:
                if error.field != name:
                    raise
            else:
                return request
        rule = "given, because the profile allows none of the numbers that are made here"
        raise InvalidArgumentError(f"{name} must be {rule}", field=name, rule=rule)

    def _confirmed(self, caller: Caller, service: str) -> bool:
        """Show what is sent, on standard error, and return whether a person agrees.

        The number is shown before it is sent, so that it is known even if this process is killed.
        """
        lines, request = error_lines(), caller.request
        if Lines().full:
            fail(self.words, "nothing was sent: standard output is closed, so its result could not be shown")
        if self.yes:
            if request.reference:
                lines.write(f"payasync {self.words}: {request.answer.thing} {plain(request.reference)}")
            if caller.made and lines.console.quiet:
                fail(self.words, "nothing was sent: the number that was made cannot be shown")
            return True
        if not (os.isatty(0) and os.isatty(2)):
            fail(self.words, "nothing was sent: without a terminal, nobody can confirm it. Pass --yes")
        lines.paragraph((f"payasync {self.words}", "bold"))
        facts = _facts_to_confirm(request, caller.profile.amount_unit)
        for name, value in (*facts, *_settings_to_confirm(caller, service)):
            lines.row(name, plain(value), "bold", width=_WIDTH)
        lines.write()
        try:
            agreed = click.confirm("Send it?", err=True)
        except click.Abort as abort:
            lines.write()
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            agreed = False
        lines.write()
        return agreed

    async def _call(self, caller: Caller, journal: Journal | None, given: dict[str, Any]) -> int:
        interrupted, stop = False, None
        if not caller.request.operation.read:
            stop = stopped_by_signals()
            await asyncio.sleep(0)  # a Ctrl-C from before cancels here, and not after the journal has begun

        def show(result: CallResult) -> int:
            if journal and not caller.request.operation.read:
                result = evolve(result, recorded="journal.not_stored" not in events)
            return self._show(result, interrupted=interrupted)

        with stray_logs_dropped() as events:
            try:
                async with caller.session as session:
                    call = asyncio.ensure_future(self.send(session, caller.request, **given))
                    if stop:
                        interrupted = await self._interrupted(call, session, stop)
                    return show(result_of_response(caller, await call))
            except (ConfigurationError, InvalidArgumentError, StorageError):
                raise
            except PayasyncError as error:
                return show(result_of_error(caller, error))
            finally:
                if journal:
                    await close_journal(self.words, journal)

    async def _interrupted(self, call: asyncio.Task[Response], session: Session, stop: asyncio.Event) -> bool:
        """Wait for a call. On a signal, close the session: the call then ends with what is known of it."""
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([call, stopping], return_when=asyncio.FIRST_COMPLETED)
        interrupted = not call.done()
        if interrupted:
            print_error(self.words, "interrupted")
            await session.aclose()
            await asyncio.wait([call])
        stopping.cancel()
        return interrupted

    def _show(self, result: CallResult, *, interrupted: bool) -> int:
        """Show facts or JSON on standard output, and what went wrong on standard error; return the exit code."""
        out, beside = Lines(), error_lines()
        if self.json:
            out.write(json_text.dumps(asdict(result)))
        elif result.outcome == "done" or result.status is not None:
            rows = list(_rows(result))
            for name, value in rows:
                out.row(name, plain(value), width=max(len(each) for each, _ in rows))
        if result.outcome != "done":
            doubt = "outcome unknown: " if result.outcome == "unknown" else ""
            print_error(self.words, f"{doubt}{result.reason}")
        if result.recorded is False:
            number = f": keep {self.kind.answer.thing} {known}" if (known := result.id or result.number) else ""
            print_error(self.words, f"{result.outcome}, but the journal could not record it{number}")
        if result.advice and not self.json:
            beside.write()
            beside.write(f"  {result.advice}", hang=2)
            for command in result.next:
                beside.write((f"  {plain(command)}", "cyan"))
        code = INTERRUPTED if interrupted else EXIT_CODES[result.outcome]
        # A reader of lines that has left wanted no more of them.
        if code == 0 and (out.full or (self.json and out.console.quiet)):
            again = "" if self.kind.operation.read else ". Do not repeat it"
            print_error(self.words, f"done, but the result could not be written{again}")
            return FAILED
        return code


def _facts_to_confirm(request: Request[Response], unit: str) -> Iterator[tuple[str, str]]:
    """Yield a name and a value of each argument."""
    currency = getattr(request, "currency", "")
    names = [each.name for each in _arguments_of(request.operation)]
    for name in sorted(names, key=lambda each: each != request.operation.reference):
        value = getattr(request, name)
        if value is ABSENT or (name == "currency" and unit):
            continue
        if name in AMOUNTS:
            value = _amount_in_words(value, currency, unit)
        elif name == "customer" and not isinstance(value, str):
            value = ", ".join(value)
        yield _ARGUMENTS[name][0], str(value)
    if request.extra:
        yield "Also", ", ".join(request.extra)


def _settings_to_confirm(caller: Caller, service: str) -> Iterator[tuple[str, str]]:
    """Yield a name and a value of each setting that decides where the request goes, and what is known after it."""
    yield "Merchant", caller.session.merchant_id
    yield "Service", f"{service}{', the sandbox: no money moves' if caller.session.service == SANDBOX.name else ''}"
    if not caller.has_profile:
        yield "Profile", NOT_READ
    if caller.address:
        yield "Journal", caller.address.shown


def _amount_in_words(count: int, currency: str, unit: str) -> str:
    if not unit:
        return f"{count}, in the service's unit"
    if not currency:
        return f"{count} in {unit} units"
    return f"{format_amount(count, currency, unit)}, sent as {count} in {unit} units"


def _rows(result: CallResult) -> Iterator[tuple[str, str]]:
    """Yield a name and a value of each fact: first what the profile locates, then the service's other fields."""
    state = f"{result.state} ({result.status})" if result.state else result.status
    for name, value in (
        (result.operation.partition("s.")[0].capitalize(), result.number or result.id),
        ("Id", result.id if result.number not in {None, result.id} else None),
        ("State", state),
        ("Pay at", result.redirect_url),
        ("Request", result.request_id),
    ):
        if value is not None:
            yield name, str(value) if name == "Pay at" else clean(value)
    names = "number", "id", "status", "redirect_url", "request_id", "code", "message"
    shown = [getattr(result, name) for name in names]
    for name, value in (result.data or {}).items():
        if isinstance(value, str | int) and not (isinstance(value, str) and value in shown):
            yield clean(name), clean(value)
