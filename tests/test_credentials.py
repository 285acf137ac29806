import copy
import json
import pickle
import pprint
import re
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final

import attrs
import orjson
import pytest

from payasync.credentials import MASK, Credentials, Secret
from payasync.errors import ConfigurationError

KEYS: Final = ("secret_key", "public_key", "signing_key", "service_keys", "notification_keys")
SINGLE: Final = KEYS[:3]
SEVERAL: Final = KEYS[3:]
ALL: Final = ("merchant_id", *KEYS)
PEM: Final = "-----BEGIN PUBLIC KEY-----\nMIIB\n+/a=\n-----END PUBLIC KEY-----"
OTHER_PEM: Final = "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----"
MERCHANT: Final = {"PAYASYNC_MERCHANT_ID": "M1"}


def variable(name: str) -> str:
    """Return the environment variable of an argument."""
    return f"PAYASYNC_{name.upper()}"


def revealed(held: Secret | tuple[Secret, ...] | None) -> list[str]:
    """Return the texts of one or several secrets."""
    secrets = held if isinstance(held, tuple) else (held,)
    return [secret.reveal() for secret in secrets if secret]


def shown(error: BaseException) -> str:
    """Return a traceback with the local variables of every frame below the test's own."""
    below = error.__traceback__ and error.__traceback__.tb_next
    return "".join(traceback.TracebackException(type(error), error, below, capture_locals=True).format())


ENDS: Final = ["\n", "\r", "\r\n", " ", "\t", "\u00a0", "\ufeff", "\ufeff\n", " \ufeff "]
"""What editors, shells and copied pages leave at the ends of a value."""
QUOTES: Final = ['""', "''", "``", "\u201c\u201d", "\u2018\u2019", "\u201e\u201c", "\u00ab\u00bb"]


def environ_with(name: str, value: str, folder: Path, *, by_file: bool) -> dict[str, str]:
    """Return an environment that gives one setting, and the merchant's number."""
    (folder / "given").write_bytes(value.encode())
    given = {f"{variable(name)}_FILE": str(folder / "given")} if by_file else {variable(name): value}
    return given if name == "merchant_id" else {**MERCHANT, **given}


def value_of(credentials: Credentials, name: str) -> list[str]:
    """Return the merchant's number, or the keys of a name."""
    return [credentials.merchant_id] if name == "merchant_id" else revealed(getattr(credentials, name))


def test_only_the_merchant_is_required() -> None:
    """Only the merchant number is required; keys that are not given are empty."""
    credentials = Credentials("M1")

    assert "M1" == credentials.merchant_id
    assert [None, None, None, (), ()] == [getattr(credentials, name) for name in KEYS]


def test_several_keys_keep_their_order() -> None:
    """Several keys keep their order, so that rotation works. One key need not be in a list."""
    new, old = Secret("new"), Secret("old")
    cases: list[tuple[Any, tuple[Secret, ...]]] = [("new", (new,)), (new, (new,)), (["new", old], (new, old))]
    for name, (given, expected) in product(SEVERAL, [*cases, (("old",), (old,))]):
        several: dict[str, Any] = {name: given}

        assert expected == getattr(Credentials("M1", **several), name)


NO_KEYS: Final[dict[tuple[str, ...], list[Any]]] = {
    SINGLE: ["", b"canary", 5, ["canary"]],
    SEVERAL: ["", 5, None, [None], ["canary", ""], [b"canary"], {"canary": "b"}, [["canary"]]],
}
NO_MERCHANTS: Final[list[Any]] = ["", " ", "\t", "M\n1", "M\x00", "M\udcff", None, 7, b"M1", Secret("M1")]


def test_what_is_no_key_is_refused() -> None:
    """A key of another type, or an empty one, is refused by name, and its value is not shown.

    So is a merchant number that is empty, or not a printable text.
    """
    for name, wrong in [(name, each) for names, wrongs in NO_KEYS.items() for name in names for each in wrongs]:
        given: dict[str, Any] = {name: wrong}
        why = rf"^credentials\.{name}: .*must be a text that is not empty"
        with pytest.raises(ConfigurationError, match=why) as caught:
            Credentials("M1", **given)

        assert (f"credentials.{name}", False) == (caught.value.field, "canary" in str(caught.value))
    for merchant_id in NO_MERCHANTS:
        with pytest.raises(ConfigurationError, match="merchant_id must be a text that is not empty") as caught:
            Credentials(merchant_id)

        assert "credentials.merchant_id" == caught.value.field


