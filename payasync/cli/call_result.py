"""What became of the call of a command: its outcome, its facts, and the next commands."""

import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from attrs import evolve, frozen

from payasync.cli import NEEDS_A_PERSON
from payasync.cli.intent_table import ENDS, resolve_commands
from payasync.cli.options import GIVE_PROFILE, Address
from payasync.errors import (
    AuthenticationError,
    DuplicateError,
    IntentConflictError,
    InvalidSignatureError,
    NotConfiguredError,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
    SessionClosedError,
    WaitTimeoutError,
)
from payasync.journal.intents import write_state
from payasync.journal.replay import BEING_SENT
from payasync.middleware.recovery import status_query
from payasync.profile.profile import Profile
from payasync.profile.wire_names import FIRST, SIGNING, names_of
from payasync.resources.refunds import QueryRefund
from payasync.session import Session
from payasync.strict_json import ABSENT
from payasync.wire.request import Request
from payasync.wire.response import Response, scalar_at

Outcome = Literal["done", "refused", "not sent", "no response", "timeout", "duplicate", "unknown"]

EXIT_CODES: Final[Mapping[Outcome, int]] = {
    "done": 0,
    "refused": 1,
    "not sent": 1,
    "no response": 1,
    "timeout": 1,
    "duplicate": NEEDS_A_PERSON,
    "unknown": NEEDS_A_PERSON,
}

NOT_READ: Final = "none is given, so the number and the state in the response are not read"

_OF_REFUSALS: Final = ("code", "message", "request_id", "http_status", "attempts")
"""The facts of a response that is no success."""


@frozen(kw_only=True)
class CallResult:
    """What is known after a call; `--json` prints it.

    Attributes:
        outcome: `done`: the service carried out the request. `refused`: it did not. `not sent`: nothing left this
            machine. `no response`: a query got no usable response. `timeout`: the awaited state did not come in time.
            `unknown`: a write may have been carried out.
        operation: The name of the method, such as `orders.place`.
        number: The merchant's number of the order or refund, or the service's number of the subscription.
        id: The service's number of a payment or subscription.
        state: Our name of the state.
        status: The state as the service sent it.
        redirect_url: Where the customer pays.
        data: The payload of the response, without its signature and a customer's details.
        request_id: The service's number of the request.
        http_status: The status of the response.
        attempts: How many requests were sent, queries after a lost response included.
        recovered: The response is that of a query, because the write's own was lost.
        recorded: Whether the journal has recorded the end of a write; `None` without a journal.
        code: The service's result code.
        message: The service's message.
        reason: Why the outcome is another than `done`.
        advice: What to do next, in a sentence.
        next: Commands that do it.
    """

    outcome: Outcome
    operation: str
    number: str | None = None
    id: str | int | None = None
    state: str | None = None
    status: str | int | None = None
    redirect_url: str | None = None
    data: Any = None
    request_id: str | int | None = None
    http_status: int | None = None
    attempts: int = 0
    recovered: bool = False
    recorded: bool | None = None
    code: str | int | None = None
    message: str | int | None = None
    reason: str = ""
    advice: str = ""
    next: tuple[str, ...] = ()


@frozen
class Caller:
    """What the next commands need to know of this one.

    Attributes:
        session: The session of the call.
        request: The request.
        address: The journal, if there is one.
        options: The options that name the service.
        made: The option that repeats a number that was made here; empty if the number was given.
        has_profile: Whether a profile is given; without one, hardly anything is read of a response.
    """

    session: Session
    request: Request[Response]
    address: Address | None
    options: str
    made: str = ""
    has_profile: bool = True

    @property
    def profile(self) -> Profile:
        """What the service does."""
        return self.session.profile

    def command(self, words: str, argument: str, options: str = "") -> str:
        """Return a command with the options that name the service."""
        options, argument = options + self.options, shlex.quote(argument)
        behind = f"{options} -- {argument}" if argument[0] == "-" else f" {argument}{options}"
        return f"payasync {words}{behind}"

    def status_command(self) -> list[str]:
        """Return the command that asks for the state of the order or refund, if the service can be asked."""
        number, order = self.request.reference, getattr(self.request, "out_trade_no", ABSENT)
        try:
            query = status_query(self.request.operation.name, number, order, self.profile)
            if query is None or number is None:
                return []
            self.session.check(query)
        except PayasyncError:
            return []
        if isinstance(query, QueryRefund):
            return [self.command("refund status", number, f" --out-trade-no {shlex.quote(str(query.out_trade_no))}")]
        return [self.command("order query", number)]

    def journal_command(self, words: str, options: str = "") -> list[str]:
        """Return a command with this journal, if there is one."""
        return [f"payasync {words}{self.address.option}{options}"] if self.address else []


def result_of_response(caller: Caller, response: Response) -> CallResult:
    """Return what a response says."""
    operation = caller.request.operation.name
    facts = _facts(caller, response)
    result = CallResult(outcome="done", operation=operation, number=caller.request.reference, **facts)
    if not (response.attempts and caller.has_profile):
        known = "The journal has this write already, so nothing was sent now."
        return evolve(result, advice=f"Profile: {NOT_READ}. {GIVE_PROFILE}." if response.attempts else known)
    if write_state(operation, response.state) == "rejected":
        reason = f"the service accepted the request, but the {response.thing}'s state is {response.state}"
        return evolve(result, outcome="refused", reason=reason)
    if operation == "orders.place" and response.recovered and not result.redirect_url:
        advice = "The response was lost, and with it the address. Close this order, and place another one:"
        return evolve(result, advice=advice, next=(caller.command("order close", str(result.number)),))
    if operation == "orders.place" and caller.profile.states.order.get("paid"):
        wait = caller.command("order wait", str(result.number), " --until paid --timeout 60")
        return evolve(result, advice="To wait until it is paid:", next=(wait,))
    if operation == "refunds.create" and result.state == "processing":
        return evolve(result, advice="To ask how it ends:", next=tuple(caller.status_command()))
    return result


