"""The demos: the Python distributions installed here (on everything, with Dagster), and smaller ones, by name."""

from pathlib import Path

SPEC_FILE = Path(__file__).resolve().parents[2] / "autofill_defs" / "collections" / "packages.yaml"
"""The definition of the demo `packages`, which Dagster's component reads, too."""
