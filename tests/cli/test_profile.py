"""`payasync profile`: it writes a profile from answers, and says what a profile is ready for."""

import io
import os
import pty
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen
from click.testing import CliRunner, Result
from rich.console import Console

from payasync import AnswerShape, NotificationShape, Profile, ResultCodes, SignedHeader
from payasync.cli.commands import payasync
from payasync.cli.profile import ProfileScreen, interview
from payasync.cli.profile_draft import Prompt
from payasync.cli.terminal import Lines
from tests.chaos.forked import Forked

QUESTION: Final = re.compile(
    r"^  (\S+)  .*\n(?:    .*\n)*  Example: .*\n(?:  > .*\n|  Refused: .*\n|    .*\n)*  > \Z", re.MULTILINE
)
"""The end of what is shown while the command waits for an answer."""
STOP: Final = "\x04"
"""Ctrl-D."""


@frozen
class Seen:
    """How the command ended.

    Attributes:
        code: Its exit code.
        shown: What the terminal showed.
    """

    code: int
    shown: str


def read(terminal: int) -> str:
    """Return what a program has written to its terminal; empty if the program has ended."""
    try:
        return os.read(terminal, 4096).decode(errors="replace").replace("\r\n", "\n")
    except OSError:  # how Linux says so
        return ""


def in_terminal(
    folder: Path,
    *arguments: str,
    meanwhile: Callable[[Forked], object] = bool,
    last: str = STOP,
    **answers: str,
) -> Seen:
    """Run `profile init` in a terminal of 80 columns, until all answers are given.

    Args:
        folder: Where it runs.
        arguments: Of the command.
        meanwhile: What happens to the process at the question after the last answer.
        last: What is typed then.
        answers: By key, with `__` for a dot; several lines are given in turns. Other questions are skipped.
    """
    left, shown = {name.replace("__", "."): typed.split("\n") for name, typed in answers.items()}, ""
    environ = {**os.environ, "COLUMNS": "80", "LINES": "40", "TERM": "dumb"}
    command = ("payasync", "profile", "init", *arguments)
    ours, theirs = pty.openpty()
    with Forked(*command, environment=environ, folder=folder, streams=dict.fromkeys(range(3), theirs)) as process:
        os.close(theirs)
        while more := read(ours):
            shown += more
            if not (asked := QUESTION.search(shown)):
                continue
            if any(left.values()):
                typed = left.get(asked[1])
                os.write(ours, f"{typed.pop(0) if typed else ''}\n".encode())
            else:
                meanwhile(process)
                os.write(ours, last.encode())
        os.close(ours)
        code = process.wait()
    assert not any(left.values())
    return Seen(code, shown)


def run(*arguments: str | Path) -> Result:
    """Run a subcommand without a terminal."""
    return CliRunner().invoke(payasync, ["profile", *map(str, arguments)], env={"COLUMNS": "200"})


class Person(ProfileScreen):
    """Gives answers by key, and skips other questions.

    Args:
        answers: By key, with `__` for a dot; several lines are given in turns.
    """

    def __init__(self, **answers: str) -> None:
        self._written = io.StringIO()
        super().__init__(Lines(Console(file=self._written, width=80, force_terminal=True, color_system=None)))
        self._left = {name.replace("__", "."): typed.split("\n") for name, typed in answers.items()}
        self.asked: list[str] = []

    def question(self, prompt: Prompt) -> None:
        """Take a note of the question."""
        self.asked.append(prompt.name)
        super().question(prompt)

    def read(self) -> str:
        """Return the next answer to the question."""
        left = self._left.get(self.asked[-1])
        return left.pop(0) if left else ""

    @property
    def shown(self) -> str:
        """What was shown, with single spaces."""
        return " ".join(self._written.getvalue().split())


ANSWERED: Final = Profile.from_toml("""
name = "my-shop"
answer = {data = "data", payment_status = "state"}
states.payment.paid = ["PAID", 3]
status.payment.name = "orderNo"
""")


def test_answers_become_a_file(tmp_path: Path) -> None:
    """In a terminal, the answers are written to a file that only its owner can read, with what it is ready for."""
    seen = in_terminal(
        tmp_path,
        name="my-shop",
        answer__data="data",
        status__payment__name="orderNo",
        answer__payment_status="state",
        states__payment__paid="PAID, 3",
        answer__redirect_url="-",
    )
    file = tmp_path / "service.toml"
    assert 0 == seen.code
    assert ANSWERED == Profile.from_file(file)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert "\nok    payments       ready\n" in seen.shown.split("Wrote service.toml")[1]
    assert "payasync profile check service.toml" in seen.shown
    assert max(map(len, seen.shown.splitlines())) <= 80


