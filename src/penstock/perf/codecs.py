"""Finds the codec that suits given data: builds batches like a producer's, measures each codec on them, and advises.

A producer compresses a batch, not a record, and the size of a batch limits what a codec can find. So the sample is
first put into batches of `batch.size` bytes; then every candidate compresses and decompresses all of them, repeatedly,
until enough time has passed for a reliable measurement.

The advice weighs what a compressed record saves against what it costs. Its bytes cross the network once to the leader,
once to every other replica and once to every consumer. It is compressed once (in the producer; the broker stores what
it receives) and decompressed once by every consumer.

- *network-bound*: the codec that gets the most data through the link, with one core compressing;
- *CPU-bound*: the cheapest codec that still saves a fifth of the bytes; none if no codec does;
- *balanced*: the least total time, processor and network together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.records import HEADER_SIZE, Record, write_record

__all__ = ["CANDIDATES", "Advice", "Candidate", "Clocks", "Measured", "Situation", "advise", "batches", "measure"]

BATCH_BYTES = 16_384
"""Kafka's default `batch.size`."""
SAVING_MIN = 0.2
"""The minimum saving for a codec to be worth the CPU time where that is scarce."""
MEGABYTE = 1_000_000
ENOUGH_S = 0.2


@dataclass(frozen=True, slots=True)
class Candidate:
    codec: Codec
    level: int | None = None

    @property
    def name(self) -> str:
        return self.codec.name.lower() + (f" level {self.level}" if self.level is not None else "")

    @property
    def settings(self) -> str:
        """The producer settings, under Kafka's names."""
        kind = self.codec.name.lower()
        level = f", compression.{kind}.level={self.level}" if self.level is not None else ""
        return f"compression.type={kind}{level}"


