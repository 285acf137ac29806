"""What all tests share."""

import sys
from pathlib import Path

from hypothesis import settings

# Behind all else: an installed payasync comes first, and `tests.` and `benchmarks.` are found.
sys.path.append(str(Path(__file__).parents[1]))

# A busy machine makes an example slow, not wrong.
settings.register_profile("payasync", deadline=None)
settings.load_profile("payasync")
