"""Transactional writers of both generations, their zombies and late requests, and readers of committed records.

A writer is a Kafka producer with a transactional id, as its protocol is and not as one client happens to be. It runs
one transaction after another; each has records in one or all partitions and an offset of a group. Besides what the
trial's faults cause, it does by itself what networks and applications do:

- it aborts some transactions;
- it gives up in the middle of any step and leaves its transaction open, for the coordinator to time out;
- a second instance takes over its id while the first goes on as a zombie;
- it keeps copies of requests and sends them again later (a late EndTxn above all);
- it sends a record after its transaction has ended, as a delayed Produce would arrive;
- it repeats the marker of its last transaction while the next one is open, as a delayed marker would arrive.

Generation 2 (KIP-890): the leader registers partitions, EndTxn returns the next epoch. Generation 1: AddPartitionsToTxn
and AddOffsetsToTxn before the first record, the epoch stays. There a late request of the same epoch cannot be told
from a timely one, so an instance that met an error asks for a new epoch, and only requests of older epochs are late.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.sim.trials.clients import ClusterClient, NoLeader, PartitionClient
from penstock.sim.trials.load import FETCH_VERSION, PRODUCE_TIMEOUT_MS, RECORDS_BYTES_MAX, TIMESTAMP_MS, Violation
from penstock.sim.trials.load import RETRIABLE as LEADER_RETRIABLE
from penstock.sim.trials.transaction_ledger import Fate, Transaction, TransactionLedger
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from penstock.wire.records import ControlRecordType, Record, build_batch, iter_batches, iter_records, parse_control_key

__all__ = ["TIMEOUT_MS", "CommittedReader", "OffsetReader", "TransactionalWriter"]

TIMEOUT_MS: Final = 4_000
"""transaction.timeout.ms of every writer: shorter than some faults, so that coordinators time transactions out."""
TRANSACTION = 1
FIND_COORDINATOR_VERSION, INIT_VERSION, OFFSET_FETCH_VERSION = 4, 5, 8
ADD_PARTITIONS_VERSION, ADD_OFFSETS_VERSION, DESCRIBE_VERSION, WRITE_MARKERS_VERSION = 3, 3, 0, 2
PRODUCE_VERSIONS, OFFSET_COMMIT_VERSIONS, END_VERSIONS = {1: 11, 2: 12}, {1: 3, 2: 5}, {1: 4, 2: 5}
RECORDS_MAX = 3
ATTEMPTS_MAX = 40
"""After so many attempts at a step the instance gives up, as an application with a deadline would."""
KEPT_MAX = 6
"""Late copies kept of an instance's requests."""

COORDINATOR_RETRIABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
FENCING = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
)
"""Answers after which an instance cannot go on as it is: it was fenced, or its transaction timed out."""


class Fenced(Exception):
    """A refusal: the instance must start over."""

    def __init__(self, code: ErrorCode, *, clear: bool) -> None:
        super().__init__(code.name)
        self.clear = clear
        """Whether the request had no effect: no earlier copy of it went unanswered."""


class GaveUp(Exception):
    """The instance stops here, by choice or for want of time; what it sent last may have arrived."""


@dataclass
class Late:
    """A copy of a request, to be sent again at some later time."""

    request: Message
    version: int
    partition: int | None
    """The partition whose leader gets it; None for the transaction's coordinator."""


@dataclass
class Instance:
    """A producer: an id and epoch, and the next sequence of each partition."""

    number: int
    producer_id: int
    epoch: int
    sequences: dict[int, int] = field(default_factory=dict)
    committed: bool | None = None
    """How its last transaction ended; None before the first."""


