"""One visit of a row: plan → call what is due → store → plan again → … → nothing due → release.

An edit during the visit never cancels a call: its answer is stored with the fingerprint of what it read, and the next
plan finds the cell due again. The visit learns of new demand from the worker's poll and plans at once, beside the calls
in flight.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict

from cell_engine.kinds.apart import Apart
from cell_engine.kinds.base import RETRYABLE, Call, Failure, Kind, Outcome
from cell_engine.log import get_logger
from cell_engine.plan import BLOCKED, Blocked, Cell, Current, Due, Plan, plan
from cell_engine.specs.version import Version
from cell_engine.store.claims import Reading, RowKey, Token
from cell_engine.store.results import Ending, Release, Result, Stored
from cell_engine.worker.finalizer import Answered

ROUNDS = 3
"""No cell is called more often in one visit: a storm of edits costs a bounded rate, and still converges."""

STORM_SECONDS = 30.0
BACKOFF_SECONDS = (1.0, 60.0)

SUSPECT_DEATHS = 2
"""A row in flight at so many deaths of workers is computed apart. Not at the first: most workers die of something else,
a machine lost or a release, and all that they held would then go the slow way."""

PLACE_SECONDS = (0.5, 3.0)
"""A suspect that finds no place apart comes again after so long: it keeps no slot from others."""

log = get_logger(__name__)


class Host(Protocol):
    """What a visit needs of its worker."""

    @property
    def kinds(self) -> Mapping[str, Kind]: ...

    @property
    def apart(self) -> Apart: ...

    def version(self, collection_id: int, number: int) -> Version: ...

    async def submit(
        self, visit: "Visit", results: list[Result], release: Release | None = None, *, reread: bool = False
    ) -> Answered: ...

    def want_slot(self, visit: "Visit") -> None: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """How many seconds a failed column rests, and whether a provider asked for it: an edit does not cut that short."""

    seconds: float
    limited: bool


@dataclass(slots=True)
class Calling:
    """A call in flight, with what is stored beside its answer."""

    due: Due
    reading: Reading
    started: float
    task: "asyncio.Task[Outcome]"


class Visit:
    """The state of one visit. `slots` is how many calls it may have side by side."""

    def __init__(self, host: Host, reading: Reading, collection: str) -> None:
        self.slots = 1
        self.calling: dict[int, Calling] = {}
        self._host = host
        self._reading = reading
        self._collection = collection
        self._waiting: dict[int, Wait] = {}  # failed columns that will be tried again
        self._elsewhere: dict[int, str] = {}  # due columns of other pools: their job type
        self._spent: set[int] = set()
        self._rounds: Counter[int] = Counter()
        self._news = False
        self.wants_slot = False
        self._woken: asyncio.Event = asyncio.Event()

    @property
    def identity(self) -> tuple[RowKey, int]:
        """What the worker knows it by: its row, and the claim that brought it."""
        return self._reading.key, self._reading.token.claim

    @property
    def reading(self) -> Reading:
        return self._reading

    def tell_news(self) -> None:
        """New demand has come for the row."""
        self._news = True
        self._woken.set()

    def give_slot(self) -> None:
        self.slots += 1
        self.wants_slot = False
        self._woken.set()

    async def run(self) -> None:
        """Returns when the row is released, or another worker's."""
        while True:
            if self._news and not await self._reread():
                return
            steps = self._plan()
            found = [*map(self._found, steps.blocked), *map(self._found, steps.current)]
            if found:
                if not await self._store(found):
                    return
                continue
            if not self.calling:
                answer = await self._host.submit(self, [], self._release(()))
                if not self._goes_on(answer):
                    return
                continue
            await self._woken.wait()
            self._woken.clear()
            if not await self._collect():
                return

    async def give_up(self, ending: Ending, seconds: float | None = None) -> None:
        """The worker is stopping, or something went wrong that is not the row's fault: it goes back with its demand."""
        for calling in self.calling.values():
            calling.task.cancel()
        await asyncio.gather(*(calling.task for calling in self.calling.values()), return_exceptions=True)
        await self._host.submit(self, [], self._end(ending, seconds))

    # ---- plan and call

    def _plan(self) -> Plan:
        """Plan, and start what is due as far as the slots go."""
        reading = self._reading
        version = self._host.version(reading.key.collection_id, reading.version)
        steps = plan(reading.row, version, reading.asked, self._unsettled())
        for due in steps.due:
            column = due.column
            if column.job_type not in self._host.kinds:
                self._elsewhere[column.id] = column.job_type
            elif self._rounds[column.id] >= ROUNDS:
                self._spent.add(column.id)
            elif self._is_suspect(column.id) and not self._host.apart.free:
                self._waiting[column.id] = Wait(random.uniform(*PLACE_SECONDS), True)  # noqa: S311
            elif len(self.calling) < self.slots:
                self._call(due, version)
            elif reading.priority == "edit" and not self.wants_slot:
                self.wants_slot = True
                self._host.want_slot(self)
        return steps

    def _is_suspect(self, column_id: int) -> bool:
        """Whether calling the cell may end this process: it may have ended others, or is known to have."""
        cell = self._reading.row.cells.get(column_id)
        return self._reading.deaths >= SUSPECT_DEATHS or (cell is not None and cell.error_class == "crashed")

    def _unsettled(self) -> set[int]:
        return {*self.calling, *self._waiting, *self._elsewhere, *self._spent}

    def _call(self, due: Due, version: Version) -> None:
        column, reading = due.column, self._reading
        self._rounds[column.id] += 1
        asked = reading.asked.get(column.id)
        call = Call(
            column=column,
            inputs=due.inputs,
            names={id: version.by_id[id].key for id in due.inputs},
            collection=self._collection,
            row_id=reading.key.row_id,
            idempotency_key=":".join(
                map(
                    str,
                    (
                        reading.key.collection_id,
                        reading.key.row_id,
                        column.id,
                        due.fingerprint.hex(),
                        asked.forced if asked is not None else 0,
                    ),
                )
            ),
            deadline=column.timeout,
        )
        if self._is_suspect(column.id):
            task = self._host.apart.start(call)
        else:
            task = asyncio.create_task(self._host.kinds[column.job_type].compute(call))
        task.add_done_callback(lambda _: self._woken.set())
        self.calling[column.id] = Calling(due, reading, asyncio.get_running_loop().time(), task)

    async def _collect(self) -> bool:
        """Store the calls that have ended; with the release, if nothing follows from them. False: the visit is over."""
        ended = [self.calling.pop(id) for id, calling in list(self.calling.items()) if calling.task.done()]
        if not ended:
            return True
        results = [self._result(calling) for calling in ended]
        release = None
        if not self.calling and not self._news and self._nothing_follows(results):
            answered = tuple(result.column_id for result in results if not result.retry)
            release = self._release(answered)
            results = [_leaving(result) for result in results]
        return await self._store(results, release)

    def _nothing_follows(self, results: list[Result]) -> bool:
        """Whether a plan with these results in place would start or find anything more."""
        row = self._reading.row
        asked = {
            id: one
            for id, one in self._reading.asked.items()
            if not any(result.column_id == id and one.signal <= result.signal for result in results)
        }
        cells = dict(row.cells)
        for result in results:
            if not result.retry:
                cells[result.column_id] = _cell_after(row.cells.get(result.column_id), result, 0)
        after = type(row)(row.inputs, row.change, cells, row.deleted)
        version = self._host.version(self._reading.key.collection_id, self._reading.version)
        steps = plan(after, version, asked, self._unsettled())
        return not (steps.due or steps.blocked or steps.current)

    # ---- what calls and plans come to

    def _result(self, calling: Calling) -> Result:
        due, reading = calling.due, calling.reading
        outcome = _outcome(calling.task)
        result = Result(
            **_address(reading, due.column.id),
            read_change=due.read_change,
            fingerprint=due.fingerprint,
            model=outcome.model,
            tokens_in=outcome.tokens_in,
            tokens_out=outcome.tokens_out,
        )
        if not isinstance(outcome, Failure):
            return replace(result, value=outcome.value)
        failed = 1 + self._reading.attempts.get(due.column.id, 0)
        retry = outcome.error_class == "rate_limited" or (
            outcome.error_class in RETRYABLE and failed < due.column.attempts
        )
        if retry:
            limited = outcome.error_class == "rate_limited"
            self._waiting[due.column.id] = Wait(_pause(failed, outcome.retry_after), limited)
        error = outcome.message or outcome.error_class
        return replace(result, retry=retry, error_class=outcome.error_class, error=error)

    def _found(self, step: Blocked | Current) -> Result:
        """What a plan found without a call."""
        result = Result(**_address(self._reading, step.column.id), read_change=step.read_change, call=False)
        if isinstance(step, Current):
            return result
        return replace(
            result,
            fingerprint=step.fingerprint,
            error_class=BLOCKED,
            error=step.reason,
            demanded=step.demanded,
        )

    def _release(self, answered: tuple[int, ...]) -> Release:
        """How the visit ends, now that nothing more is due in it."""
        seconds = max((wait.seconds for wait in self._waiting.values()), default=None)
        if self._spent:
            log.warning("too many rounds, the row waits", row=self._reading.key.row_id, seconds=STORM_SECONDS)
            return self._end("defer", STORM_SECONDS, answered)
        if self._elsewhere:
            # With what failed here still resting, the other pool waits as long: it would hand the row straight back.
            return replace(self._end("hand_over", seconds, answered), job_type=next(iter(self._elsewhere.values())))
        if seconds is not None:
            return self._end("delay", seconds, answered)
        return self._end("done", None, answered)

    def _end(self, ending: Ending, seconds: float | None = None, answered: tuple[int, ...] = ()) -> Release:
        reading = self._reading
        return Release(reading.key, reading.token, reading.signal, reading.raised, ending, seconds, None, answered)

    async def _store(self, results: list[Result], release: Release | None = None) -> bool:
        answer = await self._host.submit(self, results, release)
        for result, stored in zip(results, answer.stored, strict=True):
            if not stored.won:
                return await self._lost()
            self._apply(result, stored)
        return release is None or self._goes_on(answer)

    async def _lost(self) -> bool:
        """The row is somebody else's. Calls still in flight run to their end, to be booked: they are paid for."""
        for calling in self.calling.values():
            await asyncio.wait([calling.task])
        rest = [self._result(calling) for calling in self.calling.values()]
        self.calling.clear()
        if rest:
            await self._host.submit(self, rest)
        return False

    def _apply(self, result: Result, stored: Stored) -> None:
        reading = self._reading
        if result.retry:
            if result.error_class != "rate_limited":
                reading.attempts[result.column_id] = reading.attempts.get(result.column_id, 0) + 1
            return
        reading.attempts.pop(result.column_id, None)
        asked = reading.asked.get(result.column_id)
        if asked is not None and asked.signal <= result.signal:
            del reading.asked[result.column_id]
        cells = reading.row.cells
        cells[result.column_id] = _cell_after(cells.get(result.column_id), result, stored.change)

    def _goes_on(self, answer: Answered) -> bool:
        """After a release: whether newer demand keeps the visit."""
        assert answer.released is not None
        if answer.released.reading is None:
            return False
        self._take(answer.released.reading)
        return True

    async def _reread(self) -> bool:
        self._news = False
        answer = await self._host.submit(self, [], reread=True)
        if answer.reading is None:
            return await self._lost()
        self._take(answer.reading)
        return True

    def _take(self, reading: Reading) -> None:
        self._reading = reading
        self._elsewhere.clear()
        # An edit resets what had failed: it is tried at once and afresh.
        self._waiting = {id: wait for id, wait in self._waiting.items() if wait.limited or id in reading.attempts}


