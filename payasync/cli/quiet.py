"""No log lines between the lines of a screen, which tells the same in better words."""

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quiet() -> Generator[None]:
    """Let what is logged meanwhile go where somebody has sent it, and not, for want of that, to standard error."""
    logger, nowhere = logging.getLogger("payasync"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)
