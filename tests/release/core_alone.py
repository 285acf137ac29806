"""Import the whole core, and check that it brought nothing but its dependencies; needs no more than the core itself."""

import importlib
import pkgutil
import re
import sys
from importlib.metadata import distributions, packages_distributions, requires
from typing import Final

import payasync

EXTRAS: Final = re.compile(
    r"payasync\.(cli|pytest_plugin|integrations|signing\.asymmetric|(journal|notifications|storage)\.postgres)"
)
"""The modules that need an extra."""
OF_NOBODY: Final = re.compile(
    r"_cython_|cython_runtime|_sysconfigdata|_distutils_hack|_virtualenv|__mp_main__|(site|user)customize"
)
"""Modules that belong to no distribution: compilers, environments and the system's Python bring them."""


def required(name: str) -> set[str]:
    """Return the names of a distribution and of all that it requires, without extras, and whatever the machine."""
    found, waiting = set[str](), [name]
    while waiting:
        if (name := normalise(waiting.pop())) not in found:
            found.add(name)
            plain = [each for each in INSTALLED.get(name, ()) if "extra ==" not in each]
            waiting += (re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in plain)
    return found


def normalise(name: str) -> str:
    """Return a distribution's name in the one form that counts."""
    return re.sub(r"[-_.]+", "-", name).lower()


INSTALLED: Final = {normalise(each.name): requires(each.name) or () for each in distributions()}


def main() -> None:
    """Import all of the core, and end with what is foreign."""
    for module in pkgutil.walk_packages(payasync.__path__, "payasync."):
        if not EXTRAS.match(module.name) and module.name != "payasync.__main__":
            importlib.import_module(module.name)
    loaded = {name.partition(".")[0] for name in sys.modules} - {"__main__", *sys.stdlib_module_names}
    owners, core = packages_distributions(), required("payasync")
    foreign = sorted(
        name
        for name in loaded
        if not OF_NOBODY.match(name) and not core & {normalise(each) for each in owners.get(name, (name,))}
    )
    beside = sorted(INSTALLED.keys() - core - {"pip", "setuptools", "wheel"}) if sys.argv[1:] == ["--alone"] else []
    sys.exit(f"foreign modules: {foreign}; foreign distributions: {beside}" if foreign or beside else None)


if __name__ == "__main__":
    main()
