"""Settings: refused values, allowed addresses and files, and missing extras."""

import asyncio
import grp
import os
import pwd
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import pytest
from yarl import URL

from payasync import ConfigurationError, Credentials, Profile, journal, notifications
from payasync.credentials import Secret
from payasync.journal import SqliteJournal
from payasync.notifications import SqliteInbox
from payasync.sandbox import Sandbox
from payasync.settings import (
    MOST_SHOWN,
    RetryPolicy,
    Timeouts,
    check_private,
    check_tls,
    describe_value,
    environment_proxy,
    from_extra,
    is_loopback,
    parse_base_url,
    parse_proxy_url,
)
from tests.postgres import NOBODY

Groups: TypeAlias = Callable[[str], None]

NO_NUMBERS: Final[list[object]] = [-1, True, False, "5", None]
NO_SECONDS: Final[list[object]] = [-0.001, float("nan"), float("inf"), 10**400, *NO_NUMBERS]
RULES: Final[dict[tuple[type[Any], str], tuple[str, list[object], list[float]]]] = {
    **{
        (Timeouts, name): ("a number of seconds above 0", [0, 0.0, *NO_SECONDS], [1, 0.001, 10**300])
        for name in ("total", "connect", "read")
    },
    **{
        (RetryPolicy, name): ("a number of seconds, 0 or more", NO_SECONDS, [0, 0.0, 1, 0.001])
        for name in ("base_delay", "max_delay")
    },
    (RetryPolicy, "attempts"): ("an integer of 1 or more", [0, 1.0, *NO_NUMBERS], [1, 5]),
    (RetryPolicy, "quota"): ("an integer of 0 or more", [1.0, *NO_NUMBERS], [0, 500]),
}


def test_times_and_counts() -> None:
    """An invalid time or count is refused by name, and nothing is converted."""
    for (kind, name), (wanted, wrong, right) in RULES.items():
        for value in wrong:
            with pytest.raises(ConfigurationError, match=f"^{kind.__name__}.{name} must be {wanted}, not ") as caught:
                kind(**{name: value})
            assert f"{kind.__name__}.{name}" == caught.value.field
        assert right == [getattr(kind(**{name: value}), name) for value in right]


class Odd:
    """A value whose `repr` fails."""

    def __repr__(self) -> str:
        raise LookupError


def test_a_value_is_shown_as_it_is_written() -> None:
    """An error shows the repr of a value, or its type if it has none; a tuple is shown as a list.

    Of a huge value it shows only the beginning, and of a deeply nested one the type, without a `RecursionError`.
    """
    values: list[tuple[object, str]] = [
        ("SUCCESS", "'SUCCESS'"),
        (None, "None"),
        (("a", 1), "['a', 1]"),
        (Secret("sk_live"), "Secret('***')"),
        (Odd(), "an Odd"),
        ([Odd()], "a list"),
        (10**5_000, "an integer"),
        ("x" * (MOST_SHOWN - 2), f"'{'x' * (MOST_SHOWN - 2)}'"),
        *(("x" * size, f"'{'x' * (MOST_SHOWN - 4)}...") for size in (MOST_SHOWN - 1, 1_000_000)),
    ]
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert [expected for _, expected in values] == [describe_value(value) for value, _ in values]
    assert "a list" == describe_value(deep)


LOOPBACK: Final = ["localhost", "LOCALHOST", "127.0.0.1", "127.9.8.7", "[::1]"]
LOOKALIKES: Final = ["localhost.example.com", "api.localhost", "127.0.0.1.example.com"]
ELSEWHERE: Final = ["pay.example.com", "0.0.0.0", "10.0.0.1", "[::2]", *LOOKALIKES]  # noqa: S104 - nothing listens


def test_plain_http_is_for_loopback_alone() -> None:
    """Plain http is allowed on loopback, for the sandbox, and refused for other machines, whatever their names are."""
    for host in ELSEWHERE:
        with pytest.raises(ConfigurationError, match="must be https") as caught:
            parse_base_url(f"http://{host}")

        assert ("base_url", False) == (caught.value.field, is_loopback(URL(f"http://{host}")))
    for host in LOOPBACK:
        assert ("http", True) == (parse_base_url(f"http://{host}:8080").scheme, is_loopback(URL(f"http://{host}")))


NO_URLS: Final = ["", "pay.example.com", "/v1", "//pay.example.com", "ftp://pay.example.com", "https://", None, 5]
NO_PROXIES: Final = ["socks5://u:canary@h", "proxy.example:3128", "http://", "", 5, "http://u:canary@h:x"]


