"""Forty contracts, made up by code: what each says, and what is known to be true of it. The same ones every time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from cell_engine.demo.documents import writers
from cell_engine.specs.text import Json

CONTRACTS = 40

# Each by the sentence that carries it.
RISKS: dict[str, str] = {
    "unlimited liability": "The Company bears unlimited liability for every loss of the other party, however caused.",
    "automatic renewal": "This agreement is subject to automatic renewal for five years, again and again.",
    "exclusive dealing": "The Company accepts exclusive dealing: it buys such goods and services from nobody else.",
    "one-sided termination": "The other party alone has a right of one-sided termination, at any time.",
}
LAWS = ("England and Wales", "Germany", "France", "Switzerland", "New York")

_KINDS = ("Supply", "Maintenance", "Consulting", "Licence", "Lease", "Transport", "Hosting", "Research")
_NAMES = (
    "Northwind Paper", "Halden Instruments", "Brücke & Söhne", "Atelier Roussel", "Kestrel Freight", "Ostrava Castings",
    "Lindqvist Timber", "Meridian Optics", "Papadakis Shipping", "Quarry Lane Foods", "Rhône Textiles",
    "Sable Robotics", "Tamar Ceramics", "Ulster Linen", "Verdant Seeds", "Whitby Marine",
)  # fmt: skip
_FORMS = ("Ltd", "GmbH", "SARL", "AG", "Inc")
_PARTIES = ("Counterparty", "Supplier", "Contractor")
_STARTS = ("Start date", "Effective date", "Commencement date")
_ENDS = ("End date", "Expiry date", "Last day")
_AMOUNTS = ("Contract value", "Total fee", "Price")
_CURRENCIES = ("EUR", "GBP", "USD", "CHF")

_CLAUSES = (
    "Deliveries are inspected within ten working days. What is not objected to in that time counts as accepted.",
    "Invoices are due thirty days after they are received. Interest on late sums is four per cent a year.",
    "Each party keeps confidential what it learns of the other, for three years after this agreement has ended.",
    "Neither party owes the other more than was paid in the year before the event that gave rise to the claim.",
    "Changes to this agreement are made in writing and signed by both.",
    "Neither party is answerable for delays by events that it could not have prevented.",
    "Personal data is processed only as far as these duties call for it, and deleted when they have ended.",
    "Notices are sent to the addresses above, and take effect on the working day after they arrive.",
)

_WRITERS: tuple[tuple[str, Callable[[Sequence[writers.Page], str], bytes]], ...] = (
    ("pdf", writers.pdf),
    ("docx", writers.docx),
    ("txt", writers.text),
    ("html", writers.html),
    ("md", writers.markdown),
)


@dataclass(frozen=True)
class Contract:
    """What is true of one; `path` is its file's, under the folder."""

    path: str
    counterparty: str
    starts: date
    ends: date
    amount: float
    law: str
    risk: str | None

    def facts(self) -> dict[str, Json]:
        """By column of the demo, what its cell should come to: None for not found."""
        return {
            "counterparty": self.counterparty,
            "starts": self.starts.isoformat(),
            "ends": self.ends.isoformat(),
            "amount": self.amount,
            "law": self.law,
            "risk": self.risk,
        }


def contracts() -> Iterator[tuple[Contract, bytes]]:
    """Each with the content of its file."""
    chance = random.Random(20_260_301)  # noqa: S311 (made up, and always the same)
    risks = [*RISKS, None, None, None, None]
    for number in range(CONTRACTS):
        suffix, write = _WRITERS[number % len(_WRITERS)]
        kind = _KINDS[number % len(_KINDS)]
        starts = date(2024, 1, 1) + timedelta(days=chance.randrange(900))
        contract = Contract(
            path=f"{2024 + number % 3}/{number + 1:02d}-{kind.lower()}.{suffix}",
            counterparty=f"{_NAMES[number % len(_NAMES)]} {chance.choice(_FORMS)}",
            starts=starts,
            ends=starts + timedelta(days=chance.randrange(180, 1800)),
            amount=chance.randrange(40, 9000) * 50 + chance.choice((0, 0, 0.5)),
            law=chance.choice(LAWS),
            risk=risks[number % len(risks)],
        )
        yield contract, write(_pages(contract, kind, chance), f"{kind} agreement No. {number + 1}")


def write_folder(folder: Path) -> list[Contract]:
    """Write what is not there yet, or not as it should be; a file is there whole or not at all."""
    made = []
    for contract, content in contracts():
        made.append(contract)
        file = folder / contract.path
        if file.exists() and file.read_bytes() == content:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}")
        unfinished.write_bytes(content)
        unfinished.replace(file)
    return made


def _pages(contract: Contract, kind: str, chance: random.Random) -> list[writers.Page]:
    currency = chance.choice(_CURRENCIES)
    party = chance.choice(_PARTIES)
    clauses = chance.sample(_CLAUSES, 6)
    if contract.risk is not None:
        clauses.insert(chance.randrange(1, len(clauses)), RISKS[contract.risk])
    numbered = [f"{number}. {clause}" for number, clause in enumerate(clauses, 1)]
    terms = [
        f"{party}: {contract.counterparty}",
        f"{chance.choice(_STARTS)}: {_written(contract.starts, chance)}",
        f"{chance.choice(_ENDS)}: {_written(contract.ends, chance)}",
        f"{chance.choice(_AMOUNTS)}: {currency} {contract.amount:,.2f}",
        f"Governing law: {contract.law}",
    ]
    opening = (
        f"This {kind.lower()} agreement is made between Sample Holdings plc, London (the Company), and the other party "
        "that is named below. It was signed on the day on which the last of the two put their name to it."
    )
    return [
        [opening, "Key terms", *terms],
        ["General terms", *numbered[:4]],
        [*numbered[4:], "Signed for both parties."],
    ]


def _written(day: date, chance: random.Random) -> str:
    """As people write dates."""
    month = day.strftime("%B")
    return chance.choice((day.isoformat(), f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}"))
