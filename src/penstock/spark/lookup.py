"""The driver's questions: which partitions there are, where their logs begin and end, and which offset a time has."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from penstock.client import (
    EARLIEST,
    LATEST,
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    RequestTimedOut,
    TopicPartition,
    UnknownTopic,
)
from penstock.spark.backend import Backend, Topic, log, open_backend
from penstock.spark.errors import DataLossError, OptionError, SourceError
from penstock.spark.offsets import Positions
from penstock.spark.options import Offsets, SourceOptions, Strategy, Times
from penstock.spark.planning import Snapshot, names

T = TypeVar("T")


class Lookup:
    """Answers about the partitions that the options select. Connects when first asked."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        connect: Callable[[SourceOptions], Backend] = open_backend,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._connect = connect
        self._sleep = sleep
        self._backend: Backend | None = None
        self._answered = False

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    # Partitions

    def selected(self, *, missing_ok: bool = False) -> dict[TopicPartition, str | None]:
        """The partitions that are there and selected, each with its topic's id.

        A topic or partition that was named and is not there is an error, unless `missing_ok`.
        """
        return self._retrying(lambda backend: self._selected(backend, missing_ok))

    def _selected(self, backend: Backend, missing_ok: bool) -> dict[TopicPartition, str | None]:
        selection = self._options.selection
        if selection.pattern is not None:
            # Unanchored, as in Spark; internal topics are left out, as in Spark.
            matches = re.compile(selection.pattern).search
            found = {
                name: topic for name, topic in backend.topics(None).items() if not topic.is_internal and matches(name)
            }
            return _partitions(found)
        topics = selection.topics or tuple(dict.fromkeys(key.topic for key in selection.assigned))
        found = backend.topics(topics)
        missing = [name for name in topics if name not in found]
        if missing and not missing_ok:
            raise SourceError(
                f"there is no topic {', '.join(missing)} ({selection}) on {self._servers()}: create it, or correct the "
                "name; `penstock topics list` shows which there are"
            )
        if not selection.assigned:
            return _partitions(found)
        there = _partitions(found)
        absent = [key for key in selection.assigned if key not in there and key.topic in found]
        if absent and not missing_ok:
            count = len(found[absent[0].topic].partitions)
            raise SourceError(
                f"there is no partition {names(absent)} ({selection}): topic {absent[0].topic} has {count} partitions, "
                "which are counted from 0"
            )
        return {key: there[key] for key in selection.assigned if key in there}

    # Offsets

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> Snapshot:
        """Where the selected partitions end now.

        With `known`, missing topics are left out, and what is behind what is known is asked for again: a new leader may
        not have caught up with its own high watermark, and a broker that has just started may not know all topics.
        """

        def ask(backend: Backend) -> Snapshot:
            selected = self._selected(backend, missing_ok=known is not None)
            ends = backend.offsets(dict.fromkeys(selected, LATEST))
            return Snapshot(ends, _ids(selected))

        for attempt in range(1, self._options.fetch_offset_attempts + 1):
            found = self._retrying(ask)
            if not known or all(found.ends.get(key, -1) >= position for key, position in known.items()):
                break
            if attempt < self._options.fetch_offset_attempts:
                self._sleep(self._options.fetch_offset_interval_ms / 1000)
        return found

    def earliest(self, keys: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        """Where these partitions begin now."""
        if not keys:
            return {}
        return self._retrying(lambda backend: backend.offsets(dict.fromkeys(keys, EARLIEST)))

    def first_since(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offsets of records that are as young; −1 where there is none."""
        return self._retrying(lambda backend: backend.offsets(timestamps_ms))

    def starts(self) -> Snapshot:
        """Where the options say that a stream starts. Offsets that somebody wrote down are moved into the logs."""
        found = self._resolved(self._options.starting, self._options.strategy)
        return Snapshot(self._within_log(found.ends, self._options.starting, "startingOffsets"), found.topic_ids)

    def ranges(self) -> tuple[Snapshot, Snapshot]:
        """Where the options say that a batch starts and ends. A start behind its end is a mistake, and no loss."""
        options = self._options
        starts = self._resolved(options.starting, options.strategy)
        stops = self._resolved(options.ending, Strategy.LATEST)
        for key, start in starts.ends.items():
            if start > stops.ends.get(key, start):
                raise OptionError(
                    f"The resolved start offset {start} is greater than the resolved end offset {stops.ends[key]} for "
                    f"topic {key.topic} partition {key.partition}. Is the start behind the end, or behind all that the "
                    "log holds? Or was the topic deleted and created again?"
                )
        return (
            Snapshot(self._within_log(starts.ends, options.starting, "startingOffsets"), starts.topic_ids),
            Snapshot(self._within_log(stops.ends, options.ending, "endingOffsets"), stops.topic_ids),
        )

    def _within_log(self, found: Positions, limit: Offsets | Times, option: str) -> dict[TopicPartition, int]:
        """Offsets that somebody wrote down, checked against the logs: DataLossError, or moved into them."""
        written = [key for key, place in limit.places.items() if isinstance(limit, Offsets) and place >= 0]
        if not written:
            return dict(found)
        first = self.earliest(tuple(written))
        last = self._retrying(lambda backend: backend.offsets(dict.fromkeys(written, LATEST)))
        within = dict(found)
        for key in written:
            position = found[key]
            if first[key] <= position <= last[key]:
                continue
            self.lost(
                [
                    f"{option} has offset {position} for {names([key])}, but the log holds {first[key]} to {last[key]} "
                    "(exclusive): correct it, unless there were such records once"
                ]
            )
            within[key] = min(max(position, first[key]), last[key])
        return within

    def lost(self, messages: list[str]) -> None:
        """Data is lost: an error with failOnDataLoss, else a warning."""
        if not messages:
            return
        if self._options.fail_on_data_loss:
            raise DataLossError("; ".join(messages))
        for message in messages:
            log.warning("%s (failOnDataLoss is false)", message)

    # By parts

    def _resolved(self, limit: Offsets | Times, strategy: Strategy) -> Snapshot:
        selected = self.selected()
        places = limit.of(selected)
        if places.keys() != selected.keys():
            what = "timestamp based offsets" if isinstance(limit, Times) else "start offsets"
            if limit is self._options.ending:
                what = what.replace("start", "end")
            raise OptionError(
                f"Partitions specified for Kafka {what} don't match what are assigned. Name all of them"
                + (", with -1 for latest and -2 for earliest" if isinstance(limit, Offsets) else "")
                + f". Specified: {names(sorted(places)) or 'none'} Assigned: {names(sorted(selected)) or 'none'}"
            )
        found = self._by_time(places, strategy) if isinstance(limit, Times) else self._by_offset(places)
        return Snapshot(dict(sorted(found.items())), _ids(selected))

    def _by_offset(self, places: Positions) -> dict[TopicPartition, int]:
        relative = {key: place for key, place in places.items() if place in (EARLIEST, LATEST)}
        return dict(places) | (self._retrying(lambda backend: backend.offsets(relative)) if relative else {})

    def _by_time(self, times: Positions, strategy: Strategy) -> dict[TopicPartition, int]:
        found = self._retrying(lambda backend: backend.offsets(times)) if times else {}
        unmatched = tuple(key for key, offset in sorted(found.items()) if offset < 0)
        if unmatched and strategy is Strategy.ERROR:
            raise SourceError(
                f"No offset matched from request of topic-partition {names(unmatched[:1])} and timestamp "
                f"{times[unmatched[0]]}. Set startingOffsetsByTimestampStrategy to 'latest' to start such partitions "
                "at their end"
            )
        if unmatched:
            found |= self._retrying(lambda backend: backend.offsets(dict.fromkeys(unmatched, LATEST)))
        return found

    def _retrying(self, ask: Callable[[Backend], T]) -> T:
        """As often as `fetchOffset.numRetries` says; the client itself has then tried for a while each time."""
        attempt = 1
        while True:
            if self._backend is None:
                self._backend = self._connect(self._options)
            try:
                answer = ask(self._backend)
            except (BrokerError, ConnectionFailed, RequestTimedOut) as error:
                # A cluster that never answered was waited for long enough, and a wrong password stays wrong. But a
                # topic may be deleted between two questions: then the first is asked again, and leaves it out.
                hopeless = isinstance(error, AuthenticationFailed) or not (self._answered or _is_race(error))
                if hopeless or attempt >= self._options.fetch_offset_attempts:
                    raise
                log.warning("attempt %d to look up offsets: %s", attempt, error)
                attempt += 1
                self._sleep(self._options.fetch_offset_interval_ms / 1000)
                self.close()
                continue
            self._answered = True
            return answer

    def _servers(self) -> str:
        return self._options.properties.get("bootstrap.servers", "")


def _is_race(error: Exception) -> bool:
    return isinstance(error, UnknownTopic)


def _partitions(topics: Mapping[str, Topic]) -> dict[TopicPartition, str | None]:
    return {
        TopicPartition(name, partition): topic.topic_id
        for name, topic in sorted(topics.items())
        for partition in topic.partitions
    }


def _ids(selected: Mapping[TopicPartition, str | None]) -> dict[str, str]:
    return {key.topic: topic_id for key, topic_id in selected.items() if topic_id is not None}
