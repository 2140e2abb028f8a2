"""Lag, from what Spark reports after each trigger."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.client import TopicPartition
from penstock.spark.lag import Lag, LagListener, offsets_behind
from penstock.spark.offsets import SourceOffset, positions_json

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def progress(query: str, ends: dict[TopicPartition, int], latest: dict[TopicPartition, int]) -> Any:
    ours = SimpleNamespace(
        endOffset=json.dumps(SourceOffset(ends).to_json()), latestOffset=json.dumps(positions_json(latest))
    )
    other = SimpleNamespace(endOffset="17", latestOffset=None)
    return SimpleNamespace(progress=SimpleNamespace(id=query, name='top "10"', batchId=4, sources=[other, ours]))


def test_lag_is_told_per_trigger() -> None:
    told: list[Lag] = []
    listener = LagListener(told.append)

    listener.onQueryProgress(progress("q", {A0: 10, A1: 20}, {A0: 110, A1: 20, B0: 5}))

    (lag,) = told
    assert (lag.query_id, lag.batch_id, lag.source) == ("q", 4, 1)
    assert lag.offsets_behind == {A0: 100, A1: 0, B0: 5}
    assert (lag.smallest, lag.average, lag.largest, lag.total) == (0, 35.0, 100, 105)
    assert listener.lags() == [lag]


def test_lag_is_exported_for_the_queries_that_run() -> None:
    listener = LagListener()
    listener.onQueryProgress(progress("q1", {A0: 10}, {A0: 15}))
    listener.onQueryProgress(progress("q2", {A0: 10}, {A0: 11}))

    lines = listener.prometheus_text().splitlines()
    assert 'penstock_spark_lag_offsets_max{query="top \\"10\\"",query_id="q1",source="1"} 5' in lines
    assert "# TYPE penstock_spark_lag_offsets_avg gauge" in lines

    listener.onQueryTerminated(SimpleNamespace(id="q1"))  # type: ignore[arg-type]  # all that is read of it
    assert [lag.query_id for lag in listener.lags()] == ["q2"]


@pytest.mark.parametrize(("end", "latest"), [(None, "{}"), ("{}", None), ("7", "8"), ("not json", "{}"), ("{}", "{}")])
def test_other_sources_have_no_lag_here(end: str | None, latest: str | None) -> None:
    assert offsets_behind(end, latest) is None
