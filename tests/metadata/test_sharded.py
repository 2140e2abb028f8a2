"""The persistent map against a dict, with every older version still intact."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.sharded import ShardedMap

keys = st.integers(0, 30).map(lambda number: b"key-%d" % number)
edits = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers())), max_size=8)


@given(st.lists(edits, max_size=8))
def test_every_version_stays_what_it_was(versions: list[list[tuple[bytes, int | None]]]) -> None:
    current: ShardedMap[int] = ShardedMap()
    model: dict[bytes, int] = {}
    history = [(current, dict(model))]
    for version in versions:
        editor = current.edit()
        for key, value in version:
            if value is None:
                editor.remove(key)
                model.pop(key, None)
            else:
                editor.put(key, value)
                model[key] = value
            assert editor.get(key) == model.get(key)
        current = editor.finish()
        history.append((current, dict(model)))
    for snapshot, expected in history:
        assert dict(snapshot.items()) == expected
        assert len(snapshot) == len(expected)
        assert sorted(snapshot.keys()) == sorted(expected)
        assert sorted(snapshot.values()) == sorted(expected.values())
        for number in range(31):
            key = b"key-%d" % number
            assert snapshot.get(key) == expected.get(key)
            assert (key in snapshot) == (key in expected)


def test_an_edit_without_changes_is_the_same_map() -> None:
    empty: ShardedMap[int] = ShardedMap()
    assert empty.edit().finish() is empty


def test_the_order_of_iteration_does_not_depend_on_the_hash_seed() -> None:
    editor = ShardedMap[int]().edit()
    for number in range(6):
        editor.put(b"key-%d" % number, number)
    assert [value for _, value in editor.finish().items()] == [3, 2, 5, 1, 0, 4]
