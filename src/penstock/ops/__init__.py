"""Operates a cluster through Kafka's protocol: shared by commands, and later by the monitor and the console.

`cluster_port.ProtocolPort` reads and changes any Kafka cluster in the terms of `penstock.balance`. `transactions`
lists transactions, finds those that hang, and ends them.
"""
