"""The answers to `payasync profile init`, and the file that they make."""

import json
import re
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import ConfigurationError, Profile
from payasync.cli.profile_draft import PROMPTS, ProfileDraft, parse_answer
from payasync.profile.readiness import inspect_groups

PROFILE_PAGE: Final = (Path(__file__).parents[2] / "docs" / "reference" / "profile.md").read_text(encoding="utf-8")
QUESTIONS: Final = {prompt.name: prompt for prompts in PROMPTS.values() for prompt in prompts}


def draft(**answers: str) -> ProfileDraft:
    """Return the draft with answers; `__` stands for a dot."""
    return ProfileDraft().with_answers({QUESTIONS[name.replace("__", ".")]: typed for name, typed in answers.items()})


def with_examples(verification: str) -> ProfileDraft:
    """Return the draft of a person who answers each question with its example, but for `verification`."""
    made = ProfileDraft()
    for prompt in QUESTIONS.values():
        given = {prompt: verification if prompt.name == "notification.verification" else prompt.shown}
        while prompt.fits(made.profile):
            try:
                made = made.with_answers(given)
                break
            except ConfigurationError as error:
                if not (missing := made.find_missing(given, error)):
                    raise
                given[missing] = missing.shown
    return made


@pytest.mark.parametrize("verification", ["body", "header", "standard-webhooks", "none"])
def test_examples_are_valid(verification: str) -> None:
    """The examples are valid answers, and together they make every group ready."""
    assert all(each.ready for each in inspect_groups(with_examples(verification).profile))


def test_lists_that_are_the_default_say_so() -> None:
    """If skipping a list leaves its example in force, the question says that this is the default."""
    lists = [each for each in QUESTIONS.values() if isinstance(each.example, tuple) and each.fits(Profile())]
    usual = [each for each in lists if draft(**{each.name: each.shown}).profile == Profile()]

    assert ["signed"] == [each.name for each in usual]
    assert [] == [each.name for each in usual if "default: " not in each.asks]


@pytest.mark.parametrize(
    "make",
    [ProfileDraft, partial(draft, name='"\\u2028"'), partial(with_examples, "body")],
    ids=["nothing", "a name", "everything"],
)
def test_file_is_the_profile(make: Callable[[], ProfileDraft]) -> None:
    """The file reads as the profile that the answers make, whatever stands in it as a comment."""
    made = make()

    assert made.profile == Profile.from_toml(made.to_toml())


def test_file_lists_open_points() -> None:
    """Each key is in the file with its meaning: answered ones with their value, others as a comment with an example."""
    lines = draft(name="a # b", answer__data="payload").to_toml().splitlines()
    shown = [" ".join(line.split()) for line in lines]

    assert 'name = "a # b" # a name for people' in shown
    assert 'data = "payload" # the path of the payload inside an envelope; without it, the whole document is' in shown
    assert {"[answer]", '# code = "code" # the path of a result code; without it, HTTP 2xx is success'} < {*shown}
    assert shown.index("# [notification]") < shown.index(
        "# ack_status = 200 # the HTTP status that acknowledges a notification"
    )


def test_comments_are_keys() -> None:
    """With each "#" at the beginning of a line removed, the file is TOML with every key that has a question."""
    _, _, text = ProfileDraft().to_toml().partition("\n\n")
    lines, *_ = text.partition("\n## ")
    document = tomllib.loads("".join(f"{line.removeprefix('# ')}\n" for line in lines.splitlines()))

    for prompt in QUESTIONS.values():
        held: Any = document
        asked: Any = tomllib.loads(f"{prompt.name} = {json.dumps(prompt.example)}")
        while isinstance(asked, dict):
            ((step, asked),) = asked.items()
            held = held[step]
        assert asked == held


UNSIGNED: Final = re.compile(r'^\[signature\]\n(.+\n)*|^signature = "data.+|^refusals_signed.+', re.MULTILINE)
"""What a file holds only if fields are signed."""


