"""Unpacks the body of an answer piece by piece, never more than is wanted, and stops at what was packed to do harm."""

import zlib

from retinue.core.errors import quote
from retinue.tools.outbound.request import RequestFailed

ACCEPTED = "gzip, deflate"
MAX_RATIO = 150
"""Text packs to a tenth; a thousandth is zeros that somebody has put there."""
MAX_PARTS = 1000
_RATIO_FROM = 128 * 1024


class Inflater:
    """One body on its way."""

    def __init__(self, encoding: str, limit: int) -> None:
        """`limit`: bytes that are wanted at most. Raises RequestFailed for an encoding that was not asked for."""
        names = [name.strip() for name in encoding.lower().split(",") if name.strip() not in ("", "identity")]
        if len(names) > 1 or (names and names[0] not in ("gzip", "x-gzip", "deflate")):
            raise RequestFailed("network", f"the answer is packed as {quote(encoding)}, which was not asked for")
        self._limit = limit
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if names else None
        self._may_be_raw = names == ["deflate"]
        self._is_gzip = bool(names) and not self._may_be_raw
        self._parts = 1
        self._taken = 0
        self.size = 0
        self.is_full = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing of what was packed is missing, as far as can be told."""
        return self._unpack is None or self._unpack.eof or not self._taken or self.is_full

    def feed(self, data: bytes) -> bytes:
        """What a piece unpacks to. Raises RequestFailed."""
        self._taken += len(data)
        room = self._limit - self.size
        if self._unpack is None:
            piece = data[:room]
            self.is_full = len(data) > room
        else:
            piece = self._inflate(data, room + 1)
            self.is_full, piece = len(piece) > room, piece[:room]
        self.size += len(piece)
        if self._unpack is not None and self.size > _RATIO_FROM:
            self._check_ratio(self._taken - len(self._unpack.unconsumed_tail) - len(self._unpack.unused_data))
        return piece

    def _check_ratio(self, used: int) -> None:
        if self.size > MAX_RATIO * used:
            raise RequestFailed("bomb", f"the body unpacks to more than {MAX_RATIO} times its size; it was not read")

    def _inflate(self, data: bytes, most: int) -> bytes:
        """What comes next, from as many parts as are packed one behind the other."""
        found = b""
        while len(found) < most:
            assert self._unpack is not None
            if self._unpack.eof:
                data = self._unpack.unused_data + data
                # What is behind the last part is filling, and means nothing.
                if not self._is_gzip or not data.startswith(b"\x1f\x8b"):
                    break
                self._parts += 1
                if self._parts > MAX_PARTS:
                    raise RequestFailed("bomb", f"the body is packed in more than {MAX_PARTS} parts; it was not read")
                self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
            found += self._inflate_part(data, most - len(found))
            data = b""
            if not self._unpack.eof:
                break
        return found

    def _inflate_part(self, data: bytes, most: int) -> bytes:
        assert self._unpack is not None
        try:
            piece = self._unpack.decompress(self._unpack.unconsumed_tail + data, most)
        except zlib.error as error:
            if not self._may_be_raw or self.size:
                raise RequestFailed("network", f"the body is packed wrongly ({error})") from None
            # Some servers mean the bare stream by this name.
            self._unpack, self._may_be_raw = zlib.decompressobj(-zlib.MAX_WBITS), False
            return self._inflate_part(data, most)
        self._may_be_raw = self._may_be_raw and not piece
        return piece