class TransactionalWriter:
    """One transactional id. Runs until the ledger is over."""

    def __init__(
        self, client: ClusterClient, ledger: TransactionLedger, name: str, group: str, slot: int, generation: int,
        pause_ms: float,
    ) -> None:  # fmt: skip
        self._client = client
        self._runtime = client.runtime
        self._ledger = ledger
        self._name = name
        self._group = group
        self._slot = slot
        self._generation = generation
        self._pause_ms = pause_ms
        self._has_successor = client.runtime.rng.random() < 0.5
        self._instances = 0
        self._late: list[Late] = []
        self._tasks: list[Any] = []
        self._partitions = [
            PartitionClient(client.runtime, client.cluster, ledger.topic, index) for index in range(ledger.partitions)
        ]

    async def run(self) -> None:
        while not self._ledger.over:
            instance = await self._initialise()
            if instance is None:
                continue
            if self._runtime.rng.random() < 0.15:
                # The application is started a second time; this instance goes on until it notices.
                self._ledger.seen["zombie"] += 1
                self._spawn(self._work(instance, zombie=True), f"zombie of {self._name}")
                await self._sleep(500)
                continue
            await self._work(instance)
        for task in self._tasks:
            await task
        # A successor resolves what is in doubt; without one, the coordinator times it out.
        while self._has_successor and await self._initialise() is None:
            await self._sleep(100)

    async def _work(self, instance: Instance, *, zombie: bool = False) -> None:
        rng = self._runtime.rng
        transactions = 0
        while not self._ledger.over and (not zombie or transactions < 3):
            transactions += 1
            transaction = self._ledger.begin(self._name, instance.number)
            try:
                await self._transaction(instance, transaction)
                if self._generation == 1 and rng.random() < 0.15:
                    await self._rogue(instance)
            except Fenced as refusal:
                self._settle(transaction, clear=refusal.clear)
                self._ledger.seen["fenced"] += 1
                return
            except GaveUp:
                self._settle(transaction, clear=False)
                self._ledger.seen["gave up"] += 1
                return
            await self._send_late()
            await self._sleep(self._pause_ms)

    def _settle(self, transaction: Transaction, *, clear: bool) -> None:
        """The instance learns no more of it."""
        if transaction.fate is Fate.ASKED:
            self._ledger.end(transaction, Fate.ABORTED if clear else Fate.UNKNOWN)
        elif transaction.fate is Fate.OPEN:
            self._ledger.end(transaction, Fate.ABORTED)

    # The steps of a transaction

    async def _initialise(self) -> Instance | None:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=TIMEOUT_MS)
        try:
            answer = await self._ask_coordinator(request, INIT_VERSION, lambda answer: answer.error_code)
        except (Fenced, GaveUp):
            return None
        self._instances += 1
        self._ledger.seen["initialised"] += 1
        return Instance(self._instances, answer.producer_id, answer.producer_epoch)

    async def _transaction(self, instance: Instance, transaction: Transaction) -> None:
        rng = self._runtime.rng
        everywhere = list(range(self._ledger.partitions))
        chosen = everywhere if rng.random() < 0.7 else [rng.choice(everywhere)]
        self._perhaps_give_up()
        if self._generation == 1:
            await self._add_partitions(instance, chosen)
        for partition in chosen:
            for _ in range(rng.randint(1, RECORDS_MAX)):
                self._perhaps_give_up()
                await self._produce(instance, partition, self._ledger.send(transaction, partition))
            if self._generation == 2 and instance.committed is not None and rng.random() < 0.2:
                await self._repeat_marker(instance, partition)
        self._perhaps_give_up()
        await self._commit_offset(instance, transaction)
        self._perhaps_give_up()
        await self._end(instance, transaction, committed=rng.random() < 0.75)

    async def _add_partitions(self, instance: Instance, partitions: list[int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=instance.producer_id,
            v3_and_below_producer_epoch=instance.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._ledger.topic, partitions=partitions)],
        )

        def first_error(answer: Any) -> int:
            codes = [
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            telling = [code for code in codes if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
            return int(telling[0]) if telling else int(max(codes))

        await self._ask_coordinator(request, ADD_PARTITIONS_VERSION, first_error)

    async def _produce(self, instance: Instance, partition: int, value: bytes) -> None:
        sequence = instance.sequences.get(partition, 0)
        request = self._produce_request(instance, partition, sequence, value)
        version = PRODUCE_VERSIONS[self._generation]
        self._keep(request, version, partition)

        def error(answer: Any) -> int:
            return int(answer.responses[0].partition_responses[0].error_code)

        await self._ask_leader(partition, request, version, error)
        instance.sequences[partition] = sequence + 1

    def _produce_request(self, instance: Instance, partition: int, sequence: int, value: bytes) -> ProduceRequest:
        batch = build_batch(
            [Record(timestamp=TIMESTAMP_MS, value=value)],
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        part = PartitionProduceData(index=partition, records=batch)
        return ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._ledger.topic, partition_data=[part])],
        )

    async def _commit_offset(self, instance: Instance, transaction: Transaction) -> None:
        if self._generation == 1:
            registration = AddOffsetsToTxnRequest(
                transactional_id=self._name,
                producer_id=instance.producer_id,
                producer_epoch=instance.epoch,
                group_id=self._group,
            )
            await self._ask_coordinator(registration, ADD_OFFSETS_VERSION, lambda answer: answer.error_code)
        entry = TxnOffsetCommitRequestPartition(partition_index=self._slot, committed_offset=transaction.number)
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._ledger.topic, partitions=[entry])],
        )
        transaction.offset_sent = True

        def error(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        await self._attempts(
            lambda: self._client.coordinator(self._group), request, OFFSET_COMMIT_VERSIONS[self._generation], error
        )

    async def _end(self, instance: Instance, transaction: Transaction, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            committed=committed,
        )
        version = END_VERSIONS[self._generation]
        self._keep(request, version, None)
        if committed:
            self._ledger.end(transaction, Fate.ASKED)
        else:
            # From now on only an abort was ever requested, whatever the answer.
            self._ledger.end(transaction, Fate.ABORTED)
        answer = await self._ask_coordinator(request, version, lambda answer: answer.error_code)
        if committed:
            self._ledger.end(transaction, Fate.COMMITTED)
        if self._generation == 2:
            if answer.producer_id != instance.producer_id or answer.producer_epoch != instance.epoch:
                instance.sequences = {}
            elif transaction.values:
                raise Violation(f"{transaction}: EndTxn returned the same epoch, {answer.producer_epoch}")
            instance.producer_id, instance.epoch = answer.producer_id, answer.producer_epoch
            instance.committed = committed

    async def _rogue(self, instance: Instance) -> None:
        """A record of generation 1 that arrives after its transaction: only the leader's verification refuses it.

        Until the marker is written it would be taken for a part of the transaction, which no broker can prevent.
        """
        if not await self._is_complete():
            return
        partition = self._runtime.rng.randrange(self._ledger.partitions)
        sequence = instance.sequences.get(partition, 0)
        value = self._ledger.rogue(self._name, partition)
        request = self._produce_request(instance, partition, sequence, value)
        try:
            leader = await self._partitions[partition].find_leader()
            answer = await self._client.call(leader, request, PRODUCE_VERSIONS[1])
        except OSError:
            self._partitions[partition].doubt()
            raise GaveUp from None  # it may be on its way: another epoch fences it
        code = answer.responses[0].partition_responses[0].error_code
        if code == ErrorCode.NONE:
            raise Violation(f"{self._ledger.topic}-{partition}: {value!r} was accepted outside a transaction")
        self._ledger.seen["record refused outside a transaction"] += 1

    async def _repeat_marker(self, instance: Instance, partition: int) -> None:
        """The marker of the last transaction arrives once more, now that the next one is open (KIP-1228)."""
        asked = DescribeProducersRequest(topics=[TopicRequest(name=self._ledger.topic, partition_indexes=[partition])])
        try:
            leader = await self._partitions[partition].find_leader()
            answer = await self._client.call(leader, asked, DESCRIBE_VERSION)
            producers = answer.topics[0].partitions[0].active_producers
            known = [one for one in producers if one.producer_id == instance.producer_id]
            if not known or known[0].current_txn_start_offset < 0 or known[0].producer_epoch != instance.epoch:
                return  # the coordinator ended the transaction meanwhile
            marker = WritableTxnMarker(
                producer_id=instance.producer_id,
                producer_epoch=instance.epoch,
                transaction_result=bool(instance.committed),
                topics=[WritableTxnMarkerTopic(name=self._ledger.topic, partition_indexes=[partition])],
                coordinator_epoch=max(0, known[0].coordinator_epoch),
                transaction_version=2,
            )
            request = WriteTxnMarkersRequest(markers=[marker])
            answer = await self._client.call(leader, request, WRITE_MARKERS_VERSION)
        except OSError:
            return
        code = ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            raise Violation(
                f"{self._ledger.topic}-{partition}: a repeated marker of {self._name}, epoch {instance.epoch}, ended "
                "the next transaction"
            )
        self._ledger.seen["repeated marker refused"] += code is ErrorCode.INVALID_PRODUCER_EPOCH

    async def _is_complete(self) -> bool:
        request = DescribeTransactionsRequest(transactional_ids=[self._name])
        for _ in range(5):
            try:
                answer = await self._client.call(await self._coordinator(), request, DESCRIBE_VERSION)
            except OSError:
                continue
            if answer.transaction_states[0].transaction_state in ("CompleteCommit", "CompleteAbort"):
                return True
            await self._sleep(50)
        return False

    # Late requests

    def _keep(self, request: Message, version: int, partition: int | None) -> None:
        if self._runtime.rng.random() < 0.3:
            self._late.append(Late(request, version, partition))
            del self._late[:-KEPT_MAX]

    async def _send_late(self) -> None:
        """Sends copies of old requests; nobody waits for their answers."""
        rng = self._runtime.rng
        if not self._late or rng.random() > 0.4:
            return
        late = self._late.pop(rng.randrange(len(self._late)))
        if self._generation == 1 and isinstance(late.request, EndTxnRequest):
            return  # of the same epoch it would be valid
        self._ledger.seen["late EndTxn" if isinstance(late.request, EndTxnRequest) else "late Produce"] += 1
        # While the next transaction is under way.
        self._spawn(self._deliver(late, rng.uniform(0, 2 * self._pause_ms)), f"late request of {self._name}")

    async def _deliver(self, late: Late, after_ms: float) -> None:
        await self._runtime.sleep(after_ms)
        client = ClusterClient(self._runtime, self._client.cluster)
        try:
            node = await (
                self._coordinator() if late.partition is None else self._partitions[late.partition].find_leader()
            )
            await client.call(node, late.request, late.version)
        except OSError:
            pass

    # Asking until there is a clear answer

    async def _ask_coordinator(self, request: Message, version: int, error: Any) -> Any:
        return await self._attempts(self._coordinator, request, version, error)

    async def _ask_leader(self, partition: int, request: Message, version: int, error: Any) -> Any:
        client = self._partitions[partition]
        return await self._attempts(client.find_leader, request, version, error, client.doubt)

    async def _attempts(self, find: Any, request: Message, version: int, error: Any, doubt: Any = lambda: None) -> Any:
        asked = 0
        for _ in range(ATTEMPTS_MAX):
            try:
                node = await find()
                asked += 1
                answer = await self._client.call(node, request, version)
            except OSError:
                doubt()
                await self._sleep(100)
                continue
            code = ErrorCode(error(answer))
            if code is ErrorCode.NONE:
                return answer
            self._ledger.seen[f"{type(request).__name__.removesuffix('Request')}: {code.name}"] += 1
            if code in FENCING:
                raise Fenced(code, clear=asked == 1)
            if code not in COORDINATOR_RETRIABLE and code not in LEADER_RETRIABLE:
                raise Violation(f"{self._name}: {code.name} in answer to {type(request).__name__}")
            doubt()
            await self._sleep(100)
        raise GaveUp

    async def _coordinator(self) -> int:
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self._name])
        client = self._client
        (found,) = (await client.call(client.any_broker(), request, FIND_COORDINATOR_VERSION)).coordinators
        if found.error_code:
            raise NoLeader(f"no coordinator: {ErrorCode(found.error_code).name}")
        return int(found.node_id)

    def _spawn(self, job: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self._runtime.spawn(job, name))

    def _perhaps_give_up(self) -> None:
        if self._runtime.rng.random() < 0.03:
            raise GaveUp

    async def _sleep(self, mean_ms: float) -> None:
        await self._runtime.sleep(self._runtime.rng.uniform(1, 2 * mean_ms))


