"""The demo `documents`: a folder of contracts, written by code, read and filled in."""

from pathlib import Path

SPEC_FILE = Path(__file__).with_name("documents.yaml")
