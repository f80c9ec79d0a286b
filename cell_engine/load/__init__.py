"""Files and frames into rows: streamed, checked cell by cell, added batch by batch, the same content once.

`load_file` takes CSV, TSV, JSON Lines and Parquet, `load_together` many small ones, `load_frame` any polars frame. A
file is refused whole, before anything of it is stored, when it cannot be what it says (another encoding, unknown
columns); a line that does not fit is rejected alone, with its number, next to the good ones that go in.
"""

from cell_engine.load.errors import LoadError
from cell_engine.load.loader import Loaded, Repaired, batch_keys, file_rows, load_file, load_frame, load_repaired
from cell_engine.load.repair import write_rejected
from cell_engine.load.source import ReadAs
from cell_engine.load.sync import Synced, sync_file, sync_rows
from cell_engine.load.together import LoadedTogether, load_together

__all__ = [
    "LoadError",
    "Loaded",
    "LoadedTogether",
    "ReadAs",
    "Repaired",
    "Synced",
    "batch_keys",
    "file_rows",
    "load_file",
    "load_frame",
    "load_repaired",
    "load_together",
    "sync_file",
    "sync_rows",
    "write_rejected",
]
