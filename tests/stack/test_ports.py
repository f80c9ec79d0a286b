from __future__ import annotations

import socket
from pathlib import Path

from cell_engine.stack.ports import accepts, remembered_port


def test_a_port_stays_the_same(tmp_path: Path) -> None:
    port = remembered_port(tmp_path, "Dagster")
    assert remembered_port(tmp_path, "Dagster") == port
    assert remembered_port(tmp_path, "offline model") != port
    assert remembered_port(tmp_path, "Dagster") == port


def test_a_port_that_is_taken_is_replaced_and_the_new_one_remembered(tmp_path: Path) -> None:
    port = remembered_port(tmp_path, "Dagster")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert accepts(port)
        other = remembered_port(tmp_path, "Dagster")
        assert other != port
    assert not accepts(port)
    assert remembered_port(tmp_path, "Dagster") == other


def test_a_broken_file_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("{")
    assert remembered_port(tmp_path, "Dagster") >= 20_000
