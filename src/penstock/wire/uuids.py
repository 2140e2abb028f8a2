"""Kafka's UUIDs: sixteen bytes on the wire, twenty-two characters of base64url as text.

In the engine an id is always the plain sixteen `bytes`, because it is compared, hashed and written far more often than
it is displayed. All zero bytes mean "none".
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

UUID_SIZE = 16
UUID_TEXT_SIZE = 22

ZERO_UUID = bytes(UUID_SIZE)
# The topic id of the metadata log (KIP-500).
METADATA_TOPIC_ID = bytes(15) + b"\x01"

# Directory ids with a special meaning, and how many are reserved (KIP-858).
DIRECTORY_MIGRATING = ZERO_UUID
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
DIRECTORY_LOST = bytes(15) + b"\x02"
RESERVED_UUIDS = 100


def format_uuid(uuid: bytes) -> str:
    """The text form that Kafka's tools print, for example `AAAAAAAAAAAAAAAAAAAAAA` for none."""
    if len(uuid) != UUID_SIZE:
        raise ValueError(f"a uuid has {UUID_SIZE} bytes, not {len(uuid)}")
    return urlsafe_b64encode(uuid)[:UUID_TEXT_SIZE].decode()


def parse_uuid(text: str) -> bytes:
    """The sixteen bytes of a uuid as Kafka's tools print it."""
    if len(text) != UUID_TEXT_SIZE or not text.isascii():
        raise ValueError(f"{text!r} is not a UUID: expected {UUID_TEXT_SIZE} characters of base64url")
    uuid = urlsafe_b64decode(text + "==")
    # The decoder skips characters outside the alphabet and drops stray bits: only a round trip proves the text.
    if len(uuid) != UUID_SIZE or format_uuid(uuid) != text:
        raise ValueError(f"{text!r} is not a UUID: expected {UUID_TEXT_SIZE} characters of base64url")
    return uuid


def is_reserved(uuid: bytes) -> bool:
    """Whether Kafka reserves this id, so that no topic or directory may get it."""
    return uuid < RESERVED_UUIDS.to_bytes(UUID_SIZE, "big")
