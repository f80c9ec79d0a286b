"""One visit of a row: plan → call what is due → store → plan again → … → nothing due → release.

An edit during the visit never cancels a call: its answer is stored with the fingerprint of what it read, and the next
plan finds the cell due again. The visit learns of new demand from the worker's poll and plans at once, beside the calls
in flight.

Calls that answer at once are planned on from before anything is stored: a row of nothing else takes one batch, however
many columns follow from one another. An answer that took time is stored first; what follows from it may take money.

A visit is no task of its own: it is advanced when something has happened to it (a call ended, what it stored is stored,
news, a slot). A task and a future for each of a few thousand visits a second cost more than all that they do.
"""

import asyncio
import math
import random
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from cell_engine.kinds.apart import Apart
from cell_engine.kinds.base import Call, Kind, Previous
from cell_engine.plan import Cell, Due, plan
from cell_engine.specs.version import Column, Version
from cell_engine.store.cache import Ask
from cell_engine.store.claims import Reading, RowKey
from cell_engine.store.results import Ending, Release, Result, Stored, owes
from cell_engine.worker.calls import Awaited, Called, Calls, Hit, Order, Task
from cell_engine.worker.finalizer import Answered, Entry
from cell_engine.worker.foresight import nothing_follows, unmoved
from cell_engine.worker.holds import Holds, Refused, refused
from cell_engine.worker.judging import judge
from cell_engine.worker.meter import Meter
from cell_engine.worker.outcomes import UNCOUNTED, cell_after, found_by_plan, outcome_at_once, settled
from cell_engine.worker.rest import Rest, Wait, ended

ROUNDS = 3
"""No cell is called more often in one visit: a storm of edits costs a bounded rate, and still converges."""

SUSPECT_DEATHS = 2
"""A row in flight at so many deaths of workers is computed apart. Not at the first: most workers die of something else,
a machine lost or a release, and all that they held would then go the slow way."""

OWNER_SECONDS = 10.0
"""Beyond its timeout, a call of a cached column may take so long to be stored until another row may make it, too."""

PLACE_SECONDS = (0.5, 3.0)
"""A suspect that finds no place apart comes again after so long: it keeps no slot from others."""


class Host(Protocol):
    """What a visit needs of its worker."""

    @property
    def kinds(self) -> Mapping[str, Kind]: ...

    @property
    def apart(self) -> Apart: ...

    @property
    def holds(self) -> Holds: ...

    @property
    def calls(self) -> Calls: ...

    @property
    def meter(self) -> Meter: ...

    def version(self, collection_id: int, number: int) -> Version: ...

    def submit(
        self, visit: "Visit", results: list[Result], release: Release | None = None, *, reread: bool = False
    ) -> None:
        """Store, and tell the visit by `stored`."""

    def advance_soon(self, visit: "Visit") -> None: ...

    def want_slot(self, visit: "Visit") -> None: ...

    def forget(self, visit: "Visit") -> None:
        """It is over."""


NOT_BEGUN = math.inf


@dataclass(slots=True)
class Calling:
    """A call that is wanted or in flight, with what is stored beside its answer. `started`: when it was sent."""

    due: Due
    reading: Reading
    task: Task
    started: float = NOT_BEGUN


