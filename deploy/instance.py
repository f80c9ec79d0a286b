"""Prints the dagster.yaml of an installation in Kubernetes: the one of `autofill up`, with kubernetes.yaml's keys."""

import sys
from pathlib import Path

import yaml

from autofill_defs.instance import INSTANCE_FILE


def instance() -> str:
    here = yaml.safe_load(INSTANCE_FILE.read_text(encoding="utf-8"))
    there = yaml.safe_load(Path(__file__).with_name("kubernetes.yaml").read_text(encoding="utf-8"))
    return yaml.safe_dump(here | there, sort_keys=False)


if __name__ == "__main__":
    sys.stdout.write(instance())
