"""Sound and pictures through a real worker: files become text, what it took is booked, a missing file waits."""

from pathlib import Path

import pytest

from cell_engine.store.database import Connection
from cell_engine.store.reading import page, recent_dispatches
from tests.engine import eventually, make, offline_model, running_worker
from tests.kinds.media import png, wav

SPEC = """
namespace: test
name: media
columns:
  - {name: sound, type: file}
  - {name: photo, type: file}
  - {name: said, type: text, kind: transcribe, deps: [sound], transcribe: {model: whisper-1}}
  - {name: seen, type: text, kind: llm, llm: {model: m, prompt: "What is on the photo?\\n{{photo}}"}}
"""


@pytest.mark.usefixtures("settled_files")
def test_sound_and_pictures_become_text(
    connection: Connection, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "test" / "media"
    folder.mkdir(parents=True)
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path))
    (folder / "a.wav").write_bytes(wav("Please call back."))
    (folder / "a.png").write_bytes(png("A red bicycle leans on a wall."))
    made = make(connection, SPEC, rows=[{"sound": "a.wav", "photo": "a.png"}, {"sound": "b.wav"}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    with offline_model(monkeypatch), running_worker(database):
        eventually(
            connection,
            "select count(*) = 2 from autofill.cell where ai_value is not null and collection_id = %s and %s > 0",
            made.collection.id,
            load,
        )
        eventually(connection, "select exists (select from autofill.work where row_id = 2 and state = 'delayed')")
    _, cells = page(connection, made.collection.id)
    assert [(cell.value, cell.status) for cell in cells[:2]] == [
        ("Please call back.", "ready"),
        ("A red bicycle leans on a wall.", "ready"),
    ]
    assert cells[0].details is not None
    assert cells[0].details["seconds"] == 2.0
    assert connection.execute(
        "select cost from autofill.cell where row_id = 1 and column_id = %s", [made.id("said")]
    ).fetchone() == (200_000,)