class Visit:
    """The state of one visit. `slots` is how many calls it may have side by side.

    It has one thing stored at a time: meanwhile `_storing` is set, and what happens waits.
    """

    __slots__ = (
        "_begun",
        "_collection",
        "_given_up",
        "_held_back",
        "_host",
        "_is_lost",
        "_news",
        "_reading",
        "_rest",
        "_rounds",
        "_storing",
        "calling",
        "identity",
        "slots",
        "wants_slot",
    )

    def __init__(self, host: Host, reading: Reading, collection: str) -> None:
        self.slots = 1
        self.calling: dict[int, Calling] = {}
        self.identity: tuple[RowKey, int] = (reading.key, reading.token.claim)
        """What the worker knows it by: its row, and the claim that brought it."""
        self.wants_slot = False
        self._host = host
        self._reading = reading
        self._collection = collection
        self._rest = Rest()
        self._begun: dict[int, float] = {}  # when calls that are being started were sent
        self._rounds: dict[int, int] = {}  # calls made, by column
        self._held_back = False  # the last plan found calls that there was no slot for
        self._news = False
        self._storing = False
        self._is_lost = False
        self._given_up = False

    @property
    def reading(self) -> Reading:
        return self._reading

    def tell_news(self) -> None:
        """New demand has come for the row."""
        self._news = True
        self._host.advance_soon(self)

    def give_slot(self) -> None:
        self.slots += 1
        self.wants_slot = False
        self._host.advance_soon(self)

    def advance(self) -> None:
        """Go on as far as there is anything to do now."""
        if self._storing or self._given_up:
            return
        if self._is_lost:
            self._book_what_is_left()
            return
        if self.calling:
            ended = [one for one in self.calling.values() if one.task.done()]
            if ended:
                self._collect(ended)
                return
        if self._news:
            self._news = False
            self._submit([], reread=True)
            return
        results, is_over = self._plan()
        if results:
            self._submit(results, self._leave(results) if is_over else None)
        elif not self.calling:
            self._submit([], self._rest.release(self._reading, ()))

    def stored(self, entry: Entry, answer: Answered) -> None:
        """What the visit had submitted last is stored, as `entry` says now: the database may have refused a value."""
        self._storing = False
        if self._given_up or self._is_lost:
            self._host.forget(self)
            return
        if False in [one.won for one in answer.stored]:
            self._lose()
            return
        if answer.released is not None:
            if answer.released.reading is None:
                self._host.forget(self)
                return
            self._take(answer.released.reading)
        elif entry.reread:
            if answer.reading is None:
                self._lose()
                return
            self._take(answer.reading)
        else:
            for place, (result, stored) in enumerate(zip(entry.results, answer.stored, strict=True)):
                for read in [answer.stored[place - back] for back in result.reads]:
                    if read.moved:
                        result.read_change = max(result.read_change, read.change)
                self._apply(result, stored)
            self._rest.awaiting.clear()  # perhaps it was this that they wait for
        self.advance()

    async def give_up(self, ending: Ending, seconds: float | None = None) -> None:
        """The worker is stopping, or something went wrong that is not the row's fault: it goes back with its demand."""
        self._given_up = True
        for calling in self.calling.values():
            calling.task.cancel()
        await asyncio.gather(*(calling.task for calling in self.calling.values()), return_exceptions=True)
        self._host.submit(self, [], ended(self._reading, ending, seconds))

    # ---- plan and call

    def _plan(self) -> tuple[list[Result], bool]:
        """Plan, and start what is due as far as the slots go. Returns what is to be stored at once, and whether nothing
        follows from it."""
        reading = self._reading
        version = self._host.version(reading.key.collection_id, reading.version)
        answered: dict[int, Result] = {}
        called: list[tuple[Due, Call]] = []
        self._held_back = False
        answer = partial(self._answer, version, answered, called)
        steps = plan(reading.row, version, reading.asked, self._unsettled(), answer)
        for due, call in called:
            if not answered.keys().isdisjoint(version.reads[due.column.id]):
                self._held_back = True  # it may take money, and what it reads is not stored yet
            elif len(self.calling) < self.slots:
                self._start(due, call)
            else:
                self._held_back = True
                if reading.priority == "edit" and not self.wants_slot:
                    self.wants_slot = True
                    self._host.want_slot(self)
        results = list(answered.values())
        if steps.found:
            found = unmoved(steps.found, answered, version) if answered else steps.found
            return results + [found_by_plan(reading, one) for one in found], False
        return results, not (self.calling or self._held_back)

    def _answer(self, version: Version, answered: dict[int, Result], called: list[tuple[Due, Call]], due: Due) -> bool:
        """The plan's `answer`: of a call that answers at once the result goes into `answered`, by column id; any other
        that may be made now, into `called`."""
        column = due.column
        kind = self._host.kinds.get(column.job_type)
        rounds = self._rounds.get(column.id, 0)
        is_suspect = self._is_suspect(column.id)
        if kind is None:
            self._rest.elsewhere[column.id] = column.job_type
        elif rounds >= ROUNDS:
            self._rest.spent.add(column.id)
        elif is_suspect and not self._host.apart.free:
            self._rest.waiting[column.id] = Wait(random.uniform(*PLACE_SECONDS), True)  # noqa: S311
        else:
            call = self._call(due, version)
            outcome = None
            if not is_suspect and len(self.calling) < self.slots:
                outcome = outcome_at_once(kind, call)
            if outcome is None:
                called.append((due, call))
                return False
            self._rounds[column.id] = rounds + 1
            result = self._result(due, self._reading, Called(outcome))
            if answered:
                order = list(answered)
                read = [id for id in version.reads[column.id] if id in answered]
                result.reads = tuple([len(order) - order.index(id) for id in read])
            answered[column.id] = result
            if result.retry:
                return False
            if version.readers[column.id]:
                self._settle(result, 0)
            return True
        return False

    def _admit(self, column: Column) -> int | Refused:
        """Whether it may be called now: not while it is held, nor for a budget that is spent."""
        reading = self._reading
        dispatches = {reading.dispatch_id, *(one.dispatch for one in reading.asked.values())}
        unpaid = self._host.meter.admits(reading.key.collection_id, self._collection, column, dispatches)
        if unpaid is not None:
            return refused(unpaid.column_id)
        return self._host.holds.admit(reading.key.collection_id, self._collection, column)

    def _is_suspect(self, column_id: int) -> bool:
        """Whether calling the cell may end this process: it may have ended others, or is known to have."""
        cell = self._reading.row.cells.get(column_id)
        return self._reading.deaths >= SUSPECT_DEATHS or (cell is not None and cell.error_class == "crashed")

    def _unsettled(self) -> Set[int]:
        resting = self._rest.columns()
        return resting | self.calling.keys() if self.calling else resting

    def _call(self, due: Due, version: Version) -> Call:
        column, reading = due.column, self._reading
        asked = reading.asked.get(column.id)
        forced = asked.forced if asked is not None else 0
        key = reading.key
        identity = (key.collection_id, key.row_id, column.id, due.fingerprint.hex(), forced)
        previous = _previous(reading.row.cells.get(column.id))
        keys, collection = version.keys, self._collection
        return Call(column, due.inputs, keys, collection, key.row_id, identity, column.timeout, None, previous)

    def _start(self, due: Due, call: Call) -> None:
        """Want a call that takes time: it begins when there is nothing more to wait for."""
        column, reading = due.column, self._reading
        ask = None
        is_suspect = self._is_suspect(column.id)
        if column.cache is not None and not is_suspect:
            lease = column.timeout + OWNER_SECONDS
            ask = Ask(
                reading.key, reading.token.claim, column.id, due.fingerprint, due.forced, column.cache.ttl, lease
            )  # fmt: skip
        order = Order(
            call, reading.token.worker_id, ask, reading.priority == "edit", is_suspect, partial(self._begin, due)
        )  # fmt: skip
        self._begun.pop(column.id, None)
        task = self._host.calls.start(order)
        if isinstance(task, Refused):
            self._rest.hold(column, task)
            return
        task.add_done_callback(self._call_ended)
        self.calling[column.id] = Calling(due, reading, task, self._begun.pop(column.id, NOT_BEGUN))

    def _begin(self, due: Due) -> int | Refused:
        """Leave for a call, at the moment before it is sent."""
        column = due.column
        admitted = self._admit(column)
        if not isinstance(admitted, Refused):
            self._rounds[column.id] = self._rounds.get(column.id, 0) + 1
            now = asyncio.get_running_loop().time()
            calling = self.calling.get(column.id)
            if calling is None:
                self._begun[column.id] = now  # before it could be noted as called
            else:
                calling.started = now
        return admitted

    def _call_ended(self, _: Task) -> None:
        # Not at once: calls that end together are stored together.
        self._host.advance_soon(self)

    def _give_up_waiting(self) -> None:
        """Calls that have not begun would read what is no longer so, or are not this visit's any more."""
        for column_id, one in list(self.calling.items()):
            if one.started == NOT_BEGUN and not one.task.done():
                one.task.cancel()
                del self.calling[column_id]

    def _collect(self, ended: list[Calling]) -> None:
        """Store the calls that have ended; with the release, if nothing follows from them."""
        for one in ended:
            del self.calling[one.due.column.id]
        results = self._results(ended)
        if not results:
            self.advance()
            return
        is_over = (
            not self.calling
            and not self._news
            and self._nothing_follows(results, are_latest=all(one.reading is self._reading for one in ended))
        )
        self._submit(results, self._leave(results) if is_over else None)

    def _leave(self, results: list[Result]) -> Release:
        """The release in the same batch as the last results."""
        for result in results:
            result.leaving = not result.retry  # a failed attempt has to be kept
        release = self._rest.release(self._reading, tuple([one.column_id for one in results if not one.retry]))
        release.owes = owes(self._reading.asked, results)
        return release

    def _nothing_follows(self, results: list[Result], *, are_latest: bool) -> bool:
        """`nothing_follows`; `are_latest`: of calls that the latest reading made due."""
        reading = self._reading
        version = self._host.version(reading.key.collection_id, reading.version)
        is_whole = are_latest and not self._held_back
        return nothing_follows(reading, version, results, self._unsettled(), is_whole=is_whole)

    # ---- what calls and plans come to

    def _results(self, ended: list[Calling]) -> list[Result]:
        """Of those that came to something: some are another row's to make, or may not be made now."""
        results = []
        for one in ended:
            outcome = settled(one.task)
            column = one.due.column
            if isinstance(outcome, Awaited):
                self._rest.awaiting[column.id] = outcome.fingerprint
            elif isinstance(outcome, Refused):
                self._rest.hold(column, outcome)
            else:
                results.append(self._result(one.due, one.reading, outcome))
        self._host.meter.spend(results, self._collection)
        return results

    def _result(self, due: Due, reading: Reading, came: Called | Hit) -> Result:
        return judge(due, reading, self._reading, came, self._rest, self._host.holds)

    # ---- what storing comes to

    def _submit(self, results: list[Result], release: Release | None = None, *, reread: bool = False) -> None:
        self._storing = True
        self._host.submit(self, results, release, reread=reread)

    def _lose(self) -> None:
        """The row is somebody else's. Calls still in flight run to their end, to be booked: they are paid for."""
        self._is_lost = True
        self._give_up_waiting()
        self._book_what_is_left()

    def _book_what_is_left(self) -> None:
        if not all(one.task.done() for one in self.calling.values()):
            return
        rest = self._results(list(self.calling.values()))
        self.calling.clear()
        if rest:
            self._submit(rest)
        else:
            self._host.forget(self)

    def _apply(self, result: Result, stored: Stored) -> None:
        reading = self._reading
        if result.retry:
            if result.error_class not in UNCOUNTED:
                reading.attempts[result.column_id] = reading.attempts.get(result.column_id, 0) + 1
            return
        if not stored.change and (result.call or result.error_class is not None):
            self._news = True  # dropped, for its row or column has been deleted: nothing follows from it
            return
        self._settle(result, stored.change)

    def _settle(self, result: Result, change: int) -> None:
        """Plan with it; the change number is 0 where none is known to have moved."""
        reading = self._reading
        reading.attempts.pop(result.column_id, None)
        asked = reading.asked.get(result.column_id)
        if asked is not None and asked.signal <= result.signal:
            del reading.asked[result.column_id]
        cells = reading.row.cells
        cells[result.column_id] = cell_after(cells.get(result.column_id), result, change)

    def _take(self, reading: Reading) -> None:
        self._reading = reading
        self._give_up_waiting()
        self._rest.take(reading)


def _previous(cell: Cell | None) -> Previous | None:
    return None if cell is None or cell.details is None else Previous(cell.ai_value, cell.details)
