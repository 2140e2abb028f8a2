"""Whether each source of a running query has a cap per trigger, as far as that can be seen.

A batch that goes out in one transaction is held by the driver, so something must bound it. Spark asks every source for
its read limit when a query starts; "all that is available" is no bound: after an hour of standstill one batch holds an
hour. Which option caps a source is the source's affair, so the limit is looked at first, then the source's options.

What cannot be seen (Spark Connect, a source with a rule of its own) is let pass.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAP_OPTIONS: Final = (
    "maxOffsetsPerTrigger",
    "maxRecordsPerTrigger",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "rowsPerBatch",
    "rowsPerSecond",
)
NO_CAPS: Final = ("ReadAllAvailable", "ReadMinRows")
BOUNDED_BY_NATURE: Final = ("RateStream", "RatePerMicroBatch", "MemoryStream", "ContinuousMemoryStream", "TextSocket")
"""Sources of demonstrations and tests."""
FILE_SOURCE: Final = "FileStreamSource"
PYTHON_SOURCE: Final = "PythonMicroBatchStream"
TOPIC_OPTIONS: Final = frozenset({"subscribe", "subscribepattern", "assign"})

_PYTHON_LIMIT: Final = re.compile(r'"_type": *"(\w+)"')

log = logging.getLogger("penstock.pipeline")


class SourceCap(NamedTuple):
    """What could be seen of one source."""

    name: str
    """Its class, without the package."""
    description: str
    """How it describes itself."""
    limit: str
    """The class of its read limit."""
    admission_control: bool
    """Whether it can be limited by Spark at all."""
    options: Mapping[str, str]
    """Empty where they cannot be seen."""


def uncapped(sources: list[SourceCap]) -> SourceCap | None:
    """The first source that certainly has no cap."""
    return next((source for source in sources if not _passes(source)), None)


def fix_for(source: SourceCap) -> str:
    """The option that would cap this source."""
    return "maxFilesPerTrigger" if source.name == FILE_SOURCE else "maxOffsetsPerTrigger"


def _passes(source: SourceCap) -> bool:
    if source.limit not in NO_CAPS or source.name.startswith(BOUNDED_BY_NATURE):
        return True
    if source.admission_control:
        return False  # whatever its options say: the trigger `once` has it ignore them
    names = {name.lower() for name in source.options}
    if any(option.lower() in names for option in CAP_OPTIONS):
        return True
    return not (source.name.startswith(PYTHON_SOURCE) and names & TOPIC_OPTIONS)


def visible_sources(session: SparkSession, query_id: str) -> list[SourceCap]:
    """The sources of a query that runs in this application; none where they cannot be seen."""
    jvm_session = getattr(session, "_jsparkSession", None)
    if jvm_session is None:
        return []
    try:
        return _sources(session, jvm_session, query_id)
    except Exception as error:
        # Spark's inside may look otherwise in another version, and a check that cannot see must not stop a query.
        log.debug("the caps of query %s cannot be seen: %s", query_id, error)
        return []


def _sources(session: SparkSession, jvm_session: object, query_id: str) -> list[SourceCap]:
    jvm = session.sparkContext._jvm
    assert jvm is not None
    queries = jvm_session.sharedState().activeStreamingQueries()  # type: ignore[attr-defined]
    query = queries.get(jvm.java.util.UUID.fromString(query_id))
    if query is None:
        return []
    options = _options_by_stream(query.logicalPlan())
    found = []
    pairs = query.uniqueSources().iterator()
    while pairs.hasNext():
        pair = pairs.next()
        stream, limit = pair._1(), pair._2()
        name, known = stream.getClass().getSimpleName(), options.get(stream.hashCode(), {})
        found.append(
            SourceCap(
                name,
                f"of {known}" if name.startswith(PYTHON_SOURCE) else stream.toString(),
                _limit_name(limit),
                _implements(stream, "org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl"),
                known,
            )
        )
    return found


def _limit_name(limit: object) -> str:
    """The limit's class. Spark carries the limits of sources in Python around as JSON, which names the real one."""
    name = str(limit.getClass().getSimpleName())  # type: ignore[attr-defined]
    match = _PYTHON_LIMIT.search(str(limit.toString()))  # type: ignore[attr-defined]
    return match[1] if match else name


def _options_by_stream(plan: object) -> dict[int, dict[str, str]]:
    """Those of the options that matter here, by the stream they belong to."""
    leaves = plan.collectLeaves().iterator()  # type: ignore[attr-defined]
    found: dict[int, dict[str, str]] = {}
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.getClass().getSimpleName() == "StreamingDataSourceV2ScanRelation":
            options = leaf.relation().options()
            # Asked one by one: Java does not let a stranger iterate over this map.
            known = {name: options.get(name) for name in (*CAP_OPTIONS, *TOPIC_OPTIONS)}
            found[leaf.stream().hashCode()] = {name: value for name, value in known.items() if value is not None}
    return found


def _implements(thing: object, interface: str) -> bool:
    kind = thing.getClass()  # type: ignore[attr-defined]
    return bool(kind.getClassLoader().loadClass(interface).isInstance(thing))
