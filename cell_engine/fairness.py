"""Who gets how many slots: max-min over namespaces by weight, then over the lanes of each, below every cap.

Pure: the store reads the lanes and takes what is given here, both under the claim lock, and the simulation of
`tests/benchmarks` drives the same code.

What a lane holds already counts: the next slot goes to whom it leaves lowest. Edits (and retries) go first within a
lane's share, and of every cap, as of the worker's own slots, sweeps leave the last twentieth to them, or an edit would
wait a whole call for a slot. Where more edits wait than there is room for, some of them wait whatever is left free:
then a twentieth of what is given is kept for edits of lanes that have had their share, and a twentieth of a lane's
share for its sweeps, so that neither is starved for ever. What comes of a twentieth is drawn by lot, or one slot at a
time would always round it to nothing.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

RESERVE = 20
"""One slot of so many is left to edits, at least one of each cap that is more than one."""

WALKS = 64
"""Sweeps that one claim walks, where a namespace has more of them: each has its cost, whatever it brings. A claim of
475 rows over a thousand lanes took 121 µs a row walking all, 69 like this, and 42 over sixteen lanes."""


class Space(NamedTuple):
    """A namespace: its weight, its cap (None: none), slots held of that, and those at workers of these pools."""

    weight: int
    cap: int | None
    held: int
    here: int


class Lane(NamedTuple):
    """What waits in a lane: rows of edits and retries (`urgent`), rows that sweeps have handed over (`handed`), both
    perhaps counted only up to one more than the slots there are, and whether a sweep is open. `cap`, `held` and `here`
    are its collection's: a visit does not stay in one lane."""

    collection_id: int
    job_type: str
    space: int
    urgent: int
    handed: int
    is_swept: bool
    cap: int
    held: int
    here: int


class Share(NamedTuple):
    """Slots for rows of each sort, in one lane."""

    collection_id: int
    job_type: str
    urgent: int
    handed: int
    swept: int

    @property
    def slots(self) -> int:
        return self.urgent + self.handed + self.swept


class Offer(NamedTuple):
    """What there is to give: the worker's free slots, how many of them sweeps may have, and the room below the cap on
    everything (`cap` None: none). `bounds` are rows worth claiming by (collection id, job type), `bound` that of the
    other lanes; None: as many as there are."""

    slots: int
    sweep_slots: int
    cap: int | None = None
    held: int = 0
    bounds: Mapping[tuple[int, str], int] = {}
    bound: int | None = None


def shares(
    lanes: Sequence[Lane], spaces: Mapping[int, Space], offer: Offer, draw: Callable[[], float] = random.random
) -> list[Share]:
    """The shares of the lanes that get any. `spaces` by namespace id; `draw` decides ties and what is rounded."""
    rows = offer.slots if offer.cap is None else min(offer.slots, offer.cap - offer.held)
    if rows <= 0:
        return []
    urgent, wanted = _wants(lanes, rows, offer)
    edits = _room_for(lanes, spaces, urgent, draw)
    # Everyone, in what is open to sweeps; then edits alone, in what is left.
    open_rows = _open(offer.slots, offer.slots - offer.sweep_slots, edits, draw)
    if offer.cap is not None:
        open_rows = min(open_rows, _open(offer.cap - offer.held, _reserve(offer.cap), edits, draw))
    given = _give(lanes, spaces, wanted, min(rows, open_rows), urgent if edits else None, draw)
    left = rows - sum(given)
    if left and edits:
        given = _give_more(lanes, spaces, urgent, left, given, draw)
    found: list[Share] = []
    of: list[Lane] = []
    for lane, slots, ahead, want in zip(lanes, given, urgent, wanted, strict=True):
        if slots:
            behind = slots - ahead if slots >= ahead else _lot(slots, draw) if want > ahead else 0
            handed = min(behind, lane.handed)
            found.append(Share(lane.collection_id, lane.job_type, slots - behind, handed, behind - handed))
            of.append(lane)
    if sum([share.swept > 0 for share in found]) > WALKS:
        _bundle(found, of, offer, draw)
    return [share for share in found if share.slots]


