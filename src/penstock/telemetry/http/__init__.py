"""A small HTTP/1.1 server for a few paths: metrics now, other HTTP services later.

Theory of operation
-------------------
- `messages`: requests, responses, and `HttpError`, which a handler raises to answer with an error. Errors are JSON:
  `{"error_code": 404, "message": "…"}`.
- `reader`: bytes in, requests out, without I/O. It refuses anything ambiguous, because a lenient parser behind a proxy
  allows request smuggling: one request read as two.
- `routes`: which handler serves a method and a path, and the maximum size of its body.
- `server`: connections on the runtime seam. A connection serves one request at a time, and one per turn of the loop, so
  that a peer that sends many requests at once does not delay the others.

Everything that a peer can make large or slow is limited by `Limits`: the head, the body, the time to send a request,
the time to read a response, the number of connections. When all connections are in use, a new one replaces the one that
has been idle longest.

Not supported: chunked request bodies (answered with 411), upgrades, TLS, compression.
"""
