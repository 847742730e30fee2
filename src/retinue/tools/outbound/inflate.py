"""Unpacks the body of an answer piece by piece, never more than is wanted, and stops at what was packed to do harm."""

import zlib

from retinue.core.errors import quote
from retinue.tools.outbound.failure import RequestFailed

ACCEPTED = "gzip, deflate"
MAX_RATIO = 150
"""Text packs to a tenth; a thousandth is zeros that somebody has put there."""
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
        self._taken = 0
        self.size = 0
        self.is_full = False

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
            self._check_ratio(self._taken - len(self._unpack.unconsumed_tail))
        return piece

    def _check_ratio(self, used: int) -> None:
        if self.size > MAX_RATIO * used:
            raise RequestFailed("bomb", f"the body unpacks to more than {MAX_RATIO} times its size; it was not read")

    def _inflate(self, data: bytes, most: int) -> bytes:
        assert self._unpack is not None
        try:
            piece = self._unpack.decompress(self._unpack.unconsumed_tail + data, most)
        except zlib.error as error:
            if not self._may_be_raw or self.size:
                raise RequestFailed("network", f"the body is packed wrongly ({error})") from None
            # Some servers mean the bare stream by this name.
            self._unpack, self._may_be_raw = zlib.decompressobj(-zlib.MAX_WBITS), False
            return self._inflate(data, most)
        self._may_be_raw = self._may_be_raw and not piece
        return piece
