"""The PostgreSQL server of an installation without one of its own: `ensure(home)` starts it or finds it running.

Any process may call any of these at any time. The server belongs to the home folder, not to a process: it outlives
whoever started it, until `stop(home)`.
"""

from cell_engine.embedded.binaries import find_psql
from cell_engine.embedded.databases import database_url, ensure_database
from cell_engine.embedded.server import Server, ensure, running, stop

__all__ = ["Server", "database_url", "ensure", "ensure_database", "find_psql", "running", "stop"]
