"""RSS (0.9x, 1.0, 2.0) and Atom into entries: dates in ISO 8601, links made absolute, HTML as plain text.

Parsed by lxml without entities, network or DTD. feedparser, one more dependency, reads also what is no XML, by guesses
that may lose an entry without a word; here such a feed is refused by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urljoin

from lxml import etree, html

from cell_engine.load.errors import LoadError
from cell_engine.specs.text import Json, shorten

FIELDS = ("id", "title", "link", "published", "updated", "author", "summary", "content", "categories", "feed")
"""What an entry has; a collection takes those for which it has a column of that name."""

_XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"
_MOST_ENTRIES = 50_000


@dataclass(frozen=True, slots=True)
class Entry:
    """`number`: its place in the feed, from 1. `fields`: those of FIELDS that it has; times with their offset."""

    number: int
    fields: dict[str, Json]


def read_entries(body: bytes, url: str, charset: str | None = None) -> list[Entry]:
    """The entries of the feed that came from `url`. `charset` is what its server declared, which goes before what the
    XML says of itself.

    An entry without an id goes by its link, else by what is in it. Raises LoadError for what is no feed.
    """
    root = _parsed(body, charset)
    name = _local(root)
    if name not in ("rss", "RDF", "feed"):
        hint = ": it is a page; look for the feed's own address in it" if name.lower() == "html" else ""
        raise LoadError(f"it is neither RSS nor Atom but <{name[:40]}>{hint}")
    channel = root if name == "feed" else next(_children(root, "channel"), root)
    base = _base(channel, url)
    if name != "feed":  # RSS has no rule of its own; its readers take the site's address
        base = _link(channel, base) or base
    title = _text(channel, "title")
    items = [*_children(channel, "entry", "item"), *(_children(root, "item") if name == "RDF" else ())]
    if len(items) > _MOST_ENTRIES:
        raise LoadError(f"it has {len(items):,} entries; {_MOST_ENTRIES:,} are read at most")
    return [Entry(number, _fields(item, _base(item, base), title)) for number, item in enumerate(items, 1)]


def _fields(item: Any, base: str, feed: str | None) -> dict[str, Json]:
    link = _link(item, base)
    summary, content = _plain(item, "summary", "description"), _plain(item, "content", "encoded")
    guid = next(_children(item, "guid"), None)
    if link is None and guid is not None and guid.get("isPermaLink", "true") == "true":
        permanent = _inner(guid)
        link = permanent if permanent and permanent.startswith(("http://", "https://")) else None
    found: dict[str, Json | None] = {
        "id": _text(item, "id", "guid", "identifier") or _about(item) or link,
        "title": _plain(item, "title"),
        "link": link,
        "published": _time(_text(item, "published", "pubDate", "issued", "date")),
        "updated": _time(_text(item, "updated", "modified")),
        "author": _author(item),
        "summary": summary,
        "content": content,
        "categories": _categories(item) or None,
        "feed": feed,
    }
    if found["id"] is None:
        said = "\n".join(str(found[name]) for name in ("title", "published", "summary", "content"))
        found["id"] = f"sha256:{sha256(said.encode('utf-8', 'replace')).hexdigest()}"
    return {name: value for name, value in found.items() if value is not None}


def _parsed(body: bytes, charset: str | None) -> Any:
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        charset = None
    try:
        parser = etree.XMLParser(
            encoding=charset, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_pis=True
        )
    except LookupError:
        raise LoadError(f"it says that its charset is {shorten(charset)}, which is none") from None
    try:
        root = etree.fromstring(body.lstrip(), parser)
    except etree.XMLSyntaxError as error:
        line, _ = error.position
        raise LoadError(f"it is no well-formed XML, in line {line}: {error.msg}") from None
    dtd = root.getroottree().docinfo.internalDTD
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise LoadError("it declares entities of its own, which no feed needs: it is not read")
    return root


def _local(element: Any) -> str:
    return str(element.tag).rpartition("}")[2] if isinstance(element.tag, str) else ""


def _children(element: Any, *names: str) -> Iterator[Any]:
    return (child for child in element if _local(child) in names)


def _first(element: Any, *names: str) -> Any | None:
    """The child of the first of the names that there is."""
    for name in names:
        for child in _children(element, name):
            if len(child) or _inner(child):
                return child
    return None


def _inner(element: Any) -> str | None:
    return "".join(element.itertext()).strip() or None


def _text(element: Any, *names: str) -> str | None:
    child = _first(element, *names)
    return None if child is None else _inner(child)


def _plain(element: Any, *names: str) -> str | None:
    """As people read it: RSS has escaped HTML everywhere, Atom says what it has."""
    child = _first(element, *names)
    if child is None:
        return None
    text = _inner(child)
    if text is None or child.get("type") in ("text", "xhtml") or not ("<" in text or "&" in text):
        return _lines(text)
    try:
        tree = html.fromstring(f"<div>{text}</div>")
        etree.strip_elements(tree, "script", "style", etree.Comment, with_tail=False)
        return _lines("\n".join(tree.itertext()))
    except (etree.ParserError, ValueError):
        return _lines(text)


def _lines(text: str | None) -> str | None:
    lines = (" ".join(line.split()) for line in (text or "").splitlines())
    return "\n".join(filter(None, lines)) or None


def _about(item: Any) -> str | None:
    """What an RSS 1.0 item is called."""
    return next((str(value) for name, value in item.attrib.items() if name.rpartition("}")[2] == "about"), None)


def _base(element: Any, base: str) -> str:
    return urljoin(base, str(element.get(_XML_BASE) or ""))


def _link(element: Any, base: str) -> str | None:
    """Where it leads: Atom's alternate link, else RSS's; None for what is no web address."""
    for link in _children(element, "link"):
        target = link.get("href") if link.get("rel", "alternate") == "alternate" else None
        target = target or (None if link.get("href") else _inner(link))
        if target:
            try:
                absolute = urljoin(_base(link, base), str(target).strip())
            except ValueError:
                continue
            if absolute.startswith(("http://", "https://")):
                return absolute
    return None


def _author(item: Any) -> str | None:
    author = _first(item, "author", "creator")
    if author is None:
        return None
    return _text(author, "name") or _inner(author)


def _categories(item: Any) -> list[Json]:
    found = (child.get("term") or _inner(child) for child in _children(item, "category", "subject"))
    return list(dict.fromkeys(filter(None, found)))


def _time(text: str | None) -> str | None:
    """ISO 8601 with its offset (UTC where none is given); as it stands where it is no time."""
    if text is None:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
        except ValueError:
            continue
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).isoformat()
    return text
