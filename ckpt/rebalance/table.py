"""A routing table: the few keys that the base hash does not place, under a version, from a batch on.

F(k) is what the table says about k, else the base hash modulo `instances` (`hashing.homes`). A table is
checked when it is made and never changes; its successor is a table with a later version.

As bytes, all numbers little endian, framed and sealed as `wire` draws it (magic `ckrt`, format 1):

```
u64        version          of the table
u64        effective_from   the first batch that is routed by it
u32        instances        how many there are
u32 n      entries          keys with a place of their own
u32 b      backups          columns of backups
u32 s      splits           keys that are divided among instances
u32 p      parts            of all splits together
u64 x n    key              ascending, unsigned
u32 x n    active           the instance of each entry
u32 x n*b  backups          row by row; 0xFFFFFFFF where an entry has fewer
u64 x s    split key        ascending, unsigned
u8  x s    split side       which side's rows are divided: 0 both, 1 left, 2 right
u32 x s    parts of each
u32 x p    part: instance
f64 x p    part: share
           names of the entries
```
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import Name, homes
from ckpt.rebalance.loads import F64, I32, MAX_INSTANCES, U64, Loads, sums
from ckpt.rebalance.wire import ColumnReader, ColumnWriter

I64 = npt.NDArray[np.int64]

MAGIC, FORMAT = b"ckrt", 1
MAX_ENTRIES = 1 << 24
"""Each task of a query holds the whole table."""
NO_BACKUP = -1

_COUNTS = struct.Struct("<QQIIIII")
_ABSENT = 0xFFFF_FFFF
_SHARE_SLACK = 1e-9
"""By how much shares may miss 1 when they are added up."""


class Side(enum.IntEnum):
    """Which rows of a join a split divides; the rows of the other side go to every part."""

    BOTH = 0
    """Rows of either side are stored at one part and compared at all (mnrt-2017)."""
    LEFT = 1
    RIGHT = 2


@dataclass(frozen=True, slots=True)
class Split:
    """A key whose rows are divided among instances by shares, which add up to 1.

    Examples
    --------
    >>> Split(7, (0, 3), (0.25, 0.75)).side.name
    'BOTH'
    >>> Split(7, (0, 0), (0.5, 0.5))
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: split of key 7: an instance is named twice
    """

    key: int
    instances: tuple[int, ...]
    shares: tuple[float, ...]
    side: Side = Side.BOTH

    def __post_init__(self) -> None:
        def wrong(why: str) -> ConfigError:
            return ConfigError(f"split of key {self.key}: {why}")

        if not 0 <= self.key < 1 << 64:
            raise wrong("a key is an identity from 0 to 2**64 - 1")
        if len(self.instances) < 2 or len(self.instances) != len(self.shares):
            raise wrong("it needs at least two instances, and one share for each")
        if len(set(self.instances)) != len(self.instances):
            raise wrong("an instance is named twice")
        if not all(share > 0 for share in self.shares) or not abs(sum(self.shares) - 1) <= _SHARE_SLACK:
            raise wrong("shares must be above 0 and add up to 1")


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """Which instances have which keys: entries for single keys, else the base hash.

    Parameters
    ----------
    instances
        How many active instances there are.
    keys
        Keys with an entry, in any order; kept ascending.
    active
        The instance of each.
    backups
        Per entry the instances that hold a replica, `NO_BACKUP` where there are fewer. None: the entries do
        not say, and `Router` derives them.
    splits
        Keys that are divided among instances. They have no entry in `keys`.
    version
        Counts tables of one query; a successor has the next.
    effective_from
        The first batch that is routed by this table.
    names
        What people call the keys of the entries.

    Examples
    --------
    >>> table = RoutingTable(4, np.array([9, 5], np.uint64), np.array([0, 3]))
    >>> table.place(np.array([4, 5, 6, 9], np.uint64)).tolist()
    [0, 3, 2, 0]
    >>> RoutingTable.from_bytes(table.to_bytes()).keys.tolist()
    [5, 9]
    """

    instances: int
    keys: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    active: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    backups: I32 | None = None
    splits: tuple[Split, ...] = ()
    version: int = 0
    effective_from: int = 0
    names: Sequence[Name | None] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.instances <= MAX_INSTANCES:
            raise ConfigError(f"a table is for 1 to {MAX_INSTANCES} instances, not {self.instances}")
        if not (0 <= self.version < 1 << 63 and 0 <= self.effective_from < 1 << 63):
            raise ConfigError("the version of a table and its first batch are from 0 to 2**63 - 1")
        keys = np.asarray(self.keys, np.uint64)
        if keys.ndim != 1:
            raise ConfigError(f"the keys of a table have one dimension, not {keys.ndim}")
        order = np.argsort(keys, kind="stable")
        backups = (
            np.empty((len(keys), 0), np.int32) if self.backups is None or not len(keys) else self.backups
        )
        self._keep("keys", keys[order])
        self._keep("active", self._rows("active", np.asarray(self.active), (len(keys),))[order])
        self._keep("backups", self._rows("backups", np.asarray(backups), (len(keys), -1))[order])
        if self.names is not None:
            if len(self.names) != len(keys):
                raise ConfigError(f"names has {len(self.names)} entries for {len(keys)} keys")
            object.__setattr__(self, "names", tuple(self.names[at] for at in order.tolist()))
        object.__setattr__(self, "splits", tuple(sorted(self.splits, key=lambda split: split.key)))
        self._check()

    def __len__(self) -> int:
        """How many entries the table has; a split counts once for each of its parts."""
        return len(self.keys) + sum(len(split.instances) for split in self.splits)

    def __repr__(self) -> str:
        what = f"{len(self)} entries, {self.instances} instances"
        return f"RoutingTable(version {self.version}, {what}, from batch {self.effective_from})"

    @property
    def backup_columns(self) -> I32:
        """Per entry the backups, one row each, as wide as the entry with the most."""
        assert self.backups is not None  # set when the table was made
        return self.backups

    @property
    def split_keys(self) -> U64:
        """The keys of the splits, ascending."""
        return np.array([split.key for split in self.splits], np.uint64)

    def place(self, keys: U64, home: I32 | None = None) -> I32:
        """The instance of each key; of a split key, its first part.

        `home` is where the base hash puts each key, for a base hash that is not Spark's.
        """
        placed = np.array(homes(keys, self.instances) if home is None else home, np.int32)
        at = find(self.keys, keys)
        placed[at >= 0] = self.active[at[at >= 0]]
        if self.splits:
            at = find(self.split_keys, keys)
            first_parts = np.array([split.instances[0] for split in self.splits], np.int32)
            placed[at >= 0] = first_parts[at[at >= 0]]
        return placed

    def moved(self, successor: RoutingTable, keys: U64, home: I32 | None = None) -> I64:
        """Which of these keys are elsewhere under a successor, or split otherwise, with the same `home`."""
        resplit = np.array([split.key for split in {*self.splits} ^ {*successor.splits}], np.uint64)
        elsewhere = self.place(keys, home) != successor.place(keys, home)
        return np.flatnonzero(elsewhere | np.isin(keys, resplit))

    def shares(self, loads: Loads) -> tuple[I64, I32, F64]:
        """Who has how much of which key: (position in the loads, instance, share), split keys part by part.

        A key that is not split is wholly where the loads say that it is.
        """
        at = find(self.split_keys, loads.keys) if self.splits else np.full(len(loads), -1, np.int64)
        whole = np.flatnonzero(at < 0)
        keys, instances, shares = [whole], [loads.instance[whole]], [np.ones(len(whole))]
        for position in np.flatnonzero(at >= 0).tolist():
            split = self.splits[int(at[position])]
            keys.append(np.full(len(split.instances), position, np.int64))
            instances.append(np.array(split.instances, np.int32))
            shares.append(np.array(split.shares))
        return np.concatenate(keys), np.concatenate(instances), np.concatenate(shares)

    def instance_loads(self, loads: Loads) -> F64:
        """The load of each instance while this table is in force, with the rest."""
        keys, instances, shares = self.shares(loads)
        rest = np.empty(0) if loads.rest is None else loads.rest
        total = sums(instances, loads.cost[keys] * shares, max(self.instances, len(rest)))
        total[: len(rest)] += rest
        if total[self.instances :].any():
            raise ConfigError(f"there is load on instance {len(total) - 1}; the table has {self.instances}")
        return total[: self.instances]

    def adopting(self, successor: RoutingTable, keys: U64) -> RoutingTable:
        """The successor for these keys, this table for all others; both are for the same instances."""
        if self.instances != successor.instances:
            raise ConfigError("tables for different numbers of instances have no keys in common")
        chosen = np.sort(keys)
        ours, theirs = find(chosen, self.keys) < 0, find(chosen, successor.keys) >= 0
        width = max(self.backup_columns.shape[1], successor.backup_columns.shape[1])
        names = None
        if self.names is not None or successor.names is not None:
            said = (self.names or [None] * len(self.keys), successor.names or [None] * len(successor.keys))
            names = [
                name
                for column, kept in zip(said, (ours, theirs), strict=True)
                for name, keep in zip(column, kept.tolist(), strict=True)
                if keep
            ]
        splits = [split for split, at in _found(self.splits, chosen) if at < 0]
        splits += [split for split, at in _found(successor.splits, chosen) if at >= 0]
        return replace(
            successor,
            keys=np.concatenate([self.keys[ours], successor.keys[theirs]]),
            active=np.concatenate([self.active[ours], successor.active[theirs]]),
            backups=np.concatenate(
                [padded(self.backup_columns[ours], width), padded(successor.backup_columns[theirs], width)]
            ),
            splits=tuple(splits),
            names=names,
        )

    def to_bytes(self) -> bytes:
        """The table as documented at the top of this module."""
        parts = [len(split.instances) for split in self.splits]
        width = self.backup_columns.shape[1]
        writer = ColumnWriter(MAGIC, FORMAT)
        counts = (len(self.keys), width, len(self.splits), sum(parts))
        writer.numbers(_COUNTS, self.version, self.effective_from, self.instances, *counts)
        writer.column("<u8", self.keys)
        writer.column("<u4", self.active)
        writer.column("<u4", self.backup_columns.view(np.uint32))
        writer.column("<u8", self.split_keys)
        writer.column("<u1", [split.side for split in self.splits])
        writer.column("<u4", parts)
        writer.column("<u4", [instance for split in self.splits for instance in split.instances])
        writer.column("<f8", [share for split in self.splits for share in split.shares])
        writer.names(self.names if self.names is not None else [None] * len(self.keys))
        return writer.seal()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> RoutingTable:
        """The table that these bytes are; CorruptRecordError if they are none."""
        reader = ColumnReader(data, MAGIC, FORMAT, "routing table")
        version, effective_from, instances, n, width, s, p = reader.numbers(_COUNTS)
        keys, active = reader.column("<u8", n), reader.column("<u4", n)
        backups = reader.column("<u4", n * width)
        split_keys, sides = reader.column("<u8", s), reader.column("<u1", s)
        parts = reader.column("<u4", s).tolist()
        if sum(parts) != p:
            raise reader.corrupt("the parts of its splits do not add up")
        part_instances, shares = reader.column("<u4", p).tolist(), reader.column("<f8", p).tolist()
        names = reader.names(n)
        reader.end()
        if width and not n:
            raise reader.corrupt("it has backups of no entries")
        if (keys[1:] <= keys[:-1]).any() or (split_keys[1:] <= split_keys[:-1]).any():
            raise reader.corrupt("its keys are not in order")
        if (active >= MAX_INSTANCES).any() or ((backups >= MAX_INSTANCES) & (backups != _ABSENT)).any():
            raise reader.corrupt("it names an instance that cannot be")
        ends = np.cumsum(parts).tolist()
        spans = [slice(end - count, end) for end, count in zip(ends, parts, strict=True)]
        try:
            splits = tuple(
                Split(key, tuple(part_instances[span]), tuple(shares[span]), Side(side))
                for key, side, span in zip(split_keys.tolist(), sides.tolist(), spans, strict=True)
            )
            known = names if any(name is not None for name in names) else None
            grid = backups.view(np.int32).reshape(n, width) if width else None
            return cls(instances, keys, active, grid, splits, version, effective_from, known)
        except (ConfigError, ValueError) as error:
            raise reader.corrupt(str(error)) from None

    def _keep(self, name: str, column: npt.NDArray[np.uint64] | I32) -> None:
        column.flags.writeable = False
        object.__setattr__(self, name, column)

    def _rows(self, name: str, column: npt.NDArray[np.integer], shape: tuple[int, ...]) -> I32:
        fits = column.ndim == len(shape) and column.shape[0] == shape[0]
        if not fits or (column.size and column.dtype.kind not in "iu"):
            raise ConfigError(f"{name} of a table must be whole numbers, one row for each of {shape[0]} keys")
        lowest = 0 if name == "active" else NO_BACKUP
        if ((column < lowest) | (column >= self.instances)).any():
            raise ConfigError(f"{name} of a table of {self.instances} instances names one that is not there")
        return np.ascontiguousarray(column, np.int32)

    def _check(self) -> None:
        if len(self) > MAX_ENTRIES:
            raise ConfigError(f"a table has at most {MAX_ENTRIES} entries, not {len(self)}")
        every = np.sort(np.concatenate([self.keys, self.split_keys]))
        if (every[1:] == every[:-1]).any():
            twice = int(every[1:][every[1:] == every[:-1]][0])
            raise ConfigError(f"key {twice} is in the table twice")
        for split in self.splits:
            if not all(0 <= instance < self.instances for instance in split.instances):
                raise ConfigError(f"split of key {split.key}: there are {self.instances} instances")
        holders = np.sort(np.column_stack([self.active, self.backup_columns]), axis=1)
        if ((holders[:, 1:] == holders[:, :-1]) & (holders[:, 1:] != NO_BACKUP)).any():
            raise ConfigError("an entry names one instance twice among its active and its backups")


def padded(backups: I32, width: int) -> I32:
    """Rows of backups as wide as this."""
    return np.pad(backups, ((0, 0), (0, width - backups.shape[1])), constant_values=NO_BACKUP)


def _found(splits: tuple[Split, ...], keys: U64) -> Iterator[tuple[Split, int]]:
    """Each split, with where its key stands among ascending ones."""
    return zip(splits, find(keys, np.array([split.key for split in splits], np.uint64)).tolist(), strict=True)


def find(ascending: U64, keys: U64) -> I64:
    """Where each key stands among ascending ones, -1 for those that are not there."""
    if not len(ascending):
        return np.full(len(keys), -1, np.int64)
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return np.where(ascending[at] == keys, at, -1)
