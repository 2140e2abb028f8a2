"""Real TLS: nodes that authenticate each other, clients that log in over TLS, certificates that change."""

from __future__ import annotations

import pytest

from penstock.testing import Cluster

NO_AUTHORIZER = {"authorizer.class.name": "", "super.users": ""}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    with Cluster(3, secure=True) as cluster:
        yield cluster


def test_three_nodes_with_mutual_tls_replicate_and_clients_log_in(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=3)
    cluster.produce("t", [str(number) for number in range(100)])
    assert len(cluster.consume("t", 100)) == 100
