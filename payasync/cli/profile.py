"""`payasync profile`: writes a profile from answers, and says what a profile is ready for."""

import os
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from payasync import DOCUMENTATION
from payasync.cli.doctor import group_table, list_refusals
from payasync.cli.options import profile_from
from payasync.cli.profile_draft import PROMPTS, ProfileDraft, Prompt, Section
from payasync.cli.refund_file import replace_file
from payasync.cli.terminal import Lines, existing_folder, fail
from payasync.errors import ConfigurationError, plain
from payasync.notifications.verification import check_covered
from payasync.profile.profile import Profile
from payasync.profile.readiness import inspect_groups, notification_facts
from payasync.profile.signed_fields import check_answers_covered
from payasync.profile.toml import lines_of
from payasync.sandbox.dialect import explain_unplayable
from payasync.settings import check_private, new_private
from payasync.signing.templates import unfilled

INIT, CHECK = "profile init", "profile check"
SKIP_GROUP: Final = "-"
"""What a person types to skip the rest of a group."""


class _GroupSkippedError(Exception):
    """A person skips the rest of a group."""


@click.group()
def profile() -> None:
    """Write the profile of a service, or check one.

    A profile is a TOML file.

    \b
    Examples:
      payasync profile init service.toml
      payasync profile check service.toml
    """  # noqa: D301 - click does not wrap a paragraph after this character


