"""What a person sees of `payasync verify-notification`."""

from typing import Final

from rich.console import Console

from payasync.cli.terminal import Lines, plain
from payasync.cli.verify_notification import Finding, Verdict

_STYLES: Final[dict[Verdict, str]] = {
    "genuine": "bold green",
    "not genuine": "bold red",
    "cannot tell": "bold yellow",
}
_WIDTH: Final = 12
"""Of the names of facts."""


class VerificationScreen:
    """The terminal.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._lines = Lines(console)

    def file(self, name: str, *, first: bool) -> None:
        """Show which file the next finding is of, where there are several."""
        if not first:
            self._lines.write()
        self._lines.write((plain(name), "bold"))

    def found(self, finding: Finding) -> None:
        """Show what was found: the verdict first."""
        why = f": {_shown(finding.why)}" if finding.why else ""
        self._lines.write((finding.verdict, _STYLES[finding.verdict]), why, hang=2)
        for name, text in finding.facts:
            self._lines.row(name, _shown(text), "", width=_WIDTH)
        if finding.hint:
            self._lines.write((f"  {'hint':{_WIDTH}}  ", "cyan"), _shown(finding.hint), hang=_WIDTH + 4)


def _shown(text: str) -> str:
    """Return a text as it may be shown: a notification is anybody's, and may hold what a terminal would obey."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)