class CommittedReader:
    """Reads one partition in order, as a consumer with isolation.level=read_committed does."""

    def __init__(self, client: PartitionClient, ledger: TransactionLedger, pause_ms: float) -> None:
        self._client = client
        self._ledger = ledger
        self._pause_ms = pause_ms
        self._restart(0)

    def _restart(self, offset: int) -> None:
        self.offset = offset
        self._aborted: set[int] = set()
        self.stable = self.high_watermark = -1

    async def run(self) -> None:
        rng = self._client.runtime.rng
        while not self._ledger.over:
            if rng.random() < 0.05:
                self._restart(0)
            await self.step(rng.choice((0, 200, 500)))
            await self._client.runtime.sleep(rng.uniform(1, 2 * self._pause_ms))

    async def read_to_the_end(self) -> list[bytes] | None:
        """All committed records; None if a transaction is still open."""
        self._restart(0)
        found: list[bytes] = []
        while True:
            values = await self.step(0)
            if values is None:
                await self._client.runtime.sleep(50)
                continue
            found += values
            if self.offset >= self.stable:
                return found if self.stable == self.high_watermark else None

    async def step(self, max_wait_ms: int) -> list[bytes] | None:
        client = self._client
        entry = FetchPartition(
            partition=client.partition,
            fetch_offset=self.offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=client.leader_epoch,
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=1,
            topics=[FetchTopic(topic=client.topic, partitions=[entry])],
        )
        try:
            leader = await client.find_leader()
            entry.current_leader_epoch = epoch = client.leader_epoch
            answer = await client.call(leader, request, FETCH_VERSION)
        except OSError:
            client.doubt()
            return None
        data = answer.responses[0].partitions[0]
        if data.error_code:
            code = ErrorCode(data.error_code)
            if code not in LEADER_RETRIABLE:
                raise Violation(f"{self._ledger.topic}-{client.partition}: {code.name} for a fetch of {self.offset}")
            client.doubt()
            return None
        self.stable, self.high_watermark = data.last_stable_offset, data.high_watermark
        self._ledger.stable(client.partition, epoch, data.last_stable_offset, data.high_watermark)
        return self._take(data)

    def _take(self, data: PartitionData) -> list[bytes]:
        """The committed records, chosen as consumers choose them: by the list of aborted transactions and markers."""
        partition = self._client.partition
        aborted = sorted(data.aborted_transactions or (), key=lambda one: one.first_offset)
        self._aborted = set()
        values: list[bytes] = []
        for header, view in iter_batches(bytes(data.records or b"")):
            if header.last_offset >= data.last_stable_offset:
                raise Violation(
                    f"{self._ledger.topic}-{partition}: offsets to {header.last_offset} were read as committed, last "
                    f"stable offset {data.last_stable_offset}"
                )
            while aborted and aborted[0].first_offset <= header.last_offset:
                self._aborted.add(aborted.pop(0).producer_id)
            records = list(iter_records(view, max_decompressed_bytes=RECORDS_BYTES_MAX))
            if header.is_control:
                if records and parse_control_key(records[0].key) == ControlRecordType.ABORT:
                    self._aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in self._aborted):
                for record in records:
                    if record.offset >= self.offset:
                        value = bytes(record.value or b"")
                        self._ledger.saw(partition, record.offset, value)
                        values.append(value)
            self.offset = max(self.offset, header.last_offset + 1)
        return values


