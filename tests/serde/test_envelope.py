"""The envelope says what it is; a changed byte is an error, never another value."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from ckpt.errors import ConfigError, CorruptRecordError, SerializationError
from ckpt.values.envelope import FLAG_AES_GCM, FLAG_ZSTD, OVERHEAD_BYTES, ValueCodec, check_envelope
from ckpt.values.keyring import Keyring, new_key_line

AT = {"namespace": "words", "key": b"be"}
RING = Keyring({"new": b"n" * 32, "old": b"o" * 16})
OLD_RING = Keyring({"old": b"o" * 16})
BIG = {"text": "to be or not to be " * 50}

CODECS = {
    "plain": ValueCodec(),
    "json": ValueCodec("json"),
    "pickle": ValueCodec("pickle"),
    "zstd": ValueCodec(compression="zstd"),
    "aes": ValueCodec(keyring=RING),
    "zstd+aes": ValueCodec(compression="zstd", keyring=RING),
}


def sealed(body: bytes) -> bytes:
    """An envelope around any header and body with a checksum that fits."""
    return body + xxh3_64_intdigest(body).to_bytes(8, "little")


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("state", [{"count": 2}, BIG, None, []], ids=["small", "big", "none", "empty"])
def test_round_trip(codec: ValueCodec, state: Any) -> None:
    data = codec.encode(state, **AT)
    for form in (data, bytearray(data), memoryview(data)):
        assert codec.decode(form, **AT) == state


@given(
    state=st.dictionaries(st.text(), st.integers() | st.text() | st.binary()),
    namespace=st.text(min_size=1).filter(lambda s: s.isprintable()),
    key=st.binary(),
    name=st.sampled_from(sorted(CODECS)),
)
def test_round_trip_of_anything_under_any_key(state: Any, namespace: str, key: bytes, name: str) -> None:
    if name == "json":
        state = {k: v for k, v in state.items() if isinstance(v, str)}
    codec = CODECS[name]
    assert (
        codec.decode(codec.encode(state, namespace=namespace, key=key), namespace=namespace, key=key) == state
    )


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_every_flipped_byte_is_corruption(codec: ValueCodec) -> None:
    data = codec.encode({"count": 2, "text": "x" * 130}, **AT)
    for place in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= flip
            for read in (changed, bytes(changed)):  # a codec has a short way for bytes that it wrote itself
                with pytest.raises(CorruptRecordError):
                    codec.decode(read, **AT)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_every_truncation_and_extension_is_corruption(codec: ValueCodec) -> None:
    data = codec.encode({"count": 2}, **AT)
    for changed in [*(data[:n] for n in range(len(data))), data + b"\0", b"\0" + data]:
        with pytest.raises(CorruptRecordError):
            codec.decode(changed, **AT)


@given(st.binary(max_size=60))
def test_garbage_behind_a_valid_checksum_is_an_error_and_never_a_crash(body: bytes) -> None:
    for codec in (CODECS["plain"], CODECS["zstd+aes"]):
        for data in (
            sealed(body),
            sealed(b"\xc7\0\1\0\1\0\0\0" + body),
            sealed(b"\xc7\3\1\0\1\0\0\0" + body),
        ):
            with contextlib.suppress(CorruptRecordError, SerializationError):
                codec.decode(data, **AT)


def test_the_message_names_the_place_and_no_value() -> None:
    data = bytearray(ValueCodec().encode({"password": "hunter2"}, **AT))
    data[12] ^= 1
    with pytest.raises(CorruptRecordError, match=r"key b'be' of namespace 'words'") as caught:
        ValueCodec().decode(data, **AT)
    assert "hunter2" not in str(caught.value)


# -- who may read what ---------------------------------------------------------------------------


def test_pickle_in_the_store_is_refused_unless_asked_for() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("code from the store was run",))

    data = sealed(b"\xc7\0\3\0\1\0\0\0" + pickle.dumps(Trap()))
    for codec in (ValueCodec(), ValueCodec("json")):
        with pytest.raises(SerializationError, match="could run code"):
            codec.decode(data, **AT)


def test_a_codec_reads_what_other_safe_serialisers_wrote() -> None:
    for writer in ("msgpack", "json"):
        data = ValueCodec(writer).encode([1], **AT)
        for reader in ("msgpack", "json", "pickle"):
            assert ValueCodec(reader).decode(data, **AT) == [1]


def test_a_compressed_or_plain_checkpoint_is_read_whatever_is_written_now() -> None:
    assert ValueCodec().decode(CODECS["zstd"].encode(BIG, **AT), **AT) == BIG
    assert CODECS["zstd"].decode(ValueCodec().encode(BIG, **AT), **AT) == BIG


def test_zstd_makes_text_smaller_and_leaves_small_states_alone() -> None:
    assert len(CODECS["zstd"].encode(BIG, **AT)) < len(ValueCodec().encode(BIG, **AT)) / 4
    assert check_envelope(CODECS["zstd"].encode(BIG, **AT))[0] == FLAG_ZSTD
    assert CODECS["zstd"].encode({"a": 1}, **AT) == ValueCodec().encode({"a": 1}, **AT)


def test_a_zstd_bomb_is_refused_before_allocating() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    bomb = sealed(b"\xc7\1\1\0\1\0\0\0" + frame)
    with pytest.raises(SerializationError, match="limit of 1000 bytes"):
        ValueCodec(max_state_bytes=1000).decode(bomb, **AT)
    stream = zstandard.ZstdCompressor().compressobj()
    unsized = stream.compress(b"x" * 1000) + stream.flush()
    with pytest.raises(SerializationError, match="limit"):
        ValueCodec().decode(sealed(b"\xc7\1\1\0\1\0\0\0" + unsized), **AT)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_is_read(codec: ValueCodec, kind: Any) -> None:
    state = {"count": 2, "text": "x" * 130}
    assert codec.decode(kind(codec.encode(state, **AT)), **AT) == state


def test_a_state_of_exactly_the_limit_is_read() -> None:
    data = ValueCodec().encode(b"x" * 98, **AT)
    body_bytes = len(data) - OVERHEAD_BYTES
    assert ValueCodec(max_state_bytes=body_bytes).decode(data, **AT) == b"x" * 98
    with pytest.raises(SerializationError, match="max_state_bytes"):
        ValueCodec(max_state_bytes=body_bytes - 1).decode(data, **AT)


def test_states_over_the_limit_fail_at_save_and_at_load() -> None:
    data = ValueCodec().encode("x" * 2000, **AT)
    small = ValueCodec(max_state_bytes=1000)
    with pytest.raises(SerializationError, match="split it"):
        small.encode("x" * 2000, **AT)
    with pytest.raises(SerializationError, match="max_state_bytes"):
        small.decode(data, **AT)


def test_one_codec_serves_many_threads() -> None:
    codec = CODECS["zstd+aes"]

    def work(n: int) -> None:
        for i in range(100):
            state = {"text": f"{n}-{i} " * 100}
            assert codec.decode(codec.encode(state, **AT), **AT) == state

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


# -- encryption ----------------------------------------------------------------------------------


def test_a_ciphertext_shows_nothing_and_never_repeats() -> None:
    one, two = (CODECS["aes"].encode({"secret": "hunter2"}, **AT) for _ in range(2))
    assert b"hunter2" not in one
    assert one != two
    assert check_envelope(one)[0] == FLAG_AES_GCM


@pytest.mark.parametrize(
    "elsewhere", [{"namespace": "words", "key": b"or"}, {"namespace": "word", "key": b"sbe"}]
)
def test_a_ciphertext_cannot_be_moved(elsewhere: dict[str, Any]) -> None:
    data = CODECS["aes"].encode({"count": 2}, **AT)
    with pytest.raises(CorruptRecordError, match="moved"):
        CODECS["aes"].decode(data, **elsewhere)


def test_header_of_a_ciphertext_cannot_be_forged() -> None:
    data = CODECS["aes"].encode({"count": 2}, **AT)
    forged = sealed(data[:4] + b"\2" + data[5:-8])
    with pytest.raises(CorruptRecordError):
        ValueCodec(schema_version=2, migrators={1: lambda s: s}, keyring=RING).decode(forged, **AT)


def test_rotation_reads_with_any_key_and_writes_with_the_current_one() -> None:
    before = ValueCodec(keyring=OLD_RING).encode({"count": 2}, **AT)
    state = ValueCodec(keyring=RING).decode(before, **AT)
    after = ValueCodec(keyring=RING).encode(state, **AT)
    assert ValueCodec(keyring=Keyring({"new": b"n" * 32})).decode(after, **AT) == {"count": 2}
    with pytest.raises(SerializationError, match="key 'new'; add that key"):
        ValueCodec(keyring=OLD_RING).decode(after, **AT)
    with pytest.raises(SerializationError, match="give the codec a keyring"):
        ValueCodec().decode(after, **AT)


def test_a_different_key_of_the_same_name_does_not_decrypt() -> None:
    data = CODECS["aes"].encode(1, **AT)
    with pytest.raises(CorruptRecordError, match="does not decrypt"):
        ValueCodec(keyring=Keyring({"new": b"x" * 32})).decode(data, **AT)


@pytest.mark.parametrize("forger", ["plain", "json", "zstd"])
def test_a_codec_with_a_keyring_refuses_what_was_not_encrypted(forger: str) -> None:
    forged = CODECS[forger].encode(BIG, **AT)
    for codec in (CODECS["aes"], CODECS["zstd+aes"]):
        for form in (forged, bytearray(forged)):  # a codec has a short way for bytes that it wrote itself
            with pytest.raises(SerializationError, match=r"not encrypted.*allow_plain=True"):
                codec.decode(form, **AT)


def test_a_store_is_converted_with_allow_plain() -> None:
    converting = ValueCodec(keyring=RING, allow_plain=True)
    for name in ("plain", "json", "zstd", "aes"):
        state = converting.decode(CODECS[name].encode(BIG, **AT), **AT)
        assert CODECS["aes"].decode(converting.encode(state, **AT), **AT) == BIG


def test_keyrings_from_a_file_and_the_environment(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"# comment\n\n{new_key_line('b')}\n{new_key_line('a')}\n"
    path = tmp_path / "ring"
    path.write_text(text)
    monkeypatch.setenv("CKPT_KEYS", text)
    data = ValueCodec(keyring=Keyring.from_file(path)).encode(1, **AT)
    assert ValueCodec(keyring=Keyring.from_env("CKPT_KEYS")).decode(data, **AT) == 1
    assert Keyring.from_file(path).current == "b"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "at least one key"),
        ("a = c2hvcnQ=", "16, 24 or 32"),
        ("hunter2", "line 1: expected"),
        ("a = !!", "line 1: expected"),
        (f"{'a' * 65} = {'A' * 43}=", "64 bytes"),
        (f"a = {'A' * 43}=\na = {'A' * 43}=", "twice"),
    ],
)
def test_bad_keyrings_are_named_without_their_content(text: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        Keyring.parse(text)
    assert "hunter2" not in str(caught.value)


def test_missing_keyrings_say_what_to_do(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Keyring.from_file(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not set"):
        Keyring.from_env("CKPT_NOT_SET")
    with pytest.raises(ConfigError, match="not in the ring"):
        Keyring({"a": bytes(16)}, current="b")


# -- schema versions -----------------------------------------------------------------------------


@dataclasses.dataclass
class Count:
    word: str
    count: int


MIGRATORS: Any = {1: lambda n: {"count": n}, 2: lambda s: {**s, "word": "?"}}


@pytest.mark.parametrize("serializer", ["msgpack", "json", "pickle"])
def test_migrators_form_a_chain(serializer: str) -> None:
    v1 = ValueCodec(serializer).encode(7, **AT)
    v2 = ValueCodec(serializer, schema_version=2).encode({"count": 7}, **AT)
    now = ValueCodec(serializer, schema_version=3, migrators=MIGRATORS)
    assert now.decode(v1, **AT) == now.decode(v2, **AT) == {"count": 7, "word": "?"}


def test_migrated_states_become_typed() -> None:
    now = ValueCodec(state_type=Count, schema_version=3, migrators=MIGRATORS)
    assert now.decode(ValueCodec().encode(7, **AT), **AT) == Count("?", 7)
    assert now.decode(now.encode(Count("a", 1), **AT), **AT) == Count("a", 1)


def test_a_missing_step_is_named() -> None:
    now = ValueCodec(schema_version=3, migrators={1: MIGRATORS[1]})
    with pytest.raises(SerializationError, match="from schema version 2 to 3"):
        now.decode(ValueCodec().encode(7, **AT), **AT)


def test_a_newer_schema_is_not_guessed_at() -> None:
    with pytest.raises(SerializationError, match="schema version 2, this program knows 1"):
        ValueCodec().decode(ValueCodec(schema_version=2).encode(7, **AT), **AT)


def test_a_failing_migrator_is_named() -> None:
    now = ValueCodec(schema_version=2, migrators={1: lambda s: s["missing"]})
    with pytest.raises(SerializationError, match="from schema version 1 to 2 raised"):
        now.decode(ValueCodec().encode({}, **AT), **AT)


@pytest.mark.parametrize(
    "settings",
    [
        {"schema_version": 0},
        {"schema_version": True},
        {"schema_version": 2, "migrators": {2: str}},
        {"schema_version": 2, "migrators": {1: None}},
        {"compression": "gzip"},
        {"keyring": b"k" * 32},
        {"allow_plain": True},
        {"keyring": RING, "allow_plain": "yes"},
        {"max_state_bytes": 0},
        {"serializer": "yaml"},
    ],
    ids=repr,
)
def test_bad_settings_are_config_errors(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ValueCodec(**settings)