def result_of_error(caller: Caller, error: PayasyncError) -> CallResult:
    """Return what an error says of a call."""
    advice, commands = _advise(caller, error)
    result = CallResult(
        outcome=_outcome_of(error),
        operation=caller.request.operation.name,
        number=caller.request.reference,
        attempts=error.attempts,
        reason=" ".join(str(error.args[0]).split()),
        advice=advice,
        next=tuple(commands),
    )
    if error.response is None:
        return result
    facts = {**_facts(caller, error.response), "attempts": error.attempts}
    if not isinstance(error, WaitTimeoutError):
        # It may hold another order or refund.
        facts = {name: facts[name] for name in _OF_REFUSALS}
    return evolve(result, **facts)


def _outcome_of(error: PayasyncError) -> Outcome:
    if isinstance(error, OutcomeUnknownError | DuplicateError):
        return "unknown" if isinstance(error, OutcomeUnknownError) else "duplicate"
    if isinstance(error, ServiceError):
        return "refused"
    if isinstance(error, WaitTimeoutError):
        return "timeout"
    return "not sent" if error.sent is False else "no response"


def _facts(caller: Caller, response: Response) -> dict[str, Any]:
    """Return the facts of a response, as far as the profile says where they stand."""

    def located(name: str) -> Any:
        with suppress(NotConfiguredError):
            return getattr(response, name, None)
        return None

    return {
        "id": located(f"{response.thing}_id"),
        "state": response.state,
        "status": located(f"{response.thing}_status"),
        "redirect_url": located("redirect_url"),
        "data": _without_secrets(response.data, caller.profile),
        "request_id": response.request_id,
        "http_status": response.http_status,
        "attempts": response.attempts,
        "code": scalar_at(response.document, caller.profile.answer.code),
        "message": scalar_at(response.document, caller.profile.answer.message),
        "recovered": response.recovered,
    }


def _without_secrets(data: Any, profile: Profile) -> Any:
    """Return a payload without what no output shows: its signature, its nonce, and a customer's details."""
    if not isinstance(data, dict):
        return None
    signing = {*SIGNING, profile.answer.signature}.union(*(names_of(profile, name) for name in ("nonce", "sign")))
    customer = {name.removesuffix(f".{FIRST}") for name in names_of(profile, "customer")}
    hidden = {path.removesuffix(f".{FIRST}").rpartition(".")[2] for path in signing}
    hidden |= {"customer", *(name for name in customer if "." not in name)}
    # The last step of a dotted name is often `id`, which other fields have, too.
    at_top = {name.partition(".")[0] for name in customer}
    return _without(hidden, {name: value for name, value in data.items() if name not in at_top})


def _without(hidden: Collection[str], value: Any) -> Any:
    """Return a JSON value without the fields of these names, at any depth."""
    if isinstance(value, dict):
        return {name: _without(hidden, each) for name, each in value.items() if name not in hidden}
    return [_without(hidden, each) for each in value] if isinstance(value, list) else value


def _advise(caller: Caller, error: PayasyncError) -> tuple[str, list[str]]:
    """Return what to do after an error, in a sentence, and the commands that do it."""
    advice, commands = "", list[str]()
    match error:
        case OutcomeUnknownError():
            return _advise_on_unknown(caller, error)
        case DuplicateError():
            commands = _commands_to_ask(caller)
            ask = " To ask which write it belongs to:" if commands else ""
            advice = f"Use another number only if this one belongs to another write.{ask}"
        case IntentConflictError():
            advice, commands = "To see the earlier request:", caller.journal_command(f"journal show {error.intent_id}")
        case NotSentError(permanent=True):
            advice = "Remove the cause, and run the command again."
        case NotSentError() | SessionClosedError():
            again = f" with {caller.made}" if caller.made else ""
            advice = f"To try again, run the same command{again}."
        case AuthenticationError() | InvalidSignatureError():
            advice, commands = "To check the keys:", [f"payasync doctor{caller.options}"]
        case RateLimitedError():
            wait = f" {error.retry_after:g} seconds" if error.retry_after else ""
            advice = f"Wait{wait}, and run the command again."
        case ServiceError(absent=True) if caller.request.operation.read:
            advice = _advise_on_absence(caller)
        case _:
            pass
    return advice, commands


def _advise_on_unknown(caller: Caller, error: OutcomeUnknownError) -> tuple[str, list[str]]:
    if error.reason == BEING_SENT:
        return "From that time on, this command asks the service:", caller.journal_command("reconcile", caller.options)
    if ask := _commands_to_ask(caller):
        return "To ask the service what happened:", ask
    if caller.address is None:
        return "No journal has recorded it, so keep what is shown above.", []
    return "Once you know what happened, record it:", resolve_commands(error.intent_id, caller.address.option, ENDS)


def _commands_to_ask(caller: Caller) -> list[str]:
    """Return the commands that ask about the order or refund: with a journal, first the one that also records it."""
    ask = caller.status_command()
    return [*caller.journal_command("reconcile", caller.options), *ask] if ask else []


def _advise_on_absence(caller: Caller) -> str:
    quarantine, final = caller.profile.recovery.quarantine, "not final without recovery.quarantine in the profile"
    if quarantine is not None:
        final = f"final only {quarantine:g} seconds after a write was sent"
    again = "" if caller.request.answer.thing == "payment" else " To send it again, use the same number."
    return f'"Not found" is {final}, because the service may still carry it out.{again}'
