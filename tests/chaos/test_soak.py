import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from tests.chaos import soak
from tests.chaos.soak import SHORT, overlooked, run

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
    assert [] != [line for line in leaking.more if line.startswith("payasync.wire.call.Reply: +")]


async def test_server_that_fails(serve: Callable[[str], None]) -> None:
    """A server that ends otherwise than it is to, or complains, is no proof of anything."""
    serve("import sys; sys.exit('a task was never awaited')")

    with pytest.raises(RuntimeError, match=r"ended with 1: a task was never awaited"):
        await run(SHORT)
