import copy
import pickle

from payasync.documents import ABSENT


def test_absent_is_falsy_and_no_none() -> None:
    """An argument that was not given is told apart from `None`, and reads naturally in a condition."""
    assert not ABSENT
    assert ABSENT is not None


def test_absent_shows_its_name() -> None:
    """A signature that shows its defaults stays readable."""
    assert "ABSENT" == repr(ABSENT)


def test_absent_stays_the_one_value() -> None:
    """`is ABSENT` holds after a copy, and in another process."""
    assert copy.copy(ABSENT) is ABSENT
    assert copy.deepcopy(ABSENT) is ABSENT
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT  # noqa: S301 - made in the same line
