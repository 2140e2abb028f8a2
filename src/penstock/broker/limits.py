"""Every bound on what comes from outside, by name. Those that an operator may change are configs instead."""

RECEIVE_BUFFER_START_BYTES = 4 * 1024
"""What an idle connection holds. Grows with the bytes that arrived, never with the length the peer declared."""

RECEIVE_BUFFER_KEEP_BYTES = 2 * 1024 * 1024
"""A connection keeps a grown buffer up to this size between requests, until it has been idle for a while."""

RECEIVE_AHEAD_BYTES_MAX = 256 * 1024
"""How much a client may pipeline behind a request that waits, before its socket is left unread."""

SEND_CHUNK_BYTES = 256 * 1024
"""File bytes in memory per connection: a reader that never reads costs this and no more."""

SEND_HIGH_WATER_BYTES = 4 * 1024
"""Above this the transport's buffer counts as full and no more requests of the connection are served."""

SENDFILE_BYTES_MIN = 64 * 1024
"""For less, reading and writing costs no more than `sendfile`."""

SENDFILE_PIECE_BYTES = 256 * 1024
"""What is asked to be in the page cache at a time; a socket with the default buffer takes about as much."""

SEND_AHEAD_OF_READERS_BYTES = 1024 * 1024
"""For a peer that has been seen to read, chunks are filled while others are on their way, up to this much."""

SEND_TURN_BYTES_MAX = 2 * 1024 * 1024
"""What one connection may send before others get their turn."""

PENDING_ANSWERS_MAX = 10_000
"""Pipelined produce requests that wait for their commit, per connection."""

WAKES_PER_TICK_MAX = 256
"""Parked fetches answered in one go; the rest wait for the next turn of the loop."""

FRAME_BYTES_OF_ANY_API = 4 * 1024
"""A frame up to this size is read whatever API it names, so that the refusal can name it too."""

REQUEST_SILENCE_MS = 30_000
"""Half a request and then silence: the connection is closed after this."""

FETCH_SESSION_PARTITIONS_MAX = 1_000_000
"""What all fetch sessions together may remember: a session costs its client one request, and the broker memory for as
long as it likes. Beyond this clients are served without one."""

FETCH_RESPONSE_BYTES_MAX = 55 * 1024 * 1024
"""Kafka's `fetch.max.bytes` default: the broker's own cap on one fetch answer."""
