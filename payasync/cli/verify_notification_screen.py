"""What a person sees of `payasync verify-notification`."""

from typing import Final

from rich.console import Console
from rich.text import Text

from payasync.cli.verify_notification import Finding, Verdict

_STYLES: Final[dict[Verdict, str]] = {
    "genuine": "bold green",
    "not genuine": "bold red",
    "cannot tell": "bold yellow",
}


class VerificationScreen:
    """The terminal.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)

    def found(self, finding: Finding) -> None:
        """Show what was found: the verdict first."""
        why = f": {_shown(finding.why)}" if finding.why else ""
        self._line((finding.verdict, _STYLES[finding.verdict]), why)
        for name, text in finding.facts:
            self._line((f"  {name:13}", "dim"), _shown(text))
        if finding.hint:
            self._line(("  hint         ", "cyan"), _shown(finding.hint))

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)


def _shown(text: str) -> str:
    """Return a text as it may be shown: a notification is anybody's, and may hold what a terminal would obey."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)
