"""What commands end with, where it is neither 0, done, nor 1, not all of it done."""

from typing import Final

CANNOT: Final = 2
"""It cannot begin, and nothing was done."""
NEEDS_A_PERSON: Final = 3
"""Something may have been done, and a person must look."""
INTERRUPTED: Final = 130
"""By Ctrl-C or SIGTERM, before it was through."""