class Address(TypedDict):
    """Which cell a result is for, under which token and demand."""

    key: RowKey
    token: Token
    column_id: int
    signal: int
    dispatch_id: int
    batch_id: int
    version: int


def _address(reading: Reading, column_id: int) -> Address:
    return Address(
        key=reading.key,
        token=reading.token,
        column_id=column_id,
        signal=reading.signal,
        dispatch_id=reading.dispatch_id,
        batch_id=reading.batch_id,
        version=reading.version,
    )


def _outcome(task: "asyncio.Task[Outcome]") -> Outcome:
    """A kind answers or fails, and does not raise; if it does, that is one cell's error and never the worker's end."""
    error = task.exception()
    if error is not None:
        log.error("a kind raised", error=repr(error))
        return Failure("crashed", f"{type(error).__name__}: {error}")
    return task.result()


def _leaving(result: Result) -> Result:
    """Marked as released in the same batch, except one whose failed attempt has to be kept."""
    return result if result.retry else replace(result, leaving=True)


def _cell_after(cell: Cell | None, result: Result, change: int) -> Cell:
    """The cell as the store has it after `result`; the change number is 0 where none moved."""
    before = cell or Cell()
    refreshed = not result.call and result.error_class is None
    return Cell(
        user_set=before.user_set,
        user_value=before.user_value,
        ai_value=result.value if result.call and result.error_class is None else before.ai_value,
        fingerprint=before.fingerprint if refreshed else result.fingerprint,
        called=max(before.called, result.signal) if result.call else before.called,
        demanded=0 if result.call else max(before.demanded, result.demanded),
        change=change or before.change,
        read_change=result.read_change,
        error_class=before.error_class if refreshed else result.error_class,
    )


def _pause(failed: int, retry_after: float | None) -> float:
    """Seconds until the next try: exponential with jitter, and never sooner than the other side asked for."""
    shortest, longest = BACKOFF_SECONDS
    backoff = min(longest, shortest * 2.0 ** (failed - 1)) * random.uniform(0.5, 1.0)  # noqa: S311
    return max(backoff, retry_after or 0.0)
