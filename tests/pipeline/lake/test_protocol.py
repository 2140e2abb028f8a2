"""Tables that demand more than we know are not touched."""

from __future__ import annotations

import pytest

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.protocol import Protocol, check_readable, check_writable
from penstock.pipeline.lake.schemas import Field

PLAIN = Protocol(1, 2)


def test_plain_tables_are_read_and_written() -> None:
    check_readable(PLAIN, {}, has_deletion_vectors=False)
    check_writable(PLAIN, {}, [Field("id", "long", metadata=(("comment", "x"),))])
    known = Protocol(3, 7, ("timestampNtz", "deletionVectors", "columnMapping"), ("timestampNtz", "deletionVectors"))
    check_readable(known, {"delta.columnMapping.mode": "none"}, has_deletion_vectors=False)
    check_writable(known, {}, [])


@pytest.mark.parametrize(
    ("protocol", "configuration", "vectors", "complaint"),
    [
        (Protocol(4, 7), {}, False, "reader version 4"),
        (Protocol(3, 7, ("typeWidening",)), {}, False, "reader feature typeWidening"),
        (Protocol(3, 7, ("someday",)), {}, False, "reader feature someday"),
        (Protocol(2, 5), {"delta.columnMapping.mode": "name"}, False, "maps its columns"),
        (Protocol(3, 7, ("deletionVectors",)), {}, True, "deletion vectors"),
    ],
)
def test_a_table_that_cannot_be_read_rightly_is_refused(
    protocol: Protocol, configuration: dict[str, str], vectors: bool, complaint: str
) -> None:
    with pytest.raises(LakeError, match=complaint) as caught:
        check_readable(protocol, configuration, has_deletion_vectors=vectors)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("protocol", "configuration", "metadata", "complaint"),
    [
        (Protocol(1, 8), {}, (), "writer version 8"),
        (Protocol(1, 7, (), ("rowTracking",)), {}, (), "writer feature rowTracking"),
        (Protocol(1, 3), {"delta.constraints.positive": "id > 0"}, (), "constraint 'positive'"),
        (Protocol(1, 2), {}, (("delta.invariants", "{}"),), "'id' of the table has an invariant"),
        (Protocol(1, 4), {}, (("delta.generationExpression", "x"),), "a generation expression"),
        (Protocol(1, 6), {}, (("delta.identity.start", 1),), "an identity"),
        (Protocol(2, 5), {"delta.columnMapping.mode": "id"}, (), "maps its columns"),
    ],
)
def test_a_table_whose_rules_we_do_not_keep_is_refused(
    protocol: Protocol, configuration: dict[str, str], metadata: tuple[tuple[str, object], ...], complaint: str
) -> None:
    with pytest.raises(LakeError, match=complaint) as caught:
        check_writable(protocol, configuration, [Field("id", "long", metadata=metadata)])
    assert caught.value.fix
