"""Who may read and write the files that this program writes, and those that it only reads."""

import asyncio
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from payasync import ConfigurationError, Credentials, Profile
from payasync.journal import SqliteJournal
from payasync.notifications import SqliteInbox
from payasync.sandbox import Sandbox
from tests.postgres import NOBODY


async def journal(path: Path) -> None:
    """Use a file as a journal."""
    async with SqliteJournal(path) as opened:
        await opened.list()


async def inbox(path: Path) -> None:
    """Use a file as an inbox."""
    opened = SqliteInbox(path)
    try:
        await opened.next_due()
    finally:
        await opened.aclose()


async def sandbox(path: Path) -> None:
    """Use a file as a sandbox's database, in which its keys are."""
    async with Sandbox(db=path):
        pass


USES: Final = (journal, inbox, sandbox)


@pytest.fixture(params=USES, ids=lambda use: use.__name__)
def use(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Use a file as one of those that this program writes."""
    return lambda path: asyncio.run(request.param(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "kept.db"


@contextmanager
def refused(path: Path, *words: str) -> Generator[None]:
    """Expect that a file is refused, with its path and these words, and that it stays as it is."""
    before = path.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        yield
    assert [] == [each for each in (str(path), *words) if each not in str(caught.value)]
    assert before == path.read_bytes()


def test_file_is_made_for_its_owner_alone(path: Path, use: Callable[[Path], None]) -> None:
    """Whatever the umask is, nobody else reads what was paid, or the keys; nor in a folder that all may write."""
    path.parent.chmod(0o1777)
    former = os.umask(0)
    try:
        use(path)
    finally:
        os.umask(former)
    use(path)

    assert {0o600} == {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666], ids=oct)
def test_file_that_others_can_write_is_refused(path: Path, use: Callable[[Path], None], mode: int) -> None:
    """Others could say that a refund was made, or was not; the error says how to end that, and then it is used."""
    use(path)
    path.chmod(mode)
    with refused(path, "other users can write 'kept.db', and only its owner may", f"Run: chmod 600 {path}"):
        use(path)
    path.chmod(0o600)

    use(path)


def test_file_that_others_can_read_is_used(path: Path, use: Callable[[Path], None]) -> None:
    """Whoever lets others read it, for a backup, has said so."""
    use(path)
    path.chmod(0o644)

    use(path)

    assert 0o644 == stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_what_sqlite_reads_beside_it_is_refused_too(path: Path, use: Callable[[Path], None], suffix: str) -> None:
    """SQLite takes what stands in these files into the database, when it opens it."""
    use(path)
    beside = path.with_name(path.name + suffix)
    beside.touch()
    beside.chmod(0o606)

    with refused(path, f"Run: chmod 600 {beside}"):
        use(path)


def test_symlink_is_refused(path: Path, use: Callable[[Path], None]) -> None:
    """Whoever can make a link in its folder must not choose the file that is written: also where it leads nowhere."""
    other = path.with_name("other.db")
    path.symlink_to(other)
    with pytest.raises(ConfigurationError, match=r"'kept.db' is a symbolic link, and links are not followed. Remove"):
        use(path)
    made = other.exists()
    use(other)
    with refused(path, "is a symbolic link"):
        use(path)

    assert not made


def test_link_to_its_folder_is_followed(tmp_path: Path, use: Callable[[Path], None]) -> None:
    """Folders may be links, such as `/var/run`: the file itself is what counts."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    use(tmp_path / "link" / "kept.db")

    assert (tmp_path / "real" / "kept.db").is_file()


def test_file_of_another_user_is_refused(path: Path, use: Callable[[Path], None]) -> None:
    """Its owner can write it, whatever its mode says."""
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


@pytest.mark.parametrize(("read", "text"), [(key, "kept-by-a-cluster"), (profile, 'name = "kept-by-a-cluster"')])
def test_mounted_file_is_read(tmp_path: Path, read: Callable[[Path], str], text: str) -> None:
    """A cluster mounts a secret as a link to a link, readable by all: it goes on working."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "value").write_text(text)
    (tmp_path / "..2026" / "value").chmod(0o444)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "value").symlink_to("..data/value")

    assert "kept-by-a-cluster" == read(tmp_path / "value")


@pytest.mark.parametrize("mode", [0o464, 0o446], ids=oct)
@pytest.mark.parametrize(("read", "text"), [(key, "kept-by-a-cluster"), (profile, 'name = "kept-by-a-cluster"')])
def test_file_that_others_can_change_is_not_read(
    tmp_path: Path, read: Callable[[Path], str], text: str, mode: int
) -> None:
    """Who can write a profile or a key decides what is believed: the target of the link counts."""
    (tmp_path / "target").write_text(text)
    (tmp_path / "target").chmod(mode)
    (tmp_path / "value").symlink_to("target")
    with refused(tmp_path / "value", "other users can write it", f"Run: chmod go-w {tmp_path / 'value'}"):
        read(tmp_path / "value")
