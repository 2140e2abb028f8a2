"""Operating a cluster through Kafka's protocol: what commands, and later the monitor and the console, have in common.

`cluster_port.ProtocolPort` reads and changes any Kafka cluster in the terms of `penstock.balance`.
"""
