"""`payasync profile`: writes a file with each key of a profile, and says what a profile is ready for."""

import sys
from functools import partial
from importlib import resources
from pathlib import Path

import click

from payasync import DOCUMENTATION
from payasync.cli.doctor import group_table, list_refusals
from payasync.cli.options import profile_from
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


@click.group()
def profile() -> None:
    """Write the profile of a service, or check one.

    A profile is a TOML file.

    \b
    Examples:
      payasync profile init service.toml
      payasync profile check service.toml
    """  # noqa: D301 - click does not wrap a paragraph after this character


@profile.command(short_help="Write a file with each key and an example.")
@click.argument(
    "file", type=click.Path(dir_okay=False, path_type=Path), callback=existing_folder, default="service.toml"
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def init(file: Path, *, force: bool) -> None:
    """Write FILE with each key of a profile as a comment: its meaning, and an example.

    The default of FILE is service.toml. The keys come in this order: general, payments, orders, refunds, recovery,
    notifications, subscriptions, and what is rarely needed. Nothing is asked: you edit FILE.

    \b
    Example:
      payasync profile init service.toml

    \b
    Exit codes:
      0  FILE is written
      2  FILE exists, or cannot be written
    """  # noqa: D301 - click does not wrap a paragraph after this character
    template = resources.files("payasync.cli").joinpath("profile_template.toml").read_text(encoding="utf-8")
    text = template.replace("<docs>", DOCUMENTATION).encode()
    try:
        check_private(file)
        if force:
            replace_file(file, text)
        else:
            with open(new_private(file), "wb") as written:  # noqa: PTH123 - a descriptor
                written.write(text)
    except FileExistsError:
        fail(INIT, f"{str(file)!r} exists. Name another file, or replace it with --force")
    except OSError as error:
        fail(INIT, f"cannot write {str(file)!r}: {error.strerror}")
    lines, name = Lines(strict=True), plain(str(file))
    lines.paragraph("Wrote ", (name, "bold"), ": each key of a profile as a comment, with an example.", hang=2)
    lines.write('1. Where your service\'s document answers a key, remove the "#", and write its value:', hang=3)
    lines.write((f"   {DOCUMENTATION}how-to/describe-your-service.html", "cyan"))
    lines.write("2. See what is ready, and what is missing:", hang=3)
    lines.write((f"   payasync profile check {name}", "bold cyan"))


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
    _show(file, chosen, Lines(strict=True))
    sys.exit(1 if any(each.begun and not each.ready for each in inspect_groups(chosen)) else 0)


def _show(file: str, profile: Profile, lines: Lines) -> None:
    """Say what a file is ready for, and which groups it has only begun."""
    groups = inspect_groups(profile)
    lines.title(CHECK, plain(file))
    lines.print(group_table(groups))
    lines.write()
    if facts := [*notification_facts(profile)]:
        lines.write(("Notifications", "bold"))
        for name, words in facts:
            lines.row(name, plain(words), "", width=12)
        lines.write()
    if begun := [each.group for each in groups if each.begun and not each.ready]:
        lines.write(("Begun, and not ready: ", "bold yellow"), ", ".join(begun), hang=2)
    elif ready := [each.group for each in groups if each.ready]:
        lines.write(("Ready: ", "bold green"), ", ".join(ready), hang=2)
    else:
        advice = "Give the keys above; payasync profile init writes a file with an example of each"
        lines.write(("Ready for nothing yet. ", "bold yellow"), advice, hang=2)
    for _, key, why in unfilled(profile.constants):
        lines.write(("Warning: ", "bold yellow"), plain(f"{key} {why}"), hang=2)
    if why := explain_unplayable(profile):
        lines.write(("Optional: ", "bold"), plain(why), hang=2)
