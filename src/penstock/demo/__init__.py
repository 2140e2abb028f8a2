"""`penstock demo`: a web shop whose events flow through a broker and a Spark pipeline, and add up in the end.

Theory of operation
-------------------
One command starts everything and shows it moving:

    generator ──► shop.clicks, shop.orders, shop.payments ──► Spark ──► topics (revenue, top products, sessions,
    (a thread)      (a broker in its own process)                        dead letters) and Delta tables

The parts, each a module, and the pure ones first:

- `seasons`, `catalogue`, `generator`: the shop. A day there takes a minute here. Visits come as a Poisson process whose
  rate follows the hour and the weekday; some customers and products are far more popular than others; some events
  arrive hours late, some twice, and some cannot be read. All of it follows from a seed, and everything sent is counted
  by its fate, so that the generator knows what the pipeline has to find.
- `accounts`: the book-keeping. sent = processed + dead-lettered + late + duplicates, and the money as well.
- `feed`, `broker`, `topics`: events on their way, the broker as a process, the topics.
- `spark_job`, `consumers`: two pipelines that do the same. The first is the real one. The second is a consumer group in
  plain Python, for machines without Java or pyspark: smaller results, the same accounts.
- `results`, `snapshot`, `view`, `summary`: what is read back from the result topics, and how it is shown.
- `runner`: the order of things, from the first process to the exit code.

Nothing here imports the broker: it is started as a user would start it, and talked to as any Kafka cluster.
"""