CANDIDATES = (
    Candidate(Codec.NONE),
    Candidate(Codec.GZIP, 1),
    Candidate(Codec.GZIP, 6),
    Candidate(Codec.GZIP, 9),
    Candidate(Codec.SNAPPY),
    Candidate(Codec.LZ4),
    Candidate(Codec.LZ4, 9),
    Candidate(Codec.ZSTD, 1),
    Candidate(Codec.ZSTD, 3),
    Candidate(Codec.ZSTD, 9),
    Candidate(Codec.ZSTD, 15),
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds of wall-clock time and of this process's CPU time."""

    wall: Callable[[], float]
    cpu: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Measured:
    candidate: Candidate
    plain_bytes: int
    packed_bytes: int
    compress_mb_s: float
    decompress_mb_s: float
    compress_cpu_ms_per_mb: float
    decompress_cpu_ms_per_mb: float

    @property
    def ratio(self) -> float:
        return self.plain_bytes / self.packed_bytes

    @property
    def saving(self) -> float:
        return 1 - self.packed_bytes / self.plain_bytes


@dataclass(frozen=True, slots=True)
class Situation:
    """The assumptions of the advice. One gigabit per second is 125 megabytes."""

    network_mbit: float = 1_000.0
    copies: int = 3
    consumers: int = 1

    @property
    def network_mb_s(self) -> float:
        return self.network_mbit / 8

    @property
    def crossings(self) -> int:
        """How many times a record's bytes cross the network."""
        return self.copies + self.consumers


@dataclass(frozen=True, slots=True)
class Advice:
    case: str
    candidate: Candidate
    reason: str


def batches(records: Iterable[tuple[bytes | None, bytes | None]], size_bytes: int = BATCH_BYTES) -> Iterator[bytes]:
    """The uncompressed payloads of batches: the records (key and value) in Kafka's format."""
    payload = bytearray()
    count = 0
    for key, value in records:
        size = len(key or b"") + len(value or b"") + 16
        if count and HEADER_SIZE + len(payload) + size > size_bytes:
            yield bytes(payload)
            payload.clear()
            count = 0
        record = Record(offset=count, timestamp=0, key=key, value=value, headers=())
        # One record per millisecond, since timestamps take a part of a batch too.
        write_record(payload, record, timestamp_delta=count, offset_delta=count)
        count += 1
    if count:
        yield bytes(payload)


def measure(candidate: Candidate, plain: Sequence[bytes], clocks: Clocks, enough_s: float = ENOUGH_S) -> Measured:
    """Compresses and decompresses all batches repeatedly for `enough_s`; the result must equal the input."""
    assert plain, "nothing to compress"
    codec, level = candidate.codec, candidate.level
    total = sum(map(len, plain))
    packed: list[bytes] = []

    def pack() -> None:
        packed[:] = [compress(codec, batch, level) for batch in plain]

    def unpack() -> None:
        for one, batch in zip(packed, plain, strict=True):
            if len(decompress(codec, one, len(batch))) != len(batch):
                raise AssertionError(f"{candidate.name} did not reproduce its input")

    pack_wall_s, pack_cpu_s = _timed(pack, clocks, enough_s)
    unpack_wall_s, unpack_cpu_s = _timed(unpack, clocks, enough_s)
    megabytes = total / MEGABYTE
    return Measured(
        candidate=candidate,
        plain_bytes=total + HEADER_SIZE * len(plain),
        packed_bytes=sum(map(len, packed)) + HEADER_SIZE * len(plain),
        compress_mb_s=megabytes / pack_wall_s,
        decompress_mb_s=megabytes / unpack_wall_s,
        compress_cpu_ms_per_mb=pack_cpu_s * 1000 / megabytes,
        decompress_cpu_ms_per_mb=unpack_cpu_s * 1000 / megabytes,
    )


def _timed(work: Callable[[], None], clocks: Clocks, enough_s: float) -> tuple[float, float]:
    """Seconds per round: wall-clock and CPU."""
    rounds = 0
    wall_s, cpu_s = clocks.wall(), clocks.cpu()
    while not rounds or clocks.wall() - wall_s < enough_s:
        work()
        rounds += 1
    return max(1e-9, clocks.wall() - wall_s) / rounds, max(0.0, clocks.cpu() - cpu_s) / rounds


def advise(measured: Sequence[Measured], situation: Situation) -> list[Advice]:
    """The balanced advice comes first: it is the default recommendation."""
    return [_balanced(measured, situation), _network_bound(measured, situation), _cpu_bound(measured, situation)]


def _cpu_ms(one: Measured, situation: Situation) -> float:
    """CPU time of one megabyte on its way from the producer to all consumers."""
    if one.candidate.codec == Codec.NONE:
        return 0.0
    return one.compress_cpu_ms_per_mb + situation.consumers * one.decompress_cpu_ms_per_mb


def _network_ms(one: Measured, situation: Situation) -> float:
    return 1000 / situation.network_mb_s / one.ratio * situation.crossings


def _balanced(measured: Sequence[Measured], situation: Situation) -> Advice:
    best = min(measured, key=lambda one: _cpu_ms(one, situation) + _network_ms(one, situation))
    return Advice(
        "balanced",
        best.candidate,
        f"least time in all: {_cpu_ms(best, situation):.1f} ms of processor and {_network_ms(best, situation):.1f} ms "
        f"of network per megabyte ({situation.crossings} crossings of a {situation.network_mbit:g} Mbit/s link), "
        f"{best.ratio:.2f} × smaller",
    )


def _network_bound(measured: Sequence[Measured], situation: Situation) -> Advice:
    def through_mb_s(one: Measured) -> float:
        link_mb_s = situation.network_mb_s * one.ratio
        return link_mb_s if one.candidate.codec == Codec.NONE else min(link_mb_s, one.compress_mb_s)

    best = max(measured, key=through_mb_s)
    bound = "the link" if through_mb_s(best) < best.compress_mb_s else "compressing, on one core"
    return Advice(
        "network-bound",
        best.candidate,
        f"most data through a {situation.network_mbit:g} Mbit/s link: {through_mb_s(best):.0f} MB/s of records, "
        f"limited by {bound}; {best.ratio:.2f} × smaller",
    )


def _cpu_bound(measured: Sequence[Measured], situation: Situation) -> Advice:
    plain = next((one for one in measured if one.candidate.codec == Codec.NONE), measured[0])
    saving = [one for one in measured if one.saving >= SAVING_MIN]
    if not saving:
        most = max(measured, key=lambda one: one.saving)
        return Advice(
            "CPU-bound",
            plain.candidate,
            f"nothing saves {SAVING_MIN:.0%} of the bytes (the most is {most.saving:.0%}, by {most.candidate.name}): "
            "this data is dense already",
        )
    best = min(saving, key=lambda one: _cpu_ms(one, situation))
    return Advice(
        "CPU-bound",
        best.candidate,
        f"{_cpu_ms(best, situation):.1f} ms of processor per megabyte, the least of those that save "
        f"{SAVING_MIN:.0%} or more of the bytes; it saves {best.saving:.0%}",
    )