class OffsetReader:
    """Reads the group's offsets that writers commit in their transactions."""

    def __init__(self, client: ClusterClient, ledger: TransactionLedger, group: str, writers: dict[str, int]) -> None:
        self._client = client
        self._ledger = ledger
        self._group = group
        self._writers = writers

    async def run(self) -> None:
        rng = self._client.runtime.rng
        while not self._ledger.over:
            for writer, slot in self._writers.items():
                # Without `require_stable` the last committed offset is answered while another one is pending.
                stable = rng.random() < 0.5
                at_least = self._ledger.committed_at_least(writer) if stable else 0
                try:
                    offset = await committed_offset(self._client, self._group, self._ledger.topic, slot, stable=stable)
                except OSError:
                    continue
                if offset is not None:
                    self._ledger.saw_offset(writer, offset, at_least)
            await self._client.runtime.sleep(rng.uniform(50, 800))

    async def final(self) -> dict[str, int] | None:
        """The offset of each writer; None while a transaction holds one back."""
        found: dict[str, int] = {}
        for writer, slot in self._writers.items():
            offset = await committed_offset(self._client, self._group, self._ledger.topic, slot)
            if offset is None:
                return None
            found[writer] = offset
        return found


async def committed_offset(
    client: ClusterClient, group: str, topic: str, slot: int, *, stable: bool = True
) -> int | None:
    """The group's offset; 0 without one, None while a transaction holds it back. Raises OSError without an answer."""
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[slot])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)], require_stable=stable)
    node = await client.coordinator(group)
    (found,) = (await client.call(node, request, OFFSET_FETCH_VERSION)).groups
    codes = [found.error_code, *(part.error_code for topic in found.topics for part in topic.partitions)]
    for code in codes:
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return None
        if code:
            raise ConnectionError(ErrorCode(code).name)
    (part,) = found.topics[0].partitions
    return max(0, int(part.committed_offset))
