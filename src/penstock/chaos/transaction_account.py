"""The account of a transactional workload: what must be there, and every way in which it is not. Pure.

A *stage* reads one topic and writes another: each input record leads to a fixed number of output records (its *legs*),
written in one transaction together with the input's offset. An output record names its input (partition and offset),
its leg, and its *attempt*: the transaction that wrote it, with the number of records that the transaction has.

    lost         an input has no output, or a transaction whose commit was acknowledged is not there
    duplicate    an input has the same leg more than once
    reordered    inputs of one partition appear in another order than they were read
    aborted-seen a record is visible whose transaction was aborted by its worker
    torn         a transaction is visible in part
    foreign      an output without an input
    vanished     a reader of committed records saw it, and it is not there at the end
    skipped      it is there, and that reader went past it
    hanging      a transaction is still open after its timeout and a failover
    money        balances do not add up (the bank only)

Only committed records count as inputs and outputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

EXAMPLES_MAX: Final = 10
HEADER: Final = "chaos"

Place = tuple[int, int]
"""(partition, offset)."""


class Output(NamedTuple):
    """What a worker says of a record that it writes."""

    attempt: str
    """Of its transaction; unique."""
    number: int
    """Of the record in its transaction."""
    total: int
    """Records of the transaction."""
    source: Place
    """The input record."""
    leg: int

    def encode(self) -> bytes:
        return json.dumps([self.attempt, self.number, self.total, *self.source, self.leg]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Output | None:
        """None for a header that no worker wrote."""
        try:
            attempt, number, total, partition, offset, leg = json.loads(data)
        except ValueError:
            return None
        return cls(str(attempt), int(number), int(total), (int(partition), int(offset)), int(leg))


@dataclass
class TransactionVerdict:
    """The result of a workload."""

    inputs: int = 0
    outputs: int = 0
    commits: int = 0
    """Transactions whose commit was acknowledged to a worker."""
    aborts: int = 0
    """Transactions that workers aborted on purpose or because of an error."""
    kills: int = 0
    """Workers that were killed."""
    violations: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.violations

    def violate(self, kind: str, text: str) -> None:
        self.violations[kind] += 1
        if self.violations[kind] <= EXAMPLES_MAX:
            self.examples.append(f"{kind}: {text}")

    def as_json(self) -> dict[str, object]:
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "commits": self.commits,
            "aborts": self.aborts,
            "kills": self.kills,
            "violations": dict(self.violations),
            "examples": self.examples,
        }


def check_stage(
    verdict: TransactionVerdict,
    name: str,
    inputs: Iterable[Place],
    outputs: Sequence[tuple[Place, Output | None]],
    *,
    legs: int,
    committed: set[str],
    aborted: set[str],
    seen: Sequence[tuple[Place, Output | None]] | None = None,
) -> None:
    """Compares one stage at the end: `outputs` in the order of each partition, `seen` what was read during the run.

    `committed` and `aborted` are the attempts whose outcome a worker knew.
    """
    wanted = list(inputs)
    verdict.inputs += len(wanted)
    verdict.outputs += len(outputs)
    known = set(wanted)
    found: Counter[tuple[Place, int]] = Counter()
    attempts: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    last: dict[tuple[int, int], int] = {}
    for (partition, offset), output in outputs:
        where = f"{name} {partition}@{offset}"
        if output is None or output.source not in known:
            verdict.violate("foreign", f"{where}: {output}")
            continue
        if output.attempt in aborted:
            verdict.violate("aborted-seen", f"{where}: {output}")
        if found[output.source, output.leg]:
            verdict.violate("duplicate", f"{where}: {output}")
        found[output.source, output.leg] += 1
        attempts[output.attempt] += 1
        sizes[output.attempt] = output.total
        lane = partition, output.source[0]
        if last.get(lane, -1) > output.source[1]:
            verdict.violate("reordered", f"{where}: input {output.source} after {last[lane]}")
        last[lane] = max(last.get(lane, -1), output.source[1])
    for attempt, count in attempts.items():
        if count != sizes[attempt]:
            verdict.violate("torn", f"{name}: {count} of {sizes[attempt]} records of transaction {attempt} are there")
    for attempt in sorted(committed - attempts.keys()):
        verdict.violate("lost", f"{name}: transaction {attempt} was acknowledged as committed and is not there")
    for source in wanted:
        missing = [leg for leg in range(legs) if not found[source, leg]]
        if missing:
            verdict.violate("lost", f"{name}: input {source} has no output{'' if legs == 1 else f' {missing}'}")
    if seen is not None:
        _check_reader(verdict, name, outputs, seen)


def _check_reader(
    verdict: TransactionVerdict,
    name: str,
    outputs: Sequence[tuple[Place, Output | None]],
    seen: Sequence[tuple[Place, Output | None]],
) -> None:
    there, read = dict(outputs), dict(seen)
    for where, output in read.items():
        if there.get(where) != output:
            verdict.violate("vanished", f"{name} {where}: {output} was read, now {there.get(where)}")
    ends: dict[int, int] = {}
    for partition, offset in read:
        ends[partition] = max(ends.get(partition, -1), offset)
    for (partition, offset), output in there.items():
        if offset < ends.get(partition, -1) and (partition, offset) not in read:
            verdict.violate("skipped", f"{name} {partition}@{offset}: {output}")


def check_money(verdict: TransactionVerdict, expected: dict[str, int], found: dict[str, int]) -> None:
    """Compares the balances that the transfers should lead to with those in the ledger topic."""
    if sum(found.values()) != 0:
        verdict.violate("money", f"all balances add up to {sum(found.values())} and not to 0")
    for account in sorted(expected.keys() | found.keys()):
        if expected.get(account, 0) != found.get(account, 0):
            has, should = found.get(account, 0), expected.get(account, 0)
            verdict.violate("money", f"account {account} has {has}, its transfers add up to {should}")
