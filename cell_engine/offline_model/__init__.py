"""A loopback stand-in for an LLM: OpenAI's chat-completions protocol, answered by extraction and word lists."""

from __future__ import annotations

from cell_engine.offline_model.server import MODEL_NAME, OfflineModel, Stats
from cell_engine.offline_model.switches import Switches

__all__ = ["MODEL_NAME", "OfflineModel", "Stats", "Switches"]
