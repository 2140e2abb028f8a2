"""Readable scenarios of transactions: what producers ask, what the coordinator writes, sends and answers.

How to read and extend the files in `scenarios/` is in `support.transcripts`. Everything is about the transactional id
`x`. A producer remembers the id and epoch that it was last told. Producer ids are numbered from 1000.

    init ann                a producer starts: InitProducerId
    resume ann              InitProducerId with the id and epoch that it has
    add ann 0 1             its first batches arrive at partitions of topic `t`: their leaders register them (version 2)
    old-add ann 0 1         AddPartitionsToTxn from the producer (version 1)
    commit ann              EndTxn (version 2); also `abort`
    old-commit ann          EndTxn (version 1); also `old-abort`
    late-commit ann E       an EndTxn with epoch E that was delayed
    mark [ERROR]            the leaders answer all markers under way, the first with the error
    epoch E                 the transactional id has been in use for long: its producer has this epoch now
    delete                  topic `short` is deleted; `add-short ann` writes to it
    wait MS                 let time pass: timers fire
    failover                another coordinator loads what this one wrote
    status                  the transaction as it is described
"""

from __future__ import annotations

from coordinators.transactions.harness import NOBODY, Producer, Transactions
from penstock.coordinators.transactions.transaction import Transaction
from penstock.wire.errors import ErrorCode


class Scenario:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.t = Transactions()
        self.t.create_topic("short", partitions=1)
        self.producers: dict[str, Producer] = {}
        self.lines: list[str] = []

    def execute(self, line: str) -> str:
        self.lines = []
        name, *arguments = line.split()
        before = dict(self.t.asks)
        getattr(self, "do_" + name.replace("-", "_"))(*arguments)
        told, self.lines = self.lines, []
        self.lines += [f"log: {self.record(one)}" for one in self.t.written()]
        self.lines += told
        for key, asked in self.t.asks.items():
            if before.get(key) is not asked:
                marker = self.t.markers()[key[2], int(key[3])]
                result = "commit" if marker.transaction_result else "abort"
                owner = f"{marker.producer_id} in epoch {marker.producer_epoch}"
                self.lines.append(f"to the leader of {key[2]}-{key[3]}: {result} of {owner}")
        return "".join(text + "\n" for text in self.lines)

    def record(self, transaction: Transaction | None) -> str:
        if transaction is None:
            return "gone"
        names = " ".join(f"{topic}-{number}" for topic, number in transaction.partitions)
        moves = f", then {transaction.next_producer_id}" if transaction.next_producer_id >= 0 else ""
        owner = f"{transaction.producer_id} in epoch {transaction.producer_epoch}{moves}"
        return f"{transaction.state.label}, {owner}{': ' + names if names else ''}"

    def told(self, name: str, answer: Producer | ErrorCode) -> None:
        if isinstance(answer, tuple):
            if answer != NOBODY:
                self.producers[name] = answer
            self.lines.append(f"{name} <- {answer[0]} in epoch {answer[1]}")
        else:
            self.lines.append(f"{name} <- {answer.name}")

    # -- commands ----------------------------------------------------------------------------------------------------

    def do_init(self, name: str) -> None:
        self.told(name, self.t.init())

    def do_resume(self, name: str) -> None:
        self.told(name, self.t.init(known=self.producers[name]))

    def do_add(self, name: str, *partitions: str) -> None:
        self.lines.append(f"{name} <- {self.t.add(self.producers[name], *map(int, partitions)).name}")

    def do_add_short(self, name: str) -> None:
        self.lines.append(f"{name} <- {self.t.add(self.producers[name], 0, topic='short').name}")

    def do_old_add(self, name: str, *partitions: str) -> None:
        self.lines.append(f"{name} <- {self.t.add(self.producers[name], *map(int, partitions), version=3).name}")

    def do_commit(self, name: str) -> None:
        self.told(name, self.t.commit(self.producers[name]))

    def do_abort(self, name: str) -> None:
        self.told(name, self.t.abort(self.producers[name]))

    def do_old_commit(self, name: str) -> None:
        self.told(name, self.t.commit(self.producers[name], version=4))

    def do_old_abort(self, name: str) -> None:
        self.told(name, self.t.abort(self.producers[name], version=4))

    def do_late_commit(self, name: str, epoch: str) -> None:
        answer = self.t.commit((self.producers[name][0], int(epoch)))
        self.lines.append(f"{name} <- {answer.name if isinstance(answer, ErrorCode) else answer}")

    def do_mark(self, error: str = "NONE") -> None:
        self.t.acknowledge(ErrorCode[error])

    def do_epoch(self, epoch: str) -> None:
        transaction = self.t.transactions.table.find("x")
        assert transaction is not None
        transaction.producer_epoch = int(epoch)
        self.t.transactions.table.write(self.t.turn(), transaction)
        for name, (producer_id, _) in self.producers.items():
            self.producers[name] = (producer_id, int(epoch))

    def do_delete(self) -> None:
        self.t.delete_topic("short")

    def do_wait(self, duration_ms: str) -> None:
        self.t.advance(int(duration_ms))

    def do_failover(self) -> None:
        before = self.t.transactions.durable_state()
        self.t.failover()
        assert self.t.transactions.durable_state() == before

    def do_status(self) -> None:
        told = self.t.describe()
        partitions = " ".join(f"{topic.topic}-{number}" for topic in told.topics for number in topic.partitions)
        owner = f"{told.producer_id} in epoch {told.producer_epoch}"
        self.lines.append(f"{told.transaction_state}, {owner}{': ' + partitions if partitions else ''}")
