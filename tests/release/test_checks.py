"""The files that check and build the project agree: what a newcomer runs here is what runs elsewhere."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOXFILE: Final = (ROOT / "noxfile.py").read_text(encoding="utf-8")
CONTRIBUTING: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CI: Final = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
WORKFLOW: Final = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
RELEASE: Final = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
JOBS: Final[dict[str, Any]] = yaml.safe_load(WORKFLOW)["jobs"]
PYTHONS: Final[list[str]] = JOBS["tests"]["strategy"]["matrix"]["python"]
IN_WORKFLOW: Final[set[str]] = {"tests", *JOBS["checks"]["strategy"]["matrix"]["session"]}


def sessions(text: str) -> set[str]:
    """Return the sessions that the nox commands of a text name."""
    return {name for names in re.findall(r"nox -s((?: [a-z]+)+)", text) for name in names.split()}


def test_oldest_python_is_the_same_everywhere() -> None:
    """ruff, mypy, pyright, and the checks of the workflow use the oldest Python that may install the package."""
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    tools = PYPROJECT["tool"]
    (setup,) = (step for step in JOBS["checks"]["steps"] if "setup-python" in step.get("uses", ""))

    assert oldest == PYTHONS[0]
    assert f"py{oldest.replace('.', '')}" == tools["ruff"]["target-version"]
    assert [oldest] * 3 == [
        tools["mypy"]["python_version"],
        tools["pyright"]["pythonVersion"],
        setup["with"]["python-version"],
    ]


def test_classifiers_name_tested_pythons() -> None:
    """The workflow tests each Python of a classifier and no other, and none may fail there."""
    versions = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in PYPROJECT["project"]["classifiers"]
    ]
    promised = [version[1] for version in versions if version]
    (here,) = re.findall(r"--force-python ((?:3\.\d+ ?){2,})`", CONTRIBUTING)

    assert PYTHONS == promised
    assert "continue-on-error" not in JOBS["tests"]
    assert PYTHONS == here.split()


def test_named_sessions_exist() -> None:
    """Each session of nox that a page or a check names exists, and the table of CONTRIBUTING.md has all sessions."""
    existing = set(re.findall(r"^@nox\.session(?:\(.*\))?\ndef (\w+)", NOXFILE, re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / ".github" / "pull_request_template.md", *(ROOT / "docs").rglob("*.md")]
    named = sessions("\n".join([CI, RELEASE, CONTRIBUTING, *(page.read_text(encoding="utf-8") for page in pages)]))
    listed = re.findall(r"^\| `(nox -s .*?)`", CONTRIBUTING, re.MULTILINE)

    assert existing == sessions("\n".join(listed))
    assert set() == (named | IN_WORKFLOW) - existing


def test_workflow_runs_what_ci_runs() -> None:
    """The workflow runs all sessions of `.ci/run`, and those that must pass before a release; `newest` may fail."""
    (last,) = re.findall(r"^3\. Run `(nox -s .*?)`", CONTRIBUTING, re.MULTILINE)

    assert sessions(CI) < IN_WORKFLOW
    assert sessions(last) == IN_WORKFLOW - {"newest"}


def test_actions_are_fixed() -> None:
    """Each action of a workflow is a commit, with its version beside it: a tag could be moved to other code."""
    used = re.findall(r"uses: (?!\./)(.*)$", WORKFLOW + RELEASE, re.MULTILINE)

    assert used
    assert [] == [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", each)]


def test_jobs_may_do_no_more_than_they_need() -> None:
    """A workflow only reads, and the one job that may sign and publish waits for all others."""
    jobs = yaml.safe_load(RELEASE)["jobs"]
    may_sign = [name for name, job in jobs.items() if "id-token" in job["permissions"]]

    assert {"contents": "read"} == yaml.safe_load(WORKFLOW)["permissions"]
    assert {} == yaml.safe_load(RELEASE)["permissions"]
    assert ["publish"] == may_sign
    assert {*jobs} - {"publish"} == {*jobs["publish"]["needs"]}


def test_tools_of_the_tests_are_the_same_everywhere() -> None:
    """`.ci/run`, CONTRIBUTING.md and the workflow install the same programs; a machine of GitHub has a browser."""
    (here,) = re.findall(r"^for tool in (.*); do$", CI, re.MULTILINE)
    (there,) = re.findall(r"`apt-get install (.*?)`", CONTRIBUTING)
    installed = re.findall(r"apt-get install -qq -y --no-install-recommends (.*)$", WORKFLOW, re.MULTILINE)

    assert here == there
    assert [here.removeprefix("chromium ")] * len(JOBS) == installed


def test_published_documentation_is_the_checked_one() -> None:
    """Read the Docs installs what `nox -s docs` installs, and fails for a warning, too."""
    read_the_docs = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    (groups,) = re.findall(r'def docs\(.*\n.*\n    _install\(session, "(\w+)"\)', NOXFILE)
    locked, package = read_the_docs["build"]["jobs"]["install"]

    assert ["run", "build", groups] == re.findall(r"--requirement=locks/(\w+)\.txt", locked)
    assert locked.startswith("pip install --require-hashes ")
    assert package == "pip install --no-deps --no-build-isolation ."
    assert {"configuration": "docs/conf.py", "fail_on_warning": True} == read_the_docs["sphinx"]
    assert read_the_docs["build"]["tools"]["python"] in PYTHONS


def test_every_picture_can_be_made_again() -> None:
    """A session makes each picture of the documentation, so that none shows an older version."""
    programs = [ROOT / name.replace(".", "/") for name in re.findall(r'"-m", "((?:tests|benchmarks)[\w.]*)"', NOXFILE)]
    files = [file for each in programs for file in (each.glob("*.py") if each.is_dir() else [each.with_suffix(".py")])]
    makers = NOXFILE + "".join(each.read_text(encoding="utf-8") for each in files if each.is_file())

    assert [] == [each.name for each in (ROOT / "docs" / "images").iterdir() if each.name not in makers]
