import copy
import dataclasses
import json
import logging
import pickle
import pprint
from collections.abc import Callable
from typing import Any, Final

import attrs
import orjson
import pytest

from payasync.credentials import MASK, Secret
from payasync.errors import ConfigurationError

TEXT: Final = "sk_canary_7f3a"
SECRET: Final = Secret(TEXT)

SHOWN: Final[dict[str, Callable[[Secret], str]]] = {
    "str": str,
    "repr": repr,
    "format": format,
    "f-string": lambda secret: f"{secret}",
    "f-string with !r": lambda secret: f"{secret!r}",
    "f-string with a width": lambda secret: f"{secret:>20}",
    "percent": lambda secret: "%s %r" % (secret, secret),  # noqa: UP031 - logging formats so
    "str.format": "{0} {0!r}".format,
    "in a list": lambda secret: str([secret]),
    "in a dict": lambda secret: str({secret: secret}),
    "pprint": pprint.pformat,
    "dir": lambda secret: " ".join(dir(secret)),
    "json with default=str": lambda secret: json.dumps(secret, default=str),
}


@dataclasses.dataclass
class Datum:
    """Somebody's dataclass that holds a secret."""

    secret: Secret


@attrs.frozen
class Value:
    """Somebody's attrs class that holds a secret."""

    secret: Secret


def test_reveal_gives_the_text() -> None:
    """`reveal` is the way to the text."""
    assert TEXT == SECRET.reveal()


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_masked_wherever_it_is_printed(show: Callable[[Secret], str]) -> None:
    """No way of printing a secret shows its text."""
    assert TEXT not in show(SECRET)


@pytest.mark.parametrize("show", [str, repr, format])
def test_mask_says_that_a_secret_is_there(show: Callable[[Secret], str]) -> None:
    """Who reads the mask sees that there is a secret, and not its length."""
    assert MASK == show(SECRET)


def test_masked_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    """A secret given to logging is masked, in the message and in the record's arguments."""
    logging.getLogger("payasync.test").warning("key %s, keys %r", SECRET, [SECRET])

    assert f"key {MASK}, keys [{MASK}]" in caplog.text
    assert TEXT not in repr(caplog.records[0].__dict__)


def test_has_no_vars() -> None:
    """What prints an object's attributes (`vars`) finds none."""
    with pytest.raises(TypeError):
        vars(SECRET)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_refuses_pickle(protocol: int) -> None:
    """A secret never enters a task queue: no protocol pickles it, nor what holds it."""
    for holder in (SECRET, [SECRET], Value(SECRET)):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(holder, protocol)


@pytest.mark.parametrize("name", ["__getstate__", "__reduce__"])
def test_refuses_to_give_its_state(name: str) -> None:
    """Serialisers that ask for the state without pickle get none."""
    with pytest.raises(TypeError, match="never pickled"):
        getattr(SECRET, name)()


@pytest.mark.parametrize("dump", [json.dumps, orjson.dumps, lambda value: json.dumps(value, default=vars)])
def test_refuses_json(dump: Callable[[Any], object]) -> None:
    """A secret never becomes JSON by accident."""
    with pytest.raises(TypeError):
        dump({"key": SECRET})


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_as_itself(copied: Callable[[Secret], Secret]) -> None:
    """A copy is the same object, so that the text is in memory once."""
    assert copied(SECRET) is SECRET


@pytest.mark.parametrize(
    "plain",
    [attrs.asdict(Value(SECRET)), dataclasses.asdict(Datum(SECRET)), attrs.asdict(Value(SECRET), recurse=False)],
)
def test_asdict_keeps_it_a_secret(plain: dict[str, Any]) -> None:
    """Turning what holds a secret into a dict does not unwrap it."""
    assert plain["secret"] is SECRET
    assert TEXT not in repr(plain)


def test_equal_texts_are_equal_secrets() -> None:
    """Secrets compare and hash by their text, so that settings that hold them do."""
    assert Secret("a€") == Secret("a€")
    assert hash(Secret("a€")) == hash(Secret("a€"))
    assert Secret("a") != Secret("b")


def test_never_equals_a_text() -> None:
    """A comparison with a text is a mistake; it must not answer whether the text was guessed."""
    assert SECRET != TEXT
    assert hash(SECRET) != hash(TEXT)


@pytest.mark.parametrize(
    ("given", "said"),
    [("", "an empty text"), (None, "NoneType"), (b"sk_live_7f3a", "bytes"), (5, "int"), (SECRET, "Secret")],
)
def test_takes_only_a_text(given: Any, said: str) -> None:
    """What is no key is refused when it is given, not when it is used; the message quotes nothing of it."""
    with pytest.raises(ConfigurationError, match=f"must be a text that is not empty, not {said}:") as caught:
        Secret(given)

    assert "7f3a" not in str(caught.value)


def test_refuses_a_lone_surrogate() -> None:
    """An undecodable byte of the environment arrives as a lone surrogate, with which nothing can be signed."""
    with pytest.raises(ConfigurationError, match="valid Unicode") as caught:
        Secret(f"{TEXT}\udcff")

    assert TEXT not in str(caught.value)
    assert caught.value.__context__ is None
