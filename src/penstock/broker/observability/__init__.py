"""Metrics under Kafka's names: counters updated while serving, gauges computed at each scrape, and the endpoint."""
