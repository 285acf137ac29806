"""Rules of the code base that no linter checks."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

import payasync
from payasync import profile, signing, testing
from payasync.integrations import otel, procrastinate

ROOT: Final = Path(__file__).parents[1]
NOT_LOADED: Final = {
    "click",
    "cryptography",
    "payasync.cli",
    "payasync.journal",
    "payasync.notifications",
    "payasync.sandbox",
    "rich",
    "sqlite3",
}

PUBLIC: Final = """
ABSENT NOT_YET OPERATIONS Accept AnswerShape Attempted Auth AuthenticationError Call CancelSubscription CloseOrder
ConfigurationError CreatePayment CreateRefund CreateSubscription Credentials Done DuplicateError Endpoint Event
HttpCodes Idempotency IntentConflictError InvalidArgumentError InvalidSignatureError Layer NoAnswerError
NoAnswerTimeoutError NotConfiguredError NotSentError NotSentTimeoutError NotificationShape Operation OrderResponse
OutcomeUnknownError Parameter PayasyncError PaymentResponse PlaceOrder Profile QueryOrder QueryPayment QueryRefund
RateLimitedError Recovery RefundResponse Refused Reply Request Response ResultCodes RetryPolicy Retrying SandboxShape
Secret Send ServiceError Session SessionClosedError SignatureScheme SignedHeader SortedPairs States StorageError
SubscriptionResponse Template Timeouts Unknown UpdateSubscription WaitTimeoutError __version__
"""


def pyproject() -> dict[str, Any]:
    """Return what pyproject.toml says."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def loaded(statement: str, modules: set[str]) -> list[str]:
    """Return the modules of a set that a statement loads in a new process."""
    code = f"import sys; {statement}; print(*sorted(sys.modules.keys() & {modules}))"
    # To measure coverage loads sqlite3.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_leaves_rooms_and_extras_alone() -> None:
    """The public names load the core only: a payment needs neither the sandbox, nor the CLI, nor an extra."""
    assert [] == loaded("from payasync import *", NOT_LOADED)


def test_names_are_loaded_when_they_are_used() -> None:
    """`import payasync` alone loads nothing, so that the command reacts to Ctrl-C early."""
    assert [] == loaded("import payasync", {"aiohttp", "asyncio", "attrs", "payasync.errors", "payasync.session"})
    assert ["payasync.errors"] == loaded("import payasync; payasync.NotSentError", {"aiohttp", "payasync.errors"})
    assert ["payasync.signing"] == loaded("import payasync; payasync.signing.SortedPairs", {"payasync.signing"})


def test_session_loads_only_what_every_session_needs() -> None:
    """To load and make a `Session` loads neither TOML, nor cattrs, nor the audit, so that a program starts early.

    To load it alone loads neither the tables of a profile nor the signature schemes; `Profile` loads these.
    """
    rare = {"cattrs", "importlib.resources", "tomllib", "zipfile", "zoneinfo"}
    own = {"profile.audit", "profile.sandbox_profile", "profile.toml", "wire.structure"}
    schemes = {"payasync.profile.schema", "payasync.signing.schemes"}
    tables = {f"payasync.profile.{each}" for each in ("audit", "consistency", "profile", "toml")}

    unloaded = {*rare, *(f"payasync.{each}" for each in own)}
    given = "'https://pay.example.com', credentials=Credentials('M1'), profile=Profile()"

    late = {*unloaded, *tables, *schemes, "difflib", "payasync.signing.algorithms"}
    assert [] == loaded("import payasync; payasync.Session", late)
    assert [] == loaded(f"from payasync import *; Session({given}).service", unloaded)
    assert schemes < {*loaded("from payasync import Profile", tables | schemes)}


def test_name_that_is_none() -> None:
    """A mistyped name raises an error that names it; `dir` lists the public names, and `import *` gives them."""
    for package in (payasync, profile, signing):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Sesion'"):
            _ = package.Sesion

        assert set(package.__all__) <= set(dir(package))
    for name in ("payasync.profile", "payasync.signing"):
        assert ["payasync.signing.templates"] == loaded(f"from {name} import *", {"payasync.signing.templates"})


PROFILE: Final = """
Accept AnswerShape Auth Endpoint HttpCodes Idempotency NotificationShape Parameter Profile Recovery ResultCodes
SandboxShape SignedHeader States
"""
SIGNING: Final = "AlgorithmName Encoding Nested RequestScheme SignatureScheme SortedPairs Template UnsignedRequest"
NAMES: Final = {
    payasync: PUBLIC,
    profile: PROFILE,
    signing: SIGNING,
    testing: "Signed sign_notification",
    otel: "OpenTelemetry",
    procrastinate: "PaymentTasks Retries",
}


def test_public_names_are_pinned() -> None:
    """The public surface changes only together with this list, because users import these names."""
    found = {module: getattr(module, "__all__", None) for module in NAMES}

    assert {module: names.split() for module, names in NAMES.items()} == found


def test_modules_that_decide_without_io_exist() -> None:
    """The list of modules that need full coverage names existing files, so that a rename does not drop one."""
    patterns: list[str] = pyproject()["tool"]["payasync"]["decides-without-io"]

    assert [] == [pattern for pattern in patterns if not any(ROOT.glob(pattern))]
