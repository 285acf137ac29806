"""README.md and docs/: links and paths exist, and lists of keys, forms and files are complete and true."""

import configparser
import importlib
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import aiohttp
import click
import pytest
import yaml
from attrs import fields
from click.testing import CliRunner

import payasync
from payasync import Session
from payasync.cli.commands import payasync as payasync_command
from payasync.errors import ServiceError
from payasync.journal.intents import TRANSITIONS
from payasync.profile import schema
from payasync.profile.profile import Profile
from payasync.profile.readiness import inspect_groups
from payasync.profile.wire_names import OURS
from payasync.resources.polling import Namespace
from payasync.sandbox import Sandbox
from payasync.signing.schemes import SortedPairs, Template
from tests.cli.test_profile_template import TABLES, keys_of
from tests.sandbox.admin import Operator
from tests.sandbox.foreign import Answer
from tests.sandbox.test_exchanges import run_bash
from tests.sandbox.web.test_dashboard import ACTIONS
from tests.test_readme import blocks

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
READMES: Final = (ROOT / "README.md", *sorted(ROOT.glob("examples/*/README.md")))
PAGES: Final = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md")})
PAGE: Final = DOCS.joinpath("reference", "profile.md").read_text(encoding="utf-8")
DEFAULTS: Final = re.findall(r"^# default\b.*\n(?:# .*\n)*(\w+ = (?:\[\n(?: .*\n)*\]|.*))$", PAGE, re.MULTILINE)
"""The keys of the page that are below a comment that begins with "default", each with its value."""
FORMS: Final = re.findall(
    r"^\| `(\w+/\w+)` \| (.*?) \|", DOCS.joinpath("reference", "sandbox.md").read_text(encoding="utf-8"), re.MULTILINE
)
"""The sandbox's forms: the name of each, and its fields."""


PUBLIC: Final = (
    "payasync",
    *(f"payasync.integrations.{path.stem}" for path in sorted(ROOT.glob("payasync/integrations/[a-z]*.py"))),
    "payasync.journal",
    "payasync.notifications",
    "payasync.profile",
    "payasync.sandbox",
    "payasync.signing",
    "payasync.testing",
)
"""The modules of public names."""


def examples() -> list[str]:
    """Return the profiles of the page: the common tables as one file, and each of the rare ones."""
    common, _, rare = PAGE.partition("\n## The rare tables\n")
    return ["".join(text for _, text in blocks(common, "toml")), *(text for _, text in blocks(rare, "toml"))]


def keys(table: dict[str, Any], above: str = "") -> set[str]:
    """Return the keys of a TOML document, dotted."""
    found = set[str]()
    for name, value in table.items():
        found |= {above + name} | (keys(value, f"{above}{name}.") if isinstance(value, dict) else set())
    return found


async def test_examples_are_profiles() -> None:
    """Each TOML block of the page is a valid profile, and so are the common ones together; each can be written.

    The sandbox plays each example, and a session with it makes a payment there.
    """
    for text in [*examples(), *(text for _, text in blocks(PAGE, "toml"))]:
        profile = Profile.from_toml(text)

        assert profile == Profile.from_toml(profile.to_toml()), text
    for text in examples():
        async with Sandbox(Profile.from_toml(text)) as sandbox, sandbox.session() as pay:
            await pay.payments.create(amount=450, currency="CAD")

            assert 1 == sandbox.ledger.payments()


ASSUMED: Final = {
    *(f"http.{name}" for name in schema.HttpCodes.__annotations__),
    *(f"answer.{name}" for name in ("amounts", "code_optional", "must")),
    *("endpoints.orders.query.number", "endpoints.refunds.status.number", "notification.amounts", "notification.must"),
    *(f"signature.{name}" for name in ("skip_null", "booleans", "numbers")),
}


