"""What `payasync listen` shows, on terminals of every width."""

import io
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from attrs import evolve
from rich.console import Console

from payasync.cli.listen import NO_KIND, OTHER_BODY, Heard, ListenScreen, Opening

OPENING: Final = Opening(
    url="http://127.0.0.1:65535",
    routed=False,
    inbox="/home/me/shop/payasync-inbox.db",
    saved="/home/me/shop/received",
    profile="my-gateway",
    source="service.toml",
    checks="webhook-signature over the body, by 2 of your keys; webhook-timestamp within 300 seconds",
    yes='200 {"received":true}',
    no='400 {"received":false}',
)
HEARD: Final = Heard(
    at=datetime(2027, 1, 31, 12, tzinfo=UTC),
    verdict="verified",
    status=200,
    kind="payment",
    event="payment.paid",
    reference="L1",
    amount="450 CAD",
    key='payment:["L1","SBX_PAID"]',
)


def lines(told: Opening | Heard, width: int | None) -> list[str]:
    """Return the lines that are shown on a terminal of so many columns, or in a file."""
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=width is not None, color_system=None, highlight=False)
    screen = ListenScreen(console=console)
    if isinstance(told, Opening):
        screen.opened(told)
    else:
        screen.heard(told)
    return [line.rstrip() for line in written.getvalue().splitlines()]


@pytest.mark.parametrize("opening", [OPENING, evolve(OPENING, routed=True, checks="")], ids=["signed", "unsigned"])
@pytest.mark.parametrize("width", [80, 120])
def test_opening_breaks_no_word(opening: Opening, width: int) -> None:
    """With the longest port there is, no line is longer than the terminal, and no word of it is broken."""
    narrow, whole = lines(opening, width), lines(opening, None)

    assert all(len(line) <= width for line in narrow)
    assert " ".join(whole).split() == " ".join(narrow).split()


def test_addresses_are_a_line_each() -> None:
    """In 80 columns what each is for stands beside it."""
    shown = [line for line in lines(OPENING, 80) if "/notify" in line and "--webhook-url" not in line]

    assert ["notifyUrl", "notifyUrl", "endpoint", "which"] == [line.split()[-1] for line in shown]


@pytest.mark.parametrize("event", ["payment.paid", "payment.expired", "ORDER_PAID"])
@pytest.mark.parametrize("again", [False, True])
def test_genuine_one_is_one_line(event: str, again: bool) -> None:  # noqa: FBT001 - a case
    """In 80 columns, with its kind, its event, its number and its amount."""
    (line,) = lines(evolve(HEARD, event=event, again=again), 80)

    assert len(line) <= 80
    assert [] == [word for word in ("payment", event, "L1", "450 CAD") if word not in line]
    assert again is ("again" in line)


@pytest.mark.parametrize(("width", "there"), [(80, False), (119, False), (120, True), (None, True)])
def test_key_where_there_is_room(width: int | None, there: bool) -> None:  # noqa: FBT001 - a case
    """It repeats the number and the state: a narrow terminal does without it, a file has it."""
    assert there is (HEARD.key in " ".join(lines(HEARD, width)))


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({}, "payment.paid"),
        ({"event": "ORDER_PAID"}, "payment ORDER_PAID"),
        ({"event": ""}, "payment"),
        ({"kind": "", "event": "something.else"}, "something.else"),
        ({"kind": "", "event": ""}, "-"),
    ],
)
def test_event_says_its_kind(facts: dict[str, Any], what: str) -> None:
    """An event that begins with its kind is told once; another one stands behind it."""
    (line,) = lines(evolve(HEARD, **facts), None)

    assert what == line[20:44].rstrip()


@pytest.mark.parametrize(
    "facts",
    [{"why": OTHER_BODY}, {"kind": "", "why": NO_KIND}, {"verdict": "refused", "key": "", "why": "x " * 60}],
    ids=["another body", "no kind", "refused"],
)
def test_what_is_to_be_said_goes_on_below(facts: dict[str, Any]) -> None:
    """A remark that is too long for the terminal goes on under the event, after a whole word."""
    shown = lines(evolve(HEARD, **facts), 80)

    assert len(shown) > 1
    assert all(len(line) <= 80 for line in shown)
    assert all(line.startswith(" " * 20) for line in shown[1:])
    assert [] == [word for word in facts["why"].split() if word not in " ".join(shown).split()]
