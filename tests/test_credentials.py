import copy
import json
import pickle
import pprint
import re
import traceback
from collections.abc import Callable
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


def test_only_the_merchant_is_required() -> None:
    """Only the merchant number is required; keys that are not given are empty."""
    credentials = Credentials("M1")

    assert "M1" == credentials.merchant_id
    assert [None, None, None, (), ()] == [getattr(credentials, name) for name in KEYS]


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ab", (Secret("ab"),)),
        (Secret("a"), (Secret("a"),)),
        (["new", Secret("old")], (Secret("new"), Secret("old"))),
        (("a",), (Secret("a"),)),
    ],
)
def test_several_keys_keep_their_order(name: str, given: Any, expected: tuple[Secret, ...]) -> None:
    """Several keys keep their order, so that rotation works. One key need not be in a list."""
    several: dict[str, Any] = {name: given}

    assert expected == getattr(Credentials("M1", **several), name)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, wrong) for name in SINGLE for wrong in ("", b"canary", 5, ["canary"])),
        *(
            (name, wrong)
            for name in SEVERAL
            for wrong in ("", 5, None, [None], ["canary", ""], [b"canary"], {"canary": "b"}, [["canary"]])
        ),
    ],
    ids=repr,
)
def test_what_is_no_key_is_refused(name: str, wrong: Any) -> None:
    """A key of another type, or an empty one, is refused by name, and its value is not shown."""
    given: dict[str, Any] = {name: wrong}
    with pytest.raises(
        ConfigurationError, match=rf"^credentials\.{name}: .*must be a text that is not empty"
    ) as caught:
        Credentials("M1", **given)

    assert f"credentials.{name}" == caught.value.field
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("merchant_id", ["", " ", "\t", "M\n1", "M\x00", "M\udcff", None, 7, b"M1", Secret("M1")])
def test_merchant_must_be_a_printable_text(merchant_id: Any) -> None:
    """A merchant number that is empty, or not a printable text, is refused."""
    with pytest.raises(ConfigurationError, match="merchant_id must be a text that is not empty") as caught:
        Credentials(merchant_id)

    assert "credentials.merchant_id" == caught.value.field


def test_repr_hides_every_key() -> None:
    """The repr of credentials shows the merchant and which keys exist, but no key."""
    given: dict[str, Any] = {name: f"canary-{name}" for name in KEYS}
    printed = repr(Credentials("M1", **given))

    assert "canary" not in printed
    assert "'M1'" in printed
    assert [name for name in KEYS if f"{name}=" in printed] == list(KEYS)


def test_frozen_and_equal_by_value() -> None:
    """Credentials are frozen, and compare and hash by value."""
    credentials = Credentials("M1", secret_key="a")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        credentials.merchant_id = "M2"  # type: ignore[misc] # the mistake that is refused

    assert Credentials("M1", secret_key=Secret("a")) == credentials
    assert hash(Credentials("M1", secret_key=Secret("a"))) == hash(credentials)
    assert Credentials("M1", secret_key="b") != credentials


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("by_file", [False, True])
def test_environment_gives_each_key(name: str, tmp_path: Path, *, by_file: bool) -> None:
    """Each key is read from its own variable, or from a file without the final line end."""
    (tmp_path / "key").write_text("canary\n", encoding="utf-8")
    said = {f"{variable(name)}_FILE": str(tmp_path / "key")} if by_file else {variable(name): "canary"}
    credentials = Credentials.from_env({**MERCHANT, **said})

    assert ["canary"] == revealed(getattr(credentials, name))
    assert not any(getattr(credentials, other) for other in KEYS if other != name)


def test_environment_must_name_the_merchant() -> None:
    """Without a merchant number there are no credentials; the error names both forms of the variable."""
    with pytest.raises(
        ConfigurationError, match="PAYASYNC_MERCHANT_ID is not set: set it, or PAYASYNC_MERCHANT_ID_FILE"
    ) as caught:
        Credentials.from_env({})

    assert "PAYASYNC_MERCHANT_ID" == caught.value.field


@pytest.mark.parametrize("name", ["merchant_id", *KEYS])
def test_both_forms_of_a_variable_are_refused(name: str, tmp_path: Path) -> None:
    """A variable and its `_FILE` form are refused together, even if both hold the same key."""
    (tmp_path / "key").write_text("canary", encoding="utf-8")
    both = {variable(name): "canary", f"{variable(name)}_FILE": str(tmp_path / "key")}
    with pytest.raises(ConfigurationError, match=f"{variable(name)} and {variable(name)}_FILE are both set") as caught:
        Credentials.from_env(MERCHANT | both)

    assert variable(name) == caught.value.field


