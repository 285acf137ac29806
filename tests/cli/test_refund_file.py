"""The file of refunds, the result of each row, and the result file."""

import errno
import fcntl
import os
import resource
import stat
from collections.abc import AsyncIterator, Generator
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import asdict, evolve

from payasync import CreateRefund, Done, Profile, RefundResponse, Refused, errors
from payasync.cli import refund_file
from payasync.cli.refund_file import (
    ResultFile,
    Row,
    RowResult,
    Word,
    exit_code,
    locked,
    never_arrived,
    read_rows,
    resubmissions,
    row_result_now,
    row_result_of_call,
)
from payasync.journal import Journal, Outcome, SqliteJournal
from payasync.journal.drafts import digest
from payasync.journal.intents import Intent, State
from payasync.profile.sandbox_profile import PROFILE
from payasync.session import Result as CallResult
from payasync.session import Unknown
from payasync.settings import lock_file
from payasync.wire.call import Reply
from payasync.wire.validators import invalid_argument
from tests.journal.building import LEASE, MERCHANT, START, Clock, draft, kept, refund

HEADER: Final = "out_trade_no,out_refund_no,total_amt,refund_amt"
REFUND: Final = CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)


def rows(*lines: str, header: str = HEADER) -> tuple[Row, ...]:
    """Read a file of these lines with a profile that accepts all of them."""
    return read_rows("\n".join([header, *lines]), lambda _: None)


def wrong(*lines: str, header: str = HEADER) -> list[tuple[int, str]]:
    """Return the bad rows of a file of these lines."""
    return [(row.line, row.wrong) for row in rows(*lines, header=header) if row.wrong]


def test_row_is_a_refund() -> None:
    """Each row is one request. Columns may have any order, and an empty optional cell is absent."""
    (row, other) = rows(
        "cold,200,https://a.example/r,R1,450,T1",
        ",200,,R2,450,T1",
        header="refund_desc,refund_amt,notify_url,out_refund_no,total_amt,out_trade_no",
    )

    assert [(2, "R1", ""), (3, "R2", "")] == [(each.line, each.number, each.wrong) for each in (row, other)]
    assert evolve(REFUND, refund_desc="cold", notify_url="https://a.example/r") == row.request
    assert evolve(REFUND, out_refund_no="R2") == other.request


def test_other_columns_are_refused() -> None:
    """An unknown, missing or duplicate column is refused, and so is a file that is not CSV, with the line."""
    wrong = {
        "": "'out_trade_no', 'out_refund_no', 'total_amt', 'refund_amt' are missing",
        "out_trade_no,out_refund_no,total_amt": "'refund_amt' is missing",
        f"{HEADER},currency": "'currency' is unknown",
        f"{HEADER},refund_amt": "'refund_amt' is duplicate",
        HEADER.replace(",", ";"): "with commas between them",
        HEADER.replace("refund_amt", " refund_amt"): "' refund_amt' is unknown",
    }
    for header, words in wrong.items():
        with pytest.raises(errors.InvalidArgumentError, match=r"^line 1: the columns must be ") as caught:
            read_rows(header, lambda _: None)

        assert words in str(caught.value)
    with pytest.raises(errors.InvalidArgumentError, match="line 3: not CSV"):
        rows("T1,R1,450,1", 'T1,"R2"x,450,1')


def test_amount_is_digits() -> None:
    """An amount that is not plain digits, such as a spreadsheet writes, or that is above its order's, is refused."""
    for amount in ("4.5", "4,5", "-1", "+1", " 1", "1e3", "1_000", "٤", "0", "", "1" * 17):
        ((line, words),) = wrong(f'T1,R1,450,"{amount}"')

        assert (2, True) == (line, words.startswith("refund_amt must be an int from 1 to "))
        assert amount[:10] in words
    ((line, words),) = wrong("T1,R1,450,450", "T1,R2,450,451")
    assert 3 == line
    assert words.startswith("refund_amt must be at most total_amt, which is 450, not 451: ")


def test_cells_are_as_many_as_columns() -> None:
    """A row with too few or too many cells is refused."""
    for line, count in (("T1,R1,450", 3), ("T1,R1,450,200,", 5), ("T1", 1)):
        assert [(2, f"the row has {count} cells, but there are 4 columns")] == wrong(line)


