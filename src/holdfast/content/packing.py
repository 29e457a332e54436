"""Content as it is stored: one byte that says how the rest is packed, then the rest."""

from __future__ import annotations

import zstandard

_RAW, _ZSTD = b"\x00", b"\x01"
_LEVEL, _THOROUGH_LEVEL = 1, 5


def new_compressor(*, is_thorough: bool = False) -> zstandard.ZstdCompressor:
    """``is_thorough``: compress better in twice the time, for content that is packed in the background."""
    return zstandard.ZstdCompressor(level=_THOROUGH_LEVEL if is_thorough else _LEVEL)


def pack(content: bytes | memoryview, compressor: zstandard.ZstdCompressor) -> bytes:
    """The content, compressed if that makes it smaller."""
    small = compressor.compress(content)
    return _ZSTD + small if len(small) < len(content) else _RAW + bytes(content)


def unpack(data: object, most_bytes: object, decompressor: zstandard.ZstdDecompressor) -> bytes | None:
    """The content that was packed; None if it is damaged or larger than ``most_bytes``."""
    if not isinstance(data, bytes) or not isinstance(most_bytes, int):
        return None  # a damaged SQLite column can have any type
    if data[:1] == _RAW:
        return data[1:]
    frame = data[1:]
    try:
        # The frame states the size of its content, and that much memory is allocated before anything is unpacked.
        if zstandard.frame_content_size(frame) > most_bytes:
            return None
        return decompressor.decompress(frame, max_output_size=most_bytes)
    except zstandard.ZstdError:
        return None
