"""Files as a source: a `Place` is a folder, or a prefix of an object store, that paths are read under and never leave.

    Place(root).read(path, limit) -> FileContent(path, name, size, modified, digest, data)

Its errors say what to do about a file: `Missing` and `Growing` to wait for it, `Unreachable` to try again, the others
(`Outside`, `TooLarge`, `FileError`) that this file will not do.
"""

from cell_engine.files.errors import FileError, Growing, Missing, Outside, TooLarge, Unreachable
from cell_engine.files.place import FileContent, FileFacts, Glimpse, Place

__all__ = [
    "FileContent",
    "FileError",
    "FileFacts",
    "Glimpse",
    "Growing",
    "Missing",
    "Outside",
    "Place",
    "TooLarge",
    "Unreachable",
]
