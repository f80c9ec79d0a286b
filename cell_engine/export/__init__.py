"""Collections into files: CSV, TSV, JSON Lines and Parquet, streamed, and there only when they are whole."""

from cell_engine.export.exporter import Exported, export_file

__all__ = ["Exported", "export_file"]
