"""What a record is: keys as YCSB names them, and fields that one checkpoint holds.

A record is the value of one key: a msgpack map from the name of a field to its bytes. The contract of
backends knows whole values only, so whoever changes one field reads the record, changes it, and writes it
back.

With `dataintegrity` a field holds what follows from its key and its name, byte for byte as in YCSB, so any
reader can tell whether it is what was written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from ckpt.errors import CorruptRecordError
from ckpt_bench.ycsb.generators import (
    Constant,
    Generator,
    Histogram,
    Numbers,
    Uniform,
    Zipfian,
    endless,
    fnv64,
    fnv64_many,
)
from ckpt_bench.ycsb.settings import Lengths, Settings

Record = dict[str, bytes]

_POOL_BYTES = 1 << 20
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)

encode: Callable[[Record], bytes] = _encoder.encode
"""The bytes of a record."""


def decode(value: bytes) -> Record:
    """The record that `encode` made these bytes of.

    Examples
    --------
    >>> decode(encode({"field0": b"abc"}))
    {'field0': b'abc'}
    """
    try:
        return _decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptRecordError(
            "a value is not a record of this benchmark; load the table again with the same properties"
        ) from error


def key_name(number: int, settings: Settings) -> bytes:
    """The key of one record.

    Examples
    --------
    >>> key_name(0, Settings()), key_name(5, Settings(insertorder="ordered", zeropadding=8))
    (b'user6284781860667377211', b'user00000005')
    """
    return b"user%0*d" % (settings.zeropadding, number if settings.ordered else fnv64(number))


def key_names(numbers: Numbers, settings: Settings) -> list[bytes]:
    """The keys of many records, for less than one at a time costs."""
    padding = settings.zeropadding
    named = numbers if settings.ordered else fnv64_many(numbers)
    if padding <= 1:
        return [b"user%d" % each for each in named.tolist()]
    return [b"user%0*d" % (padding, each) for each in named.tolist()]


def integral_value(key: bytes, field: str, length: int) -> bytes:
    """What a field holds with `dataintegrity`: the key, the field, and hashes of what is there so far.

    Examples
    --------
    >>> integral_value(b"user1", "field0", 30)
    b'user1:field0:-1268391216:95720'
    """
    text = key + b":" + field.encode()
    hashed = _java_hash(text, 0)
    while len(text) < length:
        hashed = _java_hash(b":", hashed)
        more = b"%d" % (hashed - (1 << 32) if hashed >> 31 else hashed)
        hashed = _java_hash(more, hashed)
        text += b":" + more
    return text[:length]


def _java_hash(text: bytes, hashed: int) -> int:
    for octet in text:
        hashed = hashed * 31 + octet & 0xFFFFFFFF
    return hashed


@functools.lru_cache(1)
def _pool(size: int, seed: int | None) -> bytes:
    """Random bytes that fields are cut from: one pool for all threads, of which there may be thousands."""
    return np.random.default_rng(seed).bytes(size)


class Fields:
    """Makes the fields of records for one thread."""

    def __init__(self, settings: Settings, random: np.random.Generator) -> None:
        self.names = [f"{settings.fieldnameprefix}{number}" for number in range(settings.fieldcount)]
        self._lengths = field_lengths(settings)
        self._integral = settings.dataintegrity
        self._constant = self._lengths.number if isinstance(self._lengths, Constant) else None
        self._sizes = endless(self._lengths, random)
        longest = self._lengths.longest if isinstance(self._lengths, Histogram) else settings.fieldlength
        self._pool = _pool(_POOL_BYTES + longest, settings.seed)
        self._starts = endless(Uniform(0, _POOL_BYTES), random)
        self._chosen: Iterator[int] = endless(Uniform(0, settings.fieldcount - 1), random)

    def any_name(self) -> str:
        """The name of one field, each as likely."""
        return self.names[next(self._chosen)]

    def all(self, key: bytes) -> Record:
        """New values of all fields."""
        if self._integral:
            return self.expected(key)
        pool = self._pool
        if self._constant is not None:
            length = self._constant
            return {name: pool[at : at + length] for name, at in zip(self.names, self._starts, strict=False)}
        each = zip(self.names, self._starts, self._sizes, strict=False)
        return {name: pool[at : at + length] for name, at, length in each}

    def one(self, key: bytes) -> Record:
        """A new value of one field."""
        name = self.any_name()
        if self._integral:
            return {name: integral_value(key, name, next(self._sizes))}
        at = next(self._starts)
        return {name: self._pool[at : at + next(self._sizes)]}

    def expected(self, key: bytes) -> Record:
        """What `dataintegrity` wants all fields to be."""
        return {name: integral_value(key, name, next(self._sizes)) for name in self.names}

    def is_integral(self, key: bytes, record: Record) -> bool:
        """Whether the fields hold what `dataintegrity` wants."""
        return all(value == integral_value(key, name, next(self._sizes)) for name, value in record.items())


def field_lengths(settings: Settings) -> Generator:
    """How long the fields of a workload are."""
    least, most = settings.minfieldlength, settings.fieldlength
    match settings.fieldlengthdistribution:
        case Lengths.CONSTANT:
            return Constant(most)
        case Lengths.UNIFORM:
            return Uniform(least, most)
        case Lengths.ZIPFIAN:
            return Zipfian(least, most)
        case Lengths.HISTOGRAM:
            return Histogram(settings.fieldlengthhistogram)
