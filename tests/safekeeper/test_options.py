"""Settings are checked when they are given, and each one changes what the keeper does."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any

import pytest

import ckpt


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"queue_save": 3}, "did you mean 'queue_saves'"),
        ({"overflow": "drop"}, "one of block, coalesce-only, drop-oldest, drop-new, adapt"),
        ({"queue_saves": 0}, "more than 0"),
        ({"retry_s": -1}, "0 or more"),
        ({"fetch_timeout_s": float("nan")}, "fetch_timeout_s is more than 0"),
        ({"max_batch_bytes": "lots"}, "number of bytes"),
        ({"breaker_failures": "x"}, "whole number"),
    ],
)
def test_bad_keeper_options(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ckpt.ConfigError, match=hint):
        ckpt.SafeKeeper("memory://", **options)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"every_event": 3}, "did you mean 'every_events'"),
        ({"every_events": 0}, "more than 0"),
        ({"every_events": 2.5}, "whole number"),
        ({"every_events": True}, "whole number"),
        ({"every_s": -5.0}, "more than 0"),
        ({"ttl_s": 0}, "more than 0"),
        ({"on_unavailable": "panic"}, "one of fail, wait, blank"),
        ({"codec": "msgpack"}, "ValueCodec"),
        ({"hot_keys": -1}, "0 or more"),
    ],
)
def test_bad_namespace_options(options: dict[str, Any], hint: str, open_keeper: Any) -> None:
    with pytest.raises(ckpt.ConfigError, match=hint):
        open_keeper().namespace("words", **options)


def test_bad_namespaces(open_keeper: Any) -> None:
    with pytest.raises(ckpt.ConfigError, match="non-empty"):
        open_keeper().namespace("")


def test_sizes_take_units() -> None:
    with ckpt.SafeKeeper("memory://", max_batch_bytes="1MiB", overflow="drop-new") as keeper:
        assert keeper.options.max_batch_bytes == 1 << 20
        assert keeper.options.overflow is ckpt.Overflow.DROP_NEW


@pytest.mark.parametrize("kind", [ckpt.KeeperOptions, ckpt.NamespaceOptions])
def test_every_setting_is_read(kind: Any) -> None:
    """S4 parsed settings that nothing ever read. Each of ours is used outside the module that declares it."""
    package = pathlib.Path(ckpt.__file__).parent
    used_in = [package / "keeper" / name for name in ("safekeeper.py", "namespace.py")]
    text = "\n".join(path.read_text() for path in used_in)
    for item in dataclasses.fields(kind):
        assert re.search(rf"(?:options|checked)\.{item.name}\b", text), (
            f"{item.name} is parsed and never read"
        )


def test_the_keepers_codec_is_the_default_of_its_namespaces(memory: ckpt.Backend) -> None:
    with ckpt.SafeKeeper(memory, codec=ckpt.ValueCodec("json")) as keeper:
        keeper.namespace("a").save("k", [1])
        keeper.namespace("b", codec=ckpt.ValueCodec("pickle")).save("k", [1])
    assert b"[1]" in memory.get_many("a", [b"k"])[b"k"]
    with pytest.raises(ckpt.SerializationError, match="pickle"):
        ckpt.ValueCodec().decode(memory.get_many("b", [b"k"])[b"k"], namespace="b", key=b"k")


@dataclasses.dataclass
class Count:
    word: str
    count: int


def test_typed_encrypted_compressed_states(memory: ckpt.Backend) -> None:
    ring = ckpt.Keyring({"k": bytes(32)})
    codec = ckpt.ValueCodec(state_type=Count, compression="zstd", keyring=ring)
    with ckpt.SafeKeeper(memory, codec=codec) as keeper:
        words = keeper.namespace("words")
        words.save("be", Count("be" * 200, 2)).result(5)
        assert words.load("be") == Count("be" * 200, 2)
    assert b"bebe" not in memory.get_many("words", [b"be"])[b"be"]
