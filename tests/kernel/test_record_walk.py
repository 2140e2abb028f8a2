"""The record walker, in both of its forms, against the decoder that takes its time (`iter_records`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from inspect import getmembers, isfunction
from pathlib import Path
from struct import pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import kernel
from penstock.kernel import record_walk
from penstock.kernel.record_walk import TIMESTAMP_MAX, TIMESTAMP_MIN
from penstock.wire.errors import WireError
from penstock.wire.records import HEADER_SIZE, Record, build_batch, iter_records, read_header, seal, varint
from support.poison import forged, poison

NOW = 1_750_001_000_000
FORMS = {"interpreted": record_walk.walk, "as loaded": kernel.walk}
"""One and the same where there was no compiler."""
COUNT_POSITION, LAST_DELTA_POSITION = 57, 23

Walk = Callable[..., int]
every_form = pytest.mark.parametrize("walk", FORMS.values(), ids=FORMS)


def verdict(
    walk: Walk, batch: bytes, *, problems_max: int = 100, **rules: int
) -> tuple[int, list[tuple[int, int, int]]]:
    header = read_header(batch)
    problems: list[tuple[int, int, int]] = []
    largest = walk(
        memoryview(batch),
        HEADER_SIZE,
        header.records_count,
        header.base_timestamp,
        rules.get("earliest", TIMESTAMP_MIN),
        rules.get("latest", TIMESTAMP_MAX),
        bool(rules.get("keys_required", False)),
        problems,
        problems_max,
    )
    return largest, problems


def decodes(batch: bytes) -> list[Record] | None:
    """Its records, if the slow decoder finds all that the header says, one after the other."""
    try:
        records = list(iter_records(batch, verify_crc=False))
    except WireError:
        return None
    return records if [record.offset for record in records] == list(range(len(records))) else None


@every_form
def test_the_largest_timestamp_is_found_wherever_it_is(walk: Walk) -> None:
    records = [Record(timestamp=NOW + delta, key=b"k", value=b"v" * 200) for delta in (5, -90_000, 70_000, 0)]
    assert verdict(walk, build_batch(records)) == (NOW + 70_000, [])
    assert verdict(walk, build_batch([Record(timestamp=-1, value=b"no time")])) == (-1, [])


@every_form
@pytest.mark.parametrize("name", [name for name, made in poison(NOW).items() if not read_header(made).attributes])
def test_no_kind_of_poison_passes(walk: Walk, name: str) -> None:
    largest, problems = verdict(walk, poison(NOW)[name])
    assert largest == record_walk.REFUSED
    assert problems
    assert verdict(walk, poison(NOW)[name], problems_max=0) == (record_walk.REFUSED, [])


@every_form
def test_each_bad_record_is_named_with_what_is_wrong_with_it(walk: Walk) -> None:
    records = [
        Record(timestamp=NOW + (10_000 if n % 10 == 4 else 0), key=None if n % 10 == 7 else b"k", value=b"v")
        for n in range(30)
    ]
    largest, problems = verdict(walk, build_batch(records), latest=NOW + 9_999, keys_required=True)
    assert largest == record_walk.REFUSED
    late, keyless = record_walk.WRONG_TIMESTAMP, record_walk.NO_KEY
    assert [(index, kind) for index, kind, _ in problems] == [
        (4, late), (7, keyless), (14, late), (17, keyless), (24, late), (27, keyless),
    ]  # fmt: skip
    assert problems[0][2] == NOW + 10_000
    assert len(verdict(walk, build_batch(records), keys_required=True, problems_max=2)[1]) == 2


@every_form
@pytest.mark.parametrize("base", [TIMESTAMP_MAX, TIMESTAMP_MAX - 1, TIMESTAMP_MIN, TIMESTAMP_MIN + 1, 0])
@pytest.mark.parametrize("delta", [1, -1, 2, -2, TIMESTAMP_MAX, TIMESTAMP_MIN, 0])
def test_timestamps_at_the_edges_of_64_bits_are_added_without_overflow(walk: Walk, base: int, delta: int) -> None:
    payload = varint(6 + len(varint(delta)) - 1) + b"\0" + varint(delta) + b"\0\1\1\0"
    batch = bytearray(forged(payload, 0, count=1))
    pack_into(">q", batch, 27, base)
    largest, problems = verdict(walk, bytes(batch))
    if TIMESTAMP_MIN <= base + delta <= TIMESTAMP_MAX:
        assert (largest, problems) == (max(base + delta, -1), [])
    else:
        assert largest == record_walk.REFUSED
        assert problems[0][1] == record_walk.WRONG_TIMESTAMP


@every_form
@pytest.mark.parametrize("size", [10, 1_000, 21_845, 65_520, 65_536, 70_000, 300_000])
def test_records_of_any_size_are_walked_over(walk: Walk, size: int) -> None:
    sizes = [size, 3, size, size - 1, size + 1, 0, size] * max(1, 200_000 // (5 * size))
    made = [Record(timestamp=NOW + n, value=bytes(size)) for n, size in enumerate(sizes)]
    batch = build_batch(made)
    assert verdict(walk, batch) == (NOW + len(made) - 1, [])
    for missing in (1, 3, size):
        assert verdict(walk, batch[:-missing])[1] == [(len(made) - 1, record_walk.CUT_OFF, 0)]
    assert verdict(walk, batch + b"\0")[1] == [(len(made), record_walk.TRAILING_BYTES, 1)]


@every_form
@pytest.mark.parametrize("many", ["records", "headers"])
def test_a_long_walk_lets_other_threads_go_on_after_each_megabyte(
    walk: Walk, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is one of them, while a large batch is checked in a thread. Compiled code is never interrupted."""
    size = 3 * record_walk.PAUSE_BYTES
    if many == "records":
        records = [varint(5 + len(delta)) + b"\0\0" + delta + b"\1\0\0" for delta in map(varint, range(size // 9))]
        batch = forged(b"".join(records), 0, count=len(records))
    else:
        body = b"\0\0\0\1\0" + varint(size // 2) + b"\0\1" * (size // 2)
        batch = forged(varint(len(body)) + body, 0, count=1)
    pauses: list[float] = []
    monkeypatch.setattr(sys.modules[walk.__module__], "sleep", pauses.append)
    assert verdict(walk, batch) == (0, [])
    assert pauses == [0] * (len(batch) // record_walk.PAUSE_BYTES)


def test_every_variable_of_the_kernel_has_a_c_type() -> None:
    """Cython takes one that has none for an object. Nothing fails then, but the walk is many times slower."""
    declarations = Path(record_walk.__file__).with_suffix(".pxd").read_text()
    typed = {}
    for declaration in declarations.split("\n\n"):
        if found := re.search(r"(@cython\.locals\(.*\)\n)?cp?def .*?(\w+)\((.*)\)", declaration, re.DOTALL):
            variables, name, parameters = found.groups("")
            typed[name] = re.findall(r"(\w+)=", variables) + re.findall(r"(\w+)(?:,|$)", parameters)
    assert typed.keys() == {
        name for name, found in getmembers(record_walk, isfunction) if found.__module__ == record_walk.__name__
    }
    for name, known in typed.items():
        assert set(getattr(record_walk, name).__code__.co_varnames) == set(known), name
    constants = {name for name in record_walk.__annotations__ if name.isupper()}
    declared = re.findall(r"\w+", " ".join(re.findall(r"^cdef long long ([A-Z_0-9, ]+)$", declarations, re.MULTILINE)))
    assert constants == set(declared)


@every_form
def test_no_byte_behind_the_data_is_read(walk: Walk) -> None:
    """Compiled, nothing checks an index. Interpreted, the same read raises IndexError."""
    whole = bytes.fromhex("00 8201 80808000 026b 047676 04 0268 0276 0268 01")
    for size in range(len(whole) + 1):
        for place in range(size):
            for byte in (0, 1, 2, 4, 0x0F, 0x10, 0x7F, 0x80, 0x81, 0xFF):
                fields = bytearray(whole[:size])
                fields[place] = byte
                payload = varint(size) + fields
                problems: list[tuple[int, int, int]] = []
                data = memoryview(payload)
                walk(data, 0, 1, NOW, TIMESTAMP_MIN, TIMESTAMP_MAX, False, problems, 1)
                assert (decodes(forged(payload, NOW, count=1)) is None) == bool(problems), payload.hex()


keys = st.none() | st.binary(max_size=200)
records = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(NOW - 2**40, NOW + 2**40) | st.just(-1),
        key=keys,
        value=keys,
        headers=st.lists(st.tuples(st.text(max_size=5), keys), max_size=3),
    ),
    min_size=1,
    max_size=8,
)
changes = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "insert"]), st.integers(0, 10_000), st.sampled_from([0, 1, 2, 13, 127, 128, 255])
    ),
    max_size=4,
)


