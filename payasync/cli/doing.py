"""Beside a progress bar: what goes on."""

from rich.progress import ProgressColumn, Task
from rich.text import Text

from payasync.cli.intent_table import span


class Doing(ProgressColumn):
    """What goes on, and how long it waits still."""

    def render(self, task: Task) -> Text:
        """Return it, as it is now."""
        left = task.fields["until"] - task.get_time()
        return Text(f"  {task.description}{f' in {span(left)}' if left > 0 else ''}")
