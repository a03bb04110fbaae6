"""Which stores are meant, and as of which commits: of a checkpoint, or by the names of namespaces.

A running query is not disturbed and does not disturb: what is read is fixed by commit ids before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckpt.contract.addresses import suggestion
from ckpt.contract.backend import Backend
from ckpt.errors import CkptError, ConfigError
from ckpt.spark.catalogue import StoreName, StoreVersion
from ckpt.spark.checkpoint import Checkpoint
from ckpt.types import check_namespace


@dataclass(frozen=True, slots=True)
class Selection:
    """Which stores are meant: those of a checkpoint, or those whose namespace is or begins with a name."""

    namespace: str | None = None
    checkpoint: str | None = None
    operator: int | None = None
    store: str | None = None
    version: int | None = None
    commit_id: str | None = None

    def __post_init__(self) -> None:
        if (self.namespace is None) == (self.checkpoint is None):
            raise ConfigError("name either a namespace (or what namespaces begin with) or a checkpoint")
        if self.checkpoint is not None and self.commit_id is not None:
            raise ConfigError("a commit belongs to one namespace: name that, and not a checkpoint")

    def places(self, backend: Backend) -> list[StoreVersion]:
        """The stores as of one version: by default the newest that all of them have.

        Of a checkpoint it is what its last committed batch left behind, whatever was written since.
        """
        if self.checkpoint is not None:
            return self._of_checkpoint(backend, Checkpoint(self.checkpoint))
        assert self.namespace is not None
        names = within(backend, self.namespace)
        if names == [self.namespace]:
            return [self._pinned(backend, self.namespace, self.version, self.commit_id)]
        if self.commit_id is not None:
            raise ConfigError(
                f"a commit belongs to one namespace, but {len(names)} begin with {self.namespace!r}"
            )
        names = self._one_kind(backend, names)
        version = newest_of_all(backend, names) if self.version is None else self.version
        return [self._pinned(backend, name, version, None) for name in names]

    def _of_checkpoint(self, backend: Backend, checkpoint: Checkpoint) -> list[StoreVersion]:
        names = self._one_kind(backend, within(backend, f"spark/{checkpoint.query}"))
        last = checkpoint.last_batch()
        ids = checkpoint.commit_ids(last)
        version = last + 1 if self.version is None else self.version
        if version > last + 1:
            raise ConfigError(
                f"checkpoint {checkpoint.path} has no version {version} yet: its last is {last + 1}"
            )
        places = []
        for name in names:
            parsed = StoreName.parse(name)
            assert parsed is not None
            if ids.has(parsed):
                places.append(self._pinned(backend, name, version, ids.of(parsed)))
        return places

    def _one_kind(self, backend: Backend, names: list[str]) -> list[str]:
        """The stores of one operator that have one schema."""
        parsed = {name: store for name in names if (store := StoreName.parse(name)) is not None}
        if not parsed:
            raise ConfigError(
                f"{len(names)} namespaces of {backend.address} are meant, which are no Spark stores; name one"
            )
        kinds = sorted({(store.query, store.operator, store.store) for store in parsed.values()})
        wanted = [
            kind for kind in kinds if self.operator in (None, kind[1]) and self.store in (None, kind[2])
        ]
        if len(wanted) != 1:
            shown = "; ".join(f"operator {operator}, store {store}" for _, operator, store in wanted or kinds)
            what = "several stores are" if wanted else "there is no such store"
            raise ConfigError(f"{what} meant; choose by operator and store: {shown}")
        return [name for name, s in parsed.items() if (s.query, s.operator, s.store) == wanted[0]]

    def _pinned(
        self, backend: Backend, name: str, version: int | None, commit_id: str | None
    ) -> StoreVersion:
        history = backend.history(name)
        if not history and version is None and commit_id is None:
            return StoreVersion(name)
        try:
            commit = history.resolve(version, commit_id)
        except CkptError as error:
            raise type(error)(f"namespace {name!r} of {backend.address}: {error}") from error
        return StoreVersion(name, commit.version, commit.id) if commit is not None else StoreVersion(name, 0)


def within(backend: Backend, name: str) -> list[str]:
    """The namespace of that name, or all that have it as their first parts; ConfigError if there is none."""
    known = backend.namespaces()
    if check_namespace(name) in known:
        return [name]
    start = name.rstrip("/") + "/"
    names = [other for other in known if other.startswith(start)]
    if not names:
        raise ConfigError(f"no namespace {name!r} in {backend.address}; {suggestion(name, known)}")
    return names


def newest_of_all(backend: Backend, names: list[str]) -> int:
    """The newest version that all of these namespaces have: a query that runs is never caught half-way."""
    return min(tip.version if (tip := backend.history(name).tip) else 0 for name in names)
