"""Kafka's protocol: converts between bytes and requests, responses and records.

Theory of operation. A message is a `msgspec.Struct`, one class for all its versions, that carries its schema: a tuple
of fields with the versions each exists in. `codec` turns a (class, version) into two specialised Python functions on
first use: one decodes, one encodes, with adjacent fixed-size fields fused into a single `struct` call. Nothing that the
version determines is decided at run time.

- `messages` holds the classes, one module per API, written by `tools/generate_messages.py` from Kafka's schemas.
  `messages.metadata_records` holds those of the metadata log.
- `apis` is the table of the APIs that this broker serves: versions, limits, behaviour. Documentation is generated from
  it.
- `headers` reads request headers and writes response headers.
- `records` and `compression` are the record batches inside Produce, Fetch and the log.
- `errors` and `uuids` are Kafka's error codes and ids.

Input is decoded strictly. Every length is checked against the bytes left, every count against the bytes left and the
limits of the API, before anything is allocated; a violation raises `WireError`. Only unknown tagged fields, which a
newer client may send, are skipped, up to a limit.
"""