@pytest.mark.parametrize("name", ["merchant_id", *KEYS])
@pytest.mark.parametrize("empty", ["", " ", "\n"])
@pytest.mark.parametrize("by_file", [False, True])
def test_empty_setting_is_refused(name: str, empty: str, tmp_path: Path, *, by_file: bool) -> None:
    """An empty variable or file is refused by name: it is a failed deployment, not a key that is not needed."""
    (tmp_path / "key").write_text(empty, encoding="utf-8")
    given = f"{variable(name)}_FILE" if by_file else variable(name)
    environ = {key: value for key, value in MERCHANT.items() if key != variable(name)}
    with pytest.raises(ConfigurationError, match=f"^{given} is empty") as caught:
        Credentials.from_env({**environ, given: str(tmp_path / "key") if by_file else empty})

    assert given == caught.value.field


@pytest.mark.parametrize(("place", "why"), [("missing", "No such file"), (".", "Is a directory"), ("a\x00b", "")])
def test_unreadable_file_is_refused(place: str, why: str, tmp_path: Path) -> None:
    """A file that cannot be read is named, with its variable and the reason."""
    path = str(tmp_path / place)
    with pytest.raises(ConfigurationError, match=re.escape(f"PAYASYNC_SECRET_KEY_FILE: cannot read {path!r}: {why}")):
        Credentials.from_env({**MERCHANT, "PAYASYNC_SECRET_KEY_FILE": path})


def test_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """A binary key file is refused; the decoder's error, which holds its bytes, is not passed on."""
    (tmp_path / "key").write_bytes(b"canary\xff")
    with pytest.raises(ConfigurationError, match=r"cannot read .*: not UTF-8 text") as caught:
        Credentials.from_env({**MERCHANT, "PAYASYNC_SECRET_KEY_FILE": str(tmp_path / "key")})

    assert caught.value.__context__ is None
    assert "canary" not in shown(caught.value)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (" a , b ,", ["a", "b"]),
        ("a\nb\n", ["a", "b"]),
        ("a\r\n\r\n  b", ["a", "b"]),
        ("whsec_+/a=,whsec_b==", ["whsec_+/a=", "whsec_b=="]),
        (PEM, [PEM]),
        (f"{PEM}\n{OTHER_PEM}\n", [PEM, OTHER_PEM]),
        (f"  {PEM},{OTHER_PEM}", [PEM, OTHER_PEM]),
        (f"MCow=\n{PEM}\nMIIB=", ["MCow=", PEM, "MIIB="]),
        (",\n", []),
    ],
)
def test_several_keys_in_one_variable(name: str, written: str, expected: list[str], tmp_path: Path) -> None:
    """One variable may hold several keys, separated by lines or commas, or as PEM blocks. They stay in order."""
    (tmp_path / "keys").write_text(written, encoding="utf-8")
    by_value = Credentials.from_env({**MERCHANT, variable(name): written})
    by_file = Credentials.from_env({**MERCHANT, f"{variable(name)}_FILE": str(tmp_path / "keys")})

    assert expected == revealed(getattr(by_value, name))
    assert expected == revealed(getattr(by_file, name))


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


@pytest.mark.parametrize("name", ["merchant_id", *KEYS])
@pytest.mark.parametrize("ends", ENDS, ids=repr)
@pytest.mark.parametrize("by_file", [False, True])
def test_ends_of_a_value_are_removed(name: str, ends: str, tmp_path: Path, *, by_file: bool) -> None:
    """White space, line ends and byte order marks at the ends are no part of a value; white space inside is."""
    credentials = Credentials.from_env(environ_with(name, f"{ends}a b{ends}", tmp_path, by_file=by_file))

    assert ["a b"] == value_of(credentials, name)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("ends", ENDS, ids=repr)
@pytest.mark.parametrize("by_file", [False, True])
def test_ends_of_each_key_are_removed(name: str, ends: str, tmp_path: Path, *, by_file: bool) -> None:
    """Each of several keys loses them, too. PEM blocks keep their inner lines."""
    value = ",".join(f"{ends}{key}{ends}" for key in ("a", PEM, "b", OTHER_PEM))
    credentials = Credentials.from_env(environ_with(name, value, tmp_path, by_file=by_file))

    assert ["a", PEM, "b", OTHER_PEM] == value_of(credentials, name)


