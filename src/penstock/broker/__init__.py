"""The shell around the pure cores: connections, dispatch, one module per API, partitions, metrics.

How a request travels:

    socket → Connection (frames, order of answers) → Service (limits, versions, decoding) → apis/… (the work)
           ← Connection (corked writes, file slices) ← Service (encoding) ←

The subpackages, by role: `net` (sockets), `apis` (one module per API), `produce` and `fetch` (the state of these two
APIs between calls), `replicas` (partitions, leading and following), `quorum` (metadata), `observability` (metrics).

Handlers use a `Node`: the configuration, the metadata image, the table of partitions, and the quorum to which
administrative requests are submitted. `Broker` (`server.py`) starts and stops all parts.

    Broker
    ├── Service ── Connection …            one per client
    ├── ControllerListener ── Service      for other nodes, where this one is a controller
    ├── Peers ── Channel …                 requests of this node to others
    ├── MetadataQuorum                     decides and stores metadata, publishes images
    │   ├── RaftCore                       the pure core; the quorum performs its I/O
    │   ├── MetadataStore, QuorumPeers     storage, and messages to the other replicas
    │   └── AppliedMetadata                the image, its publishers, and requests that wait for it
    ├── PartitionManager ── Partition …    follows the images; owns the logs
    │   └── ReplicaRoles                   leader or follower role of each partition
    │       ├── Fetchers ── Fetcher …      copy from leaders, one for each leader
    │       └── IsrChanges                 proposes changes of the ISR
    ├── Coordinators                       of groups
    └── BrokerMetrics

Everything runs on one event loop. A produce request is parsed in the receive buffer, appended with one write, and
answered in the same turn if its `acks` are satisfied already; fetches that wait for the records are woken after that.
Work that could block on a device runs in threads, and long work runs in slices.
"""
