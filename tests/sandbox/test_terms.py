"""What may be chosen about refunds."""

from datetime import timedelta
from typing import Any

import pytest

from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox


@pytest.mark.parametrize("refunds", ["", "succeeded", "hand", None, 5, timedelta(), timedelta(days=-1), []])
def test_what_is_no_end(refunds: Any) -> None:
    """Anything else is a mistake in the configuration."""
    with pytest.raises(ConfigurationError, match="refunds must be") as refused:
        Sandbox(refunds=refunds)

    assert "refunds" == refused.value.field


@pytest.mark.parametrize("repeated", ["", "once", None, True])
def test_what_is_no_repetition(repeated: Any) -> None:
    """So is another word for what a repeated number means."""
    with pytest.raises(ConfigurationError, match="repeated_refunds must be") as refused:
        Sandbox(repeated_refunds=repeated)

    assert "repeated_refunds" == refused.value.field