def test_all_rows_of_one_number_are_bad() -> None:
    """All rows that share a number are refused, even if one of them is invalid anyway."""
    found = wrong("T1,R1,450,1", "T1,R2,450,1", "T1,R1,450,1", "T1,R2,450,x", "T1,R3,450,1")
    words = "'R1' is on lines 2 and 4", "'R2' is on lines 3 and 5"

    assert [2, 3, 4, 5] == [line for line, _ in found]
    assert [f"out_refund_no must be unique: {each}" for each in words] == [why for _, why in found[:2]]


def test_line_is_where_a_row_begins() -> None:
    """A row's line number counts empty lines and cells of several lines, as an editor does.

    Unicode separators other than line ends do not end a row.
    """
    header = f"{HEADER},refund_desc"
    found = rows("", 'T1,R1,450,1,"cold\nand late"', "", "T1,R2,450,x,", header=header)

    assert [(3, ""), (6, "x")] == [(row.line, "x" if row.wrong else "") for row in found]
    for letter in ("\u2028", "\u0085", "\x0b"):
        (row,) = rows(f"T1,R1,450,1,cold{letter}late", header=header)

        assert ("", f"cold{letter}late") == (row.wrong, row.cells["refund_desc"])


def test_what_the_service_does_not_take_is_bad() -> None:
    """A row that the profile does not allow is refused with the reason."""

    def check(request: CreateRefund) -> None:
        if request.out_trade_no == "T 1":
            raise invalid_argument("out_trade_no", "a word", request.out_trade_no)

    found = read_rows(f"{HEADER}\nT 1,R1,450,1\nT1,R2,450,1", check)

    assert ["out_trade_no must be a word, not 'T 1'", ""] == [row.wrong for row in found]


RESULT_HEADER = "line,out_trade_no,out_refund_no,refund_amt,state,code,message"


def row_result(line: int = 2, *, number: str = "R1", **facts: Any) -> RowResult:
    """Return the result of a row."""
    row = Row(line=line, cells={"out_trade_no": "T1", "out_refund_no": number, "refund_amt": "200"})
    given: dict[str, Any] = {"state": "succeeded", **facts}
    return RowResult(row=row, **given)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the result file."""
    return tmp_path / "out.csv"


def beside(path: Path) -> Path:
    """Return the path of the partial file."""
    return path.with_name("out.csv.partial")


def test_rows_are_there_as_they_end(path: Path) -> None:
    """Each row is in the partial file as soon as it has ended. The result file appears at the end, in order.

    The result of an earlier run stays until then.
    """
    path.write_text(f"{RESULT_HEADER}\nold\n")
    with closing(ResultFile(path)) as result:
        result.add(row_result(3, number="R2", state="refused", code="E1", message="no such order"))
        partial, early = beside(path).read_text(), path.read_text()
        result.finish([row_result(), row_result(3, number="R2")])

    assert [RESULT_HEADER, "3,T1,R2,200,refused,E1,no such order", ""] == partial.split("\n")
    assert f"{RESULT_HEADER}\nold\n" == early
    assert [RESULT_HEADER, "2,T1,R1,200,succeeded,,", "3,T1,R2,200,succeeded,,", ""] == path.read_text().split("\n")
    assert not beside(path).exists()


def test_another_file_is_left_alone(path: Path) -> None:
    """A file that is no result of an import is refused, and so is a path in a missing folder."""
    path.write_text("out_trade_no,out_refund_no\n")
    with pytest.raises(errors.ConfigurationError, match=r"is not a result of an import"):
        ResultFile(path)
    with pytest.raises(errors.ConfigurationError, match="No such file"):
        ResultFile(path.with_name("none") / "out.csv")

    assert "out_trade_no,out_refund_no\n" == path.read_text()
    assert [path] == list(path.parent.iterdir())


@contextmanager
def full() -> Generator[None]:
    """Limit the size of files that this process writes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_import_goes_on_where_it_cannot_be_written(path: Path) -> None:
    """If the result file cannot be written at the end, the reason is recorded, and nothing is raised.

    Without a path, no file is made.
    """
    with full(), pytest.raises(errors.ConfigurationError, match="File too large"):
        ResultFile(path)
    with closing(ResultFile(path)) as result, closing(ResultFile(None)) as unwritten:
        path.mkdir()
        result.finish([row_result()])
        unwritten.add(row_result())
        unwritten.finish([row_result()])

    assert "Is a directory" == result.failed
    assert {path, beside(path)} == set(path.parent.iterdir())