@profile.command(short_help="Ask about each open point, and write a file.")
@click.argument(
    "file", type=click.Path(dir_okay=False, path_type=Path), callback=existing_folder, default="service.toml"
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def init(file: Path, *, force: bool) -> None:
    """Ask about each point that the common interface leaves open, and write the answers to FILE.

    The default of FILE is service.toml. The questions come in this order: general, payments, orders, refunds,
    recovery, notifications, subscriptions. Each answer is checked immediately. FILE also lists open points and rare
    tables, as comments with examples.

    \b
    Example:
      payasync profile init service.toml

    \b
    Exit codes:
      0    FILE is written
      2    FILE cannot be written, or there is no terminal
      130  interrupted; nothing is written
    """  # noqa: D301 - click does not wrap a paragraph after this character
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(
            INIT,
            "it asks questions, and needs a terminal. Or write the file yourself: "
            f"{DOCUMENTATION}how-to/describe-your-service.html",
        )
    if why := _refusal(file, force=force):
        fail(INIT, why)
    screen = ProfileScreen()
    screen.begin(file)
    draft = interview(screen)
    try:
        _write(file, draft.to_toml(), force=force)
    except OSError as error:
        screen.rescue(draft)
        fail(INIT, f"cannot write {str(file)!r}: {error.strerror}. Save what is shown above in another file")
    screen.end(file, draft.profile)


def _refusal(file: Path, *, force: bool) -> str:
    """Return why a file must not be written; empty if it may."""
    try:
        check_private(file)
    except OSError as error:
        return f"cannot write {str(file)!r}: {error.strerror}"
    if file.exists() and not force:
        return f"{str(file)!r} exists. Name another file, or replace it with --force"
    return "" if os.access(file.parent, os.W_OK) else f"cannot write into the folder {str(file.parent)!r}"


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write a file that only its owner can read; without `force`, a file that came in the meantime stays."""
    if force:
        check_private(file)
        replace_file(file, text.encode())
        return
    with open(new_private(file), "w", encoding="utf-8") as written:  # noqa: PTH123 - a descriptor
        written.write(text)


@profile.command(short_help="Say what a file is ready for.")
@click.argument("file", type=click.Path())
def check(file: str) -> None:
    """Read FILE, or the sandbox's own profile for the word sandbox. Show which groups it is ready for.

    Nothing is sent, and no key is read: payasync doctor does that.

    \b
    Example:
      payasync profile check service.toml

    \b
    Exit codes:
      0    each group that FILE begins to describe is ready
      1    a group that FILE begins to describe needs more
      2    FILE cannot be read or is invalid; the error names the key and its line
    """  # noqa: D301 - click does not wrap a paragraph after this character
    try:
        chosen = profile_from(file, "FILE")
    except ConfigurationError as error:
        fail(CHECK, error)
    for refusal in list_refusals(partial(check_answers_covered, chosen), partial(check_covered, chosen)):
        line = lines_of(Path(file).read_text(encoding="utf-8")).get(refusal.field or "")
        fail(CHECK, f"{file}{f', line {line}' if line else ''}: {refusal}")
    ProfileScreen().checked(file, chosen)
    sys.exit(1 if any(each.begun and not each.ready for each in inspect_groups(chosen)) else 0)


def interview(screen: "ProfileScreen") -> ProfileDraft:
    """Return the answers of a person; the end of input ends the questions."""
    draft = ProfileDraft()
    try:
        for group, prompts in PROMPTS.items():
            screen.group(group)
            with suppress(_GroupSkippedError):
                for prompt in prompts:
                    if prompt.name not in draft.answers and prompt.fits(draft.profile):
                        draft = _ask(draft, prompt, screen)
            screen.verdict(group, draft.profile)
    except EOFError:
        screen.cut_short()
    return draft


def _ask(draft: ProfileDraft, prompt: Prompt, screen: "ProfileScreen") -> ProfileDraft:
    """Return a draft with the answer to a question, which is asked again until it is valid or skipped.

    An answer that needs another one to be valid is followed by the question about that one.
    """
    given: dict[Prompt, str] = {}
    screen.question(prompt)
    while typed := screen.read():
        given[prompt] = typed
        try:
            return draft.with_answers(given)
        except ConfigurationError as error:
            if other := draft.find_missing(given, error):
                prompt = other
                screen.question(prompt)
            else:
                del given[prompt]
                screen.refused(error)
    if given:
        screen.left_out(given, prompt)
    return draft


class ProfileScreen:
    """Shows questions and verdicts, and reads answers from the terminal.

    Args:
        lines: Written to in place of the terminal.
    """

    def __init__(self, lines: Lines | None = None) -> None:
        self._lines = lines or Lines(strict=True)

    def begin(self, file: Path) -> None:
        """Say what the questions are for, and how to skip them."""
        with suppress(ImportError):
            import_module("readline")  # lets a person edit a line; Windows lacks it
        self._lines.title(INIT, f"your answers become {plain(str(file))}")
        self._lines.write("Enter skips a question, - skips a group, and Ctrl-D skips all that follow.", hang=0)
        self._lines.write("Ctrl-C writes nothing. Items of a list have commas between them; none: no items.", hang=0)

    def group(self, group: Section) -> None:
        """Show the title of a group."""
        self._lines.write()
        place = list(PROMPTS).index(group) + 1
        self._lines.write((group.capitalize(), "bold"), (f"  {place} of {len(PROMPTS)}", "dim"))

    def question(self, prompt: Prompt) -> None:
        """Show a question."""
        self._lines.write()
        self._lines.write((f"  {prompt.name}", "bold cyan"), f"  {prompt.asks}", hang=4)
        self._lines.write((f"  Example: {prompt.shown}", "dim"))

    def read(self) -> str:
        """Return what a person types; empty to skip.

        Raises:
            EOFError: The input ends.
        """
        typed = input("  > ").strip()
        if typed == SKIP_GROUP:
            raise _GroupSkippedError
        return typed

    def refused(self, error: ConfigurationError) -> None:
        """Show in one line why an answer is refused."""
        self._lines.write(("  Refused: ", "yellow"), plain(" ".join(str(error).split())), hang=4)

    def left_out(self, given: dict[Prompt, str], needed: Prompt) -> None:
        """Say that answers are not used, because another one is missing."""
        names = ", ".join(each.name for each in given)
        self._lines.write(("  Left out: ", "yellow"), f"{names}, which needs {needed.name}", hang=4)

    def cut_short(self) -> None:
        """End the line of an answer that did not come."""
        self._lines.write()

    def verdict(self, group: Section, profile: Profile) -> None:
        """Show what a group needs after its questions; nothing is ready by the general ones alone."""
        if found := [each for each in inspect_groups(profile) if each.group == group]:
            self._lines.write()
            self._lines.print(group_table(found), indent=2)

    def rescue(self, draft: ProfileDraft) -> None:
        """Show the file that cannot be written: nobody wants to answer again."""
        self._lines.write()
        self._lines.write(draft.to_toml())

    def end(self, file: Path, profile: Profile) -> None:
        """Say what the file is ready for, and what to do next."""
        self._lines.write()
        self._lines.paragraph("Wrote ", (plain(str(file)), "bold"), hang=2)
        self._lines.print(group_table(inspect_groups(profile)))
        self._lines.write()
        self._lines.write("Open points are comments in the file, with examples. Edit it, and run:", hang=0)
        self._lines.write((f"  payasync profile check {plain(str(file))}", "bold cyan"))

    def checked(self, file: str, profile: Profile) -> None:
        """Say what a file is ready for, and which groups it has only begun."""
        groups = inspect_groups(profile)
        self._lines.title(CHECK, plain(file))
        self._lines.print(group_table(groups))
        self._lines.write()
        if facts := [*notification_facts(profile)]:
            self._lines.write(("Notifications", "bold"))
            for name, words in facts:
                self._lines.row(name, plain(words), "", width=12)
            self._lines.write()
        if begun := [each.group for each in groups if each.begun and not each.ready]:
            self._lines.write(("Begun, and not ready: ", "bold yellow"), ", ".join(begun), hang=2)
        elif ready := [each.group for each in groups if each.ready]:
            self._lines.write(("Ready: ", "bold green"), ", ".join(ready), hang=2)
        else:
            advice = "To answer questions, run: payasync profile init"
            self._lines.write(("Ready for nothing yet. ", "bold yellow"), advice)
        for _, key, why in unfilled(profile.constants):
            self._lines.write(("Warning: ", "bold yellow"), plain(f"{key} {why}"), hang=2)
        if why := explain_unplayable(profile):
            self._lines.write(("Optional: ", "bold"), plain(why), hang=2)
