"""Reads OTLP metrics (opentelemetry.proto.metrics.v1), the part that Kafka's clients send: gauges and sums.

A small reader of protobuf: fields that are not needed are skipped, whatever they are. Lengths are checked against the
message around them, so a malformed payload raises WireError and nothing is allocated from a declared length.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from penstock.wire.errors import WireError

POINTS_MAX: Final = 2_000
"""Data points of one payload that are kept; further ones are counted and dropped."""
ATTRIBUTES_MAX: Final = 8

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_double = Struct("<d").unpack_from
_signed = Struct("<q").unpack_from


class Temporality(Enum):
    LATEST = 0
    """A gauge, or a sum since the client's start: it replaces the value before."""
    DELTA = 1
    """A sum since the last push: it is added to the value before."""


class Point(NamedTuple):
    name: str
    temporality: Temporality
    value: float
    attributes: tuple[tuple[str, str], ...]


class Payload(NamedTuple):
    points: list[Point]
    dropped: int
    """Points beyond `POINTS_MAX`, and metrics of other kinds than gauge and sum."""


def read_metrics(data: memoryview) -> Generator[None, None, Payload]:
    """The points of a `MetricsData` message; for slices. Raises WireError."""
    points: list[Point] = []
    dropped = 0
    for number, resource_metrics in _messages(data):
        if number != 1:
            continue
        for scope_number, scope_metrics in _messages(resource_metrics):
            if scope_number != 2:
                continue
            for metric_number, metric in _messages(scope_metrics):
                if metric_number != 2:
                    continue
                yield
                found = _metric(metric)
                room = POINTS_MAX - len(points)
                dropped += max(0, len(found) - room) + (not found)
                points += found[:room]
    return Payload(points, dropped)


def _metric(data: memoryview) -> list[Point]:
    name = ""
    values: memoryview | None = None
    is_sum = False
    for number, value in _messages(data):
        if number == 1:
            name = _text(value)
        elif number in (5, 7):
            values, is_sum = value, number == 7
    if values is None:
        return []
    temporality = Temporality.LATEST
    points: list[memoryview] = []
    for number, wire, chosen, view in _fields(values):
        if number == 1 and wire == _BYTES:
            points.append(view)
            if len(points) > POINTS_MAX:
                break
        elif number == 2 and wire == _VARINT and is_sum and chosen == 1:
            temporality = Temporality.DELTA
    return [point for view in points if (point := _point(name, temporality, view)) is not None]


def _point(name: str, temporality: Temporality, data: memoryview) -> Point | None:
    value: float | None = None
    attributes: list[tuple[str, str]] = []
    for number, wire, _, view in _fields(data):
        if number == 4 and wire == _FIXED64:
            value = float(_double(view)[0])
        elif number == 6 and wire == _FIXED64:
            value = float(_signed(view)[0])
        elif number == 7 and wire == _BYTES and len(attributes) < ATTRIBUTES_MAX:
            attributes.append(_attribute(view))
    return None if value is None else Point(name, temporality, value, tuple(attributes))


def _attribute(data: memoryview) -> tuple[str, str]:
    key = text = ""
    for number, value in _messages(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            for kind, wire, number_value, view in _fields(value):
                if kind == 1 and wire == _BYTES:
                    text = _text(view)
                elif kind in (2, 3) and wire == _VARINT:
                    text = str(number_value)
                elif kind == 4 and wire == _FIXED64:
                    text = str(_double(view)[0])
    return key, text


def _text(data: memoryview) -> str:
    return str(data, "utf-8", "replace")


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields that have bytes: strings and messages."""
    for number, wire, _, view in _fields(data):
        if wire == _BYTES:
            yield number, view


def _fields(data: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """(number, wire type, value of a varint, bytes of the others) of each field."""
    position, end = 0, len(data)
    empty = data[:0]
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, wire, value, empty
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise WireError(f"the metrics have a field of the unknown wire type {wire}")
        if size > end - position:
            raise WireError("the metrics end early")
        yield number, wire, 0, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if position >= len(data):
            raise WireError("the metrics end early")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError("the metrics have a number of more than ten bytes")
