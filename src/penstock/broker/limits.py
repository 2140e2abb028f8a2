"""All fixed limits on input from outside. Limits that an operator may change are configs instead."""

RECEIVE_BUFFER_START_BYTES = 4 * 1024
"""Initial receive buffer of a connection. It grows with the bytes received, never with the length the peer declared."""

RECEIVE_BUFFER_KEEP_BYTES = 2 * 1024 * 1024
"""A connection keeps a grown buffer up to this size between requests, until it has been idle for a while."""

TLS_BYTES = 48 * 1024
"""Memory of a TLS connection in OpenSSL. It counts against the budget of `queued.max.request.bytes` as long as the
connection is open; connections beyond it are refused."""

BEFORE_LOGIN_BYTES_MAX = 32 * 1024 * 1024
"""Receive buffers of all clients that have not logged in, beyond the initial one of each. One client may use
`sasl.server.max.receive.size` of it; a connection that would exceed the total is closed."""

RECEIVE_AHEAD_BYTES_MAX = 256 * 1024
"""How much a client may pipeline behind a pending request before its socket is not read any more."""

SEND_CHUNK_BYTES = 256 * 1024
"""Maximum of file bytes in memory per connection, for a client that never reads."""

SEND_HIGH_WATER_BYTES = 4 * 1024
"""Above this the transport's buffer counts as full and no more requests of the connection are served."""

SENDFILE_BYTES_MIN = 64 * 1024
"""Below this size read and write are as cheap as `sendfile`."""

SENDFILE_PIECE_BYTES = 256 * 1024
"""Bytes checked for in the page cache at a time; about what a socket with the default buffer accepts."""

SEND_AHEAD_OF_READERS_BYTES = 1024 * 1024
"""For a peer that is known to read, up to this much is read ahead while earlier chunks are being sent."""

SEND_TURN_BYTES_MAX = 2 * 1024 * 1024
"""How much one connection may send before others get their turn."""

SEND_SLICE_BYTES_MAX = 512 * 1024
"""The same limit while others wait."""

SEND_CALL_BYTES = 4 * 1024
"""A system call counts as this many bytes in these shares, because it takes about as long as sending them."""

PENDING_ANSWERS_MAX = 10_000
"""Pipelined produce requests that wait for their commit, per connection."""

WAKES_PER_TICK_MAX = 128
"""Parked fetches answered in one turn of the loop; the rest wait for the next."""

FRAME_BYTES_OF_ANY_API = 4 * 1024
"""A frame up to this size is read even if its API is unknown, so that the error message can name the API."""

LARGE_REQUEST_BYTES = 16 * 1024
"""A request beyond this (Produce and Fetch aside) is decoded, served and answered in slices."""

REQUEST_SILENCE_MS = 30_000
"""A connection with an incomplete request is closed after this long without further bytes."""

RECEIVE_STALL_MS = 5_000
"""The same timeout while other requests wait for the memory of the incomplete one."""

ANSWER_MS_MAX = 60_000
"""A request that has no answer after this long never gets one: its connection is closed, so that the client retries.
Every wait inside the broker has a shorter limit (a commit `offsets.commit.timeout.ms`, a forwarded request 30 s), so
this is for bugs. Requests with a timeout in the request itself are exempt (`service.WAITS_AS_ASKED`)."""

LARGE_ANSWER_BYTES = 256 * 1024
"""A larger answer counts against the budget until its client has read it. Only bytes in memory count, not the records
of a Fetch. Answers to Produce are smaller than their requests, and are not counted."""

ANSWER_BUDGET_BYTES = 256 * 1024 * 1024
"""Total memory of such answers."""

ANSWER_SILENCE_MS = 10_000
"""A client that reads nothing of such an answer for this long is disconnected if others wait for the memory."""

FETCH_SESSION_PARTITIONS_MAX = 1_000_000
"""Maximum of partitions in all fetch sessions. A client opens a session with one request, and the broker keeps it for
long. Beyond this limit clients are served without a session."""

FETCH_AT_ONCE_PARTITIONS_MAX = 500
"""A fetch of more partitions is served in slices."""

FETCH_WAITING_PARTITIONS_MAX = 500_000
"""Maximum of partitions in all waiting fetches. A fetch beyond this is answered at once."""

FETCH_ANSWER_PARTITION_BYTES = 512
"""Memory of a partition's answer without its records, with the longest name and all objects."""

FETCH_RESPONSE_BYTES_MAX = 55 * 1024 * 1024
"""Kafka's `fetch.max.bytes` default: the broker's own cap on one fetch answer."""

PREPARING_JOBS_MAX = 2
"""Batches decompressed at the same time. Fewer than there are threads, because the disk needs some of them."""

PREPARING_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of copied batches that wait for decompression, over all connections. One request may exceed it."""

OPENED_ON_LOOP_BYTES_MAX = 16 * 1024
"""A compressed batch up to this size is decompressed on the loop, unless it decompresses to too much."""

OPENED_ON_LOOP_PER_REQUEST_MAX = 8
"""At most this many batches of one request; the others are prepared in a thread, so as not to block the loop."""

RECORD_ERRORS_BYTES_MAX = 1024 * 1024
"""Once the answer to a produce request is this large, it lists no further bad records."""
