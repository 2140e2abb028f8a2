"""Apache Kafka's own command-line tools: what they print for Penstock is what they print for Apache Kafka.

Each test drives both brokers through the same story and compares what the tools say, after putting names in place of
what must differ (addresses, ids, times; see `both.py`).
"""
