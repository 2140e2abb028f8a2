"""The cluster's metadata: its records, the image they build, and the controller that creates new records.

Theory of operation. Everything that the nodes of a cluster must agree on (topics, partitions, brokers, configurations,
producer ids, access control, feature levels) is a record of the metadata log, in Kafka's own format. Every node that
replays the log holds the same `MetadataImage`. The one active controller takes administrative requests, checks them
against the image and returns a `Decision`: records that are appended as one atomic unit, and a reply that is sent once
they are committed. It decides on the image *plus* its earlier, uncommitted decisions (`Controller.image`), so requests
may be in flight together. Nothing else ever changes metadata, and no I/O happens here: time, randomness and ids are
arguments.

    request → Controller.decide_… → Decision(records, reply) → raft → committed batches
            → MetadataLoader.load → Step(delta, image) → publishers

Images are persistent data structures (`sharded`): a new one costs only what changed, and readers keep the one they
hold. A `MetadataDelta` both builds the next image and lists the differences, so publishers need not scan everything.

Modules: `image`, `delta`, `sharded`; `controller` with `topic_control`, `config_control`, `broker_control`,
`acl_control`, `quota_control`, `partition_control`, `elections`, `reassignment_control`, `reassignments`, `placement`
and `requests` (its requests and results); `loader` and `snapshot` (log and snapshot → image); `features`,
`security_level`, `quotas`, `topic_names`, `records`, and `formatting` (a new data directory).
"""

from penstock.metadata.controller import Controller
from penstock.metadata.delta import MetadataDelta, MetadataError, TopicChange, difference
from penstock.metadata.elections import Election
from penstock.metadata.features import (
    ELR_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_LEVEL,
    bootstrap_records,
    finalized_features,
)
from penstock.metadata.formatting import (
    META_PROPERTIES,
    METADATA_DIRECTORY,
    MetaProperties,
    MetaPropertiesError,
    check_meta_properties,
    format_directory,
    format_meta_properties,
    parse_meta_properties,
)
from penstock.metadata.image import (
    EMPTY_IMAGE,
    NO_LEADER,
    BrokerRegistration,
    ControllerRegistration,
    Listener,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
    VersionRange,
)
from penstock.metadata.loader import MetadataLoader, Step
from penstock.metadata.placement import place_replicas
from penstock.metadata.quotas import ClientQuota
from penstock.metadata.reassignments import is_reassigning, target_of
from penstock.metadata.records import partition_record
from penstock.metadata.requests import (
    PARTITIONS_PER_REQUEST_MAX,
    PRODUCER_ID_BLOCK_SIZE,
    RECORDS_PER_BATCH_MAX,
    ConfigAlteration,
    ConfigReplacement,
    ConfigResult,
    Decision,
    FeatureUpdate,
    IsrProposal,
    IsrResult,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    Outcome,
    PartitionElection,
    PartitionElectionResult,
    PartitionReassignment,
    PartitionReassignmentResult,
    PartitionsCreation,
    ProducerIdBlock,
    QuotaAlteration,
    QuotaResult,
    Registration,
    RegistrationReply,
    TopicCreation,
    TopicDeletion,
    TopicToDelete,
)
from penstock.metadata.salvage import Salvage, salvage_records
from penstock.metadata.sessions import BrokerSessions
from penstock.metadata.snapshot import image_from_snapshot, image_records, snapshot_values
from penstock.metadata.topic_control import Charge, free
from penstock.metadata.topic_names import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    is_internal,
    validate_topic_name,
)
from penstock.metadata.valid_records import check_record, check_voters, checked_values

__all__ = [
    "CLUSTER_METADATA",
    "CONSUMER_OFFSETS",
    "ELR_VERSION",
    "EMPTY_IMAGE",
    "INTERNAL_TOPICS",
    "METADATA_DIRECTORY",
    "METADATA_VERSION",
    "METADATA_VERSION_LEVEL",
    "META_PROPERTIES",
    "NO_LEADER",
    "PARTITIONS_PER_REQUEST_MAX",
    "PRODUCER_ID_BLOCK_SIZE",
    "RECORDS_PER_BATCH_MAX",
    "SHARE_GROUP_STATE",
    "SUPPORTED_FEATURES",
    "TRANSACTION_STATE",
    "TRANSACTION_VERSION",
    "TRANSACTION_VERSION_LEVEL",
    "BrokerRegistration",
    "BrokerSessions",
    "Charge",
    "ClientQuota",
    "ConfigAlteration",
    "ConfigReplacement",
    "ConfigResult",
    "Controller",
    "ControllerRegistration",
    "Decision",
    "Election",
    "FeatureUpdate",
    "IsrProposal",
    "IsrResult",
    "Listener",
    "MetaProperties",
    "MetaPropertiesError",
    "MetadataDelta",
    "MetadataError",
    "MetadataImage",
    "MetadataLoader",
    "NewPartitions",
    "NewTopic",
    "OngoingReassignment",
    "Outcome",
    "PartitionElection",
    "PartitionElectionResult",
    "PartitionReassignment",
    "PartitionReassignmentResult",
    "PartitionState",
    "PartitionsCreation",
    "ProducerIdBlock",
    "QuotaAlteration",
    "QuotaResult",
    "Registration",
    "RegistrationReply",
    "ResourceType",
    "Salvage",
    "Step",
    "TopicChange",
    "TopicCreation",
    "TopicDeletion",
    "TopicImage",
    "TopicToDelete",
    "VersionRange",
    "bootstrap_records",
    "check_meta_properties",
    "check_record",
    "check_voters",
    "checked_values",
    "difference",
    "finalized_features",
    "format_directory",
    "format_meta_properties",
    "free",
    "image_from_snapshot",
    "image_records",
    "is_internal",
    "is_reassigning",
    "parse_meta_properties",
    "partition_record",
    "place_replicas",
    "salvage_records",
    "snapshot_values",
    "target_of",
    "validate_topic_name",
]
