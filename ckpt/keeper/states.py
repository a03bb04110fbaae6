"""Live states: what operators remember now. A state is dirty until a checkpoint of exactly it is durable.

Not thread-safe: the queue's lock is held around every call, so that a state moves between memory and queue
without a moment in which neither has it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any


class Entry:
    """One live state. Its `state` is a snapshot that never changes; an update puts another in its place."""

    __slots__ = ("dirty", "events", "generation", "leaving", "state", "used_s")

    def __init__(self, state: Any, used_s: float) -> None:
        self.state = state
        self.used_s = used_s
        self.generation = 0
        """Counts updates; a checkpoint of an older generation leaves the state dirty."""
        self.events = 0
        """Events since a checkpoint was last triggered."""
        self.dirty = False
        self.leaving = False
        """Evicted, but in memory until its last checkpoint is durable."""


class LiveStates:
    """The live states of one namespace; what a recovery brought and was not used yet is evicted first."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Entry] = {}
        self.dirty: dict[bytes, Entry] = {}
        self._order: OrderedDict[bytes, None] = OrderedDict()
        """States that were used, least recently first."""
        self._unused: OrderedDict[bytes, None] = OrderedDict()
        """States that were brought and not used since, in the order in which they came: hottest first."""

    def __len__(self) -> int:
        """How many states count as live; those on their way out do not."""
        return len(self._order) + len(self._unused)

    def update(self, key: bytes, state: Any, now_s: float) -> Entry:
        """The state is now this one, and dirty."""
        entry = self.by_key.get(key)
        if entry is None:
            entry = self.by_key[key] = Entry(state, now_s)
            self._order[key] = None
        else:
            entry.state = state
            self.touch(key, entry, now_s)
        entry.generation += 1
        if not entry.dirty:
            entry.dirty = True
            self.dirty[key] = entry
        return entry

    def bring(self, key: bytes, state: Any, now_s: float) -> None:
        """A state as it is in its checkpoint, which is not in memory; call it for the hottest first."""
        self.by_key[key] = Entry(state, now_s)
        self._unused[key] = None

    def touch(self, key: bytes, entry: Entry, now_s: float) -> None:
        """It was used; if it was on its way out, it stays."""
        entry.used_s = now_s
        if entry.leaving:
            entry.leaving = False
        self._unused.pop(key, None)
        self._order[key] = None
        self._order.move_to_end(key)

    def cleaned(self, key: bytes, entry: Entry, generation: int) -> None:
        """A checkpoint of that generation is durable."""
        if entry.generation != generation or self.by_key.get(key) is not entry:
            return  # it was updated, or replaced, since
        if entry.dirty:
            entry.dirty = False
            del self.dirty[key]
        if entry.leaving:
            del self.by_key[key]

    def failed(self, key: bytes, entry: Entry) -> None:
        """A checkpoint of it failed: it stays, dirty, and the next trigger saves it again."""
        if entry.leaving and self.by_key.get(key) is entry:
            entry.leaving = False
            self._order[key] = None
            self._order.move_to_end(key, last=False)

    def needs_save(self, key: bytes, entry: Entry) -> bool:
        """Whether this is still the live state of the key, and dirty."""
        return entry.dirty and self.by_key.get(key) is entry

    def remove(self, key: bytes) -> None:
        """Forget a state without saving it."""
        if self.by_key.pop(key, None) is not None:
            self._order.pop(key, None)
            self._unused.pop(key, None)
            self.dirty.pop(key, None)

    def leave(self, key: bytes, entry: Entry) -> bool:
        """Evict a state: at once if it is clean, else after its checkpoint; whether it must be saved."""
        if not entry.dirty:
            self.remove(key)
            return False
        if not entry.leaving:
            entry.leaving = True
            del self._order[key]
        return True

    def surplus(self, max_states: int) -> list[bytes]:
        """Evict states above the bound, unused ones first, the coolest first; the dirty ones, to be saved."""
        to_save = []
        while len(self) > max_states:
            key = next(reversed(self._unused)) if self._unused else next(iter(self._order))
            if self.leave(key, self.by_key[key]):
                to_save.append(key)
        return to_save

    def idle(self, before_s: float) -> list[bytes]:
        """Evict every state last used before that time; the dirty ones, to be saved."""
        return [key for key in list(self._oldest(before_s)) if self.leave(key, self.by_key[key])]

    def _oldest(self, before_s: float) -> Iterator[bytes]:
        for keys in (self._unused, self._order):
            for key in keys:
                if self.by_key[key].used_s > before_s:
                    break
                yield key