def test_ctrl_c_writes_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends the questions with exit code 130, and there is no file."""
    # GNU readline looks for a signal when a key wakes it.
    seen = in_terminal(tmp_path, meanwhile=lambda it: it.send_signal(signal.SIGINT), last="\n", name="my-shop")

    assert (130, []) == (seen.code, list(tmp_path.iterdir()))
    assert "Traceback" not in seen.shown


def test_answers_are_not_lost(tmp_path: Path) -> None:
    """If another program makes the file in the meantime, it stays; the answers are shown, and the exit code is 2."""
    file = tmp_path / "service.toml"
    seen = in_terminal(tmp_path, meanwhile=lambda _: file.touch(), name="my-shop")

    assert (2, "") == (seen.code, file.read_text())
    assert 'name = "my-shop"' in seen.shown
    assert "cannot write 'service.toml': File exists. Save what is shown above" in " ".join(seen.shown.split())


def test_file_is_replaced_with_force(tmp_path: Path) -> None:
    """With `--force`, the answers replace a file; the content of a hard link to it stays."""
    file, link = tmp_path / "my.toml", tmp_path / "link"
    file.write_text('name = "old"\n')
    file.chmod(0o644)
    link.hardlink_to(file)
    seen = in_terminal(tmp_path, "my.toml", "--force", name="new")

    assert (0, "new", "old") == (seen.code, Profile.from_file(file).name, Profile.from_file(link).name)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("old.toml", "'old.toml' exists. Name another file, or replace it with --force"),
        ("link.toml", "'link.toml' is a symbolic link, and links are not followed"),
        ("nowhere.toml", "'nowhere.toml' is a symbolic link, and links are not followed"),
        ("shared.toml", "other users can write 'shared.toml'"),
    ],
)
def test_file_that_is_not_written(tmp_path: Path, name: str, words: str) -> None:
    """`init` refuses a file that exists, a symbolic link and a file of others, before the first question."""
    (tmp_path / "old.toml").write_text("")
    (tmp_path / "shared.toml").write_text("")
    (tmp_path / "shared.toml").chmod(0o666)
    (tmp_path / "link.toml").symlink_to("old.toml")
    (tmp_path / "nowhere.toml").symlink_to("none.toml")
    seen = in_terminal(tmp_path, name)

    assert 2 == seen.code
    assert words in " ".join(seen.shown.split())
    assert "Example" not in seen.shown


def test_init_needs_a_terminal(tmp_path: Path) -> None:
    """Without a terminal, `init` says so in one line, and the exit code is 2."""
    result = run("init", tmp_path / "my.toml")

    assert (2, "", 1) == (result.exit_code, result.stdout, len(result.stderr.splitlines()))
    assert "it asks questions, and needs a terminal" in result.stderr
    assert [] == list(tmp_path.iterdir())


def test_invalid_answer_is_asked_again() -> None:
    """An invalid answer is refused in one line with what is allowed, and asked again until it is valid or skipped."""
    person = Person(amount_unit="cents\nmajor", http__absent="500\n")
    draft = interview(person)

    assert Profile(amount_unit="major") == draft.profile
    assert "Refused: amount_unit must be one of 'minor', 'major', not 'cents'" in person.shown
    assert 2 == person.shown.count("Refused: ")


@pytest.mark.parametrize(
    ("answers", "asked", "expected"),
    [
        (
            {"answer__code": "code", "answer__ok": "a..b\n0"},
            ["answer.code", "answer.ok", "answer.message"],
            Profile(answer=AnswerShape(code="code", ok=("a..b",))),
        ),
        (
            {"answer__code_optional": "true", "answer__code": "error"},
            ["answer.code_optional", "answer.code", "answer.ok"],
            Profile(answer=AnswerShape(code="error", code_optional=True)),
        ),
        (
            {"answer__message": "m", "codes__absent": "A", "codes__not_executed": "A\nB"},
            ["codes.not_executed", "codes.unauthenticated"],
            Profile(answer=AnswerShape(message="m"), codes=ResultCodes(absent=["A"], not_executed=["B"])),
        ),
        (
            {"notification__verification": "header", "notification__header__signature": "X-Sign"},
            ["notification.verification", "notification.header.signature", "notification.header.text"],
            Profile(notification=NotificationShape(verification="header", header=SignedHeader(signature="X-Sign"))),
        ),
    ],
)
def test_answer_that_needs_another(answers: dict[str, str], asked: list[str], expected: Profile) -> None:
    """If an answer is valid only with another one, that one is asked next; else the same question is asked again."""
    person = Person(**answers)
    draft = interview(person)

    assert expected == draft.profile
    assert asked == person.asked[person.asked.index(asked[0]) :][: len(asked)]


def test_answer_is_left_out() -> None:
    """If an answer is valid only with another one, which is not given, it is left out."""
    person = Person(signature__algorithm="md5")
    draft = interview(person)

    assert Profile() == draft.profile
    assert "Left out: signature.algorithm, which needs signature.key_param" in person.shown


DEPENDS: Final = {
    "answer.ok": {"answer__code": "code"},
    "answer.refusals_signed": {"answer__signature": "sign"},
    "codes.absent": {"answer__message": "message"},
    "formats.start_date": {"fields__start_date": "begin"},
    "notification.ack_status": {"notification__verification": "none"},
    "notification.header.prefix": {"notification__verification": "header", "notification__header__signature": "X-Sign"},
    "notification.kinds.refund": {"notification__verification": "none", "notification__kind": "event"},
    "notification.signature": {"notification__verification": "body"},
    "signature.allow_delimiters": {"answer__signature": "sign"},
    "signature.encoding": {"signature__algorithm": "ed25519"},
    "signature.service_key": {"notification__verification": "body"},
    "signature.key_param": {"signature__algorithm": "hmac-sha256"},
    "states.order.paid": {"answer__order_status": "status"},
    "states.refund.failed": {"answer__refund_status": "status"},
    "status.payment.place": {"status__payment__name": "number"},
    "status.refund.place": {"status__refund__name": "number"},
}
"""Questions, each with the answers without which it makes no sense."""


def test_only_questions_that_make_sense_are_asked() -> None:
    """A question that depends on an answer is not asked without it."""
    asked = {question: Person(**answers) for question, answers in DEPENDS.items()}
    without = Person()
    for person in (without, *asked.values()):
        interview(person)

    assert [] == [question for question in DEPENDS if question in without.asked]
    assert [] == [question for question, person in asked.items() if question not in person.asked]
    assert "signature.key_param" not in asked["signature.encoding"].asked
    assert not {"notification.header.prefix", "notification.kinds.refund"} & {*asked["notification.ack_status"].asked}


def test_verdict_follows_the_questions_of_a_group() -> None:
    """The groups come in the order of what they unlock. Each one ends with what is still missing."""
    person = Person(answer__order_status="status")
    interview(person)

    verdict = (
        "signature.algorithm, .encoding its payment page answer.redirect_url its states states.order Refunds 4 of 7"
    )
    assert f"open orders request signatures {verdict}" in person.shown
    assert ["General", "Payments", "Orders", "Refunds", "Recovery", "Notifications", "Subscriptions"] == re.findall(
        r"(\w+) \d of 7", person.shown
    )


def test_what_all_groups_need_is_not_skipped_with_payments(tmp_path: Path) -> None:
    """A person who skips payments was asked before about what all groups need, such as the form of responses."""
    seen = in_terminal(tmp_path, answer__code="code", answer__ok="0", status__payment__name="-")

    general, _, rest = seen.shown.partition("\nPayments  2 of 7\n")
    question = re.compile(r"^  (\S+)  .*\n(?:    .*\n)*  Example: ", re.MULTILINE)
    answer = [f"answer.{name}" for name in ("data", "code_optional", "code", "ok", "message", "request_id")]
    assert ["name", "amount_unit", "bearer", *answer] == question.findall(general)
    assert ["status.payment.name", "signed"] == question.findall(rest)
    assert (0,) == Profile.from_file(tmp_path / "service.toml").answer.ok


@pytest.mark.parametrize(
    ("toml", "code", "words"),
    [
        ("", 0, "Ready for nothing yet."),
        ('name = "x"', 0, "Ready for nothing yet."),
        ('notification = {verification = "standard-webhooks", ack_status = 200}', 0, "Ready: notifications"),
        ('answer.order_status = "s"\nstates.refund.failed = ["F"]', 1, "Begun, and not ready: orders, refunds"),
    ],
)
def test_check(tmp_path: Path, toml: str, code: int, words: str) -> None:
    """`check` shows each group. The exit code is 1 if a group that the file begins to describe is not ready."""
    file = tmp_path / "my.toml"
    file.write_text(toml)
    result = run("check", file)
    groups = [line.split()[1] for line in result.output.splitlines() if line.startswith(("ok ", "open "))]

    assert (code, words) == (result.exit_code, words if words in result.output else result.output)
    assert ["payments", "orders", "refunds", "subscriptions", "recovery", "notifications"] == groups


def facts(tmp_path: Path, toml: str) -> dict[str, str]:
    """Return what `check` says of each kind of notification and of the two times."""
    file = tmp_path / "my.toml"
    file.write_text(toml)
    _, _, shown = run("check", file).output.partition("\nNotifications\n")
    lines, _, _ = shown.partition("\n\n")
    pairs = (line.split(maxsplit=1) for line in lines.splitlines())
    return {name: words for name, words in pairs}  # noqa: C416 - mypy knows no length of these lists


IN_HEADER: Final = 'notification.verification = "header"\nnotification.header.signature = "X-Sign"\n'
IN_BODY: Final = 'notification.verification = "body"\nnotification.signature = "sign"\n'
WEBHOOKS: Final = 'notification.verification = "standard-webhooks"\n'
UNSIGNED: Final = 'notification.verification = "none"\n'
RSA: Final = 'signature = {algorithm = "rsa-sha256", encoding = "base64"}\n'
BOUND: Final = "bound to this merchant by"
ASKED: Final = "payasync asks the service"
PARKED: Final = "it is parked, because no query confirms it"
NUMBERS: Final = 'notification.out_trade_no = "outTradeNo"\nnotification.out_refund_no = "outRefundNo"\n'
BY_PATH: Final = f"{BOUND} merchantId, if the event has it; else"
BY_NOTHING: Final = "all merchants share its key, and nothing signed names this merchant:"
OF_ALL: Final = "not signed, so nothing binds it to this merchant:"
BY_KEY: Final = f"{BOUND} its key, which no other merchant has"


@pytest.mark.parametrize(
    ("toml", "payment", "subscription"),
    [
        (RSA + IN_HEADER + NUMBERS, f"{BY_PATH} {ASKED}", f"{BY_PATH} {PARKED}"),
        (RSA + IN_HEADER, f"{BY_PATH} {PARKED}", f"{BY_PATH} {PARKED}"),
        (
            RSA + IN_HEADER + NUMBERS + 'endpoints."orders.query".number = "service"',
            f"{BY_PATH} {PARKED}",
            f"{BY_PATH} {PARKED}",
        ),
        (
            RSA + IN_HEADER + NUMBERS + 'notification.merchant_id = ""',
            f"{BY_NOTHING} {ASKED}",
            f"{BY_NOTHING} {PARKED}",
        ),
        (
            RSA.replace("}", ', exclude = ["sign", "merchantId"]}') + IN_BODY + NUMBERS,
            f"{BY_NOTHING} {ASKED}",
            f"{BY_NOTHING} {PARKED}",
        ),
        (RSA + IN_BODY + NUMBERS, f"{BY_PATH} {ASKED}", f"{BY_PATH} {PARKED}"),
        (
            RSA + IN_HEADER + 'notification.header.text = "{merchant_id}{body}"',
            *2 * (f"{BOUND} its number, which is in the signed text",),
        ),
        (RSA.replace("}", ', service_key = "merchant"}') + IN_HEADER, BY_KEY, BY_KEY),
        (RSA.replace("rsa", "hmac") + IN_BODY, BY_KEY, BY_KEY),
        (WEBHOOKS, BY_KEY, BY_KEY),
        (UNSIGNED + NUMBERS, f"{OF_ALL} {ASKED}", f"{OF_ALL} {PARKED}"),
    ],
)
def test_check_says_what_binds_a_notification(tmp_path: Path, toml: str, payment: str, subscription: str) -> None:
    """`check` says for each kind what binds it to this merchant, or else whether a query decides or it is parked."""
    found = facts(tmp_path, toml)

    assert (payment, subscription) == (found["payment"], found["subscription"])
    assert ["payment", "refund", "subscription", "time", "event_time"] == list(found)


TELLING: Final = 'notification.tells.refund = "refundStatus"\n'
OF_EVENT: Final = "the event's own time, which is shown and never judged"
RULE: Final = "the time of the delivery, new in each, and at most 300 seconds off"


@pytest.mark.parametrize(
    ("toml", "time", "event_time"),
    [
        (RSA + IN_HEADER + 'notification.time = "paidAt"\n', f"paidAt is {RULE}", "not given"),
        (RSA + IN_HEADER, f"not judged. notification.time is for {RULE}", "not given"),
        (WEBHOOKS + 'notification.event_time = "paidAt"\n', f"webhook-timestamp is {RULE}", "paidAt"),
        (UNSIGNED + 'notification.time = "paidAt"\n', f"not judged. notification.time is for {RULE}", "not given"),
    ],
)
def test_check_says_what_each_time_is(tmp_path: Path, toml: str, time: str, event_time: str) -> None:
    """`check` says which time is judged, and names the event's own; it lists only kinds that the profile has."""
    found = facts(tmp_path, toml + TELLING)

    assert {"refund", "time", "event_time"} == found.keys()
    assert time == found["time"]
    assert f"{event_time}: {OF_EVENT}" == found["event_time"]


