"""The partitions that this broker holds: their logs, and whether it leads or follows each of them.

`PartitionManager` follows the metadata image: it opens, configures and closes partitions. `ReplicaRoles` makes each one
a leader or a follower. Followers copy through `Fetchers`; leaders propose new in-sync sets through `IsrChanges`.
"""
