"""Metrics under Kafka's names: counters kept while serving, values looked up at each scrape, and the endpoint."""
