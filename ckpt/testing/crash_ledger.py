"""What a store may hold after its writer was killed: everything acknowledged, and perhaps what was under way.

The writer reports each write before it begins (a message below) and after it returned (`Acknowledged`). From
these the ledger knows, without asking the store, what must be there: an acknowledged write is, a write that
was under way may be (whole, unless the backend says that its puts are not atomic), and nothing else is.

Values are functions of the number of their write, so a report is small and a value is checked to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from ckpt.contract.backend import Backend
from ckpt.errors import CkptError, shown_key
from ckpt.testing.model import ModelNamespace
from ckpt.values.envelope import ValueCodec

_LARGE_EVERY = 61
_LARGE_BYTES = 20_000


class Write(msgspec.Struct, tag="write", array_like=True):
    """Puts and deletes of one plain namespace, in one batch."""

    number: int
    namespace: str
    puts: list[bytes]
    deletes: list[bytes]


class CommitReport(msgspec.Struct, tag="commit", array_like=True):
    """One commit of a versioned namespace; its id follows from its number."""

    number: int
    namespace: str
    version: int
    base: str | None
    puts: list[bytes]
    deletes: list[bytes]

    @property
    def id(self) -> str:
        return f"commit-{self.number}"


class Truncate(msgspec.Struct, tag="truncate", array_like=True):
    """Versions below `keep_from` are given up."""

    number: int
    namespace: str
    keep_from: int


class Drop(msgspec.Struct, tag="drop", array_like=True):
    """A plain namespace is given up."""

    number: int
    namespace: str


class Save(msgspec.Struct, tag="save", array_like=True):
    """One state saved, or deleted, through the SafeKeeper."""

    number: int
    namespace: str
    key: bytes
    deleted: bool


class Acknowledged(msgspec.Struct, tag="done", array_like=True):
    """The write of that number was acknowledged."""

    number: int


class WriterPhase(msgspec.Struct, tag="phase", array_like=True):
    """What the writer is doing from now on: `opening`, `writing` or `closing`."""

    name: str


class Broke(msgspec.Struct, tag="broke", array_like=True):
    """The writer met an error that it must not meet on a healthy disk."""

    trace: str


Message = Write | CommitReport | Truncate | Drop | Save | Acknowledged | WriterPhase | Broke


def value_of(number: int, key: bytes) -> bytes:
    """The value that a write puts under a key; now and then larger than a small segment."""
    size = _LARGE_BYTES if number % _LARGE_EVERY == 0 else number * 2654435761 % 1500
    head = b"%d of %s:" % (number, key)
    return head + b"%x" % (number * 40503) * (size // 4)


def state_of(number: int) -> dict[str, object]:
    """The state that a save stores."""
    return {"number": number, "text": "x" * (number * 7919 % 700)}


@dataclass(slots=True)
class Saved:
    """One key of a SafeKeeper: (number, deleted) of saves since the newest that is known to be durable."""

    since: list[tuple[int, bool]] = field(default_factory=list)
    known: bool = False
    """Whether the first of them was acknowledged, or seen in the store."""

    def acknowledge(self, number: int) -> None:
        """That save, or a newer one of the key, is durable."""
        newer = [save for save in self.since if save[0] >= number]
        if newer:
            self.since, self.known = newer, True

    def allows(self, found: int | None) -> bool:
        """Whether the store may hold the state of that save; None: no state."""
        if found is None:
            return not self.known or any(deleted for _, deleted in self.since)
        return (found, False) in self.since

    def settle(self, found: int | None) -> None:
        """The store was seen; what was not written by now never will be."""
        last_deleted = max((number for number, deleted in self.since if deleted), default=0)
        self.since = [(last_deleted, True) if found is None else (found, False)]
        self.known = True


class CrashLedger:
    """Everything that was reported, in the form in which it can be compared with a store.

    Examples
    --------
    >>> import ckpt
    >>> ledger = CrashLedger()
    >>> ledger.report(Write(1, "words", [b"be"], []))
    >>> ledger.report(Acknowledged(1))
    >>> with ckpt.open_backend("memory://") as backend:
    ...     list(ledger.compare(backend))
    ["'words' is not what was acknowledged: b'be' is missing"]
    """

    def __init__(self) -> None:
        self.plain: dict[str, dict[bytes, bytes]] = {}
        self.versioned: dict[str, ModelNamespace] = {}
        self.saves: dict[str, dict[bytes, Saved]] = {}
        self.last_number = 0
        self.acknowledged = 0
        self.survivors = 0
        """Writes that were under way, never acknowledged, and found in the store."""
        self.phase = "opening"
        self._under_way: dict[int, Write | CommitReport | Truncate | Drop | Save] = {}

    def report(self, message: Message) -> None:
        """Take one message of the writer into account."""
        match message:
            case Acknowledged(number):
                self.acknowledged += 1
                done = self._under_way.pop(number)
                if isinstance(done, Save):
                    self.saves[done.namespace][done.key].acknowledge(number)
                else:
                    self._apply(done)
            case WriterPhase(name):
                self.phase = name
            case Broke(trace):
                raise AssertionError(f"the writer failed:\n{trace}")
            case _:
                self.last_number = max(self.last_number, message.number)
                self._under_way[message.number] = message
                if isinstance(message, Save):
                    keys = self.saves.setdefault(message.namespace, {})
                    keys.setdefault(message.key, Saved()).since.append((message.number, message.deleted))

    def _apply(self, message: Write | CommitReport | Truncate | Drop) -> None:
        match message:
            case Write(number, name, puts, deletes):
                state = self.plain.setdefault(name, {})
                state.update((key, value_of(number, key)) for key in puts)
                for key in deletes:
                    state.pop(key, None)
            case CommitReport(number, name, version, base, puts, deletes):
                items = {key: value_of(number, key) for key in puts}
                space = self.versioned.setdefault(name, ModelNamespace())
                space.commit(message.id, version, base, items, deletes)
            case Truncate(_, name, keep_from):
                self.versioned[name].truncate(keep_from)
            case Drop(_, name):
                self.plain.pop(name, None)

    # -- comparing -------------------------------------------------------------------------------

    def compare(self, backend: Backend) -> Iterator[str]:
        """What is wrong with the store. Writes that were under way are settled by what is found."""
        under_way = {m.namespace: m for m in self._under_way.values() if not isinstance(m, Save)}
        self._under_way.clear()
        for name in {*self.plain, *self.versioned, *under_way}:
            if not backend.capabilities.atomic_put and isinstance(under_way.get(name), Write | Drop):
                self._settle_in_part(under_way.pop(name), backend)
            versioned = name in self.versioned or isinstance(under_way.get(name), CommitReport)
            check = self._compare_versioned if versioned else self._compare_plain
            problem = self._try(name, backend, check)
            if problem is not None and (last := under_way.get(name)) is not None:
                self._apply(last)
                after = self._try(name, backend, check)
                if after is None:
                    self.survivors += 1
                    continue
                problem += f"; or, after the {type(last).__name__.lower()} that was under way, {after}"
            if problem is not None:
                yield f"{name!r} is not what was acknowledged: {problem}"
        for name, keys in self.saves.items():
            yield from self._compare_saves(name, keys, backend)
        known = {*self.plain, *self.versioned, *self.saves}
        yield from (f"namespace {name!r} was never written" for name in set(backend.namespaces()) - known)

    def _settle_in_part(self, message: Write | CommitReport | Truncate | Drop, backend: Backend) -> None:
        """Take each key as it is found, if that is what it was or what it was to be."""
        name = message.namespace
        before = dict(self.plain.get(name, {}))
        self._apply(message)
        after = self.plain.setdefault(name, {})
        for key in {*before, *after}:
            found = backend.get_many(name, [key]).get(key)
            if found == before.get(key):
                self._put_back(after, key, found)

    @staticmethod
    def _put_back(state: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value

    def _try(self, name: str, backend: Backend, check: Callable[[str, Backend], str | None]) -> str | None:
        try:
            return check(name, backend)
        except CkptError as error:
            return f"{type(error).__name__}: {error}"

    def _compare_plain(self, name: str, backend: Backend) -> str | None:
        return self._difference(self.plain.get(name, {}), dict(backend.scan(name))) or self._difference(
            self.plain.get(name, {}), backend.get_many(name, list(self.plain.get(name, ())))
        )

    def _compare_versioned(self, name: str, backend: Backend) -> str | None:
        space = self.versioned.get(name, ModelNamespace())
        expected = sorted(space.named())
        found = sorted(commit.id for commit in backend.versions(name))
        if found != expected:
            return f"it has the commits {found}, not {expected}"
        for commit_id in [None, *expected]:
            wanted = space.as_of(None, commit_id)
            problem = self._difference(
                wanted, dict(backend.scan(name, commit_id=commit_id))
            ) or self._difference(wanted, backend.get_many(name, list(wanted), commit_id=commit_id))
            if problem is not None:
                return f"as of {commit_id or 'the tip'}, {problem}"
        return None

    def _difference(self, expected: dict[bytes, bytes], found: dict[bytes, bytes]) -> str | None:
        for key in sorted({*expected, *found}):
            if key not in found:
                return f"{shown_key(key)} is missing"
            if key not in expected:
                return f"{shown_key(key)} was never written, or was deleted"
            if expected[key] != found[key]:
                return f"{shown_key(key)} has another value"
        return None

    def _compare_saves(self, name: str, keys: dict[bytes, Saved], backend: Backend) -> Iterator[str]:
        codec = ValueCodec()
        for key, saved in keys.items():
            try:
                data = backend.get_many(name, [key]).get(key)
                state = None if data is None else codec.decode(data, namespace=name, key=key)
            except CkptError as error:
                yield f"{shown_key(key)} of {name!r}: {error}"
                continue
            number = None if state is None else state["number"]
            if not saved.allows(number) or (number is not None and state != state_of(number)):
                yield (
                    f"{shown_key(key)} of {name!r} holds save {number}; "
                    f"{'acknowledged or newer' if saved.known else 'possible'} are {saved.since}"
                )
            saved.settle(number)
