"""Every state that a directory may be in after a power failure, from a recorded sequence of operations.

The model is the weakest that POSIX allows, and weaker than most filesystems are:

- A write, truncate or allocate is certain only after a sync of its file; a created, renamed or removed name
  only after a sync of its directory. Until then each one may or may not have happened, in any combination.
- An uncertain write may be torn: some of its sectors reached the disk and others did not, or the file has its
  new size but zeros for data.
- A rename is atomic: the old name or the new one, never a mixture of contents.

For every prefix of the operations, all combinations of what is uncertain are made, up to a number of
operations from where they are sampled, always the same ones for the same seed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ckpt.testing.disk import Operation, RecordingDisk, Tree

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class CrashState:
    """One directory as a crash may leave it, and which marks of the test had been passed by then."""

    files: dict[str, bytes | None]
    """Contents by relative path; a directory is None."""
    marks: tuple[str, ...]
    crashed_after: str
    lost: tuple[str, ...]
    """The uncertain operations that did not reach the disk, or only in part."""

    def write_to(self, directory: str | os.PathLike[str]) -> None:
        """Make an existing, empty directory look like this state."""
        for path, data in self.files.items():
            place = os.path.join(directory, path)
            if data is None:
                os.mkdir(place)
            else:
                with open(place, "wb") as file:
                    file.write(data)

    def __str__(self) -> str:
        return f"crash after [{self.crashed_after}], lost: {'; '.join(self.lost) or 'nothing'}"


def crash_states(
    disk: RecordingDisk, *, all_subsets_of: int = 10, samples: int = 128, seed: int = 0
) -> Iterator[CrashState]:
    """Every distinct directory state that a crash during the recorded operations may leave.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     disk = RecordingDisk(root)
    ...     disk.replace_file(root + "/a", [b"1"])
    ...     disk.mark("acknowledged")
    ...     states = list(crash_states(disk))
    >>> all(state.files.get("a") == b"1" for state in states if state.marks)
    True
    """
    durable = disk.start.copy()
    uncertain: list[Operation] = []
    marks: tuple[str, ...] = ()
    seen: set[bytes] = set()
    sampler = random.Random(seed)
    for operation in [Operation("start"), *disk.operations]:
        if operation.kind == "mark":
            marks = (*marks, operation.path)
        elif operation.kind in ("sync", "sync_dir"):
            certain, uncertain = _settled(operation, uncertain)
            _apply(durable, certain)
        elif operation.kind != "start":
            uncertain.append(operation)
        for chosen, lost in _outcomes(uncertain, all_subsets_of, samples, sampler):
            tree = durable.copy()
            _apply(tree, chosen)
            state = CrashState(_listed(tree), marks, str(operation), lost)
            digest = _digest(state)
            if digest not in seen:
                seen.add(digest)
                yield state


def _settled(sync: Operation, uncertain: list[Operation]) -> tuple[list[Operation], list[Operation]]:
    """Which operations a sync makes certain, and which it leaves uncertain.

    What happened to a name before a certain rename or unlink of it is certain too: it is over.
    """
    certain: list[Operation] = []
    left: list[Operation] = []
    over: set[tuple[int, str]] = set()
    for operation in reversed(uncertain):
        names = {(directory, name) for directory, name, _ in operation.entries}
        if sync.kind == "sync":
            settled = not names and operation.object == sync.object
        else:
            settled = bool(names) and (operation.entries[-1][0] == sync.object or names <= over)
        if settled:
            over |= names
        (certain if settled else left).append(operation)
    return certain[::-1], left[::-1]


def _outcomes(
    uncertain: Sequence[Operation], all_subsets_of: int, samples: int, sampler: random.Random
) -> Iterator[tuple[list[Operation], tuple[str, ...]]]:
    """What may have happened of the uncertain operations, and what of them is lost."""
    count = len(uncertain)
    choices: Iterator[Sequence[bool]]
    if count <= all_subsets_of:
        choices = itertools.product((True, False), repeat=count)
    else:
        choices = itertools.chain(
            [[True] * count, [False] * count],
            ([i == one for i in range(count)] for one in range(count)),
            ([i != one for i in range(count)] for one in range(count)),
            ([i < cut for i in range(count)] for cut in range(1, count)),
            ([sampler.random() < 0.5 for _ in range(count)] for _ in range(samples)),
        )
    for choice in choices:
        lost = tuple(str(o) for o, happened in zip(uncertain, choice, strict=True) if not happened)
        yield [o for o, happened in zip(uncertain, choice, strict=True) if happened], lost
    for index, operation in enumerate(uncertain):
        if operation.kind == "write":
            for torn, how in _torn(operation):
                yield [*uncertain[:index], *torn, *uncertain[index + 1 :]], (f"{how} of {operation}",)


def _torn(write: Operation) -> Iterator[tuple[list[Operation], str]]:
    """Ways in which one write reaches the disk in part."""
    length = len(write.data)
    first = SECTOR_BYTES - write.offset % SECTOR_BYTES
    cuts = [*range(first, length, SECTOR_BYTES)]
    if len(cuts) > 6:
        cuts = [*cuts[:2], cuts[len(cuts) // 2], *cuts[-2:]]
    cuts = sorted({*cuts, length // 2, length - 1} - {0, length} - {-1})
    for cut in cuts:
        yield [_part(write, 0, cut)], f"all but the first {cut} bytes"
        yield [_grown(write), _part(write, cut, length)], f"the first {cut} bytes"
    for start, end in itertools.pairwise(cuts):
        yield [_part(write, 0, start), _part(write, end, length)], f"bytes {start} to {end}"
    yield [_grown(write)], "the data, but not the size,"


def _part(write: Operation, start: int, end: int) -> Operation:
    return Operation(
        "write", write.path, write.object, offset=write.offset + start, data=write.data[start:end]
    )


def _grown(write: Operation) -> Operation:
    return Operation("allocate", write.path, write.object, length=write.offset + len(write.data))


def _apply(tree: Tree, operations: Sequence[Operation]) -> None:
    for operation in operations:
        for directory, name, target in operation.entries:
            names = tree.directories.setdefault(directory, {})
            if target is None:
                names.pop(name, None)
            else:
                names[name] = target
        if operation.kind == "mkdir":
            tree.directories.setdefault(operation.entries[-1][2] or 0, {})
        elif operation.kind == "write":
            old = tree.files.get(operation.object, b"")
            end = operation.offset + len(operation.data)
            padded = old[: operation.offset].ljust(operation.offset, b"\0")
            tree.files[operation.object] = padded + operation.data + old[end:]
        elif operation.kind == "truncate":
            old = tree.files.get(operation.object, b"")
            tree.files[operation.object] = old[: operation.length].ljust(operation.length, b"\0")
        elif operation.kind == "allocate":
            old = tree.files.get(operation.object, b"")
            tree.files[operation.object] = old.ljust(operation.length, b"\0")


def _listed(tree: Tree) -> dict[str, bytes | None]:
    files: dict[str, bytes | None] = {}

    def walk(directory: int, path: str) -> None:
        for name, number in sorted(tree.directories.get(directory, {}).items()):
            if number in tree.directories:
                files[path + name] = None
                walk(number, f"{path}{name}/")
            else:
                files[path + name] = tree.files.get(number, b"")

    walk(0, "")
    return files


def _digest(state: CrashState) -> bytes:
    digest = hashlib.blake2b(repr(state.marks).encode(), digest_size=16)
    for path, data in state.files.items():
        content = b"directory" if data is None else b"%d:" % len(data) + data
        digest.update(b"%d:%s%s" % (len(path.encode()), path.encode(), content))
    return digest.digest()
