"""A body of gzip that unpacks to a thousand times its size, made piece by piece."""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

PIECE: Final = 1 << 20
"""Bytes, unpacked, of one piece of blanks."""

_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_END: Final = b"\x03\x00"
"""DEFLATE's empty last block."""


def packed(start: bytes, size: int) -> Iterator[bytes]:
    """Yield a gzip stream in pieces; unpacked it is `start`, and blanks up to a size at least.

    Args:
        start: What stands before the blanks.
        size: Bytes, unpacked.
    """
    crc, length = zlib.crc32(start), len(start)
    yield _HEAD + _block(start)
    blanks = b" " * PIECE
    again = _block(blanks)
    while length < size:
        crc, length = zlib.crc32(blanks, crc), length + PIECE
        yield again
    yield _END + struct.pack("<LL", crc, length & 0xFFFFFFFF)


def _block(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # A full flush makes a block that looks back at nothing: it can be sent again and again.
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
