"""The parts of Fetch: incremental sessions of consumers and followers, the choice of a replica, and the answer's bytes.

The APIs themselves are `penstock.broker.apis.fetch` and `replica_fetch`.
"""
