"""A small HTTP/1.1 server for a handful of paths: metrics today, other services over HTTP later.

Theory of operation
-------------------
- `messages`: requests, responses, and `HttpError`, which a handler raises to answer with an error. Errors are JSON:
  `{"error_code": 404, "message": "…"}`.
- `reader`: bytes in, requests out, without I/O. It refuses whatever is ambiguous, because a lenient parser behind a
  proxy lets one request be taken for two.
- `routes`: which handler serves a method and a path, and how large a body it takes.
- `server`: connections on the runtime seam. A connection serves one request at a time, and one in each turn of the
  loop, so that a peer that sends many at once does not hold up everyone else.

Everything that a peer can make large or slow has a bound in `Limits`: the head, the body, the time to send a request,
the time to read a response, the number of connections. When all connections are taken, the one that has been idle for
longest is closed in favour of a new one.

Not served: chunked request bodies (answered with 411), upgrades, TLS, compression.
"""
