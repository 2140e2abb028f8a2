"""The parts of Produce that outlive one call: compressed batches being opened, and requests waiting to be committed.

The API itself is `penstock.broker.apis.produce`.
"""
