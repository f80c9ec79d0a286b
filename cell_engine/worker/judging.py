"""What a call that has ended comes to: a result to store, and perhaps a rest of its column, or a hold of its lane."""

from cell_engine.kinds.base import PAUSING, RETRYABLE, Failure
from cell_engine.plan import Due
from cell_engine.store.claims import Reading
from cell_engine.store.results import Result
from cell_engine.worker import patience
from cell_engine.worker.calls import Called, Hit
from cell_engine.worker.holds import FREE, Holds
from cell_engine.worker.outcomes import UNCOUNTED, addressed, details_of, review
from cell_engine.worker.rest import Rest


def judge(due: Due, reading: Reading, latest: Reading, came: Called | Hit, rest: Rest, holds: Holds) -> Result:
    """The result of a call, or of an answer that spared one.

    `reading` is what the call was made with, `latest` what its visit plans with now. `rest` is told of a failure that
    is tried again, `holds` of one that every call of its lane would meet.
    """
    result = addressed(reading, due.column.id, due.read_change)
    # A force that the cell remembers may be newer than the demand of this visit, and is met by this call.
    result.signal = max(result.signal, due.forced)
    result.fingerprint = due.fingerprint
    if isinstance(came, Hit):
        result.cached = True
        result.value, result.demanded, result.model = came.value, came.signal, came.model
        result.tokens_in, result.tokens_out, result.saved_cost = came.tokens_in, came.tokens_out, came.cost
        result.details = came.details
        review(due.column, latest, result)
        return result
    outcome, result.cache_signal, probed, result.seconds = came
    outcome = patience.look(reading, due.column, outcome)
    if outcome.model is not None or outcome.tokens_in:
        result.model = outcome.model
        result.tokens_in = outcome.tokens_in
        result.tokens_out = outcome.tokens_out
        result.tokens_cached = outcome.tokens_cached
        result.tokens_reasoning = outcome.tokens_reasoning
    result.cost = outcome.cost
    asked = reading.asked.get(due.column.id)
    if asked is not None and asked.signal <= result.signal:
        result.dispatch_id = asked.dispatch  # who pays, as the store will find
    if not isinstance(outcome, Failure):
        result.value = outcome.value
        result.details = details_of(outcome)
        review(due.column, latest, result)
    elif outcome.error_class in PAUSING:
        result.retry = True
        rest.hold(due.column, holds.trip(reading.key.collection_id, due.column, outcome, probed))
    else:
        failed = 1 + latest.attempts.get(due.column.id, 0)
        limited = outcome.error_class in UNCOUNTED
        result.retry = limited or (outcome.error_class in RETRYABLE and failed < due.column.attempts)
        if result.retry:
            rest.waiting[due.column.id] = patience.rest(outcome, failed)
    if probed != FREE and not result.retry:
        # A cell's own error, too, says that the account, the key and the model are there.
        holds.prove(probed)
    if isinstance(outcome, Failure):
        result.error_class = outcome.error_class
        result.error = outcome.message or outcome.error_class
    return result
