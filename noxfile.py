"""How payasync is checked: `nox -l` lists the sessions, `nox -s tests -- -k refund` passes arguments on."""

import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import nox

nox.needs_version = ">=2025.5"
nox.options.sessions = ["tests"]
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

PYPROJECT: Final[dict[str, Any]] = nox.project.load_toml("pyproject.toml")
DECIDES_WITHOUT_IO: Final = ",".join(PYPROJECT["tool"]["payasync"]["decides-without-io"])
PARALLEL: Final = ("--numprocesses=auto", "--maxprocesses=4")
CHECKED: Final = ("payasync", "tests", "benchmarks", "examples", "noxfile.py")


@nox.session
def tests(session: nox.Session) -> None:
    """Run each rule's test once, against the package as pip installs it: three minutes on two cores."""
    _install(session)
    session.run("pytest", *PARALLEL, "-m", "not long", *session.posargs)


@nox.session
def long(session: nox.Session) -> None:
    """Run what repeats a rule at length: more examples, more kills, other profiles; fifteen minutes at most."""
    _install(session)
    session.run("pytest", *PARALLEL, "-m", "long or hypothesis", "--hypothesis-profile=long", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure what the daily tests cover: 95 % of all, and all of what decides without I/O."""
    _install(session)
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *PARALLEL, "-m", "not long", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", "--fail-under=95")
    session.run("coverage", "report", "--fail-under=100", f"--include={DECIDES_WITHOUT_IO}")


@nox.session
def lowest(session: nox.Session) -> None:
    """Run all tests with the least version of each dependency that pyproject.toml allows, without coverage."""
    project = PYPROJECT["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    least = (re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", one) for one in asked if not one.startswith("pytest"))
    constraints = Path(session.create_tmp()) / "least.txt"
    constraints.write_text("".join(f"{found[1]}=={found[2]}\n" for found in least if found), encoding="utf-8")
    session.install("-e", ".[cli,otel,rsa]", *_group("test"), "--constraint", str(constraints))
    session.run("pytest", *PARALLEL, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style (ruff, all rules), formatting and the floors that modules stand on (import-linter)."""
    session.install(*_group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("ruff", "check", "--config", "pyproject.toml", "docs/conf.py")
    session.run("ruff", "format", "--check", "--config", "pyproject.toml", "docs/conf.py")
    session.run("lint-imports", "--no-logo", env={"PYTHONPATH": "."})


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy and pyright, both strict, and that every public name has a known type."""
    session.install("-e", ".[cli,otel,rsa]", *_group("types"))
    session.run("mypy", *session.posargs, *(path for path in CHECKED if _holds_python(Path(path))))
    session.run("pyright", *session.posargs)
    session.run("pyright", "--verifytypes", "payasync", "--ignoreexternal")


@nox.session
def release(session: nox.Session) -> None:
    """Build what is published, check it, install it outside the checkout, and run the demo there."""
    session.install("build>=1.3", "twine>=6.1")
    here, made = Path.cwd(), Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(made, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(made))
    sdist, wheel = (str(next(made.glob(form))) for form in ("*.tar.gz", "*.whl"))
    session.run("twine", "check", "--strict", sdist, wheel)
    session.run("python", "tests/release/built.py", sdist, wheel)
    for extra, program in (
        ("", ("python", str(here / "tests/release/core_alone.py"), "--alone")),
        ("[cli]", ("payasync", "demo")),
    ):
        clean = made.parent / "clean"
        session.run("python", "-m", "venv", "--clear", str(clean))
        with TemporaryDirectory() as outside, session.chdir(outside):
            session.run(str(clean / "bin/pip"), "install", "--quiet", f"{wheel}{extra}", external=True)
            session.run(str(clean / "bin" / program[0]), *program[1:], external=True, env={"PYTHONPATH": ""})


@nox.session
def pictures(session: nox.Session) -> None:
    """Make the pictures of the documentation anew, with the system's Chromium."""
    session.install(".[cli]", *_group("test"))
    session.run("python", "-m", "payasync", "demo", "--save", "docs/images/demo.svg")
    session.run("python", "-m", "tests.pictures")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into docs/_build, without network; a warning is an error."""
    session.install("-e", ".[cli,otel,postgres,procrastinate,rsa,testing]", *_group("docs"))
    session.run("sphinx-build", "--quiet", "--fail-on-warning", "--keep-going", *session.posargs, "docs", "docs/_build")
    session.log("open docs/_build/index.html")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the rows of the performance budgets; `-- call sqlite` measures these, and `-- --help` lists them."""
    session.install(".[cli,postgres,rsa]", *_group("bench"))
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(python="3.11")
def guard(session: nox.Session) -> None:
    """Count what warm operations execute: 3 % more than `benchmarks/guard.json` fails; `-- --refresh` stores anew."""
    session.install(".")
    session.run("python", "-m", "benchmarks.guard", *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Check at length; `-- soak` is one part of it, and `-- kills --operations 5000 --kills 40` are fewer kills."""
    session.install(".[cli,otel,postgres,rsa]", *_group("test"))
    session.run("python", "-m", "tests.chaos", *session.posargs)


def _install(session: nox.Session) -> None:
    session.install(".[cli,otel,rsa]", *_group("test"))
    # Safe path: the package in this folder must not hide the installed one.
    session.env["PYTHONSAFEPATH"] = "1"


def _group(name: str) -> tuple[str, ...]:
    return nox.project.dependency_groups(PYPROJECT, name)


def _holds_python(path: Path) -> bool:
    return path.is_file() or any(path.rglob("*.py"))
