"""Parcels: the new content of one small checkpoint, packed together and written as one row.

A row for each object would write a page of the index of names for each of them, all over the file. A parcel is added at
the end of its table; its objects get rows of their own later, those of many parcels at once and in the order of names.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import zstandard

from holdfast.content.format import DIGEST_BYTES
from holdfast.content.packing import pack, unpack

MOST_OBJECTS, MOST_BYTES = 256, 512 << 10
"""What is more than that gets rows of its own at once."""
_MOST_HEADERS_BYTES = 5 * (MOST_OBJECTS + 1)

Parcel = tuple[bytes, bytes]
"""The digests of its objects, one after the other, and their contents packed together."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def pack_parcel(contents: Mapping[bytes, bytes], compressor: zstandard.ZstdCompressor) -> Parcel:
    return b"".join(contents), pack(_encode(list(contents.values())), compressor)


def digests_in(digests: object) -> list[bytes]:
    if not isinstance(digests, bytes):
        return []
    return [digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES)]


def unpack_parcel(digests: object, data: object, decompressor: zstandard.ZstdDecompressor) -> dict[bytes, bytes]:
    """The contents by digest, not compared with it; nothing for those of a damaged parcel that are not there."""
    packed = unpack(data, MOST_BYTES + _MOST_HEADERS_BYTES, decompressor)
    try:
        contents = [] if packed is None else _decode(packed)
    except msgspec.DecodeError:
        contents = []
    return dict(zip(digests_in(digests), contents, strict=False))
