"""Check who can read and write our files, keys and profiles. Windows has no modes: only symbolic links count there."""

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import Final, TypeAlias

Location: TypeAlias = str | os.PathLike[str]

DATABASE: Final = ("", "-wal", "-shm", "-journal")
"""What SQLite puts behind the name of a database for the files that belong to it."""
_POSIX: Final = hasattr(os, "geteuid")
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_READ: Final = stat.S_IRGRP | stat.S_IROTH


def new_private(path: Location) -> int:
    """Make a file that only its owner can read and write, and return its descriptor.

    Raises:
        FileExistsError: Something has this name already; a symbolic link is not followed.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def check_private(path: Location) -> None:
    """Refuse a file that this program writes, if another user can write it or if it is a symbolic link.

    The file is not opened, because closing it would release the locks that SQLite holds on it.

    Args:
        path: The file's; it may be missing.

    Raises:
        PermissionError: The file must not be used; it says why, and what to do.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    name = Path(path).name
    if stat.S_ISLNK(found.st_mode):
        raise _refusal(
            f"{name!r} is a symbolic link, and links are not followed. Remove the link, or name the file itself"
        )
    if not stat.S_ISREG(found.st_mode):
        raise _refusal(f"{name!r} is not a regular file. Name another file")
    if _POSIX and found.st_uid != os.geteuid():
        raise _refusal(f"{name!r} belongs to another user. Run this as its owner, or name another file")
    if _POSIX and found.st_mode & _WRITE:
        raise _refusal(f"other users can write {name!r}, and only its owner may. Run: chmod 600 {_quoted(path)}")


def read_guarded(path: Location) -> str:
    """Return the text of a file that this program only reads, and that no other user may write; links are followed.

    Raises:
        PermissionError: Another user can write it; it says what to do.
        OSError: It cannot be read.
        UnicodeDecodeError: It is not UTF-8 text.
    """
    with Path(path).open(encoding="utf-8") as file:
        if _POSIX and os.fstat(file.fileno()).st_mode & _WRITE:
            raise _refusal(f"other users can write it, and only its owner may. Run: chmod go-w {_quoted(path)}")
        return file.read()


def others_can_read(path: Location) -> bool:
    """Return whether another user can read a file; links are followed."""
    return _POSIX and bool(Path(path).stat().st_mode & _READ)


def _quoted(path: Location) -> str:
    return shlex.quote(os.fspath(path))


def _refusal(why: str) -> PermissionError:
    return PermissionError(errno.EPERM, why)
