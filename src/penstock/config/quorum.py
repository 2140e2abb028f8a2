"""`controller.quorum.voters`: `ID@HOST:PORT`, separated by commas."""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.listeners import parse_host_port

NODE_ID_MAX = 2**31 - 1


class QuorumVoter(NamedTuple):
    """A controller that votes from the beginning of the cluster."""

    id: int
    host: str
    port: int


def parse_voters(entries: tuple[str, ...]) -> tuple[QuorumVoter, ...]:
    """The voters in the order of their ids; ValueError says which entry is wrong, and why."""
    voters: dict[int, QuorumVoter] = {}
    for entry in entries:
        number, separator, address = entry.partition("@")
        number = number.strip()
        if not separator or not number.isascii() or not number.isdigit() or int(number) > NODE_ID_MAX:
            raise ValueError(f"has {entry!r}, which is not ID@HOST:PORT, as in 1@localhost:9093")
        host, port = parse_host_port(address)
        if not host or not port:
            raise ValueError(f"has {entry!r}, but other nodes need a host and a port to reach it")
        voter = QuorumVoter(int(number), host, port)
        if voter.id in voters:
            raise ValueError(f"names node {voter.id} twice; every node has its own id")
        voters[voter.id] = voter
    return tuple(voters[node_id] for node_id in sorted(voters))
