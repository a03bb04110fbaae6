"""The rows of a store as Arrow batches, and the stored rows of any namespace as blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa

from ckpt.contract.backend import Backend, ScansInBlocks
from ckpt.errors import SerializationError
from ckpt.spark.catalogue import FAMILY_ID, StoreVersion
from ckpt.spark.encodings import FamilyDecoder
from ckpt.types import Block

_BLOCK_ROWS = 8192
_BLOCK_BYTES = 4 << 20


def decoded(
    backend: Backend, place: StoreVersion, decoder: FamilyDecoder
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Keys and values of one family, in batches; every key once."""
    blocks: Iterator[Block] = (_of_family(block, decoder.family.id) for block in stored(backend, place))
    if decoder.family.multiple:
        # The chunks of a key may be anywhere among the rows.
        blocks = iter([_joined(list(blocks))])
    for block in blocks:
        if len(block):
            try:
                yield decoder.decode(block)
            except SerializationError as error:
                raise SerializationError(f"store {place.namespace!r}: {error}") from error


def decoded_row(
    backend: Backend, place: StoreVersion, decoder: FamilyDecoder, stored_key: bytes
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The key and value under one stored key, if it is there; nothing else is read."""
    found = backend.get_many(place.namespace, [stored_key], version=place.version, commit_id=place.commit_id)
    if found:
        yield decoder.decode(Block.of(found.items()))


def stored(backend: Backend, place: StoreVersion) -> Iterator[Block]:
    """The rows of a namespace as they are stored, in blocks."""
    version, commit_id = place.version, place.commit_id
    if isinstance(backend, ScansInBlocks):
        yield from backend.scan_blocks(
            place.namespace, version=version, commit_id=commit_id, block_bytes=_BLOCK_BYTES
        )
        return
    rows = backend.scan(place.namespace, version=version, commit_id=commit_id)
    while some := list(islice(rows, _BLOCK_ROWS)):
        yield Block.of(some)


def _of_family(block: Block, family: int) -> Block:
    """The rows of a block whose keys begin with that id."""
    if not len(block):
        return block
    keys = np.frombuffer(block.keys, np.uint8)
    lengths = block.key_lengths.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    long_enough = lengths >= FAMILY_ID.size
    safe = np.where(long_enough, starts, 0)
    ids = (keys[safe].astype(np.int64) << 8) | keys[np.minimum(safe + 1, len(keys) - 1)]
    chosen = long_enough & (ids == family)
    if chosen.all():
        return block
    return Block(
        block.key_lengths[chosen],
        block.value_lengths[chosen],
        keys[np.repeat(chosen, lengths)].data,
        np.frombuffer(block.values, np.uint8)[np.repeat(chosen, block.value_lengths)].data,
    )


def _joined(blocks: list[Block]) -> Block:
    if not blocks:
        return Block.of([])
    return Block(
        np.concatenate([block.key_lengths for block in blocks]),
        np.concatenate([block.value_lengths for block in blocks]),
        b"".join(bytes(block.keys) for block in blocks),
        b"".join(bytes(block.values) for block in blocks),
    )
