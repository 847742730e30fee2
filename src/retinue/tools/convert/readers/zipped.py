"""Opens documents that are zip files: checks them for zip bombs first, and unpacks in memory with limits."""

import io
import stat
import zipfile
import zlib
from posixpath import normpath
from xml.etree.ElementTree import Element

from retinue.tools.convert.readers.base import Unreadable
from retinue.tools.markdown.xml import XmlError, parse_xml

MAX_MEMBERS = 5_000
MAX_TOTAL = 256 * 1024 * 1024
MAX_MEMBER = 48 * 1024 * 1024
MAX_RATIO = 200
_RATIO_FROM = 4 * 1024 * 1024
_MAX_COMMENT = 65_535 + 22


class Package:
    """A document in a zip file."""

    def __init__(self, data: bytes) -> None:
        """Raises Unreadable if the file is damaged, encrypted or a zip bomb."""
        _count_members(data)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            self._members = {item.filename: item for item in self._zip.infolist()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise Unreadable(f"the document is damaged ({error})") from None
        self._check(len(data))
        self._left = MAX_TOTAL

    def _check(self, size: int) -> None:
        items = self._zip.infolist()
        total = sum(item.file_size for item in items)
        if len(items) > MAX_MEMBERS:
            raise Unreadable(f"the document has {len(items)} parts, at most {MAX_MEMBERS} are read")
        if total > MAX_TOTAL or (total > _RATIO_FROM and total > MAX_RATIO * size):
            raise Unreadable(f"the document unpacks to {total} bytes, far more than its own {size}")
        end = 0
        for item in sorted(items, key=lambda each: each.header_offset):
            if item.flag_bits & 1:
                raise Unreadable("the document is protected with a password")
            parts = item.filename.replace("\\", "/").split("/")
            if item.filename.startswith(("/", "\\")) or ".." in parts:
                raise Unreadable(f"the document has a part outside of itself: {item.filename[:80]!r}")
            if stat.S_ISLNK(item.external_attr >> 16):
                raise Unreadable(f"the document has a link in it: {item.filename[:80]!r}")
            if item.header_offset < end:
                raise Unreadable("parts of the document overlap")
            end = item.header_offset + 30 + item.compress_size

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """Return one part; its declared size is not trusted. Raises Unreadable."""
        item = self._members.get(name)
        if item is None:
            raise Unreadable(f"the document has no part {name!r}")
        most = min(MAX_MEMBER, self._left)
        try:
            with self._zip.open(item) as member:
                data = member.read(most + 1)
        except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, OSError, EOFError) as error:
            raise Unreadable(f"the document is damaged ({error})") from None
        if len(data) > most:
            raise Unreadable(f"{name!r} in the document is larger than {most} bytes")
        self._left -= len(data)
        return data

    def read_xml(self, name: str) -> Element:
        try:
            return parse_xml(self.read(name))
        except XmlError as error:
            raise Unreadable(f"{name!r} in the document is not read: {error}") from None

    def read_links(self, name: str) -> dict[str, str]:
        """Return the targets of a part's relationships by id: paths in the document, or URLs."""
        folder, _, file = name.rpartition("/")
        path = f"{folder}/_rels/{file}.rels".lstrip("/")
        if path not in self:
            return {}
        found = {}
        for item in self.read_xml(path):
            target = item.get("Target", "")
            if item.get("TargetMode") != "External":
                target = target.lstrip("/") if target.startswith("/") else normpath(f"{folder}/{target}").lstrip("/")
            found[item.get("Id", "")] = target
        return found


def _count_members(data: bytes) -> None:
    """Refuse a directory with too many entries before it is parsed."""
    place = data.rfind(b"PK\x05\x06", max(0, len(data) - _MAX_COMMENT))
    if place >= 0 and len(data) >= place + 16:
        told = int.from_bytes(data[place + 10 : place + 12], "little")
        size = int.from_bytes(data[place + 12 : place + 16], "little")
        if told > MAX_MEMBERS or size > MAX_MEMBERS * 400:
            raise Unreadable(f"the document has more than {MAX_MEMBERS} parts")
