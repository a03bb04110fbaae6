"""What a log knows apart from keys: namespaces, their histories and epochs, and which segments it needs.

The catalog is rebuilt from control and commit frames; the manifest and, before old segments are retired, a
catalog frame hold copies of the whole. Namespace ids are never used twice, so that records of a dropped
namespace can never be taken for those of its successor.

*Layers* say which commit the records of a versioned namespace belong to: a record's layer is the sequence of
its commit's first frame. After a truncation a floor commit stands for the layers of its forgotten ancestors
(`absorbed`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ckpt.contract.versions import Commit, History, Settled, Truncation
from ckpt.errors import VersionNotFoundError
from ckpt.types import CommitId
from ckpt_backends.engine.visibility import LayerView


@dataclass(slots=True)
class NamespaceState:
    """One namespace: plain while it has no history."""

    id: int
    name: str
    history: History | None = None
    absorbed: dict[CommitId, tuple[int, ...]] = field(default_factory=dict)
    snapshot_layer: int = 0
    snapshot_sequence: int = 0

    def layer_view(self, commit: Commit | None) -> LayerView:
        """What a reader of this commit sees."""
        return LayerView(frozenset(self.layers(commit)), self.snapshot_layer, self.snapshot_sequence)

    def everything(self) -> LayerView:
        """What all readers together may still see."""
        assert self.history is not None
        layers = {c.sequence for c in self.history.stored()}
        for absorbed in self.absorbed.values():
            layers.update(absorbed)
        return LayerView(frozenset(layers), self.snapshot_layer, self.snapshot_sequence)

    def layers(self, commit: Commit | None) -> list[int]:
        """The layers that a reader of this commit sees, newest first."""
        assert self.history is not None
        seen: list[int] = []
        for ancestor in self.history.chain(commit):
            seen.append(ancestor.sequence)
            seen.extend(reversed(self.absorbed.get(ancestor.id, ())))
        return seen

    def add(self, commit: Commit) -> None:
        """Make a commit visible."""
        if self.history is None:
            self.history = History()
        self.history.add(commit)

    def truncate(self, truncation: Truncation) -> None:
        """Forget versions; floors absorb the layers of their ancestors."""
        assert self.history is not None
        absorbed = {}
        for floor in truncation.floors:
            layers = self.layers(self.history[floor])
            absorbed[floor] = tuple(sorted(layers[1:]))
        self.history.apply(truncation)
        kept = {c.id for c in self.history.stored()}
        self.absorbed = {
            c: layers for c, layers in {**self.absorbed, **absorbed}.items() if c in kept and layers
        }

    def floor_layer(self) -> int:
        """At or below this layer only the newest record of a key can be seen; 0 if branches forbid that."""
        assert self.history is not None
        roots = [c.sequence for c in self.history.stored() if c.base is None]
        return roots[0] if len(roots) == 1 else 0

    def keep_absorbed(self, used: set[int]) -> None:
        """Forget absorbed layers that no record belongs to any more."""
        kept = {c: tuple(x for x in layers if x in used) for c, layers in self.absorbed.items()}
        self.absorbed = {c: layers for c, layers in kept.items() if layers}

    def dump(self) -> dict[str, Any]:
        """Plain data for a catalog frame or the manifest."""
        dumped: dict[str, Any] = {"id": self.id, "name": self.name}
        if self.history is not None:
            dumped["commits"] = [
                [c.id, c.version, c.base, c.sequence, c.replaces] for c in self.history.stored()
            ]
            dumped["settled"] = self.history.settled
            dumped["snapshot"] = [self.snapshot_layer, self.snapshot_sequence]
            dumped["absorbed"] = {c: list(layers) for c, layers in self.absorbed.items()}
        return dumped

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> NamespaceState:
        """The inverse of `dump`."""
        state = cls(dumped["id"], dumped["name"])
        if "commits" in dumped:
            state.history = History(
                (Commit(*row) for row in dumped["commits"]),
                settled=msgspec.convert(dumped["settled"], Settled),
            )
            state.snapshot_layer, state.snapshot_sequence = dumped["snapshot"]
            state.absorbed = {CommitId(c): tuple(layers) for c, layers in dumped["absorbed"].items()}
        return state


class Catalog:
    """All namespaces of a log; not thread-safe, the engine holds its lock."""

    def __init__(self) -> None:
        self.by_name: dict[str, NamespaceState] = {}
        self.by_id: dict[int, NamespaceState] = {}
        self.next_id = 1
        self.last_epoch = 0
        """One counter for all namespaces: epochs rise also when one is dropped and made again."""
        self.owners: dict[str, tuple[int, str]] = {}
        """Epoch and owner of every plain namespace that was claimed where writers share a store."""
        self.retired_ms = 0
        """When segments were last retired, in milliseconds since 1970."""
        self.kept: dict[int, int] = {}
        """The segments that the log needed when it last retired some, and where each of them ends."""
        self.kept_before = 0
        """Segments with a lower number that are not in `kept` hold nothing the log needs."""
        self.skips: list[tuple[int, int, int]] = []
        """(segment, start, end) of damage that `repair` took out of service."""

    def create(self, name: str) -> NamespaceState:
        """A new namespace under a name that has none; not yet in the log."""
        state = NamespaceState(self.next_id, name)
        self.put(state)
        return state

    def needs(self, segment: int) -> bool:
        """False if the segment was retired, whether or not its file is gone yet."""
        return segment >= self.kept_before or segment in self.kept

    def put(self, state: NamespaceState) -> None:
        """The namespace of that name is this one."""
        self.by_name[state.name] = state
        self.by_id[state.id] = state
        self.next_id = max(self.next_id, state.id + 1)

    def apply(self, sequence: int, control: dict[str, Any]) -> None:
        """Replay one control frame."""
        match control["op"]:
            case "create":
                if control["id"] not in self.by_id:
                    self.put(NamespaceState(control["id"], control["name"]))
            case "drop":
                if state := self.by_id.pop(control["id"], None):
                    self.by_name.pop(state.name, None)
                    self.next_id = max(self.next_id, control["id"] + 1)
            case "truncate":
                if (state := self.by_id.get(control["id"])) and state.history is not None:
                    # Commits may have gone with a retired segment; then a later catalog frame replaces all.
                    with contextlib.suppress(VersionNotFoundError):
                        state.truncate(state.history.plan_truncation(control["keep_from"]))
            case "claim":
                self.last_epoch = max(self.last_epoch, control["epoch"])
                if "owner" in control:
                    self.owners[control["name"]] = (control["epoch"], control["owner"])
            case "release":
                if self.owners.get(control["name"], (0, ""))[0] == control["epoch"]:
                    self.owners[control["name"]] = (control["epoch"], "")
            case "snapshot":
                if state := self.by_id.get(control["id"]):
                    state.snapshot_layer, state.snapshot_sequence = control["layer"], control["sequence"]
            case "catalog":
                self.restore(control["catalog"])
            case unknown:
                raise ValueError(f"control frame {sequence} has the unknown operation {unknown!r}")

    def dump(self) -> dict[str, Any]:
        """Plain data for a catalog frame or the manifest."""
        return {
            "namespaces": [s.dump() for s in self.by_id.values()],
            "next_id": self.next_id,
            "last_epoch": self.last_epoch,
            "owners": {name: list(owner) for name, owner in self.owners.items()},
            "kept": self.kept,
            "kept_before": self.kept_before,
            "retired_ms": self.retired_ms,
            "skips": [list(s) for s in self.skips],
        }

    def restore(self, dumped: dict[str, Any]) -> None:
        """Become what was dumped."""
        self.by_name.clear()
        self.by_id.clear()
        self.next_id = dumped["next_id"]
        self.last_epoch = max(self.last_epoch, dumped["last_epoch"])
        for row in dumped["namespaces"]:
            self.put(NamespaceState.load(row))
        self.owners = {name: (epoch, owner) for name, (epoch, owner) in dumped["owners"].items()}
        self.kept = dict(dumped["kept"])
        self.kept_before = dumped["kept_before"]
        self.retired_ms = dumped["retired_ms"]
        self.skips = [(s, a, b) for s, a, b in dumped["skips"]]


def commit_meta(commit: Commit) -> bytes:
    """What a commit frame says of its commit; the sequence is the frame's own."""
    return msgspec.msgpack.encode([commit.id, commit.version, commit.base, commit.replaces])


def commit_from_meta(meta: bytes, sequence: int) -> Commit:
    """The commit that a frame made."""
    commit_id, version, base, replaces = msgspec.msgpack.decode(meta)
    return Commit(CommitId(commit_id), version, base, sequence, replaces)
