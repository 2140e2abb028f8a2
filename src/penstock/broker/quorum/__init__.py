"""The metadata quorum on this node: the Raft core's shell, its files, its peers, and the controller's duties.

`MetadataQuorum` (`shell`) persists, sends and applies what `penstock.raft` and `penstock.metadata` decide.
`metadata_store` keeps the log and its snapshots on disk; `metadata_evidence`, `metadata_survey` and `metadata_recovery`
examine and repair them when they are damaged. `forwarding` passes administrative requests to the active controller.
"""
