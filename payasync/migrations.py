"""The numbered `.sql` files by which tables are made, and led from one version to the next."""

from importlib import resources


def steps(package: str, *folders: str) -> tuple[str, ...]:
    """Return the files of a folder in a package, in the order of their numbers.

    Args:
        package: Its name.
        folders: The way to them from there.
    """
    folder = resources.files(package).joinpath(*folders)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text(encoding="utf-8") for file in files)
