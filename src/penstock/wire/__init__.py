"""Bytes ↔ requests, responses and records: Kafka's protocol, and nothing but.

Theory of operation. A message is a `msgspec.Struct`, one class for all its versions, that carries its schema: a
tuple of fields with the versions each exists in. `codec` turns a (class, version) into two specialised Python
functions the first time it is needed: one reads the bytes, one writes them, with neighbouring fixed-size fields
fused into a single `struct` call. Nothing is decided at run time that the version already decides.

- `messages` holds the classes, one module per API, written by `tools/generate_messages.py` from Kafka's schemas.
  `messages.metadata_records` holds those of the metadata log.
- `apis` is the table of what this broker serves: versions, limits, behaviour. Documentation is made from it.
- `headers` reads what stands before every request and writes what stands before every response.
- `records` and `compression` are the record batches inside Produce, Fetch and the log.
- `errors` and `uuids` are Kafka's.

Strangers' bytes are read strictly. Every length is checked against what is left, every count against what could
possibly follow and against the limits of the API, before anything is allocated; what breaks the rules raises
`WireError`. Only tagged fields that a newer client may send are skipped, and only so many of them.
"""
