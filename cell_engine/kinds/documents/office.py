"""What DOCX and XLSX have in common: an archive of XML parts, unpacked and parsed within bounds.

Only parts that are asked for are unpacked, and nothing in them is followed outside. What a document embeds (another
document, an image) stays packed, so that there is no nesting to bound.
"""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from io import BytesIO
from typing import Any

from lxml import etree

from cell_engine.kinds.documents.document import DocumentError, Limits, shortened
from cell_engine.kinds.documents.sniffing import DOCX, XLSX

_CHUNK = 2**16
_RATIO_FROM = 1_000_000  # a small part of nothing but zeros is no bomb
_FIELDS = {"title": "title", "creator": "author", "created": "created", "modified": "modified"}
_KINDS = {"word/": DOCX, "xl/": XLSX}
_OTHERS = {
    "application/epub": "an EPUB book",
    "application/vnd.oasis.opendocument": "an OpenDocument file: save it as DOCX, XLSX or PDF",
}


class Package:
    """The archive in ``data``. Raises DocumentError for one that is none, or has too many members."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.unpacked
        try:
            self._archive = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise DocumentError(f"It is cut off or damaged: as an archive it cannot be opened ({error}).") from None
        members = self._archive.infolist()
        if len(members) > limits.members:
            raise DocumentError(
                f"Its archive has {len(members):,} members; {limits.members:,} are read at most.", "too_long"
            )
        self._members = {member.filename: member for member in members}
        self.main, self.media_type = self._main()

    def part(self, name: str) -> Any | None:
        """The root element of a part; None if there is no such part."""
        content = self.content(name)
        return None if content is None else parsed(content, name)

    def content(self, name: str) -> bytes | None:
        """The XML of a part, as it is; None if there is no such part."""
        member = self._members.get(name)
        return None if member is None else self._unpacked(member)

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """What the part refers to inside of the archive, by id: the last word of its type, and the part's name."""
        folder, _, base = name.rpartition("/")
        root = self.part(posixpath.join(folder, "_rels", f"{base}.rels"))
        found = {}
        for relation in root if root is not None else ():
            kind, target = relation.get("Type"), relation.get("Target")
            if kind and target and relation.get("TargetMode") != "External":
                path = target[1:] if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
                found[relation.get("Id", "")] = (kind.rpartition("/")[2], path)
        return found

    def metadata(self) -> dict[str, str]:
        """The core properties."""
        names = (path for kind, path in self.relations("").values() if kind == "core-properties")
        root = self.part(next(names, "docProps/core.xml"))
        found = {}
        for element in root if root is not None else ():
            field = _FIELDS.get(local_name(element))
            if field and element.text and element.text.strip():
                found[field] = shortened(element.text)
        return found

    def _main(self) -> tuple[str, str]:
        """The document's main part and its media type."""
        mimetype = self._members.get("mimetype")
        if mimetype is not None and mimetype.file_size < _CHUNK:
            said = self._unpacked(mimetype).decode("ascii", "replace")
            for beginning, what in _OTHERS.items():
                if said.startswith(beginning):
                    raise DocumentError(f"It is {what}.")
        for kind, path in self.relations("").values():
            if kind == "officeDocument" and path in self._members:
                for folder, media_type in _KINDS.items():
                    if path.startswith(folder):
                        return path, media_type
                raise DocumentError("It is an Office document, but neither DOCX nor XLSX: save it as PDF.")
        raise DocumentError("It is an archive, and no document: unpack it first.")

    def _unpacked(self, member: zipfile.ZipInfo) -> bytes:
        """What it unpacks to, counted while it does: what an archive says of its sizes may be a lie."""
        if member.flag_bits & 1:
            raise DocumentError("It is encrypted: its archive has a password.")
        most = self._left
        if member.compress_size * self._limits.ratio < most and member.file_size > _RATIO_FROM:
            most = max(_RATIO_FROM, member.compress_size * self._limits.ratio)
        unpacked = bytearray()
        try:
            with self._archive.open(member) as stream:
                while chunk := stream.read(_CHUNK):
                    unpacked += chunk
                    if len(unpacked) > most:
                        raise DocumentError(
                            f"{member.filename} unpacks from {member.compress_size:,} bytes to more than {most:,}, "
                            "which is as much as is unpacked: a bomb, or a very large document.",
                            "too_long",
                        )
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
            raise DocumentError(f"It is cut off or damaged: {member.filename} does not unpack ({error}).") from None
        self._left -= len(unpacked)
        return bytes(unpacked)


def parsed(xml: bytes, name: str) -> Any:
    """The root element. No entity is resolved and nothing outside is read; Office documents have no DTD, so that one
    which declares any is refused. Raises DocumentError."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(xml, parser)
    except etree.XMLSyntaxError as error:
        raise DocumentError(f"It is damaged: {name} is no XML ({error.msg}).") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise DocumentError(f"{name} declares entities, as no Office document does: it is not read.")
    return root


def local_name(element: Any) -> str:
    """The name without its namespace, of which there are two; "" for a comment."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Any, name: str) -> str | None:
    """The attribute of that name in whatever namespace."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return None
