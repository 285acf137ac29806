"""How payasync is checked: `nox -l` lists the sessions, `nox -s tests -- -k refund` passes arguments on."""

import json
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
# Each lock uses the versions of those before it, so that a session may install several.
LOCKS: Final = ("run", "build", "test", "bench", "types", "docs", "lint", "nox", "release")


@nox.session
def tests(session: nox.Session) -> None:
    """Run each rule's test once, against the package as pip installs it: three minutes on two cores."""
    _install(session, "test")
    _hide_source(session)
    session.run("pytest", *PARALLEL, "-m", "not long", *session.posargs)


@nox.session
def long(session: nox.Session) -> None:
    """Run what repeats a rule at length: more examples, more kills, other profiles; fifteen minutes at most."""
    _install(session, "test")
    _hide_source(session)
    session.run("pytest", *PARALLEL, "-m", "long or hypothesis", "--hypothesis-profile=long", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure what the daily tests cover: 95 % of all, and all of what decides without I/O."""
    _install(session, "test")
    _hide_source(session)
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *PARALLEL, "-m", "not long", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", "--fail-under=95")
    session.run("coverage", "report", "--fail-under=100", f"--include={DECIDES_WITHOUT_IO}")


@nox.session
def lowest(session: nox.Session) -> None:
    """Run all tests with the least version of each dependency that pyproject.toml allows, without coverage."""
    session.install("-e", ".[cli,otel,rsa]", *_group("test"), "--constraint", _least(session))
    session.run("pytest", *PARALLEL, *session.posargs)


@nox.session
def newest(session: nox.Session) -> None:
    """Run the daily tests with the newest version of each dependency, and the newest pre-release of aiohttp."""
    session.install("--upgrade", "--upgrade-strategy=eager", ".[cli,otel,rsa]", *_group("test"))
    session.install("--upgrade", "--pre", "aiohttp<4")
    _hide_source(session)
    session.run("pytest", *PARALLEL, "-m", "not long", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style (ruff, all rules), formatting and the floors that modules stand on (import-linter)."""
    _install_locked(session, "lint")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("ruff", "check", "--config", "pyproject.toml", "docs/conf.py")
    session.run("ruff", "format", "--check", "--config", "pyproject.toml", "docs/conf.py")
    session.run("lint-imports", "--no-logo", env={"PYTHONPATH": "."})


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy and pyright, both strict, and that every public name has a known type."""
    _install(session, "test", "bench", "types")
    session.run("mypy", *session.posargs, *(path for path in CHECKED if _holds_python(Path(path))))
    session.run("pyright", *session.posargs)
    session.run("pyright", "--verifytypes", "payasync", "--ignoreexternal")


@nox.session
def lock(session: nox.Session) -> None:
    """Lock the newest versions that are a week old; `-- --upgrade-package NAME` locks the newest one of a package."""
    _install_locked(session, "release")
    options = session.posargs or ("--upgrade", "--exclude-newer", "7 days")
    for place, name in enumerate(LOCKS):
        session.run(
            *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
            *("--no-annotate", "--custom-compile-command", "nox -s lock", "--output-file", f"locks/{name}.txt"),
            *(f"--constraint=locks/{before}.txt" for before in LOCKS[:place]),
            *(("--all-extras", "pyproject.toml") if name == "run" else ("--group", name)),
            *options,
        )


@nox.session
def audit(session: nox.Session) -> None:
    """Look for known vulnerabilities of what is locked, and of the least versions; needs the network."""
    _install_locked(session, "release")
    check = ("pip-audit", "--strict", "--disable-pip")
    session.run(*check, "--no-deps", "--requirement", _least(session))
    for name in LOCKS:
        session.run(*check, "--require-hashes", "--requirement", f"locks/{name}.txt")


@nox.session
def secrets(session: nox.Session) -> None:
    """Look for secrets in the files that git knows: for known forms of keys, and in the program for random text."""
    _install_locked(session, "release")
    files = str(session.run("git", "ls-files", external=True, silent=True)).split()
    # Pages and tests are full of signatures, which look random, and locks of hashes.
    shown = [file for file in files if file.startswith(("docs/", "examples/", "locks/", "tests/"))]
    check = (
        "detect-secrets-hook",
        "--no-verify",
        "--disable-plugin=KeywordDetector",
        "--disable-plugin=BasicAuthDetector",
    )
    random = ("--disable-plugin=Base64HighEntropyString", "--disable-plugin=HexHighEntropyString")
    session.run(*check, *random, *shown, log=False)
    session.run(*check, *sorted({*files} - {*shown}), log=False)


@nox.session
def release(session: nox.Session) -> None:
    """Build what is published from the last commit, check it, run the demo outside, and list what it depends on."""
    _install_locked(session, "build", "release")
    here, place = Path.cwd(), Path(session.create_tmp()).resolve()
    made, clean, source = place / "dist", place / "clean", place / "source"
    for old in (made, source):
        shutil.rmtree(old, ignore_errors=True)
    session.run("git", "archive", "--output", str(place / "source.tar"), "HEAD", external=True)
    shutil.unpack_archive(place / "source.tar", source, filter="data")
    session.run("python", "-m", "build", "--no-isolation", "--outdir", str(made), str(source))
    sdist, wheel = (str(next(made.glob(form))) for form in ("*.tar.gz", "*.whl"))
    session.run("twine", "check", "--strict", sdist, wheel)
    session.run("python", "tests/release/built.py", sdist, wheel)
    for extra, program in (
        ("", ("python", str(here / "tests/release/core_alone.py"), "--alone")),
        ("[cli]", ("payasync", "demo")),
    ):
        session.run("python", "-m", "venv", "--clear", str(clean))
        with TemporaryDirectory() as outside, session.chdir(outside):
            session.run(str(clean / "bin/pip"), "install", "--quiet", f"{wheel}{extra}", external=True)
            session.run(str(clean / "bin" / program[0]), *program[1:], external=True, env={"PYTHONPATH": ""})
    session.run("python", "-m", "venv", "--clear", "--without-pip", str(clean))
    into = ("--python", str(clean / "bin/python"), "install", "--quiet")
    session.run("pip", *into, "--require-hashes", "--requirement", "locks/run.txt")
    session.run("pip", *into, "--no-deps", wheel)
    options = ("--pyproject=pyproject.toml", "--mc-type=library", "--output-reproducible")
    command = ("cyclonedx-py", "environment", *options, str(clean / "bin/python"))
    listed = json.loads(str(session.run(*command, silent=True, stderr=None)))
    listed["metadata"]["component"]["version"] = Path(wheel).name.split("-")[1]
    (place / "sbom.json").write_text(json.dumps(listed, indent=2), encoding="utf-8")


@nox.session
def pictures(session: nox.Session) -> None:
    """Make the pictures of the documentation anew, with the system's Chromium."""
    _install(session, "test")
    session.run("python", "-m", "payasync", "demo", "--save", "docs/images/demo.svg")
    session.run("python", "-m", "tests.pictures")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into docs/_build, without network; a warning is an error."""
    _install(session, "docs")
    session.run("sphinx-build", "--quiet", "--fail-on-warning", "--keep-going", *session.posargs, "docs", "docs/_build")
    session.log("open docs/_build/index.html")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the rows of the performance budgets; `-- call sqlite` measures these, and `-- --help` lists them."""
    _install(session, "bench", "test")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(python="3.11")
def guard(session: nox.Session) -> None:
    """Count what warm operations execute: 3 % more than `benchmarks/guard.json` fails; `-- --refresh` stores anew."""
    _install(session)
    session.run("python", "-m", "benchmarks.guard", *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Check at length; `-- soak` is one part of it, and `-- kills --operations 5000 --kills 40` are fewer kills."""
    _install(session, "test")
    session.run("python", "-m", "tests.chaos", *session.posargs)


def _install(session: nox.Session, *groups: str) -> None:
    """Install what is locked for the package with all extras and for these groups, and then the package itself."""
    _install_locked(session, "run", "build", *groups)
    session.install("--no-deps", "--no-build-isolation", ".")


def _install_locked(session: nox.Session, *names: str) -> None:
    session.install("--require-hashes", *(f"--requirement=locks/{name}.txt" for name in names))


def _hide_source(session: nox.Session) -> None:
    # Safe path: the package in this folder must not hide the installed one.
    session.env["PYTHONSAFEPATH"] = "1"


def _least(session: nox.Session) -> str:
    """Write down the least version of each dependency that pyproject.toml allows, and return the file."""
    project = PYPROJECT["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    least = dict.fromkeys(re.sub(r"(?:\[.*\])?>=([\d.]+).*", r"==\1\n", one) for one in asked if "pytest" not in one)
    file = Path(session.create_tmp()) / "least.txt"
    file.write_text("".join(least), encoding="utf-8")
    return str(file)


def _group(name: str) -> tuple[str, ...]:
    return nox.project.dependency_groups(PYPROJECT, name)


def _holds_python(path: Path) -> bool:
    return path.is_file() or any(path.rglob("*.py"))
