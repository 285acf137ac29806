import sys
from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest
from attrs import evolve

from chaos import soak
from chaos.soak import SHORT, arm, overlooked, run
from chaos.steady import Soak
from payasync.sandbox import Sandbox
from payasync.sandbox.faults.effects import KINDS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it under /proc"),
]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have another program in the server's place."""

    def serve(program: str) -> None:
        path = tmp_path / "server.py"
        path.write_text(program, encoding="utf-8")
        monkeypatch.setattr(soak, "PROGRAM", path)

    return serve


async def test_flat() -> None:
    """Whatever is done, and whatever fails: memory, objects, descriptors, tasks and threads stay flat."""
    soaked = await run(SHORT)

    assert [] == soaked.flaws()
    assert SHORT.samples == len(soaked.samples)


async def test_control() -> None:
    """What is made to leak is seen, as short as the run is, and told by its name."""
    leaking = await run(evolve(SHORT, leaky=True))

    assert [] == overlooked(leaking)
    assert [] != leaking.flaws()
    assert [] != [line for line in leaking.more if line.startswith("payasync.calls.Reply: +")]


async def test_server_that_fails(serve: Callable[[str], None]) -> None:
    """A server that ends otherwise than it is to, or complains, is no proof of anything."""
    serve("import sys; sys.exit('a task was never awaited')")

    with pytest.raises(RuntimeError, match=r"ended with 1: a task was never awaited"):
        await run(SHORT)


async def test_server_that_hangs(serve: Callable[[str], None]) -> None:
    """A server that goes on for too long is killed."""
    serve("import time; time.sleep(600)")

    with pytest.raises(TimeoutError):
        await run(evolve(SHORT, seconds=0.5))


async def test_arm() -> None:
    """All kinds of faults are armed, and so many calls meet one as is said, and so many notifications."""
    async with Sandbox() as sandbox:
        armed = arm(sandbox, Soak(operations=1, faults=0.2))
        sandbox.faults.clear()
    of_notifications = [each.kind.startswith("notification.") and each.aim.phase is None for each in armed]
    shares = [
        1
        - prod(
            1 - (each.aim.probability or 0) for each, told in zip(armed, of_notifications, strict=True) if told is of
        )
        for of in (False, True)
    ]

    assert sorted(KINDS) == sorted(each.kind for each in armed)
    assert [0.2, 0.2] == pytest.approx(shares)
    assert len(KINDS) == len({each.seed for each in armed})
