"""`payasync sandbox` as a process of its own, started as a user starts it."""

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

import aiohttp
from attrs import field, frozen

from payasync import Credentials, Session
from payasync.cli.sandbox import environment_of
from payasync.sandbox import Sandbox
from payasync.strict_json import ABSENT, Absent
from tests.chaos.forked import Forked

COMMAND: Final = (sys.executable, "-W", "error", "-m", "payasync", "sandbox")
SECONDS: Final = 30


@frozen
class Ended:
    """The result of a process."""

    code: int
    out: str
    err: str


@frozen
class SandboxProcess:
    """A running sandbox process, made by `serving`."""

    process: Forked
    told: dict[str, Any] = field(repr=False)
    """The line of `--json`."""

    @property
    def url(self) -> str:
        """The address of the sandbox."""
        return str(self.told["url"])

    @property
    def credentials(self) -> Credentials:
        """The credentials that the process printed."""
        return Credentials.from_env(self.told["environment"])

    def end(self, number: int = signal.SIGTERM) -> Ended:
        """Send the process a signal, and wait for its end."""
        self.process.send_signal(number)
        return ended(self.process)


def environment(sandbox: Sandbox) -> dict[str, str]:
    """Return the variables that give a process the address and the keys of this sandbox."""
    return {**os.environ, **environment_of(sandbox)}


def started(*arguments: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen([*COMMAND, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str] | Forked) -> Ended:
    """Wait for the end of a process."""
    out, err = process.communicate(timeout=SECONDS)
    return Ended(process.wait(), out, err)


def lines(process: subprocess.Popen[str] | Forked, last: str) -> list[str]:
    """Return the lines that a process prints, up to one that contains a text."""
    shown: list[str] = []
    assert process.stdout
    while not shown or last not in shown[-1]:
        line = process.stdout.readline()
        assert line, ended(process).err
        shown.append(line.rstrip())
    return shown


def fact(shown: list[str], name: str) -> str:
    """Return the first word after a name in the first lines of a command."""
    return next(words[1] for words in map(str.split, shown) if words[:1] == [name])


def free_address() -> tuple[str, str]:
    """Return a loopback address for this test alone, and a free port."""
    host = f"127.{secrets.randbelow(250) + 1}.{secrets.randbelow(250) + 1}.1"
    with socket.create_server((host, 0)) as free:
        return host, str(free.getsockname()[1])


def running(*arguments: str) -> Forked:
    """Run the command in a fork that has already imported it."""
    return Forked("payasync", "sandbox", *arguments)


@contextmanager
def serving(*arguments: str) -> Generator[SandboxProcess]:
    """Run the command, on a free port unless one is given, and wait until it serves."""
    port = () if "--port" in arguments else ("--port", "0")
    with running("--json", *port, *arguments) as process:
        line = process.stdout.readline()
        assert line, ended(process).err
        yield SandboxProcess(process, json.loads(line))


def post(url: str, raw: bytes, headers: Mapping[str, str] = {}) -> tuple[int, str]:
    """Send a request, and return the status and the body of its response."""
    request = urllib.request.Request(url, raw, {"Content-Type": "application/json", **headers})  # noqa: S310 - ours
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def order_paid(environ: Mapping[str, str], number: str = "T1", notify_url: str | Absent = ABSENT) -> int:
    """Place an order, and pay it on the gateway's page; return the status of the response."""

    async def main() -> int:
        async with Session.from_env(environ) as pay, aiohttp.ClientSession() as http:
            placed = await pay.orders.place(
                total_amt=450,
                currency="CAD",
                out_trade_no=number,
                return_url="https://shop.example/thanks",
                notify_url=notify_url,
            )
            page = str(placed.redirect_url)
            async with http.post(page, data={"decision": "authorize"}, allow_redirects=False) as answer:
                return answer.status

    return asyncio.run(main())
