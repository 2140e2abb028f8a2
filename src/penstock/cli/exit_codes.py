"""The exit codes of `penstock` commands."""

from __future__ import annotations

OK = 0
FAILED = 1
"""The operation failed, or a part of it; the message says which."""
USAGE = 2
"""The command line makes no sense: an unknown option, a value of the wrong form."""
UNREACHABLE = 3
"""No Kafka broker could be reached."""
NOT_FOUND = 4
"""There is no such topic, partition, group, broker or directory."""
ALREADY_EXISTS = 5
"""The topic to create is already there."""
REFUSED = 6
"""The cluster refused the request (a value it does not accept, more replicas than it has brokers), or a plan does not
fit it; nothing was changed."""
NOT_AUTHORIZED = 7
"""Authentication failed, or the user is not authorised for this operation."""
TIMED_OUT = 8
"""The cluster is reachable but did not answer in time."""
DECLINED = 9
"""The user declined the confirmation."""
UNHEALTHY = 10
"""The check found a problem: `groups describe --check`, `cluster describe --check`, `reassign verify`,
`doctor`, `chaos`, `demo`, `host check`."""
INTERRUPTED = 130
"""Stopped by Ctrl-C, as shells count it."""