def fill(slots: int, takers: Sequence[tuple[int, int, int]], draw: Callable[[], float] = random.random) -> list[int]:
    """Water-filling: what each of `takers` (held, want, weight) gets of so many slots.

    All is given that is wanted, and no slot could have gone to one whom it had left lower, by held / weight.
    """
    if sum(want for _, want, _ in takers) <= slots:
        return [want for _, want, _ in takers]
    # The level rises past those who hold less; one whose want is met is out. What they have got up to a level is
    # weights * level - below + met: of those getting, and of those who have got all.
    events: list[tuple[float, int, int, int]] = []
    for held, want, weight in takers:
        if want > 0:
            events.append((held / weight, weight, held, 0))
            events.append(((held + want) / weight, -weight, -held, want))
    events.sort()
    weights = below = met = 0
    for level, weight, held, want in events:
        if weights and weights * level - below + met >= slots:
            break
        weights, below, met = weights + weight, below + held, met + want
    # level = rise / weights, in whole numbers: what is given is never more than there is
    rise = slots + below - met
    given = [max(0, min(want, weight * rise // weights - held)) for held, want, weight in takers]
    left = slots - sum(given)
    if left:
        heap = [
            ((held + got + 1) / weight, draw(), place)
            for place, ((held, want, weight), got) in enumerate(zip(takers, given, strict=True))
            if got < want
        ]
        heapify(heap)
        for _ in range(left):
            _, _, place = heap[0]
            held, want, weight = takers[place]
            given[place] += 1
            if given[place] < want:
                heapreplace(heap, ((held + given[place] + 1) / weight, draw(), place))
            else:
                heappop(heap)
    return given


def _bundle(found: list[Share], lanes: Sequence[Lane], offer: Offer, draw: Callable[[], float]) -> None:
    """Bring together what sweeps of a namespace are given, a slot here and a slot there: those who hold least get as
    many as make a walk worth its cost, and at the next claim the others hold less. `lanes` are those of the shares."""
    size = -(-sum([share.swept for share in found]) // WALKS)
    shares_of = Counter([share.collection_id for share in found])
    by_space: dict[int, list[int]] = {}
    for place, (share, lane) in enumerate(zip(found, lanes, strict=True)):
        # a collection's cap is for all its lanes, and a bound for what it was weighed with
        is_bound = offer.bounds.get(lane[:2], offer.bound) is not None
        if share.swept and shares_of[share.collection_id] == 1 and not is_bound:
            by_space.setdefault(lane.space, []).append(place)
    for places in by_space.values():
        left = sum([found[place].swept for place in places])
        for place in sorted(places, key=lambda place: (lanes[place].here, draw())):
            share, lane = found[place], lanes[place]
            room = lane.cap - lane.held - _reserve(lane.cap) - share.urgent - share.handed
            found[place] = share._replace(swept=min(left, max(share.swept, min(size, room))))
            left -= found[place].swept


def _wants(lanes: Sequence[Lane], rows: int, offer: Offer) -> tuple[list[int], list[int]]:
    """By lane: the rows of edits that it would take, and all that it would take of so many."""
    urgent, wanted = [], []
    bounded = bool(offer.bounds) or offer.bound is not None
    for lane in lanes:
        ahead = lane.urgent
        want = ahead + (rows if lane.is_swept else lane.handed)
        if bounded:
            bound = offer.bounds.get(lane[:2], offer.bound)
            if bound is not None:
                ahead, want = min(ahead, max(0, bound)), min(want, max(0, bound))
        urgent.append(ahead)
        wanted.append(want)
    return urgent, wanted


class _Collection(NamedTuple):
    """What the lanes of a collection want in all, as far as there is room; `places` are theirs among the lanes."""

    here: int
    want: int
    places: list[int]


def _clip(
    lanes: Sequence[Lane],
    spaces: Mapping[int, Space],
    wants: Sequence[int],
    urgent: Sequence[int] | None,
    draw: Callable[[], float],
    *,
    is_open: bool,
) -> list[tuple[Space, int, list[_Collection]]]:
    """What there is room for, by namespace and in it by collection; with `is_open`, of the room that is open to
    everyone, where edits want `urgent` (None: nothing)."""
    by_collection: dict[int, list[int]] = {}
    for place, lane in enumerate(lanes):
        if wants[place]:
            known = by_collection.setdefault(lane.collection_id, [place])
            if known[0] != place:
                known.append(place)
    by_space: dict[int, tuple[list[_Collection], list[int]]] = {}
    for places in by_collection.values():
        lane = lanes[places[0]]
        want = wants[places[0]] if len(places) == 1 else sum([wants[place] for place in places])
        room = lane.cap - lane.held
        ahead = 0 if urgent is None else sum([urgent[place] for place in places])
        if is_open:
            room = _open(room, _reserve(lane.cap), ahead, draw)
            ahead = max(0, min(ahead, lane.cap - lane.held))
        if want > room:
            want = room
        if want > 0:
            collections, edits = by_space.setdefault(lane.space, ([], []))
            collections.append(_Collection(lane.here, want, places))
            edits.append(ahead)
    clipped = []
    for space_id, (collections, edits) in by_space.items():
        space = spaces[space_id]
        want = sum([one.want for one in collections])
        if space.cap is not None:
            room = space.cap - space.held
            if is_open:
                room = _open(room, _reserve(space.cap), sum(edits), draw)
            want = max(0, min(want, room))
        clipped.append((space, want, collections))
    return clipped


def _room_for(
    lanes: Sequence[Lane], spaces: Mapping[int, Space], urgent: Sequence[int], draw: Callable[[], float]
) -> int:
    """How many of these rows the caps of collections and namespaces would let through."""
    return sum(want for _, want, _ in _clip(lanes, spaces, urgent, None, draw, is_open=False)) if any(urgent) else 0


def _give(
    lanes: Sequence[Lane],
    spaces: Mapping[int, Space],
    wants: Sequence[int],
    slots: int,
    urgent: Sequence[int] | None,
    draw: Callable[[], float],
    *,
    is_open: bool = True,
) -> list[int]:
    """So many slots to those who want them, by lane; `is_open`: of what sweeps may have."""
    given = [0] * len(lanes)
    clipped = _clip(lanes, spaces, wants, urgent, draw, is_open=is_open)
    of_spaces = fill(slots, [(space.here, want, space.weight) for space, want, _ in clipped], draw)
    for (_, _, collections), of_space in zip(clipped, of_spaces, strict=True):
        of_collections = fill(of_space, [(one.here, one.want, 1) for one in collections], draw)
        for (_, _, places), of_collection in zip(collections, of_collections, strict=True):
            if len(places) == 1:
                given[places[0]] = of_collection
            else:
                of_lanes = fill(of_collection, [(0, wants[place], 1) for place in places], draw)
                for place, of_lane in zip(places, of_lanes, strict=True):
                    given[place] = of_lane
    return given


def _give_more(
    lanes: Sequence[Lane],
    spaces: Mapping[int, Space],
    urgent: Sequence[int],
    slots: int,
    given: Sequence[int],
    draw: Callable[[], float],
) -> list[int]:
    """What was given, and of so many slots more what edits still want."""
    of_collection, of_space = Counter[int](), Counter[int]()
    for lane, got in zip(lanes, given, strict=True):
        of_collection[lane.collection_id] += got
        of_space[lane.space] += got
    now = [
        lane._replace(held=lane.held + of_collection[lane[0]], here=lane.here + of_collection[lane[0]])
        for lane in lanes
    ]
    around = {
        id: space._replace(held=space.held + of_space[id], here=space.here + of_space[id])
        for id, space in spaces.items()
    }
    more = [ahead - got if ahead > got else 0 for ahead, got in zip(urgent, given, strict=True)]
    return [
        got + added
        for got, added in zip(given, _give(now, around, more, slots, None, draw, is_open=False), strict=True)
    ]


def _reserve(cap: int) -> int:
    return max(1, cap // RESERVE) if cap > 1 else 0


def _open(room: int, reserve: int, edits: int, draw: Callable[[], float]) -> int:
    """How much of a room everyone may have, and not edits alone."""
    return room - (_lot(room, draw) if edits > room > 0 else reserve)


def _lot(slots: int, draw: Callable[[], float]) -> int:
    """A twentieth of it: rounded up as often as that comes to a twentieth."""
    return int(slots / RESERVE + draw())