NO_KEYS: Final[dict[str, list[Any]]] = {
    "a user or a password": [f"https://{user}@pay.example.com" for user in ("u:canary", "canary", ":canary")],
    "a query or a fragment": [f"https://pay.example.com{end}" for end in ("?key=canary", "/#canary", "/?", "/#")],
    "must be an absolute URL": [
        *(*NO_URLS, "file:///etc", "https://\ud800", "ftp://user:canary@pay.example.com", "https://user:canary@"),
        *(f"https://pay.example.com:{port}" for port in (0, 99999, "x")),
        "https://user:canary@pay.example.com:99999",
    ],
}


def test_base_url_is_absolute_and_holds_no_key() -> None:
    """A base URL that is not absolute, or holds a key, is refused. The error shows what is wrong, and no key.

    A proxy that is not an http URL is refused, and its password is not shown.
    """
    for why, given in [(why, each) for why, several in NO_KEYS.items() for each in several]:
        with pytest.raises(ConfigurationError, match=why) as caught:
            parse_base_url(given)

        assert ("base_url", False) == (caught.value.field, "canary" in str(caught.value))
        assert "canary" in str(given) or "absolute" not in why or repr(given) in str(caught.value)
    for proxy in NO_PROXIES:
        with pytest.raises(
            ConfigurationError, match=r"proxy must be an absolute http or https URL, .*; SOCKS"
        ) as caught:
            parse_proxy_url(proxy)

        assert ("proxy", False) == (caught.value.field, "canary" in str(caught.value))


def context(**settings: Any) -> ssl.SSLContext:
    """Return a verifying TLS context with these settings changed."""
    made = ssl.create_default_context()
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def test_tls_always_verifies() -> None:
    """A TLS context that does not verify, or allows less than TLS 1.2, is refused."""
    unverified = context(check_hostname=False, verify_mode=ssl.CERT_NONE), context(check_hostname=False)
    old = context(minimum_version=ssl.TLSVersion.MINIMUM_SUPPORTED)
    wrong: dict[str, tuple[object, ...]] = {
        "must verify": (*unverified, context(verify_mode=ssl.CERT_OPTIONAL)),
        "must demand TLS 1.2": (old,),
        "must be an ssl.SSLContext": (False, None),
    }
    for why, tls in [(why, each) for why, several in wrong.items() for each in several]:
        with pytest.raises(ConfigurationError, match=why) as caught:
            check_tls(tls)

        assert "tls" == caught.value.field


async def use_journal(path: Path) -> None:
    """Use a file as a journal."""
    async with SqliteJournal(path) as opened:
        await opened.list()


async def use_inbox(path: Path) -> None:
    """Use a file as an inbox."""
    opened = SqliteInbox(path)
    try:
        await opened.next_due()
    finally:
        await opened.aclose()


async def use_sandbox(path: Path) -> None:
    """Use a file as a sandbox's database, which holds its keys."""
    async with Sandbox(db=path):
        pass


USES: Final = (use_journal, use_inbox, use_sandbox)


