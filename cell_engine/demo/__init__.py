"""The demo: the Python distributions installed here, loaded as a file, filled in on the stack the CLI starts."""

from pathlib import Path

SPEC_FILE = Path(__file__).resolve().parents[2] / "autofill_defs" / "collections" / "packages.yaml"
"""The demo collection's definition, which Dagster's component reads, too."""