def test_environment_gives_each_key(tmp_path: Path) -> None:
    """Each key is read from its own variable, or from a file without the final line end."""
    for name, by_file in product(KEYS, (False, True)):
        credentials = Credentials.from_env(environ_with(name, "canary\n", tmp_path, by_file=by_file))

        assert ["canary"] == revealed(getattr(credentials, name))
        assert not any(getattr(credentials, other) for other in KEYS if other != name)


def test_both_forms_of_a_variable_are_refused(tmp_path: Path) -> None:
    """A variable and its `_FILE` form are refused together, even if both hold the same key.

    Without a merchant number there are no credentials; the error names both forms of the variable.
    """
    for name in ALL:
        both = environ_with(name, "canary", tmp_path, by_file=True) | {variable(name): "canary"}
        why = f"{variable(name)} and {variable(name)}_FILE are both set"
        with pytest.raises(ConfigurationError, match=why) as caught:
            Credentials.from_env(both)

        assert variable(name) == caught.value.field
    why = "PAYASYNC_MERCHANT_ID is not set: set it, or PAYASYNC_MERCHANT_ID_FILE"
    with pytest.raises(ConfigurationError, match=why) as caught:
        Credentials.from_env({})
    assert "PAYASYNC_MERCHANT_ID" == caught.value.field


WRONG: Final = {
    **dict.fromkeys(("", " ", "\n"), "is empty"),
    **{f"{quotes[0]}canary{quotes[1]}": "has quotes around it" for quotes in QUOTES},
    '\n"canary"\n': "has quotes around it",
    "can\0ary": "holds a NUL",
    "\0canary": "holds a NUL",
}


def test_wrong_value_is_refused(tmp_path: Path) -> None:
    """An empty variable or file, quotes around a value, and a NUL in it are refused by name; no value is shown.

    An empty one is a failed deployment, not a key that is not needed. Quotes may be around one of several keys.
    """
    several = [(name, "a, 'canary'\nb", "has quotes around it") for name in SEVERAL]
    cases = [(name, value, why) for name, (value, why) in product(ALL, WRONG.items())]
    for (name, value, why), by_file in product(cases + several, (False, True)):
        given = f"{variable(name)}_FILE" if by_file else variable(name)
        with pytest.raises(ConfigurationError, match=f"^{given} {why}") as caught:
            Credentials.from_env(environ_with(name, value, tmp_path, by_file=by_file))

        assert (given, False) == (caught.value.field, "ary" in shown(caught.value))


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    """A file that cannot be read is named, with its variable and the reason.

    The error of a decoder, which holds the file's bytes, is not passed on.
    """
    (tmp_path / "key").write_bytes(b"canary\xff")
    reasons = {"missing": "No such file", ".": "Is a directory", "a\x00b": "", "key": "not UTF-8 text"}
    for place, why in reasons.items():
        path = str(tmp_path / place)
        words = re.escape(f"PAYASYNC_SECRET_KEY_FILE: cannot read {path!r}: {why}")
        with pytest.raises(ConfigurationError, match=words) as caught:
            Credentials.from_env({**MERCHANT, "PAYASYNC_SECRET_KEY_FILE": path})

        assert "canary" not in shown(caught.value)
        assert place != "key" or caught.value.__context__ is None


SPLIT: Final = {
    "a": ["a"],
    "a,b": ["a", "b"],
    " a , b ,": ["a", "b"],
    "a\nb\n": ["a", "b"],
    "a\r\n\r\n  b": ["a", "b"],
    "whsec_+/a=,whsec_b==": ["whsec_+/a=", "whsec_b=="],
    PEM: [PEM],
    f"{PEM}\n{OTHER_PEM}\n": [PEM, OTHER_PEM],
    f"  {PEM},{OTHER_PEM}": [PEM, OTHER_PEM],
    f"MCow=\n{PEM}\nMIIB=": ["MCow=", PEM, "MIIB="],
    ",\n": [],
    **{",".join(f"{ends}{key}{ends}" for key in ("a", PEM, "b")): ["a", PEM, "b"] for ends in ENDS},
}


