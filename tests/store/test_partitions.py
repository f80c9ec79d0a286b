"""What only grows is kept by the week and dropped by it."""

from cell_engine.store.database import Connection
from cell_engine.store.upkeep import keep_partitions

PARTITIONS = """
select count(*) from pg_inherits where inhparent in ('autofill.completion'::regclass, 'autofill.attempt'::regclass)
"""


def test_partitions_are_made_ahead_and_old_ones_dropped(connection: Connection) -> None:
    before = connection.execute(PARTITIONS).fetchone()
    assert before is not None
    assert before[0] == 6  # this week, the next one, and the default, of each
    connection.execute(
        "create table autofill.completion_2020w01 partition of autofill.completion "
        "for values from ('2019-12-30') to ('2020-01-06')"
    )
    assert keep_partitions(connection) == ["completion_2020w01"]
    assert keep_partitions(connection) == []
    assert connection.execute(PARTITIONS).fetchone() == before


def test_a_week_without_a_partition_is_not_lost(connection: Connection) -> None:
    connection.execute("select autofill.partitions_drop(array['attempt'], clock_timestamp() + interval '100 days')")
    connection.execute(
        "insert into autofill.attempt (dispatch_id, collection_id, batch_id, column_id, row_ids, outcome, worker_id) "
        "values (1, 1, 1, 1, '{1}', 'succeeded', gen_random_uuid())"
    )
    # The default partition has it, so this week's cannot be made any more; the next one's can.
    keep_partitions(connection)
    assert connection.execute("select count(*) from autofill.attempt").fetchone() == (1,)