@pytest.mark.parametrize("made", [ProfileDraft(), with_examples("header")], ids=["nothing", "everything"])
def test_rare_examples_are_valid(made: ProfileDraft) -> None:
    """The file ends with examples of rare tables. Each is valid without its "#", and names a section of the docs."""
    text, *examples = made.to_toml().split("\n\n## If ")
    text, _, _ = text.partition("\n## ")
    sections = {
        f"#{line.lstrip('# ').replace(' ', '-').lower()}" for line in PROFILE_PAGE.splitlines() if line[:3] == "###"
    }
    given = [Profile.from_toml(text)]
    for example in examples:
        _, page, *lines = example.splitlines()
        before = UNSIGNED.sub("", text) if "in place of" in example else text
        given.append(Profile.from_toml("\n".join([before, *(line.removeprefix("# ") for line in lines)])))

        assert page.removeprefix("## https://payasync.readthedocs.io/en/stable/reference/profile.html") in sections
        assert all(len(line) <= 100 for line in example.splitlines())
    assert [7, 0] == [len(given), sum(each in given[:place] for place, each in enumerate(given))]


@pytest.mark.parametrize(
    ("name", "typed", "expected"),
    [
        ("signed", "none", ()),
        ("answer.ok", " None ", ()),
        ("answer.ok", '"none"', ("none",)),
        ("answer.data", "none", "none"),
        ("answer.data", "  data ", "data"),
        ("answer.data", '"data"', "data"),
        ("notification.ack_body", '"ok"', '"ok"'),
        ("notification.ack_body", '{"a": 1}', '{"a": 1}'),
        ("answer.refusals_signed", "TRUE", True),
        ("answer.refusals_signed", "false", False),
        ("notification.ack_status", "204", 204),
        ("recovery.quarantine", "60", 60.0),
        ("recovery.quarantine", "1.5", 1.5),
        ("answer.ok", '0, "0",SUCCESS', (0, "0", "SUCCESS")),
        ("answer.ok", '"a, \\"b", -1', ('a, "b', -1)),
        ("states.order.paid", "3 ,", (3,)),
        ("accept.amount", "1, 500", (1, 500)),
        ("accept.currency", "840, CAD", ("840", "CAD")),
    ],
)
def test_answer(name: str, typed: str, expected: object) -> None:
    """A text needs no quotes. Digits in a list of codes are a number, and `none` in place of a list is an empty one."""
    value = parse_answer(QUESTIONS[name], typed)

    assert (expected, type(expected)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("answer.data", "a\x1b[Db", "must not hold a control character"),
        ("answer.data", "a\udcff", "must not hold a control character"),
        ("answer.data", '"data', 'must be a text without quotes, or with two, not "data'),
        ("answer.refusals_signed", "yes", "must be true or false, not 'yes'"),
        ("notification.ack_status", "ok", "must be a number, such as 200, not 'ok'"),
        ("notification.ack_status", "9" * 19, "must be a number, such as 200, not"),
        ("recovery.quarantine", "nan", "must be a number, such as 60, not 'nan'"),
        ("answer.ok", "a,,b", "must be values with commas between them, such as 0, SUCCESS"),
        ("answer.ok", 'a"b', "must be values with commas between them, such as 0, SUCCESS"),
        ("answer.ok", '"\\x"', "must be a text without quotes, or with two, not"),
        # The profile refuses the others.
        ("answer.data", "a..b", "must be a dotted path, such as data.sign"),
        ("amount_unit", "cents", "must be one of 'minor', 'major', not 'cents'"),
        ("http.absent", "500", "must be a list of statuses from 400 to 499"),
    ],
)
def test_invalid_answer(name: str, typed: str, words: str) -> None:
    """An invalid answer is refused with its key and what is allowed, and without a line: there is no file yet."""
    with pytest.raises(ConfigurationError) as caught:
        draft(**{name.replace(".", "__"): typed})

    assert str(caught.value).startswith(f"{name} ")
    assert words in str(caught.value)
