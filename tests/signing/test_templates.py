import pytest
from multidict import CIMultiDict

from payasync.credentials import Secret
from payasync.errors import ConfigurationError
from payasync.signing.schemes import SortedPairs
from payasync.signing.templates import fill, is_place, names_in, signatures_at, values_at


def test_names_in_braces_are_replaced_by_bytes() -> None:
    """Each name is replaced, also by bytes that are no text; all else stays, line breaks included."""
    values: dict[str, str | bytes] = {"timestamp": "1700000000", "body": b"\xff{timestamp}", "nonce": "n"}

    assert ["timestamp", "body", "body"] == names_in("{timestamp}\n{body}{body}")
    assert b"1700000000\n\xff{timestamp}\xc3\xa9" == fill("{timestamp}\n{body}é", values)
    assert b"constant" == fill("constant", values)


HEADERS = CIMultiDict([("X-Sign", "t=1, v1=abc,v1=d=f"), ("x-sign", 'Scheme keyid="k";n=2'), ("Time", "7")])


def test_values_stand_in_headers_or_in_a_part_of_one() -> None:
    """A place is a header in any case, or one key of its `key=value` pairs; several values are all returned."""
    for place, expected in [
        ("time", ["7"]),
        ("X-Sign:t", ["1"]),
        ("X-Sign:v1", ["abc", "d=f"]),
        ("X-Sign:keyid", ["k"]),
        ("X-Sign:n", ["2"]),
        ("X-Sign:v2", []),
        ("Missing", []),
        ("Missing:t", []),
    ]:
        assert is_place(place)
        assert expected == values_at(HEADERS, place)


def test_what_names_no_header_is_no_place() -> None:
    """A place is the name of a header; after a colon stands one key."""
    for place in ["", "X Sign", "X-Sign:", ":t", "X-Sign:t:u", "X-Sign:a b", "Ä"]:
        assert not is_place(place)


OLD, NEW = "b2xk=", "bmV3=="


def test_several_signatures_may_stand_in_one_header() -> None:
    """Lines of a header that were joined are as good as several: no signature holds a comma, a semicolon or a blank."""
    for place, prefix, lines, expected in [
        *(("X", "", form, [OLD, NEW]) for form in (f"{OLD},{NEW}", f"{OLD}, {NEW}", f" {OLD} {NEW} ", f"{OLD};{NEW}")),
        ("X", "", f'"{OLD}", "{NEW}"', [OLD, NEW]),
        ("X", "", f"{OLD}\n{NEW}", [OLD, NEW]),
        ("X", "", f"keyid=1 , , {OLD}", [OLD]),
        *(("X", "", each, []) for each in ("", ",", " , ;", "=", "keyid=1")),
        *(("X:v0", "", form, [OLD, NEW]) for form in (f"v0={OLD},{NEW}", f"v0={OLD},v0={NEW}", f"v0={OLD} {NEW}")),
        ("X:v0", "", f"t=1;v0={OLD};v0={NEW};n=2", [OLD, NEW]),
        ("X:v0", "", f"t=1,v0={OLD}, t=1,v0={NEW}", [OLD, NEW]),
        ("X:v0", "", f"t=1,v0={OLD}\nt=1,v0={NEW}", [OLD, NEW]),
        ("X:v0", "", f'Scheme t=1, v0 = "{OLD}", xv0=x, v0.=x', [OLD]),
        *(("X:v0", "", each, []) for each in (OLD, "v0=", "V0=x", "xv0=x", "t=v0=x", "v00=x", "v0,x")),
        ("X", "sha256=", f"sha256={OLD},sha256={NEW}", [OLD, NEW]),
        ("X", "sha256=", f"sha256={OLD}, {NEW}", [OLD, NEW]),
        ("X", "sha256=", f"sha1=x, sha256={OLD}, sha1=x", [OLD]),
        *(("X", "sha256=", each, []) for each in (OLD, "sha256=", "SHA256=x", "xsha256=x")),
        ("X", "v1,", f"v2,x v1,{OLD}, v1,{NEW}", [OLD, NEW]),
        ("X", "v1,", f"v1,{OLD},v1,{NEW}", [OLD, NEW]),
        ("X", "HMAC ", f"HMAC {OLD}, HMAC {NEW}", [OLD, NEW]),
        ("X:s", "v1-", f"t=v1-x,s=v1-{OLD},v1-{NEW}", [OLD, NEW]),
        ("X:s", "v1-", f's="v1-{OLD}",s=v2-x,s="v1-{NEW}"', [OLD, NEW]),
    ]:
        headers = CIMultiDict(("x", line) for line in lines.split("\n"))

        assert expected == signatures_at(headers, place, prefix)


def test_md5_signs_no_text() -> None:
    """Without a key, anybody could sign a text, so `md5` neither signs nor verifies one."""
    scheme, key = SortedPairs(algorithm="md5", encoding="hex", key_param="key"), Secret("signing key of M1")
    for use in (lambda: scheme.text_signer(key), lambda: scheme.verify_text(b"", "", key=key)):
        with pytest.raises(ConfigurationError, match="it uses no key"):
            use()
