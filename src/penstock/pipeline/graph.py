"""The lineage of a pipeline: which topics and tables its rows come from, through which steps, and where they go. Pure.

`graph_of` makes nodes and edges of a pipeline; `tree_lines` draws them for a terminal, `svg_of` as a picture. Neither
Spark nor a broker is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from penstock.pipeline.identity import dead_letter_sources, identity_of
from penstock.pipeline.model import Pipeline

BOX_HEIGHT = 44
ROW_HEIGHT = 72
GAP = 64
MARGIN = 16
CHARACTER_WIDTH = 7.4
BOX_WIDTH_MIN = 96
COLORS = {"topic": "#fde9c8", "table": "#d5e8d4", "view": "#eeeeee", "query": "#dae8fc", "other": "#ffffff"}


@dataclass(frozen=True)
class Node:
    name: str
    kind: str
    """`topic`, `table`, `view`, `query`, or `other` for what a query writes elsewhere."""
    detail: str = ""
    """A second line: the stream's name for a topic that is read, say."""


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    """From one node to another, as their numbers in `nodes`. There are no circles: `checking` refuses them."""

    def targets(self, node: int) -> list[int]:
        return [to for start, to in self.edges if start == node]

    @property
    def roots(self) -> list[int]:
        entered = {to for _, to in self.edges}
        return [number for number in range(len(self.nodes)) if number not in entered]

    def as_json(self) -> dict[str, object]:
        return {
            "nodes": [{"name": one.name, "kind": one.kind, "detail": one.detail} for one in self.nodes],
            "edges": [{"from": start, "to": to} for start, to in self.edges],
        }


def graph_of(pipeline: Pipeline) -> Graph:
    """The nodes in the order of the file: what is read, the steps, what is written."""
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    numbers: dict[str, int] = {}

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    for source in pipeline.sources:
        topic = source.topic or f"topics like {source.pattern}"
        numbers[source.name] = add(Node(topic, "topic", "" if topic == source.name else f"read as {source.name}"))
    for reference in pipeline.references:
        numbers[reference.name] = add(Node(reference.path, "table", f"joined as {reference.name}"))
    inputs = [sink.input for sink in pipeline.sinks]
    # Rows that one query writes go by its name; those of an INSERT have none of their own.
    queries = {sink.input: sink.name for sink in pipeline.sinks if inputs.count(sink.input) == 1}
    for one in pipeline.transformations:
        name = queries.get(one.name, one.name)
        numbers[one.name] = add(Node(name, "query" if one.name in queries else "view"))
        edges += [(numbers[read], numbers[one.name]) for read in one.inputs if read in numbers]
    written = identity_of(pipeline).queries
    for sink in pipeline.sinks:
        if sink.input in numbers:
            kind, _, name = written[sink.name].writes.partition(" ")
            target = Node(name, kind) if kind in ("topic", "table") else Node(written[sink.name].writes, "other")
            edges.append((numbers[sink.input], add(target)))
    for source in dead_letter_sources(pipeline):
        edges.append((numbers[source.name], add(Node(source.dead_letters, "topic", f"dead letters of {source.name}"))))
    return Graph(tuple(nodes), tuple(dict.fromkeys(edges)))


def tree_lines(graph: Graph) -> Iterator[str]:
    """A tree for each thing that is read. A step that several of them feed is drawn once and named below the others."""
    drawn: set[int] = set()
    for root in graph.roots:
        yield _title(graph.nodes[root])
        drawn.add(root)
        yield from _branches(graph, root, "", drawn)


def _branches(graph: Graph, node: int, indent: str, drawn: set[int]) -> Iterator[str]:
    targets = graph.targets(node)
    for target in targets:
        is_last = target == targets[-1]
        again = target in drawn and bool(graph.targets(target))
        yield f"{indent}{'└─ ' if is_last else '├─ '}{_title(graph.nodes[target])}{' (drawn above)' if again else ''}"
        if not again:
            drawn.add(target)
            yield from _branches(graph, target, indent + ("   " if is_last else "│  "), drawn)


def _title(node: Node) -> str:
    kind = "" if node.kind == "other" else f"{node.kind} "
    return f"{kind}{node.name}" + (f", {node.detail}" if node.detail else "")


def svg_of(graph: Graph, title: str) -> str:
    """A picture from left to right: each node stands right of everything that feeds it."""
    columns = _columns(graph)
    widths = [max(_width(graph.nodes[number]) for number in column) for column in columns]
    left, lefts = float(MARGIN), []
    for width in widths:
        lefts.append(left)
        left += width + GAP
    place = {
        number: (lefts[x], MARGIN + y * ROW_HEIGHT, widths[x])
        for x, column in enumerate(columns)
        for y, number in enumerate(column)
    }
    width = left - GAP + MARGIN
    height = 2 * MARGIN + max((len(column) for column in columns), default=1) * ROW_HEIGHT - (ROW_HEIGHT - BOX_HEIGHT)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
        *(_arrow(place[start], place[to]) for start, to in graph.edges),
        *(_box(node, place[number]) for number, node in enumerate(graph.nodes)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _columns(graph: Graph) -> Sequence[Sequence[int]]:
    """The nodes by the length of the longest way to each."""
    depth: dict[int, int] = {}

    def depth_of(number: int) -> int:
        if number not in depth:
            depth[number] = 1 + max((depth_of(start) for start, to in graph.edges if to == number), default=-1)
        return depth[number]

    columns: dict[int, list[int]] = {}
    for number in range(len(graph.nodes)):
        columns.setdefault(depth_of(number), []).append(number)
    return [columns[key] for key in sorted(columns)]


def _width(node: Node) -> float:
    return max(BOX_WIDTH_MIN, CHARACTER_WIDTH * max(len(node.name), len(_second_line(node))) + 20)


def _second_line(node: Node) -> str:
    return node.detail or (node.kind if node.kind != "other" else "")


def _box(node: Node, place: tuple[float, float, float]) -> str:
    left, top, width = place
    middle = left + width / 2
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6" '
        f'fill="{COLORS[node.kind]}" stroke="#555"/>'
        f'<text x="{middle:.0f}" y="{top + 19:.0f}" text-anchor="middle">{escape(node.name)}</text>'
        f'<text x="{middle:.0f}" y="{top + 35:.0f}" text-anchor="middle" fill="#555" font-size="11">'
        f"{escape(_second_line(node))}</text>"
    )


def _arrow(start: tuple[float, float, float], to: tuple[float, float, float]) -> str:
    x1, y1 = start[0] + start[2], start[1] + BOX_HEIGHT / 2
    x2, y2 = to[0], to[1] + BOX_HEIGHT / 2
    bend = GAP / 2
    return (
        f'<path d="M{x1:.0f},{y1:.0f} C{x1 + bend:.0f},{y1:.0f} {x2 - bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}" '
        f'fill="none" stroke="#555" marker-end="url(#arrow)"/>'
    )
