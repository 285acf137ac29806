"""The file that `payasync profile init` writes: each key of a profile, with its meaning and an example."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from attrs import fields, has
from click.testing import CliRunner

from payasync import Endpoint, Parameter, Profile, SignedHeader
from payasync.cli.commands import payasync
from payasync.endpoints import ORDER_STATES, REFUND_STATES, SUBSCRIPTION_STATES
from payasync.profile.readiness import inspect_groups
from payasync.profile.schema import KINDS, OPEN_FIELDS, REFUSALS
from payasync.signing import SortedPairs, Template

PROFILE_PAGE: Final = (Path(__file__).parents[2] / "docs" / "reference" / "profile.md").read_text(encoding="utf-8")
LINE: Final = re.compile(r"#(?P<key>\w\S*) = (?P<value>.+?) +# (?P<meaning>.+)")
VERIFICATION: Final = re.compile(r'# If notification.verification is "(\w+)":')
REPLACED: Final = re.compile(r"in place of ([\w., \n#]+):")


def written() -> str:
    """Return the text of the file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "my.toml"
        CliRunner().invoke(payasync, ["profile", "init", str(file)])
        return file.read_text(encoding="utf-8")


HEAD, *PARAGRAPHS = written().split("\n\n")
USUAL: Final = [text for text in PARAGRAPHS if not text.startswith("# If ")]
VERIFIED: Final = {found[1]: text for text in PARAGRAPHS if (found := VERIFICATION.match(text))}
RARE: Final = [text for text in PARAGRAPHS if text not in {*USUAL, *VERIFIED.values()}]


def filled(*paragraphs: str) -> dict[str, str]:
    """Return the lines of paragraphs without their "#", by their keys."""
    lines = (line for text in paragraphs for line in text.splitlines())
    return {found["key"]: line.removeprefix("#") for line in lines if (found := LINE.fullmatch(line))}


def load(lines: dict[str, str]) -> Profile:
    """Return the profile of such lines."""
    return Profile.from_toml("\n".join(lines.values()))


def keys_of(part: type, path: str = "") -> Iterator[str]:
    """Yield the keys of a part as TOML writes them, each once; a table with names of the service's own is one key."""
    apart: dict[str, tuple[type, ...]] = {
        "signature": (SortedPairs, Template),
        "status.payment": (Parameter,),
        "status.refund": (Parameter,),
        "answer.header": (SignedHeader,),
        "notification.header": (SignedHeader,),
    }
    for each in fields(part):
        if each.init and each.name != "by_operation":
            name = {"payment_status": "status.payment", "refund_status": "status.refund"}.get(each.name, each.name)
            key = f"{path}{each.name if path else name}"
            inner = apart.get(key) or ((type(each.default),) if has(type(each.default)) else ())
            yield from {each for one in inner for each in keys_of(one, f"{key}.")} or [key]


TABLES: Final[dict[str, tuple[str, ...]]] = {
    **{f"notification.{table}": KINDS for table in ("kinds", "id")},
    **{f"states.{thing}": ORDER_STATES for thing in ("order", "payment")},
    "states.refund": REFUND_STATES,
    "states.subscription": SUBSCRIPTION_STATES,
    "sandbox.codes": REFUSALS,
    "fields": tuple(OPEN_FIELDS),
    "endpoints": tuple(f'"orders.query".{each.name}' for each in fields(Endpoint) if each.name != "with_"),
}
"""Tables whose names payasync knows; the file has them all."""


def test_each_key_is_in_it_once() -> None:
    """The file has a line of its own for each key of a profile, with a meaning, an example and no header of a table."""
    keys = Counter(found["key"] for line in "\n".join(PARAGRAPHS).splitlines() if (found := LINE.fullmatch(line)))
    wanted = {*keys_of(Profile), "signature.family", 'endpoints."refunds.status".with'}
    wanted |= {f"{table}.{name}" for table, names in TABLES.items() for name in names}

    assert [] == [key for key in sorted(wanted) if not any(f"{each}.".startswith(f"{key}.") for each in keys)]
    assert {1} == {*keys.values()}


def test_usual_examples_make_each_group_ready() -> None:
    """With the "#" removed, the examples of the usual keys are one valid profile, which is ready for each group."""
    for verification in ("body", "header", "standard-webhooks", "none"):
        lines = filled(*USUAL, VERIFIED.get(verification, ""))
        lines["notification.verification"] = f'notification.verification = "{verification}"'

        assert [] == [each.group for each in inspect_groups(load(lines)) if not each.ready]


def test_rare_examples_are_valid() -> None:
    """Each rare example is valid with the usual ones that it does not replace, and names a section of the docs."""
    titles = re.findall(r"^##+ (.*)$", PROFILE_PAGE, re.MULTILINE)
    sections = {title.replace(",", "").replace(" ", "-").lower() for title in titles}
    for rare in RARE:
        replaced = {key for names in REPLACED.findall(rare) for key in re.findall(r"[\w.]+", names)}
        lines = {key: line for key, line in filled(*USUAL).items() if key not in replaced}
        (link,) = re.findall(r"^# https://.*/reference/profile\.html#(.*)$", rare, re.MULTILINE)

        assert load(lines) != load(lines | filled(rare))
        assert link in sections