def test_several_keys_in_one_variable(tmp_path: Path) -> None:
    """One variable may hold several keys, separated by lines or commas, or as PEM blocks. They stay in order.

    White space at the ends of each is removed.
    """
    for name, (written, expected), by_file in product(SEVERAL, SPLIT.items(), (False, True)):
        credentials = Credentials.from_env(environ_with(name, written, tmp_path, by_file=by_file))

        assert expected == revealed(getattr(credentials, name)), written


def test_ends_of_a_value_are_removed(tmp_path: Path) -> None:
    """White space, line ends and byte order marks at the ends are no part of a value; white space inside is.

    A single key keeps its lines and commas, and a PEM text its inner line ends, whatever they are.
    """
    inside = [(name, "a b") for name in ALL] + [(name, f"{PEM},x") for name in SINGLE]
    for (name, value), ends, by_file in product(inside, ENDS, (False, True)):
        credentials = Credentials.from_env(environ_with(name, f"{ends}{value}{ends}", tmp_path, by_file=by_file))

        assert [value] == value_of(credentials, name)
    windows = PEM.replace("\n", "\r\n")
    for name in KEYS:
        credentials = Credentials.from_env({**MERCHANT, variable(name): f"\ufeff{windows}\r\n"})

        assert [windows] == revealed(getattr(credentials, name))


def test_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument, the environment of the process is read when `from_env` is called."""
    # What is read is the process's environment, so it must be set; the fixture puts it back.
    monkeypatch.setenv("PAYASYNC_MERCHANT_ID", "M1")
    monkeypatch.setenv("PAYASYNC_SIGNING_KEY", "canary")
    first = Credentials.from_env()
    monkeypatch.setenv("PAYASYNC_SIGNING_KEY", "rotated")

    assert ["canary"] == revealed(first.signing_key)
    assert ["rotated"] == revealed(Credentials.from_env().signing_key)


TEXT: Final = "sk_canary_7f3a"
SECRET: Final = Secret(TEXT)

SHOWN: Final[dict[str, Callable[[Secret], str]]] = {
    "str": str,
    "repr": repr,
    "f-string with a width": lambda secret: f"{secret:>20}",
    "percent": lambda secret: "%s %r" % (secret, secret),  # noqa: UP031 - logging formats so
    "in a dict": lambda secret: str({secret: secret}),
    "pprint": pprint.pformat,
    "json with default=str": lambda secret: json.dumps(secret, default=str),
}


@attrs.frozen
class Value:
    """A user's attrs class that holds a secret."""

    secret: Secret


def test_masked_wherever_it_is_printed() -> None:
    """No way of printing a secret shows its text or its length, and each shows that there is a secret."""
    for name, show in SHOWN.items():
        assert (False, True) == (TEXT in show(SECRET), MASK in show(SECRET)), name
    assert TEXT not in " ".join(dir(SECRET))


def test_refuses_pickle() -> None:
    """A secret, or an object that holds one, does not pickle by any protocol, and never becomes JSON by accident."""
    for protocol, holder in product(range(pickle.HIGHEST_PROTOCOL + 1), (SECRET, [SECRET], Value(SECRET))):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(holder, protocol)
    dumps: list[Callable[[Any], object]] = [json.dumps, orjson.dumps, lambda value: json.dumps(value, default=vars)]
    for dump in dumps:
        with pytest.raises(TypeError):
            dump({"key": SECRET})


def test_copies_as_itself() -> None:
    """A copy is the same object, so that the text is in memory once."""
    assert copy.copy(SECRET) is SECRET
    assert copy.deepcopy(SECRET) is SECRET


def test_equal_texts_are_equal_secrets() -> None:
    """Secrets compare and hash by their text, and never equal a plain text."""
    assert Secret("a€") == Secret("a€")
    assert hash(Secret("a€")) == hash(Secret("a€"))
    assert Secret("a") != Secret("b")
    assert SECRET != TEXT


def test_takes_only_a_text() -> None:
    """An invalid key is refused when it is given, and the message does not show it.

    So is a key with a lone surrogate, such as from undecodable bytes.
    """
    wrong: list[Any] = ["", None, b"sk_live_7f3a", 5, SECRET]
    for given in wrong:
        said = type(given).__name__ if given != "" else "an empty text"
        with pytest.raises(ConfigurationError, match=f"must be a text that is not empty, not {said}:") as caught:
            Secret(given)

        assert "7f3a" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="valid Unicode") as caught:
        Secret(f"{TEXT}\udcff")
    assert (None, False) == (caught.value.__context__, TEXT in str(caught.value))