@settings(max_examples=400)
@given(records, changes, st.integers(-1, 1))
def test_what_passes_is_what_the_slow_decoder_can_read_and_both_forms_agree(
    made: list[Record], mutations: list[tuple[str, int, int]], miscount: int
) -> None:
    payload = bytearray(build_batch(made)[HEADER_SIZE:])
    for kind, place, byte in mutations:
        place %= len(payload) + 1
        if kind == "insert":
            payload.insert(place, byte)
        elif place < len(payload):
            if kind == "cut":
                del payload[place]
            else:
                payload[place] = byte
    batch = bytearray(build_batch(made)[:HEADER_SIZE] + payload)
    count = max(len(made) + (miscount if mutations else 0), 1)
    pack_into(">i", batch, COUNT_POSITION, count)
    pack_into(">i", batch, LAST_DELTA_POSITION, count - 1)
    pack_into(">i", batch, 8, len(batch) - 12)
    seal(batch)
    first, *others = [verdict(walk, bytes(batch)) for walk in FORMS.values()]
    assert all(other == first for other in others)
    largest, problems = first
    assert (largest == record_walk.REFUSED) == bool(problems)
    decoded = decodes(bytes(batch))
    assert (decoded is not None) == (not problems)
    if decoded is not None:
        assert len(decoded) == count
        assert largest == max(-1, *(record.timestamp for record in decoded))
    if not mutations:
        assert decoded is not None
        assert [(record.key, record.value) for record in decoded] == [(record.key, record.value) for record in made]
