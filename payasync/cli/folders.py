"""Files that a command is to make."""

from pathlib import Path

import click


def in_a_folder(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a file that is to be made where there is no folder."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(path.parent)!r}: make it first")
    return path
