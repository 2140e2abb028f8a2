"""The shell around the pure cores: connections, dispatch, one module per API, partitions, metrics.

How a request travels:

    socket → Connection (frames, order of answers) → Service (limits, versions, decoding) → apis/… (the work)
           ← Connection (corked writes, file slices) ← Service (encoding) ←

The subpackages, by role: `net` (sockets), `apis` (one module per API), `produce` and `fetch` (what those two keep
between calls), `replicas` (partitions, leading and following), `quorum` (metadata), `observability` (metrics).

What a handler may use is `Node`: the configuration, the metadata image, the table of partitions, and the quorum to
which administrative requests are submitted. `Broker` (`server.py`) puts it all together and takes it down again.

    Broker
    ├── Service ── Connection …            one per client
    ├── ControllerListener ── Service      for other nodes, where this one is a controller
    ├── Peers ── Channel …                 what this node asks of others
    ├── MetadataQuorum                     decides and stores metadata, publishes images
    │   ├── RaftCore                       the pure core; the quorum does what it says
    │   ├── MetadataStore, QuorumPeers     on disk, and with the other replicas
    │   └── AppliedMetadata                the image, its publishers, and who waits for it
    ├── PartitionManager ── Partition …    follows the images; owns the logs
    │   └── ReplicaRoles                   who leads and who follows
    │       ├── Fetchers ── Fetcher …      copies from leaders, one for each
    │       └── IsrChanges                 proposes who is in sync
    ├── Coordinators                       of groups
    └── BrokerMetrics

Everything runs on one loop. A produce request is parsed in the receive buffer, appended with one write, and answered in
the same turn if its promise holds already; the readers it wakes come after the answer. Whatever could wait for a
device or take long is off the loop or in slices.
"""
