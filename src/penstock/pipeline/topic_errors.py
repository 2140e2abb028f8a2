"""What can go wrong while batches are written to topics, each with what it means and what to do.

TopicSinkError
├─ MarkerError             the marker cannot be read or kept
├─ TransactionsMissing     the cluster has none
├─ UncappedQuery           nothing bounds how much one batch may hold
├─ BatchTooLarge           a batch is more than the driver may hold
├─ UnknownQuery            whose batch this is cannot be found out
├─ DriverFenced            another driver of the same query took over: this one must end
├─ OutcomeUnknown          a commit that was asked for may have happened; the next start finds out
└─ TransactionFailed       anything else that ended a transaction: nothing of it is visible
"""

from __future__ import annotations

from penstock.spark.producing import SinkError


class TopicSinkError(SinkError):
    """Anything that writing batches to topics raises about itself."""


class MarkerError(TopicSinkError):
    """The marker topic, or a marker in it, cannot be used."""


class TransactionsMissing(TopicSinkError):
    """The cluster does not serve transactions."""


class UncappedQuery(TopicSinkError):
    """A source of the query has no cap per trigger."""


class BatchTooLarge(TopicSinkError):
    """A batch does not fit."""


class UnknownQuery(TopicSinkError):
    """A batch that belongs to no streaming query that can be seen from here."""


class DriverFenced(TopicSinkError):
    """Another driver has initialised the same transactional id since."""


class OutcomeUnknown(TopicSinkError):
    """A commit that may or may not have happened."""


class TransactionFailed(TopicSinkError):
    """A transaction that did not commit."""