@pytest.mark.parametrize("name", ["merchant_id", *KEYS])
@pytest.mark.parametrize(
    ("value", "why"),
    [(f"{quotes[0]}canary{quotes[1]}", "has quotes around it") for quotes in QUOTES]
    + [('\n"canary"\n', "has quotes around it"), ("can\0ary", "holds a NUL"), ("\0canary", "holds a NUL")],
    ids=repr,
)
@pytest.mark.parametrize("by_file", [False, True])
def test_quotes_and_nul_are_refused(name: str, value: str, why: str, tmp_path: Path, *, by_file: bool) -> None:
    """Quotes around a value, or a NUL in it, are refused by the name of the variable; the value is not shown."""
    given = f"{variable(name)}_FILE" if by_file else variable(name)
    with pytest.raises(ConfigurationError, match=f"^{given} {why}") as caught:
        Credentials.from_env(environ_with(name, value, tmp_path, by_file=by_file))

    assert given == caught.value.field
    assert "ary" not in shown(caught.value)


@pytest.mark.parametrize("name", KEYS)
def test_pem_of_windows(name: str) -> None:
    """A PEM text keeps its inner line ends, whatever they are."""
    pem = PEM.replace("\n", "\r\n")
    credentials = Credentials.from_env({**MERCHANT, variable(name): f"\ufeff{pem}\r\n"})

    assert [pem] == revealed(getattr(credentials, name))


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("by_file", [False, True])
def test_quotes_around_one_of_several_keys(name: str, tmp_path: Path, *, by_file: bool) -> None:
    """Quotes around one of several keys are refused, too."""
    given = f"{variable(name)}_FILE" if by_file else variable(name)
    with pytest.raises(ConfigurationError, match=f"^{given} has quotes around it") as caught:
        Credentials.from_env(environ_with(name, "a, 'canary'\nb", tmp_path, by_file=by_file))

    assert "canary" not in shown(caught.value)


@pytest.mark.parametrize("name", SINGLE)
def test_one_key_is_never_split(name: str) -> None:
    """A single key keeps its lines and commas."""
    credentials = Credentials.from_env({**MERCHANT, variable(name): f"{PEM},x"})

    assert [f"{PEM},x"] == revealed(getattr(credentials, name))


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
    "format": format,
    "f-string": lambda secret: f"{secret}",
    "f-string with !r": lambda secret: f"{secret!r}",
    "f-string with a width": lambda secret: f"{secret:>20}",
    "percent": lambda secret: "%s %r" % (secret, secret),  # noqa: UP031 - logging formats so
    "str.format": "{0} {0!r}".format,
    "in a list": lambda secret: str([secret]),
    "in a dict": lambda secret: str({secret: secret}),
    "pprint": pprint.pformat,
    "json with default=str": lambda secret: json.dumps(secret, default=str),
}


@attrs.frozen
class Value:
    """A user's attrs class that holds a secret."""

    secret: Secret


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_masked_wherever_it_is_printed(show: Callable[[Secret], str]) -> None:
    """No way of printing a secret shows its text or its length, and each shows that there is a secret."""
    assert TEXT not in show(SECRET)
    assert MASK in show(SECRET)
    assert TEXT not in " ".join(dir(SECRET))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_refuses_pickle(protocol: int) -> None:
    """A secret, or an object that holds one, does not pickle by any protocol."""
    for holder in (SECRET, [SECRET], Value(SECRET)):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(holder, protocol)


@pytest.mark.parametrize("dump", [json.dumps, orjson.dumps, lambda value: json.dumps(value, default=vars)])
def test_refuses_json(dump: Callable[[Any], object]) -> None:
    """A secret never becomes JSON by accident."""
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


@pytest.mark.parametrize(
    ("given", "said"),
    [("", "an empty text"), (None, "NoneType"), (b"sk_live_7f3a", "bytes"), (5, "int"), (SECRET, "Secret")],
)
def test_takes_only_a_text(given: Any, said: str) -> None:
    """An invalid key is refused when it is given, and the message does not show it."""
    with pytest.raises(ConfigurationError, match=f"must be a text that is not empty, not {said}:") as caught:
        Secret(given)

    assert "7f3a" not in str(caught.value)


def test_refuses_a_lone_surrogate() -> None:
    """A key with a lone surrogate, such as from undecodable bytes, is refused."""
    with pytest.raises(ConfigurationError, match="valid Unicode") as caught:
        Secret(f"{TEXT}\udcff")

    assert TEXT not in str(caught.value)
    assert caught.value.__context__ is None