@pytest.mark.parametrize("toml", ["", IN_HEADER, 'notification.data = "data"'])
def test_check_says_nothing_of_what_is_open(tmp_path: Path, toml: str) -> None:
    """As long as nobody knows how notifications are signed, `check` does not say what binds them."""
    assert {} == facts(tmp_path, toml)


def test_check_names_what_the_sandbox_needs(tmp_path: Path) -> None:
    """If the sandbox could not play the service, `check` says in one line what it needs. The exit code stays."""
    file = tmp_path / "my.toml"
    file.write_text(
        'signed = []\nbearer = []\nmerchant = []\n[answer]\ncode = "c"\nok = ["0"]\n'
        '[codes]\nduplicate = ["1"]\nabsent = ["2"]\n[http]\nnot_executed = []\n[sandbox.codes]\ninvalid = "3"\n'
    )
    shown = " ".join(run("check", file).output.split())

    keys = "sandbox.codes.wrong_state, sandbox.codes.already_paid, sandbox.codes.refund_mismatch"
    assert f"Optional: the sandbox needs {keys}, because it sends refusals inside HTTP 200" in shown
    file.write_text("")
    assert "Optional: the sandbox" not in run("check", file).output


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("signatur = 1", "my.toml, line 1: signatur is unknown: did you mean signature?"),
        ('\n[answer]\ncode = "code"', "my.toml, line 2: answer.ok must list the codes that mean success"),
        ("name = x", "my.toml, line 1: not TOML"),
        (
            '[answer]\nsignature = "data.sign"\norder_status = "state"\n[signature]\nalgorithm = "hmac-sha256"',
            "my.toml, line 3: answer.order_status is 'state', which the signature at 'data.sign' does not cover",
        ),
        (None, "my.toml"),
    ],
    ids=["unknown", "contradiction", "no TOML", "not covered", "no file"],
)
def test_check_of_an_invalid_file(tmp_path: Path, toml: str | None, words: str) -> None:
    """If a file is invalid, one line names the key, the line of the file and the rule, and the exit code is 2."""
    file = tmp_path / "my.toml"
    if toml is not None:
        file.write_text(toml)
    result = run("check", file)

    assert (2, "", 1) == (result.exit_code, result.stdout, len(result.stderr.splitlines()))
    assert words in result.stderr


def test_check_of_the_profile_of_the_sandbox() -> None:
    """The word `sandbox` names the sandbox's own profile, as in `PAYASYNC_PROFILE`; it is ready for all groups."""
    result = run("check", "sandbox")

    assert (0, 6) == (result.exit_code, result.output.count(" ready\n"))


def test_check_of_a_file_that_is_called_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path such as `./sandbox` is a file, and not the word for the sandbox's own profile."""
    monkeypatch.chdir(tmp_path)
    Path("sandbox").write_text("signatur = 1")
    result = run("check", "./sandbox")

    assert 2 == result.exit_code
    assert "sandbox, line 1: signatur is unknown" in result.stderr
