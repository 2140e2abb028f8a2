"""The same records under another codec, for topics that choose theirs (`compression.type`)."""

from penstock.wire.compression import Buffer, Codec, compress, decompress
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.records import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    check_batch,
    iter_batches,
    seal,
)

_CODEC_MASK = 7


def codecs_of(records: Buffer) -> list[Codec]:
    """The codec of each batch; of a batch that is damaged, whatever its header says."""
    return [Codec(header.attributes & _CODEC_MASK) for header, _ in iter_batches(records)]


def recompress(records: Buffer, codec: Codec, level: int | None, max_bytes: int) -> bytearray:
    """All batches under `codec`; those that are already stay as they are. Raises KafkaError.

    Everything but the codec is kept, record for record: what is compressed are the records' own bytes.
    `max_bytes` bounds what a batch may decompress to.
    """
    out = bytearray()
    try:
        for header, batch in iter_batches(records):
            check_batch(batch)
            current = Codec(header.attributes & _CODEC_MASK)
            if current == codec:
                out += batch
                continue
            payload = compress(codec, decompress(current, batch[HEADER_SIZE:], max_bytes), level)
            again = bytearray(batch[:HEADER_SIZE])
            again += payload
            again[LENGTH_POSITION : LENGTH_POSITION + 4] = (len(again) - LENGTH_OVERHEAD).to_bytes(4, "big")
            attributes = (header.attributes & ~_CODEC_MASK) | codec
            again[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2] = attributes.to_bytes(2, "big", signed=True)
            seal(again)
            out += again
    except (WireError, ValueError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch cannot be compressed again: {error}") from None
    return out
