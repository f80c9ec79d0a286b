"""What `dg scaffold defs` makes: a component that loads as it is, and a collection to change."""

import re
from pathlib import Path

import dagster as dg
from pydantic import BaseModel, Field

from cell_engine.errors import AutofillError

_COLLECTION = """\
# A table whose computed columns are filled from the others. Everything a collection can say: docs/spec.md.
# `dg check defs` and `autofill apply` name each mistake by its line.
namespace: {namespace}
name: {name}
columns:
  # What is loaded: a CSV, TSV, JSON Lines, Parquet or .xlsx file with these columns, dropped into the inbox, is
  # a batch.
  - {{name: title, type: text}}
  - {{name: body, type: text}}

  # What is computed from it, and again whenever it changes. `{{{{body}}}}` stands for the cell's text.
  - name: summary
    type: text
    kind: llm
    llm:
      model: gpt-5-mini
      prompt: |
        Say in one sentence what "{{{{title}}}}" is about:

        {{{{body}}}}

  - name: topic
    type: choice
    choices: [news, question, offer, complaint, other]
    kind: llm
    llm: {{model: gpt-5-mini, prompt: "What kind of text is this? {{{{summary}}}}"}}
"""

_COMPONENT = """\
type: {type}

attributes:
  spec: collection.yaml
  # owners: [team:data, somebody@example.com]
  # tags: {{domain: support}}
  # group: support
  # inbox: /data/incoming/{name}
  # max_error_rate: 0.05
"""

_PYTHON = """\
import dagster as dg

from {module} import {class_name}


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> {class_name}:
    return {class_name}(spec="collection.yaml")
"""


class CollectionParams(BaseModel):
    """Options of `dg scaffold defs`."""

    namespace: str = Field(default="default", description="Whose it is: caps, credit and keys are by namespace.")


class CollectionScaffolder(dg.Scaffolder[CollectionParams]):
    """Writes collection.yaml and, beside it, the component that reads it."""

    @classmethod
    def get_scaffold_params(cls) -> type[CollectionParams]:
        return CollectionParams

    def scaffold(self, request: dg.ScaffoldRequest[CollectionParams]) -> None:
        """Raises AutofillError where the folder has a collection already: it is somebody's work."""
        folder = Path(request.target_path)
        name = re.sub(r"\W+", "_", folder.name.lower()).strip("_") or "collection"
        if not name[0].isalpha():
            name = f"collection_{name}"
        collection = folder / "collection.yaml"
        if collection.exists():
            raise AutofillError(f"{collection} exists: choose another name, or change that file")
        folder.mkdir(parents=True, exist_ok=True)
        collection.write_text(_COLLECTION.format(namespace=request.params.namespace, name=name), encoding="utf-8")
        if request.scaffold_format == "python":
            module, _, class_name = request.type_name.rpartition(".")
            (folder / "component.py").write_text(_PYTHON.format(module=module, class_name=class_name), encoding="utf-8")
        else:
            component = _COMPONENT.format(type=request.type_name, name=name)
            (folder / "defs.yaml").write_text(component, encoding="utf-8")