def test_rows_that_ended_are_of_this_run_and_private(path: Path) -> None:
    """The partial file is private, and made anew by each run. A hard link to the old one keeps its content."""
    with closing(ResultFile(path)) as result:
        result.add(row_result())
    former = beside(path).read_text()
    os.link(beside(path), path.with_name("copy"))
    ResultFile(path).close()

    assert f"{RESULT_HEADER}\n" == beside(path).read_text()
    assert former == path.with_name("copy").read_text()
    assert 0o600 == stat.S_IMODE(beside(path).stat().st_mode)


def test_result_of_another_run_is_refused(path: Path) -> None:
    """While a run writes a result, a second one with that result is refused, also by another path."""
    folder, why = path.with_name("link"), r"is locked, because another run writes it\. Nothing was sent"
    folder.symlink_to(path.parent)
    with closing(ResultFile(path)) as first:
        for named in (path, folder / path.name):
            with pytest.raises(errors.ConfigurationError, match=why):
                ResultFile(named)
        first.add(row_result())
        partial = beside(path).read_text()
        first.finish([row_result()])
    ResultFile(path).close()

    assert [2, 2] == [len(each.splitlines()) for each in (partial, path.read_text())]


@pytest.mark.parametrize("step", ["lock_file", "_hold_lock", "new_private"])
def test_run_that_begins_at_the_same_time_stays(path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """If another run makes or locks the partial file while this one begins, this one is refused. It removes nothing."""
    partial, real, open_files = beside(path), getattr(refund_file, step), list[int]()
    if step == "lock_file":
        ResultFile(path).close()

    def overtaken(*given: Any) -> Any:
        monkeypatch.undo()
        if step == "new_private":
            made = real(*given)
            open_files.append(os.open(partial, os.O_RDONLY))
            assert lock_file(open_files[0])
            return made
        partial.unlink(missing_ok=True)
        partial.touch()
        return real(*given)

    # Two processes meet at these points too rarely for a test.
    monkeypatch.setattr(refund_file, step, overtaken)
    with pytest.raises(errors.ConfigurationError, match="is locked, because another run writes it"):
        ResultFile(path)
    for each in open_files:
        os.close(each)

    assert [b""] == [each.read_bytes() for each in path.parent.iterdir()]


def test_file_of_another_run_is_refused(path: Path) -> None:
    """While a run imports a file, a second one is refused, by whatever path it names the file."""
    path.write_text(HEADER)
    path.chmod(0o400)
    path.with_name("symlink").symlink_to(path)
    os.link(path, path.with_name("hard"))
    with locked(path):
        for name in (path.name, "symlink", "hard"):
            why = f"{name}' is locked, because another run imports it"
            with pytest.raises(errors.InvalidArgumentError, match=why), locked(path.with_name(name)):
                pytest.fail("it was not locked")
    with locked(path), locked(path.with_name("missing")):
        assert ["hard", "out.csv", "symlink"] == sorted(each.name for each in path.parent.iterdir())


def test_row_that_another_run_has_sent_since() -> None:
    """A row that was not done is looked up again: if another run has sent the same refund since, that counts.

    If the same refund is queued since, it is in doubt.
    """
    states: dict[State, Word] = {"sending": "unknown", "unknown": "unknown", "manual": "manual"}
    states |= {"accepted": "accepted", "succeeded": "succeeded"}
    queued = RowResult(row=ROW, state="unknown", message="it is queued, and a worker may still send it")
    words: tuple[Word, ...] = ("refused", "unsent")
    for known in (RowResult(row=ROW, state=word, message="no") for word in words):
        for state, word in states.items():
            others = None, same("new"), same("rejected"), evolve(same(state), hash="of another amount")

            assert word == row_result_now(known, same(state), PROFILE, "M1").state
            assert [known] * 4 == [row_result_now(known, intent, PROFILE, "M1") for intent in others]
        assert queued == row_result_now(known, evolve(same("new"), queued=True), PROFILE, "M1")


def same(state: State) -> Intent:
    """Return an intent of the same refund as the row's."""
    return evolve(kept(state=state), hash=digest("refunds.create", "M1", asdict(REFUND)))


def test_file_that_others_can_write_is_no_result(path: Path) -> None:
    """A file or folder that others can write is refused, because they could write false results into it."""
    for file in (path, beside(path)):
        file.write_text(f"{RESULT_HEADER}\n")
        file.chmod(0o664)
        with pytest.raises(errors.ConfigurationError, match=f"Run: chmod 600 {file}"):
            ResultFile(path)
        file.unlink()
    path.parent.chmod(0o757)
    with pytest.raises(errors.ConfigurationError, match=f"Run: chmod o-w {path.parent}"):
        ResultFile(path)

    assert [] == list(path.parent.iterdir())


WRITTEN: Final = {
    **{
        each: f"'{each}" for each in ("=cmd|' /C calc'!A0", "=A1", "+A1", "@A1", "-A1", "\uff1dA1", "+1+1", "-2+3", "-")
    },
    "@SUM(A1)": "'@SUM(A1)",
    "\t=A1": "'=A1",
    "\r+A1": "'+A1",
    "\x1b@A1": "?@A1",
    "-32000": "-32000",
    "a=A1": "a=A1",
    "a\nb\x1b[31m": "a b?[31m",
    'a,"b"': '"a,""b"""',
}
"""By a message, how the file has it."""


def test_words_of_others_are_harmless(path: Path) -> None:
    """A message is written so that a spreadsheet computes nothing from it, and on one line.

    A number that begins with a hyphen is written unchanged, unless a spreadsheet would compute it.
    """
    with closing(ResultFile(path)) as result:
        result.finish([row_result(message=message) for message in WRITTEN])
    lines = path.read_text().split("\n")
    with closing(ResultFile(path)) as result:
        result.finish([row_result(number=number) for number in ("-R1", "-A1+1", "=A1")])

    assert [RESULT_HEADER, *(f"2,T1,R1,200,succeeded,,{written}" for written in WRITTEN.values()), ""] == lines
    assert ["-R1", "'-A1+1", "'=A1"] == [line.split(",")[2] for line in path.read_text().splitlines()[1:]]


ROW: Final = Row(line=2, cells={"out_refund_no": "R1"}, request=REFUND)
FAILED: Final = "the refund's state is failed"
DECLINED: Final = Outcome(status=200, body=b'{"code":"SBX_OK","message":"done","status":"SBX_REFUND_FAILED"}')
BODY: Final = b'{"code":"SBX_OK","message":"done"}'


def done(profile: Profile = PROFILE, body: bytes = BODY) -> CallResult[RefundResponse]:
    """Return the result of a refund that the service accepted."""
    return Done(REFUND, RefundResponse(Reply(status=200, headers={}, body=body), profile.answer, profile.states))


def not_made(error: errors.PayasyncError) -> CallResult[RefundResponse]:
    """Return the result of a refund that was not made."""
    return Refused(REFUND, error)


USED: Final[CallResult[RefundResponse]] = Unknown(
    REFUND, errors.DuplicateError("HTTP 409", code="E9", message="used before")
)
DOUBTFUL: Final[CallResult[RefundResponse]] = Unknown(
    REFUND, errors.OutcomeUnknownError("unknown", reason="another process sends it")
)


ENDED: Final = Outcome(status=200, body=BODY, recovered=True)
OF_ROW: Final[list[tuple[CallResult[RefundResponse], Intent | None, tuple[Word, str, str]]]] = [
    (done(), kept(state="accepted"), ("accepted", "SBX_OK", "done")),
    (done(), kept(state="succeeded"), ("succeeded", "SBX_OK", "done")),
    (done(body=DECLINED.body), kept(state="rejected", outcome=DECLINED, reason=FAILED), ("refused", "", FAILED)),
    (done(body=DECLINED.body), None, ("refused", "", FAILED)),
    (not_made(errors.ServiceError("400", code=7, message="none")), kept(state="rejected"), ("refused", "7", "none")),
    (not_made(errors.ServiceError("HTTP 400, refused")), kept(state="rejected"), ("refused", "", "HTTP 400, refused")),
    (not_made(errors.ServiceError("HTTP 400")), kept(state="manual"), ("manual", "", "HTTP 400")),
    (not_made(errors.NotSentError("no connection")), kept(state="rejected"), ("unsent", "", "no connection")),
    (USED, None, ("unknown", "E9", "used before")),
    (USED, kept(state="unknown", reason="HTTP 409"), ("unknown", "E9", "used before")),
    (USED, kept(state="manual", reason="refundAmt is 1"), ("manual", "E9", "used before")),
    (USED, kept(state="accepted"), ("accepted", "", "")),
    (DOUBTFUL, None, ("unknown", "", "another process sends it")),
    (DOUBTFUL, kept(state="sending"), ("unknown", "", "another process sends it")),
    (DOUBTFUL, kept(state="unknown", reason="no response"), ("unknown", "", "no response")),
    (DOUBTFUL, kept(state="manual", reason="asked 8 times"), ("manual", "", "asked 8 times")),
    (DOUBTFUL, kept(state="succeeded", outcome=ENDED), ("succeeded", "SBX_OK", "done")),
]


def test_result_of_a_row() -> None:
    """The journal decides the state; code and message come from the service. A row in doubt is never "refused".

    If the journal cannot be read, a response means "accepted". A profile without codes gives no code.
    """
    for result, intent, expected in OF_ROW:
        found = row_result_of_call(ROW, result, intent, PROFILE)

        assert expected == (found.state, found.code, found.message)
    assert RowResult(row=ROW, state="accepted") == row_result_of_call(ROW, done(Profile()), None, Profile())


def test_row_that_only_an_earlier_run_may_have_sent() -> None:
    """A row is "unsent" only if the journal lacks it, or has it as not done.

    If the journal cannot be read, an earlier run may have sent the row, so the row is unknown.
    """
    cases: list[tuple[Intent | None, Any]] = [
        (None, "unsent"),
        (kept(state="new"), "unsent"),
        (kept(state="new", queued=True), "unknown"),
        (kept(state="rejected"), "unsent"),
        (kept(state="rejected", sent_at=START, reason="never arrived"), "refused"),
        (kept(state="sending"), "unknown"),
        *((kept(state=state), state) for state in ("unknown", "manual", "accepted", "succeeded")),
    ]
    closed = errors.StorageError("the journal is closed"), errors.SessionClosedError("closed", sent=False)
    for (intent, word), error in product(cases, closed):
        assert word == row_result_of_call(ROW, Refused(REFUND, error), intent, PROFILE).state
    whys = {"no connection": errors.NotSentError("no connection"), "not begun": closed[1]}
    for words, error in whys.items():
        found = row_result_of_call(ROW, Refused(REFUND, error), None, PROFILE, unread="it is locked")

        assert ("unknown", f"{words}; an earlier run may have sent it: it is locked") == (found.state, found.message)


def test_number_of_another_refund() -> None:
    """The message names the difference, and advises a new number only if both refunds are owed."""
    amount = "refund_amt was 10 and is 20"
    cases: list[tuple[State, dict[str, Any], Word, str]] = [
        ("succeeded", {"total_amt": 500}, "refused", "was already refunded (succeeded): total_amt was 450 and is 500"),
        ("accepted", {"out_trade_no": "T2"}, "refused", "was already refunded (accepted): out_trade_no was T1 and"),
        ("rejected", {"refund_amt": 20}, "refused", f"was used before (rejected): {amount}"),
        ("sending", {"refund_amt": 20}, "unknown", f"may have been refunded already (sending): {amount}"),
        ("manual", {"refund_amt": 20}, "manual", f"may have been refunded already (manual): {amount}"),
    ]
    for state, changes, word, message in cases:
        before = kept(state=state, request={"out_trade_no": "T1", "total_amt": 450, "refund_amt": 10})
        row = evolve(ROW, request=evolve(REFUND, **{"refund_amt": 10, **changes}))
        found = row_result_of_call(row, Refused(REFUND, errors.IntentConflictError("another request")), before, PROFILE)

        assert word == found.state
        assert found.message.startswith(f"R1 {message}")
        assert found.message.endswith(" in this row. Only if both are owed, give this row a new number.")
    others = kept(state="rejected", outcome=DECLINED), kept(state="unknown"), None
    assert [True, False, False, False] == [never_arrived(each) for each in (kept(state="rejected"), *others)]


def test_exit_code() -> None:
    """If some rows are in doubt and others refused, the exit code is that of doubt."""
    codes: dict[tuple[Word, ...], int] = {(): 0, ("succeeded", "accepted"): 0, ("succeeded", "refused"): 1}
    codes |= {("unsent",): 1, ("left out", "succeeded"): 1, ("refused", "unknown"): 3, ("manual", "succeeded"): 3}

    assert codes == {words: exit_code(RowResult(row=ROW, state=word) for word in words) for words in codes}


REFUNDS: Final = rows("T1,R1,450,200", "T1,R2,450,200")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """An empty journal."""
    async with SqliteJournal(tmp_path / "pay.db", clock=Clock()) as journal:
        yield journal


async def happen(journal: Journal, what: str, state: Any = "rejected", **facts: Any) -> None:
    """Let something happen to the refund."""
    if what == "sent":
        begun = await journal.begin(evolve(draft(), queued=False), LEASE)
        await journal.settle(begun.intent, state, **facts)
    elif what == "asked":
        (held,) = await journal.ask(1, LEASE)
        await journal.settle(held, state, **facts)
    elif what == "notified":
        await journal.told("refunds.create", "R1", state, {}, merchant=MERCHANT)
    elif what == "queued":
        await journal.add(refund(), merchant=MERCHANT)
    else:
        await journal.resolve(1, as_="rejected", reason="asked the bank")


OF_SERVICE: Final = {"outcome": DECLINED, "reason": FAILED}
STORIES: Final[list[tuple[bool, list[tuple[str, dict[str, Any]]]]]] = [
    (True, [("sent", OF_SERVICE)]),
    (True, [("sent", {"state": "accepted", "outcome": Outcome(status=200)}), ("asked", OF_SERVICE)]),
    (True, [("sent", {"state": "accepted"}), ("notified", {"state": "failed"})]),
    (True, [("sent", {"state": "unknown"}), ("asked", {"reason": "never arrived"})]),
    (True, [("sent", {"state": "unknown"}), ("given up", {})]),
    (True, [("sent", {"reason": "no such order"}), ("notified", {"state": "succeeded"}), ("given up", {})]),
    (True, [("queued", {}), ("given up", {})]),
    (False, [("sent", {"reason": "no connection"})]),
    (False, [("sent", {"reason": "no such order"}), ("sent", {"reason": "no such order"})]),
]
"""By what happened to an earlier refund, whether others than its sender may know that it was not done."""


@pytest.mark.parametrize(("listed", "story"), STORIES)
async def test_row_that_others_may_have_refunded_is_listed(
    journal: SqliteJournal, story: list[tuple[str, dict[str, Any]]], *, listed: bool
) -> None:
    """If an earlier refund was reported as not done, its row is listed with the reason, and no other row is.

    If the service plainly refused a refund, or it was not sent, its row is not listed.
    """
    for what, facts in story:
        await happen(journal, what, **facts)
    (intent,) = await journal.find("refunds.create", "R1")
    expected = RowResult(row=REFUNDS[0], state="refused", message=intent.reason)

    assert [expected] * listed == resubmissions(REFUNDS, await journal.list("rejected"), MERCHANT)


async def test_only_the_same_refund_is_listed(journal: SqliteJournal) -> None:
    """Another refund, merchant or operation is not the one that was rejected. The order is that of the file."""
    for number in ("R2", "R1"):
        begun = await journal.begin(draft(refund(number)), LEASE)
        await journal.settle(begun.intent, "rejected", outcome=DECLINED, reason=FAILED)
    rejected = await journal.list("rejected")

    assert not resubmissions(rows("T1,R1,450,100", "T2,R2,450,200", "T1,R3,450,200"), rejected, MERCHANT)
    assert not resubmissions(REFUNDS, rejected, "M2")
    assert not resubmissions(REFUNDS, [evolve(each, operation="orders.close") for each in rejected], MERCHANT)
    expected = [RowResult(row=row, state="refused", message=FAILED) for row in REFUNDS]
    assert expected == resubmissions(REFUNDS, rejected, MERCHANT)


def test_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file on a file system that has no locks is imported without one."""

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    # Such a file system cannot be had in a test.
    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "refunds.csv").touch()
    with locked(tmp_path / "refunds.csv"):
        held = True

    assert held
