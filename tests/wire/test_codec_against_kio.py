"""Every version of every message, compared with kio in both directions."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from penstock.sim.fuzz import samples as sample
from penstock.wire.codec import decode, to_bytes
from penstock.wire.schema import Message, versions_of
from wire import oracle

ENTITIES = list(sample.entities())
EXAMPLES_PER_VERSION = 4


@pytest.mark.parametrize(("module", "kind", "cls"), ENTITIES, ids=[cls.__name__ for _, _, cls in ENTITIES])
def test_both_codecs_say_the_same(module: str, kind: str, cls: type[Message]) -> None:
    versions = versions_of(cls)

    @settings(max_examples=EXAMPLES_PER_VERSION * len(versions), deadline=None, database=None)
    @given(version=st.sampled_from(versions), seed=st.integers(0, 1 << 64))
    def compare(version: int, seed: int) -> None:
        message = sample.message(cls, version, random.Random(seed))
        theirs = oracle.kio_class(module, kind, version, cls)

        ours = to_bytes(message, version)
        read: Any
        read, size = entity_reader(theirs)(ours, 0)
        assert size == len(ours)
        assert oracle.as_ours(read, cls, version) == message

        written = io.BytesIO()
        entity_writer(theirs)(written, read)
        assert decode(cls, version, written.getvalue()) == (message, len(written.getvalue()))
        assert written.getvalue() == ours

    compare()


def test_every_generated_version_exists_in_kio_and_the_other_way_round() -> None:
    from kio.schema.index import schema_name_map
    from kio.static.constants import EntityType

    for module, kind, cls in ENTITIES:
        theirs = [version for version, kinds in schema_name_map[module].items() if EntityType[kind] in kinds]
        assert sorted(theirs) == list(versions_of(cls)), cls
