"""Broker properties of client quotas. The quotas themselves are set per user, client id and address at run time."""

from __future__ import annotations

from penstock.config.definitions import INT64_MAX, Importance, Kind, UpdateMode, at_least
from penstock.config.tables import Section, prop

HIGH, LOW = Importance.HIGH, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
INT, LONG = Kind.INT, Kind.LONG


class ClientQuotas(Section, title="Client quotas"):
    """Defaults of quotas, and the windows in which rates are measured."""

    quota_producer_default: int = prop(
        "quota.producer.default",
        LONG,
        INT64_MAX,
        at_least(1),
        "The bytes per second that each client id may produce, unless a client quota applies to it. Kafka 4 has "
        "removed this property; there a quota for the default client id does the same.",
        CLUSTER_WIDE,
        HIGH,
        kafka_default="none, removed in Kafka 4",
    )
    quota_consumer_default: int = prop(
        "quota.consumer.default",
        LONG,
        INT64_MAX,
        at_least(1),
        "The bytes per second that each client id may fetch, unless a client quota applies to it. Kafka 4 has removed "
        "this property; there a quota for the default client id does the same.",
        CLUSTER_WIDE,
        HIGH,
        kafka_default="none, removed in Kafka 4",
    )
    quota_window_num: int = prop(
        "quota.window.num",
        INT,
        11,
        at_least(1),
        "The number of windows over which the rates of client quotas are measured. A client that was quiet may use "
        "the quota of all but one of them at once.",
        importance=LOW,
    )
    quota_window_size_seconds: int = prop(
        "quota.window.size.seconds",
        INT,
        1,
        at_least(1),
        "The length of each window of client quotas.",
        importance=LOW,
    )
    controller_quota_window_num: int = prop(
        "controller.quota.window.num",
        INT,
        11,
        at_least(1),
        "The number of windows for quotas on topics and partitions created and deleted. All of them may be used at "
        "once.",
        importance=LOW,
    )
    controller_quota_window_size_seconds: int = prop(
        "controller.quota.window.size.seconds",
        INT,
        1,
        at_least(1),
        "The length of each window of quotas on topics and partitions created and deleted.",
        importance=LOW,
    )