def test_examples_leave_nothing_out() -> None:
    """The common tables of the page leave no point open; only assumed points keep their defaults.

    With them every method can be called, and every state is known. The parts that the page names can be imported.
    """
    profile = Profile.from_toml(examples()[0])
    points = [point for point in profile.audit() if not point.name.startswith("authentication")]
    named = re.findall(r"`(\w+)`", PAGE.partition("\n## In Python\n\n")[2].partition(".\n")[0])

    assert [] == [point.name for point in profile.audit() if point.status == "open"]
    assert ASSUMED == {point.name for point in points if point.status == "assumed"}
    assert [] == [each.group for each in inspect_groups(profile) if not each.ready]
    assert (True, []) == ("AnswerShape" in named, [name for name in named if name not in payasync.__all__])


def test_examples_show_every_key() -> None:
    """The page shows every key of a profile, every name that a table of names may hold, and an index of its tables."""
    shown = set[str]()
    for text in examples():
        shown |= keys(tomllib.loads(text)) | keys(tomllib.loads(Profile.from_toml(text).to_toml()))
    index = PAGE.partition("\n## The common tables\n")[0]

    assert set() == all_keys() - shown
    assert set() == {key.partition(".")[0] for key in all_keys()} - set(re.findall(r"[`\[](\w+)[`\].]", index))


