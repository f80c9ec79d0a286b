"""A worker: one asyncio process that claims rows, makes visits and stores their answers in batches.

The hot path, in the order it runs: `loop.py` claims → `visit.py` plans and calls → `finalizer.py` stores → `visit.py`
plans again, until nothing is due and the row is released.
"""

from cell_engine.worker.loop import run_worker

__all__ = ["run_worker"]
