"""The janitor: a process of its own (and a Dagster sensor), so that recovery never dies with a worker."""

import threading

import psycopg

from cell_engine.janitor_watch import JanitorWatch
from cell_engine.log import get_logger
from cell_engine.parts import open_store
from cell_engine.store.budgets import enforce_all
from cell_engine.store.cache import trim
from cell_engine.store.records import stalled
from cell_engine.store.reviews import CHUNK, decide_overdue
from cell_engine.store.upkeep import keep_partitions, keep_up, trim_loads, vacuum_work
from cell_engine.store.usage import ROLL_BATCH, roll_up
from cell_engine.store.wide_view import refresh_views

log = get_logger(__name__)

PARTITION_ROUNDS = 100
# Looked at every half minute for what has waited as long: said within a minute.
STALL_ROUNDS = 6
STALL_SECONDS = 30.0


def run_janitor(url: str, *, period: float = 5.0, watch: JanitorWatch | None = None, stop: threading.Event) -> None:
    """Keep up every `period` seconds until `stop` is set; a database that is away is waited for. `watch` is told.

    Raises SchemaVersionError at the start for a database that this code cannot work with.
    """
    connection = open_store("janitor", url)
    rounds = 0
    watch = watch or JanitorWatch()
    try:
        while True:
            watch.begin()
            try:
                if connection.closed:
                    connection = open_store("janitor", url)
                if rounds % PARTITION_ROUNDS == 0:
                    keep_partitions(connection)
                    refresh_views(connection)
                    trim(connection)
                    trim_loads(connection)
                rounds += 1
                done = keep_up(connection)
                vacuum_work(connection)
                enforce_all(connection)
                while decide_overdue(connection) == CHUNK:
                    pass
                while roll_up(connection) == ROLL_BATCH:
                    pass
                for lane in stalled(connection, STALL_SECONDS) if rounds % STALL_ROUNDS == 0 else ():
                    log.warning(
                        "a lane has stalled",
                        collection=lane.collection,
                        job_type=lane.job_type,
                        seconds=round(lane.seconds),
                        reason=lane.reason,
                    )
                if done.workers or done.visits:
                    log.warning("reclaimed", workers=done.workers, visits=done.visits, dispatches=done.dispatches)
                watch.done(done, connection)
            except psycopg.OperationalError as error:
                watch.failed()
                log.warning("the janitor waits for the database", error=str(error).strip())
            if stop.wait(period):
                return
    finally:
        connection.close()
