"""A changed column, a prompt or a model, tried on a few rows against the answers that are there. No cell is touched.

`prepare` says what would be called, and what that costs; `run` calls, and says how far old and new agree. The calls go
the way of all others: through the kind with its settings, in their place at the endpoint, paid by the namespace. They
take nothing from the cache, and leave nothing there.
"""

from cell_engine.preview.calling import run
from cell_engine.preview.comparing import Before, Preview, Tried
from cell_engine.preview.preparing import Prepared, Skipped, prepare

__all__ = ["Before", "Prepared", "Preview", "Skipped", "Tried", "prepare", "run"]
