"""The parts that the dashboard's HTML is made of; every text goes through `escape`."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape
from typing import Final
from urllib.parse import urlencode

from payasync.sandbox.instants import shown

TIMELINE: Final = "/timeline"

_MOODS: Final = {
    **dict.fromkeys(("paid", "succeeded", "active", "delivered"), "good"),
    **dict.fromkeys(("failed", "past_due", "dead"), "bad"),
    **dict.fromkeys(("pending", "processing", "scheduled", "waiting"), "wait"),
}
_ACTIONS: Final = '<span class="hidden">Actions</span>'


def table(caption: str, columns: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table; on a phone its rows become cards, and stay rows for who does not see them.

    Args:
        caption: What it lists, for who does not see it.
        columns: Their headings; an empty one is that of the actions.
        rows: As `row` makes them.
    """
    heads = "".join(f'<th scope="col" role="columnheader">{escape(name) or _ACTIONS}</th>' for name in columns)
    return f"""<div class="scroll"><table role="table"><caption class="hidden">{escape(caption)}</caption>
<thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{"".join(rows)}</tbody></table></div>"""


def row(key: str, cells: Mapping[str, str]) -> str:
    """Return a row of a table.

    Args:
        key: The HTML of the cell that names the row.
        cells: The HTML of the others, by the heading of their column.
    """
    inner = "".join(_cell(label, html) for label, html in cells.items())
    return f'<tr role="row"><th scope="row" role="rowheader">{key}</th>{inner}</tr>\n'


def _cell(label: str, html: str) -> str:
    empty = "" if html else ' class="empty"'
    return f'<td role="cell" data-label="{escape(label)}"{empty}><div>{html}</div></td>'


def badge(state: str, wire: str | int = "") -> str:
    """Return a state by our name, and by the profile's value where it has one."""
    value = f' <code class="wire">{escape(str(wire))}</code>' if wire != "" else ""
    return f'<span class="badge {_MOODS.get(state, "still")}">{escape(state.replace("_", " "))}</span>{value}'


def press(action: str, label: str, about: str, fields: Mapping[str, str]) -> str:
    """Return a form that is one button.

    Args:
        action: Where it goes, below `/admin`.
        label: What the button says.
        about: What it is done to, for who does not see the row around it.
        fields: What it sends.
    """
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields.items()
    )
    about = f'<span class="hidden"> {escape(about)}</span>' if about else ""
    return f'<form method="post" action="/admin/{action}">{hidden}<button>{escape(label)}{about}</button></form>'


def buttons(*forms: str) -> str:
    """Return the buttons of a row side by side."""
    return f'<div class="actions">{"".join(forms)}</div>' if any(forms) else ""


def number(text: str) -> str:
    """Return the number of something, with a link to all that happened to it."""
    address = f"{TIMELINE}?{urlencode({'about': text})}"
    if not text:
        return ""
    return f'<a class="number" href="{escape(address)}" title="{escape(text)}"><code>{escape(text)}</code></a>'


def moment(at: datetime) -> str:
    """Return a moment, to the second."""
    return instant(shown(at))


def instant(iso: str) -> str:
    """Return a moment in ISO 8601 to the second, and the whole of it where it is pointed at."""
    day, _, time = iso.partition("T")
    return f'<time datetime="{escape(iso)}" title="{escape(iso)}">{escape(day)} {escape(time[:8])}</time>'


def options(values: Iterable[str], chosen: str = "") -> str:
    """Return the options of a choice."""
    return "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(_said(value))}</option>'
        for value in values
    )


def _said(value: str) -> str:
    return "any" if value == "*" else value.removeprefix("notification.").replace("_", " ")
