"""The parts of Produce that outlive one call: decompression of batches, and requests that wait for their commit.

The API itself is `penstock.broker.apis.produce`.
"""
