"""Memory does not grow with the file; a process that never loads does not pay for polars."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from cell_engine.store.collections import Collection

LOAD = """
import sys
from pathlib import Path
from cell_engine.load import load_file, loader
from cell_engine.store.collections import find_collection
from cell_engine.store.database import connect

loader.PART_BYTES = 4 * 2**20
with connect(sys.argv[1], application="test") as connection:
    loaded = load_file(connection, find_collection(connection, "demo/things"), Path(sys.argv[2]), actor="ann")
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(loaded.rows, len(loaded.batches), int(peak.split()[1]) // 1024)
"""


def load(database: str, path: Path) -> tuple[int, int, int]:
    """Rows, batches and the most memory, in MB, of a process of its own that loads `path`."""
    done = subprocess.run([sys.executable, "-c", LOAD, database, path], check=True, capture_output=True, text=True)
    rows, batches, peak = map(int, done.stdout.split())
    return rows, batches, peak


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_file(database: str, collection: Collection, tmp_path: Path, suffix: str) -> None:
    peaks = []
    for rows in (20_000, 60_000):
        # 2 kB a row that neither Parquet's dictionary nor its compression makes small.
        frame = pl.DataFrame({"count": range(rows)}).with_columns(
            title=pl.concat_str(pl.col("count").hash(seed).cast(pl.String) for seed in range(100))
        )
        path = tmp_path / f"{rows}.{suffix}"
        if suffix == "csv":
            frame.write_csv(path)
        else:
            frame.write_parquet(path, row_group_size=2_000)
        loaded, batches, peak = load(database, path)
        assert loaded == rows
        peaks.append(peak)
    assert path.stat().st_size > (100 if suffix == "csv" else 45) * 2**20
    assert batches > 15
    assert peaks[1] - peaks[0] < 25, peaks


def test_polars_is_imported_only_to_read_frames() -> None:
    check = "import cell_engine.load, sys; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
