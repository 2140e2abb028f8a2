"""What the exit code of a `penstock` command means."""

from __future__ import annotations

OK = 0
FAILED = 1
"""The operation failed, or a part of it; the message says which."""
USAGE = 2
"""The command line makes no sense: an unknown option, a value of the wrong form."""
UNREACHABLE = 3
"""No broker could be reached, or none that speaks Kafka's protocol."""
NOT_FOUND = 4
"""There is no such topic, partition, group, broker or directory."""
ALREADY_EXISTS = 5
"""The topic to create is already there."""
REFUSED = 6
"""The cluster refused the request (a value it does not accept, more replicas than it has brokers), or a plan does not
fit it; nothing was changed."""
NOT_AUTHORIZED = 7
"""Who we are may not do this, or could not be told."""
TIMED_OUT = 8
"""The cluster was reached and did not answer in time."""
DECLINED = 9
"""The question whether to go on was answered with no."""
UNHEALTHY = 10
"""What was to be checked is not well: `groups describe --check`, `cluster describe --check`, `reassign verify`,
`doctor`, `chaos`, `demo`, `host check`."""
INTERRUPTED = 130
"""Stopped by Ctrl-C, as shells count it."""
