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

SEND_SLICE_BYTES_MAX = 512 * 1024
"""The same while others wait."""

SEND_CALL_BYTES = 4 * 1024
"""What a system call counts for in these shares, besides the bytes that it sends: it takes about as long."""

PENDING_ANSWERS_MAX = 10_000
"""Pipelined produce requests that wait for their commit, per connection."""

WAKES_PER_TICK_MAX = 128
"""Parked fetches answered in one go; the rest wait for the next turn of the loop."""

FRAME_BYTES_OF_ANY_API = 4 * 1024
"""A frame up to this size is read whatever API it names, so that the refusal can name it too."""

LARGE_REQUEST_BYTES = 16 * 1024
"""A request beyond this (Produce and Fetch aside) is decoded, served and answered in slices."""

REQUEST_SILENCE_MS = 30_000
"""Half a request and then silence: the connection is closed after this."""

RECEIVE_STALL_MS = 5_000
"""The same, if other requests wait for the memory that the half is in."""

ANSWER_MS_MAX = 60_000
"""An answer that is not there after this never comes: its connection is closed, so that the client asks again. Every
wait inside the broker has a shorter limit of its own (a commit `offsets.commit.timeout.ms`, a forwarded request
30 s), so this is for bugs. Requests that say themselves how long to wait are exempt (`service.WAITS_AS_ASKED`)."""

LARGE_ANSWER_BYTES = 256 * 1024
"""An answer beyond this counts against the budget until its client has read it: all of it in memory, which is
without the records of a Fetch. Answers to Produce are smaller than their requests, and are not counted."""

ANSWER_BUDGET_BYTES = 256 * 1024 * 1024
"""What such answers may take together."""

ANSWER_SILENCE_MS = 10_000
"""A client that reads nothing of such an answer for so long is closed, if others wait for the memory."""

FETCH_SESSION_PARTITIONS_MAX = 1_000_000
"""What all fetch sessions together may remember: a session costs its client one request, and the broker memory for as
long as it likes. Beyond this clients are served without one."""

FETCH_AT_ONCE_PARTITIONS_MAX = 500
"""A fetch of more partitions is served in slices."""

FETCH_WAITING_PARTITIONS_MAX = 500_000
"""What all fetches that wait for records may name together. A fetch beyond this is answered at once."""

FETCH_ANSWER_PARTITION_BYTES = 512
"""What the answer about a partition takes in memory besides its records, with the longest name and all objects."""

FETCH_RESPONSE_BYTES_MAX = 55 * 1024 * 1024
"""Kafka's `fetch.max.bytes` default: the broker's own cap on one fetch answer."""

PREPARING_JOBS_MAX = 2
"""Batches that are decompressed at a time. There are more threads, for the disk, and they must not all be taken."""

PREPARING_BYTES_MAX = 256 * 1024 * 1024
"""Copies of batches that wait to be decompressed, over all connections. The request that reaches it may exceed it."""

OPENED_ON_LOOP_BYTES_MAX = 16 * 1024
"""A compressed batch up to this size is opened where it is appended, unless it unfolds to more than that is for."""

OPENED_ON_LOOP_PER_REQUEST_MAX = 8
"""So many batches of one request. Others are prepared in a thread, so that no request holds the loop for long."""

RECORD_ERRORS_BYTES_MAX = 1024 * 1024
"""Once the answer to a produce request is this large, it names no further bad records."""
