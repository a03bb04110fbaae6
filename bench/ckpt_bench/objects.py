"""Object stores side by side: ours, SlateDB, and a raw PUT of the same bytes, on one S3 service.

`prepare` turns a batch into what a store takes, so that a benchmark need not time it: SlateDB's Python
package needs far longer to build a batch than to write it. `put` returns when the batch is durable in the
store. Peers are imported when they are opened.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import ckpt
from ckpt.contract.addresses import Address, parse_address
from ckpt.errors import ConfigError

_NAMESPACE = "bench"


class ObjectStore(Protocol):
    """What a benchmark does to an object store."""

    def prepare(self, items: Mapping[bytes, bytes]) -> Any:
        """The batch as `put` takes it, once."""

    def put(self, batch: Any) -> None:
        """Durably set every key."""

    def close(self) -> None:
        """Free the store."""


class BackendStore:
    """Our backend, by its address."""

    def __init__(self, address: Address) -> None:
        query = urlencode(dict(address.options))
        self.backend = ckpt.open_backend(f"{address.scheme}://{address.location}?{query}")

    def prepare(self, items: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        return items

    def put(self, batch: Mapping[bytes, bytes]) -> None:
        self.backend.put_many(_NAMESPACE, batch)

    def close(self) -> None:
        self.backend.close()


class RawPut:
    """The floor: the values of a batch as one object, with nothing to find them by."""

    def __init__(self, address: Address) -> None:
        import s3fs

        given = {name.removeprefix("fs."): value for name, value in address.options.items()}
        self._fs = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, **given)
        self._root, self._count = address.location, 0

    def prepare(self, items: Mapping[bytes, bytes]) -> bytes:
        return b"".join(items.values())

    def put(self, batch: bytes) -> None:
        self._count += 1
        self._fs.pipe_file(f"{self._root}/{self._count}", batch)

    def close(self) -> None:
        self._fs.close_session(self._fs.loop, self._fs.s3)


class SlateStore:
    """SlateDB, an LSM tree on object storage: one object of its write-ahead log for each flush."""

    def __init__(self, address: Address) -> None:
        try:
            from slatedb import uniffi
        except ImportError as error:
            raise ConfigError(
                "slatedb is not installed; install the peers with: pip install 'ckpt[bench]'"
            ) from error
        self._batch = uniffi.WriteBatch
        self._loop = asyncio.Runner()
        bucket, _, path = address.location.partition("/")
        self._db = self._loop.run(self._open(uniffi, _environment(address, bucket), path))

    async def _open(self, uniffi: Any, environment: Mapping[str, str], path: str) -> Any:
        # It takes its settings from the environment or a file; a file leaves ours alone.
        with tempfile.NamedTemporaryFile("w", suffix=".env") as file:
            file.write("".join(f"{name}={value}\n" for name, value in environment.items()))
            file.flush()
            store = uniffi.ObjectStore.from_env(file.name)
        return await uniffi.DbBuilder(path, store).build()

    def prepare(self, items: Mapping[bytes, bytes]) -> Any:
        batch = self._batch()
        for key, value in items.items():
            batch.put(key, value)
        return batch

    def put(self, batch: Any) -> None:
        self._loop.run(self._write(batch))

    async def _write(self, batch: Any) -> None:
        await self._db.write(batch)
        await self._db.flush()  # or it would wait for its next flush, a tenth of a second

    def close(self) -> None:
        self._loop.run(self._db.shutdown())
        self._loop.close()


def _environment(address: Address, bucket: str) -> dict[str, str]:
    options = address.options
    return {
        "CLOUD_PROVIDER": "aws",
        "AWS_ACCESS_KEY_ID": options.get("fs.key", os.environ.get("AWS_ACCESS_KEY_ID", "")),
        "AWS_SECRET_ACCESS_KEY": options.get("fs.secret", os.environ.get("AWS_SECRET_ACCESS_KEY", "")),
        "AWS_BUCKET": bucket,
        "AWS_REGION": os.environ.get("AWS_REGION", "us-east-1"),
        "AWS_ENDPOINT": options["fs.endpoint_url"],
        "AWS_ALLOW_HTTP": "true",
    }


OBJECT_STORES: dict[str, Callable[[Address], ObjectStore]] = {
    "ckpt": BackendStore,
    "raw put": RawPut,
    "slatedb": SlateStore,
}
"""Name → how to open it at an address."""


def open_object_store(name: str, address: str, path: str) -> ObjectStore:
    """Open a store by name, below a path of its own at the address of an S3 service (`ckpt dev up s3`)."""
    parsed = parse_address(address)
    return OBJECT_STORES[name](Address(parsed.scheme, f"{parsed.location}/{path}", parsed.options))
