"""Several real connections a test, and what runs beside it on one of them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from cell_engine.store.database import Connection, connect

T = TypeVar("T")
Opened = Callable[[str], Connection]
Beside = Callable[..., "Future[Any]"]


@pytest.fixture
def opened(database: str) -> Iterator[Opened]:
    """`opened("name")` is another connection to the test's database; pg_stat_activity has it as "autofill name".

    A statement that hangs is the test's failure, not its end by time-out.
    """
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(connect(database, application=name, statement_timeout=20))


@pytest.fixture
def beside() -> Iterator[Beside]:
    """`beside(function, …)` runs it in a thread of its own and returns its future."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        yield pool.submit