def test_table_of_answer() -> None:
    """The table of the keys of `[answer]` has each of them, with its default."""
    section = PAGE.partition("\n#### All keys of `[answer]`\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    texts: dict[str, Any] = {"not given": None, '`"as sent"`': "as sent", '`""`': "", "`[]`": (), "`false`": False}
    texts |= {"`300`": 300, "`{}`": fields(schema.AnswerShape).must.default}

    assert {each.name: each.default for each in fields(schema.AnswerShape)} == {
        name: texts[default] for name, default in rows
    }


def test_guide_shows_what_the_commands_write(tmp_path: Path) -> None:
    """The guide to a profile shows lines that `init` writes, and a file with what `profile check` prints about it."""
    page = DOCS.joinpath("how-to", "describe-your-service.md").read_text(encoding="utf-8")
    ((_, file), *_), (excerpt, verdicts, *_) = blocks(page, "toml"), [text for _, text in blocks(page, "text")]
    path = tmp_path / "service.toml"
    path.write_text(file, encoding="utf-8")

    result = CliRunner().invoke(payasync_command, ["profile", "check", str(path)])
    CliRunner().invoke(payasync_command, ["profile", "init", str(tmp_path / "init.toml")])

    assert verdicts in result.stdout
    assert excerpt in (tmp_path / "init.toml").read_text(encoding="utf-8")


async def test_changes_in_the_guide_can_be_played() -> None:
    """The guide changes tables of its file: the sandbox plays each, and one with HTTP 200 for everything has codes."""
    page = DOCS.joinpath("how-to", "describe-your-service.md").read_text(encoding="utf-8")
    (_, file), *changes = blocks(page, "toml")
    for _, change in changes:
        new = re.split(r"^(?=\[)", change, flags=re.MULTILINE)[1:]
        changed = {each.partition("]")[0] for each in new}
        old = [each for each in re.split(r"^(?=\[)", file, flags=re.MULTILINE) if each.partition("]")[0] not in changed]
        async with Sandbox(Profile.from_toml("".join([*old, "\n", *new]))) as sandbox, sandbox.session() as pay:
            order = await sandbox.given.pending_order(out_trade_no="T1")
            await pay.orders.close(order)
            with pytest.raises(ServiceError) as caught:
                await pay.orders.query("T2")

            assert "closed" == (await pay.orders.query(order)).state
            assert caught.value.absent
            assert (200 if "[http]" in change else 404) == caught.value.http_status


def test_journal_lists_every_transition() -> None:
    """The table of states has each state of an intent, and the states that may follow."""
    page = DOCS.joinpath("reference", "journal.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", page, re.MULTILINE)

    assert TRANSITIONS == {state: frozenset(re.findall(r"\w+", after)) for state, after in rows}


ALTERNATIVES: Final = ("idempotency.field", "states.payment.", "status.refund.")
"""Keys for which the page shows another one of the same kind."""


def all_keys() -> set[str]:
    """Return the keys that a profile may have, with those of one endpoint."""
    found = {
        *keys_of(Profile),
        "signature.family",
        'endpoints."orders.query".with',
        *(f"fields.{name}" for name in OURS),
    }
    found |= {f"{table}.{name}" for table, names in TABLES.items() for name in names}
    dotted = {key.replace('"', "").replace("orders.query", "refunds.status") for key in found}
    return {key for key in dotted if not key.startswith(ALTERNATIVES)}


def test_defaults_are_true() -> None:
    """Each default that the page names is a default of the code."""
    shapes = (
        Profile(),
        SortedPairs(),
        schema.Auth(),
        schema.AnswerShape(),
        schema.HttpCodes(),
        schema.NotificationShape(),
        schema.SandboxShape(),
    )
    parts = [*shapes, schema.Parameter("orderNo"), schema.SignedHeader(signature="X-Signature")]
    for key in DEFAULTS:
        name, value = next(iter(tomllib.loads(key).items()))
        held = [getattr(part, name) for part in parts if hasattr(part, name)]

        assert (tuple(value) if isinstance(value, list) else value) in held, key


def test_names_in_signed_texts() -> None:
    """The page of signatures lists each name that a signed text, or the value of a header, may hold in braces."""
    page = DOCS.joinpath("reference", "signatures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `\{(\w+)\}` \| .* \| (yes|-) \| (yes|-)", page, re.MULTILINE)

    for column, text, value in ((1, "{unknown}", "{signature}"), (2, "{body}", "{signature}{unknown}")):
        with pytest.raises(payasync.ConfigurationError) as caught:
            Template(header="X-Signature", text=text, value=value)
        listed = {row[0] for row in rows if row[column] == "yes"}
        assert listed == set(re.findall(r"\{(\w+)\}", str(caught.value).partition("allowed are")[2]))


async def test_forms_of_the_sandbox() -> None:
    """Each form of the page works as shown, one after the other, and the page lists all forms."""
    async with Sandbox(refunds="by hand") as sandbox, sandbox.session() as pay, aiohttp.ClientSession() as http:
        operator = Operator(sandbox, http)
        order: Any = {"out_trade_no": "T1", "total_amt": 450}
        await pay.orders.place(**order, currency="CAD", notify_url="http://127.0.0.1:9/notify")
        answers = dict[str, Answer]()
        for name, shown in FORMS:
            fields = dict(each.split("=", 1) for each in re.findall("`(.*?)`", shown))
            if "notification_id" in fields:
                fields["notification_id"] = sandbox.ledger.notifications()[0].notification_id
            answers[name] = await operator.press(name, operator.token, **fields)
            if name == "orders/decide":
                await pay.refunds.create(**order, out_refund_no="R1", refund_amt=200)

        assert ([], 6) == (sandbox.faults.armed(), len(answers))
    assert dict.fromkeys(ACTIONS, 200) == {name: answer.status for name, answer in answers.items()}


async def test_commands_for_other_languages() -> None:
    """The commands that drive the sandbox from a shell work as shown; each prints what was done."""
    if not shutil.which("curl"):
        pytest.skip("no curl here: install it (Debian: apt-get install curl)")
    guide = DOCS.joinpath("how-to", "testing.md").read_text(encoding="utf-8")
    ((_, commands),) = [block for block in blocks(guide, "bash") if "curl" in block[1]]
    async with Sandbox() as sandbox:
        await sandbox.given.pending_order(out_trade_no="T1")
        here = commands.replace("http://127.0.0.1:8402", sandbox.url).replace("curl", "curl --silent --show-error")
        said = await run_bash(here, TOKEN=sandbox.admin_token.reveal())
        sandbox.faults.clear()

    assert re.fullmatch(rb'{"done": "Armed.*"}{"done": "Order T1 is paid."}.*T1.*', said, re.DOTALL), said


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, its own labels, and the anchors of the pages that it includes."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    included = [anchors(page.parent / name) for name in re.findall(r"^```{include} (\S+\.md)$", text, re.MULTILINE)]
    labels = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}.union(labels, *included)


def test_links_lead_somewhere() -> None:
    """Each link inside the project leads to an existing file and heading."""
    for page in PAGES:
        links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8"))
        targets = [(page.parent / name if name else page, anchor) for name, anchor in links]

        assert [] == [target for target, _ in targets if not target.exists()], page
        assert [] == [each for each in targets if each[1] and each[1] not in anchors(each[0])], page


def test_reference_shows_every_public_name() -> None:
    """Each public name has its place in the reference, which is generated from its docstring."""
    pages = (page.read_text(encoding="utf-8") for page in DOCS.joinpath("reference", "api").glob("*.md"))
    shown = {name for page in pages for name in re.findall(r"^\.\. auto\w+:: (\S+)$", page, re.MULTILINE)}
    for module in PUBLIC:
        names = {name for name in importlib.import_module(module).__all__ if name != "__version__"}

        assert set() == {name for name in names if not {f"{module}.{name}", f"payasync.{name}"} & shown}, module


def methods() -> list[str]:
    """Return the public methods of a session, and of its namespaces, as a program calls them."""
    parts = vars(Session("http://127.0.0.1:9", credentials=payasync.Credentials("M1"), profile=Profile()))
    owners = {f"{name}.": type(part) for name, part in parts.items() if isinstance(part, Namespace)}
    return [
        above + name
        for above, owner in {"": Session, **owners}.items()
        for name, thing in vars(owner).items()
        if isinstance(thing, FunctionType | classmethod) and not name.startswith("_")
    ]


def test_guides_show_every_method() -> None:
    """Each public method of a session is called in a program of the guides, which test_readme.py runs."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(DOCS.joinpath("how-to").glob("*.md"))]
    programs = "".join(code for page in pages for _, code in blocks(page, "python"))
    calls = {name: re.search(rf"\b(?:pay|Session|session)\.{re.escape(name)}\(", programs) for name in methods()}

    assert calls
    assert [] == [name for name, found in calls.items() if not found]


def unknown_words(line: str) -> list[str]:
    """Return the commands and long options in a command line that payasync does not have; a word may be cut short."""
    command: click.Command = payasync_command
    words = [word for word in line.partition(" #")[0].split() if "…" not in word]
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return []  # its own options, or those of its default command
        context = click.Context(command)
        found = command.get_command(context, words[0])
        if found is None:
            return [] if any(name.startswith(words[0]) for name in command.list_commands(context)) else words[:1]
        command, words = found, words[1:]
    options = [name for each in command.params for name in each.opts] + ["--help"]
    return [word for word in words if word.startswith("--") and not any(name.startswith(word) for name in options)]


def test_commands_exist() -> None:
    """Each command of payasync that a sentence names exists, with its options."""
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        lines = re.findall(r"`payasync ([^`]+)`", page.read_text(encoding="utf-8"))

        assert [] == [(line, words) for line in lines if (words := unknown_words(line))], page


def units(text: str) -> list[configparser.ConfigParser]:
    """Return the systemd units of a page."""
    found = list[configparser.ConfigParser]()
    for _, block in blocks(text, "ini"):
        unit = configparser.ConfigParser(interpolation=None)
        unit.read_string(block.replace("\\\n", " "))
        found.append(unit)
    return found


def command_lines(page: Path) -> list[list[str]]:
    """Return the arguments of payasync in the shell blocks, systemd units and Compose files of a page."""
    text = page.read_text(encoding="utf-8")
    shell = "".join(block for _, block in blocks(text, "bash")).replace("\\\n", "")
    lines = re.split(r"\n|&&", shell)
    lines += [unit["Service"]["ExecStart"] for unit in units(text)]
    composed = [yaml.safe_load(block) for _, block in blocks(text, "yaml")]
    lines += [each["command"] for one in composed for each in one.get("services", {}).values()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [each[1:] for each in words if each and Path(each[0]).name == "payasync"]


def test_command_lines_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command line that a reader copies is parsed by its command: arguments, options and their values."""
    monkeypatch.setenv("PAYASYNC_JOURNAL", "pay.db")
    monkeypatch.setattr(click.Command, "invoke", lambda _command, _context: None)
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
    for number, words in enumerate(words for page in pages for words in command_lines(page)):
        (folder := tmp_path / str(number)).mkdir()
        monkeypatch.chdir(folder)
        here = [word.removeprefix("/var/lib/shop/") for word in words]
        for name in ("pay.db", *(word for word in here if re.search(r"\.(?:csv|http|toml)$", word))):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).touch(mode=0o600)
        result = CliRunner().invoke(payasync_command, here)

        assert 0 == result.exit_code, (words, result.output)


def test_contributing_names_files_that_exist() -> None:
    """Each path in the map of CONTRIBUTING.md exists, so that a newcomer finds the rule there."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w/]+(?:\.py|/))`", page))

    assert len(paths) > 20
    assert [] == [
        path for path in sorted(paths) if not any((root / path).exists() for root in (ROOT / "payasync", ROOT))
    ]


def test_package_cites_sections_that_exist() -> None:
    """Each citation in the package names a page, and a section of it, that the documentation has."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "payasync").rglob("*.py"))
    files = re.findall(r"\bdocs/([\w/-]+)\.md#?([\w-]*)", sources)
    addresses = re.findall(r"{DOCUMENTATION}([\w/-]+)\.html#?([\w-]*)", sources)

    assert files
    assert addresses
    for name, anchor in {*files, *addresses}:
        page = DOCS / f"{name}.md"
        assert page.is_file(), name
        assert not anchor or anchor in anchors(page), (name, anchor)


def test_texts_for_users_cite_the_site() -> None:
    """Only docstrings cite files of docs/: an installed package has none, so that other texts name the site's pages.

    `help(payasync)` says where the pages are, and the alert rules name their page.
    """
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "payasync").rglob("*.py"))
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]

    assert [] == re.findall(r"""(?<!")"(?!")[^"\n]*\bdocs/[^"\n]*\.md""", sources)
    assert f"{urls['Documentation']}en/stable/" == payasync.DOCUMENTATION
    alerts = (ROOT / "examples" / "observability" / "alerts.yml").read_text(encoding="utf-8")
    assert f"\n{payasync.DOCUMENTATION}reference/service.html#orders\n" in str(payasync.__doc__)
    assert "orders" in anchors(DOCS / "reference" / "service.md")
    assert f"# {payasync.DOCUMENTATION}how-to/observability.html\n" in alerts


def test_contributing_shows_the_floors() -> None:
    """The layers that CONTRIBUTING.md shows are those in pyproject.toml, which `nox -s lint` checks."""
    ((_, shown),) = blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "text")
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts: list[dict[str, Any]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]

    assert contracts[0]["layers"] == shown.splitlines()


def test_every_error_is_listed() -> None:
    """The page of errors lists each public error class with its base classes, and no other."""
    page = DOCS.joinpath("reference", "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+Error)` \| (.*?) \|", page, re.MULTILINE)
    public = (getattr(payasync, name) for name in payasync.__all__)
    errors = [each for each in public if isinstance(each, type) and issubclass(each, payasync.PayasyncError)]

    assert {name: re.findall(r"\w+", bases) for name, bases in rows} == {
        error.__name__: [base.__name__ for base in error.__bases__] for error in errors
    }


def test_code_fits_into_a_page() -> None:
    """A line of code, also of an included file, has at most 85 characters, because a longer one scrolls.

    One text of TOML cannot be broken.
    """
    for page in [*READMES, *sorted(DOCS.rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        fences = re.findall(r"^```(?:bash|ini|python|sql|toml|yaml)\b.*\n((?:.*\n)*?)```$", text, re.MULTILINE)
        names = re.findall(r"^```{literalinclude} (\S+)$", text, re.MULTILINE)
        included = [page.parent.joinpath(name).read_text(encoding="utf-8") for name in names]
        lines = [line for block in (*fences, *included) for line in block.splitlines()]
        long = [line for line in lines if len(line) > 85 and not re.fullmatch(r"""\w+ = (['"]).*\1""", line)]

        assert [] == long, page