@pytest.fixture(params=USES, ids=lambda use: use.__name__)
def use(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Return a function that uses a file as one of those that payasync writes."""
    return lambda path: asyncio.run(request.param(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file."""
    return tmp_path / "kept.db"


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Return a function that names the group of all folders, "alice" for that of the user, because few may make one."""

    def name(group: str) -> None:
        first, *members = group.replace("with", "").split()
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="alice"))
        monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=first, gr_mem=members))

    return name


@contextmanager
def refused(path: Path, *words: str) -> Generator[None]:
    """Expect that a file is refused with its path and these words, and that it is not changed."""
    before = path.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        yield
    assert [] == [each for each in (str(path), *words) if each not in str(caught.value)]
    assert before == path.read_bytes()


def test_file_is_made_for_its_owner_alone(path: Path, use: Callable[[Path], None]) -> None:
    """A new file is private to its owner, whatever the umask and the folder are."""
    path.parent.chmod(0o1777)
    former = os.umask(0)
    try:
        use(path)
    finally:
        os.umask(former)
    use(path)

    assert {0o600} == {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


def test_file_that_others_can_write_is_refused(path: Path, use: Callable[[Path], None]) -> None:
    """A file that others can write is refused, and so is one beside it that SQLite reads.

    After the advised command it is used, also if others can read it, such as for a backup.
    """
    use(path)
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        with refused(path, "other users can write 'kept.db', and only its owner may", f"Run: chmod 600 {path}"):
            use(path)
    path.chmod(0o644)
    use(path)
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        beside.touch()
        beside.chmod(0o606)
        with refused(path, f"Run: chmod 600 {beside}"):
            use(path)
        beside.unlink()


@pytest.mark.parametrize("exists", [False, True], ids=["new", "old"])
def test_folder_that_others_can_write_is_refused(
    path: Path, use: Callable[[Path], None], groups: Groups, *, exists: bool
) -> None:
    """Others could move a file of their folder away. It is refused before it is made, and used after the command."""
    cases = [(0o707, "alice", "o-w"), (0o2703, "alice", "o-w"), (0o777, "alice", "o-w"), (0o770, "shop", "g-w")]
    cases += [(0o2775, "shop", "g-w"), (0o777, "shop", "go-w"), (0o770, "alice with bob", "g-w")]
    if exists:
        use(path)
    for mode, group, command in cases:
        groups(group)
        path.parent.chmod(mode)
        words = f"other users can write its folder {str(path.parent)!r} (mode {mode:04o}), and could replace it"
        with pytest.raises(ConfigurationError) as caught:
            use(path)
        assert exists == path.exists()
        path.parent.chmod(mode & ~0o22)
        use(path)
        assert words in str(caught.value)
        assert f"Run: chmod {command} {path.parent}, or use a folder" in str(caught.value)
        if not exists:
            path.unlink()


def test_folder_that_only_its_owner_can_change_is_used(
    path: Path, use: Callable[[Path], None], groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sticky folder, such as /tmp, and one of the user's own group, which a umask of 002 makes, are used.

    So is a folder of root, because root can replace any file anyway.
    """
    for mode, group in ((0o1777, "shop"), (0o3770, "shop"), (0o775, "alice"), (0o755, "shop")):
        groups(group)
        path.parent.chmod(mode)

        use(path)
    # Root could become another user for the test, and no other user could.
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    check_private("/missing.db")


def test_folder_of_another_user_is_refused(
    path: Path, use: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a folder could move its files away, so that only this user and root may own it."""
    if os.geteuid() == 0:
        os.chown(path.parent, NOBODY, NOBODY)
    else:  # only root can give a folder away
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    for mode in (0o700, 0o1777):
        path.parent.chmod(mode)
        with pytest.raises(ConfigurationError, match="belongs to another user, who could replace it"):
            use(path)

    assert not path.exists()


def test_folder_that_a_link_leads_to_is_checked(tmp_path: Path, use: Callable[[Path], None]) -> None:
    """The folder of a file may be a link, such as `/var/run`. Its target is checked."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    use(tmp_path / "link" / "kept.db")
    (tmp_path / "real").chmod(0o777)

    assert (tmp_path / "real" / "kept.db").is_file()
    with pytest.raises(ConfigurationError, match="other users can write its folder"):
        use(tmp_path / "link" / "kept.db")


def test_symlink_is_refused(path: Path, use: Callable[[Path], None]) -> None:
    """A symbolic link is refused, even if its target is missing, so that nobody else can choose the file."""
    other = path.with_name("other.db")
    path.symlink_to(other)
    with pytest.raises(ConfigurationError, match=r"'kept.db' is a symbolic link, and links are not followed. Remove"):
        use(path)
    made = other.exists()
    use(other)
    with refused(path, "is a symbolic link"):
        use(path)

    assert not made


def test_file_of_another_user_is_refused(path: Path, use: Callable[[Path], None]) -> None:
    """A file of another user is refused, whatever its mode is."""
    if os.geteuid() == 0:
        use(path)
        os.chown(path, NOBODY, NOBODY)
    else:
        path = Path("/etc/passwd")
    with refused(path, "belongs to another user. Run this as its owner, or name another file"):
        use(path)


def key(path: Path) -> str:
    """Return the key that is read from a file."""
    held = Credentials.from_env({"PAYASYNC_MERCHANT_ID": "M1", "PAYASYNC_SIGNING_KEY_FILE": str(path)}).signing_key
    assert held is not None
    return held.reveal()


def profile(path: Path) -> str:
    """Return the name of the profile that is read from a file."""
    return Profile.from_file(path).name


READERS: Final = ((key, "kept-by-a-cluster"), (profile, 'name = "kept-by-a-cluster"'))


def test_mounted_file_is_read(tmp_path: Path) -> None:
    """A secret mounted as a link to a link, readable by all, is read."""
    for read, text in READERS:
        folder = tmp_path / read.__name__
        (folder / "..2026").mkdir(parents=True)
        (folder / "..2026" / "value").write_text(text)
        (folder / "..2026" / "value").chmod(0o444)
        (folder / "..data").symlink_to("..2026")
        (folder / "value").symlink_to("..data/value")

        assert "kept-by-a-cluster" == read(folder / "value")


def test_file_that_others_can_change_is_not_read(tmp_path: Path) -> None:
    """A profile or key that others can write is refused, also behind a link."""
    (tmp_path / "value").symlink_to("target")
    for (read, text), mode in product(READERS, (0o464, 0o446)):
        (tmp_path / "target").write_text(text)
        (tmp_path / "target").chmod(mode)
        with refused(tmp_path / "value", "other users can write it", f"Run: chmod go-w {tmp_path / 'value'}"):
            read(tmp_path / "value")


WITHOUT: Final = """
import sys
sys.modules["psycopg"] = None
import payasync.journal, payasync.notifications
for room, name in ((payasync.journal, "PostgresJournal"), (payasync.notifications, "PostgresInbox")):
    try:
        getattr(room, name)
    except payasync.ConfigurationError as error:
        print(error)
from payasync.journal import *
from payasync.notifications import *
print(SqliteJournal.__name__, SqliteInbox.__name__, "PostgresInbox" in globals())
"""


ENTRIES: Final = [
    ("pay.example", "pay.example PAY.example:8443 a.pay.example", "example notpay.example"),
    (".pay.example", "pay.example a.pay.example", "notpay.example"),
    ("*.pay.example", "a.pay.example b.a.pay.example:8443", "pay.example notpay.example"),
    ("a.example *.Pay.example:8443", "a.pay.example:8443", "a.pay.example pay.example:8443"),
    ("pay.example:443", "pay.example a.pay.example", "pay.example:8443"),
    ("10.0.0.0/8", "10.1.2.3 10.1.2.3:8443", "11.1.2.3 [fd00::1] pay.example"),
    ("11.0.0.0/8,10.1.2.3/8:8443", "10.1.2.3:8443", "10.1.2.3"),
    ("fd00::/8", "[fd00::1]", "10.1.2.3"),
    ("fd00::1", "[fd00::1] [fd00::1]:8443", "[fd00::2]"),
    ("[fd00::1]:443", "[fd00::1]", "[fd00::1]:8443 [fd00::2]"),
    ("0.0.0.0/33,/,:,:443,*.,.,[],[]:443,*:8443", "pay.example:8443", "pay.example 10.1.2.3 [fd00::1]"),
    ("*", "pay.example 10.1.2.3 [fd00::1]:8443", ""),
    ("", "", "pay.example 10.1.2.3 [fd00::1]"),
]


def test_entries_of_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_PROXY knows domains with their subdomains, `*.domain`, addresses, ranges and ports, and nothing by chance."""
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    for entries, direct, proxied in ENTRIES:
        monkeypatch.setenv("no_proxy", entries)

        assert {None} >= {environment_proxy(URL(f"https://{host}")) for host in direct.split()}
        assert [] == [host for host in proxied.split() if not environment_proxy(URL(f"https://{host}"))]


def test_missing_extra_is_named() -> None:
    """The error of a missing extra shows the command that installs it."""
    with pytest.raises(ConfigurationError) as caught:
        from_extra("nice", "no_such_package.inside", "Thing")

    expected = 'Thing needs no_such_package, an extra: python -m pip install "payasync[nice]"'
    assert (expected, None) == (str(caught.value), caught.value.__context__)


def test_rooms_open_without_postgresql() -> None:
    """The SQLite journal and inbox need no PostgreSQL driver; the PostgreSQL ones name the missing extra.

    Without the driver, `import *` leaves out the names that need it. A mistyped name raises `AttributeError`.
    """
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT], capture_output=True, text=True, check=True)

    said = '{} needs psycopg, an extra: python -m pip install "payasync[postgres]"\n'
    star = "SqliteJournal SqliteInbox False\n"
    assert said.format("PostgresJournal") + said.format("PostgresInbox") + star == done.stdout
    assert {"PostgresJournal", "PostgresInbox"} <= {*journal.__all__, *notifications.__all__}
    rooms: tuple[Any, ...] = (journal, notifications)
    for room in rooms:
        with pytest.raises(AttributeError, match="has no attribute 'PostgressJournal'"):
            _ = room.PostgressJournal
