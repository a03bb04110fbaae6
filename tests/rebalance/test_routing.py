"""F(k) with backups, and rows of a join that meet: every router's promise, pair by pair."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.grouping import BicliqueRouter, MatrixRouter, PartialKeyRouter
from ckpt.rebalance.hashing import Name, hash_ints, hash_longs, homes
from ckpt.rebalance.importance import Importance, Rule
from ckpt.rebalance.routing import Router, preferred
from ckpt.rebalance.splitting import Band, Equal, JoinRouter, Predicate, TableRouter, Targets
from ckpt.rebalance.table import NO_BACKUP, RoutingTable, Side, Split

INSTANCES = 7
KEYS = np.arange(200, dtype=np.uint64) * np.uint64(2654435761)


@given(st.integers(1, 9), st.integers(0, 4), st.dictionaries(st.integers(0, 199), st.integers(0, 8)))
@settings(max_examples=50, deadline=None)
def test_the_active_instance_is_no_backup_and_backups_differ(
    instances: int, replicas: int, entries: dict[int, int]
) -> None:
    active = np.array([place % instances for place in entries.values()], np.int32)
    table = RoutingTable(instances, KEYS[list(entries)], active)
    places = Router(table, Importance(default=replicas)).route(KEYS)
    assert places.active.tolist() == table.place(KEYS).tolist()
    for place, backups in zip(places.active.tolist(), places.backups.tolist(), strict=True):
        held = [backup for backup in backups if backup != NO_BACKUP]
        assert len(held) == min(replicas, instances - 1)
        assert len({place, *held}) == 1 + len(held)
        assert all(0 <= backup < instances for backup in held)


def test_a_move_to_a_backup_switches_roles_and_another_move_leaves_the_backups() -> None:
    plain = Router(RoutingTable(INSTANCES), Importance(default=2)).route(KEYS[:1])
    home, backups = plain.active[0], plain.backups[0].tolist()
    for target in range(INSTANCES):
        table = RoutingTable(INSTANCES, KEYS[:1], np.array([target]))
        routed = Router(table, Importance(default=2)).route(KEYS[:1])
        expected = {home, *backups} - {target} if target in backups else set(backups)
        assert set(routed.backups[0].tolist()) == expected


def test_backups_that_the_table_says_are_taken_as_they_are() -> None:
    table = RoutingTable(INSTANCES, KEYS[:2], np.array([1, 2]), np.array([[5, 6, 0], [NO_BACKUP] * 3]))
    places = Router(table, Importance(default=1)).route(KEYS[:3])
    assert places.backups[0].tolist() == [5, 6, 0]
    assert (places.backups[1:] != NO_BACKUP).sum(axis=1).tolist() == [1, 1]


def test_the_replicas_of_one_instance_are_spread_over_all_others() -> None:
    keys = np.arange(10_000, dtype=np.uint64)
    of_first = preferred(keys[homes(keys, INSTANCES) == 0], INSTANCES, 1).ravel()
    counts = np.bincount(of_first, minlength=INSTANCES)
    assert counts[0] == 0
    assert counts[1:].min() > 0.7 * counts[1:].mean()


def test_the_first_rule_that_matches_counts() -> None:
    importance = Importance.parse("""
        replicas = 1
        [[keys]]
        pattern = "pay/*"
        replicas = 3
        [[keys]]
        pattern = "pay/small"
        replicas = 0
        [[keys]]
        hash = 18446744073709551615
        replicas = 2
    """)
    keys = np.array([1, 2, 3, 2**64 - 1], np.uint64)
    names: list[Name | None] = ["pay/small", b"pay/\xff", "other", None]
    assert importance.replicas(keys, names).tolist() == [3, 3, 1, 2]
    assert importance.replicas(keys).tolist() == [1, 1, 1, 2]
    assert importance.rules[0] == Rule(3, pattern="pay/*")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replicas = ", "this is not TOML"),
        ("replicas = -1", "replicas must be a whole number from 0 to 16"),
        ("replicas = true", "replicas must be a whole number"),
        ("replica = 1", "unknown field 'replica'; did you mean 'replicas'"),
        ("keys = 5", "keys must be tables"),
        ("[keys]\nreplicas = 1", "keys must be tables"),
        ("[[keys]]\nreplicas = 1", "rule 1: give either pattern or hash"),
        ('[[keys]]\nreplicas = 1\npattern = "a"\nhash = 1', "rule 1: give either"),
        ('[[keys]]\npattern = "a"', "rule 1: replicas is missing"),
        ('[[keys]]\npattern = ""\nreplicas = 1', "rule 1: pattern must be text"),
        ("[[keys]]\nhash = -1\nreplicas = 1", "rule 1: hash must be"),
        ("[[keys]]\nhash = 1.5\nreplicas = 1", "rule 1: hash must be"),
    ],
)
def test_a_bad_document_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Importance.parse(text)


FRAGMENTS = [
    "[[keys]]\n",
    "[keys]\n",
    "replicas = ",
    "pattern = ",
    "hash = ",
    '"a[*?"',
    "1",
    "-1",
    "inf",
    "\n",
]


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=12).map("".join))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_document_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert Importance.parse(text).replicas(KEYS[:3], ["a", None, b"\xff"]).min() >= 0


# Rows of a join. Keys are small numbers, so that every pair of rows of a few dozen keys can be checked.

BASE = hash_longs(np.arange(-50, 50, dtype=np.int64)).astype(np.uint64)


def table_with(splits: tuple[Split, ...], moved: dict[int, int]) -> RoutingTable:
    divided = {split.key for split in splits}
    kept = {key: place for key, place in moved.items() if key not in divided}
    return RoutingTable(
        INSTANCES, np.array(list(kept), np.uint64), np.array(list(kept.values()), int), splits=splits
    )


@st.composite
def divided_tables(draw: st.DrawFn, sides: list[Side]) -> RoutingTable:
    """A table with entries and splits for keys whose identity is the hash of a small number."""
    place = st.integers(0, INSTANCES - 1)
    chosen = draw(st.lists(st.sampled_from(BASE.tolist()), unique=True, max_size=30))
    divided = draw(st.integers(0, len(chosen)))
    splits = []
    for key in chosen[:divided]:
        parts = draw(st.lists(place, unique=True, min_size=2, max_size=5))
        weights = [draw(st.integers(1, 5)) for _ in parts]
        shares = tuple(weight / sum(weights) for weight in weights)
        splits.append(Split(key, tuple(parts), shares, draw(st.sampled_from(sides))))
    return table_with(tuple(splits), {key: draw(place) for key in chosen[divided:]})


def check_that_rows_meet(
    router: JoinRouter, values: np.ndarray, meets: Callable[[int, int], bool], seed: int
) -> None:
    """Of any two rows that must meet, the later one finds the earlier one on exactly one instance."""
    salts = np.random.default_rng(seed).integers(0, 2**63, (2, len(values))).astype(np.uint64)
    sides = (Side.LEFT, Side.RIGHT)
    stored = [router.store(side, values, salt) for side, salt in zip(sides, salts, strict=True)]
    probed = [router.probe(side, values, salt) for side, salt in zip(sides, salts, strict=True)]
    for at, other in product(range(len(values)), repeat=2):
        if not meets(int(values[at]), int(values[other])):
            continue
        for earlier, later in ((0, 1), (1, 0)):
            common = set(stored[earlier].of(at)) & set(probed[later].of(other))
            assert len(common) == 1, (sides[earlier], values[at], values[other])


def equal(left: int, right: int) -> bool:
    return left == right


ROUTERS: dict[str, Callable[[Predicate], JoinRouter]] = {
    "matrix": lambda _: MatrixRouter(2, 3),
    "biclique": lambda predicate: BicliqueRouter(3, 4, predicate=predicate),
    "biclique in groups": lambda predicate: BicliqueRouter(7, 9, 6, predicate),
    "partial key": lambda predicate: PartialKeyRouter(INSTANCES, predicate),
    "table": lambda predicate: TableRouter(RoutingTable(INSTANCES), predicate),
}


@pytest.mark.parametrize("name", ROUTERS)
@given(st.integers(0, 2**32), st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_rows_that_must_meet_meet_once(name: str, seed: int, width: int) -> None:
    values = np.repeat(np.arange(-5, 6), 2)
    check_that_rows_meet(
        ROUTERS[name](Band(width)), values, lambda left, right: abs(left - right) <= width, seed
    )
    check_that_rows_meet(ROUTERS[name](Equal()), np.repeat(KEYS[:12], 2), equal, seed)


@given(divided_tables([Side.BOTH, Side.LEFT, Side.RIGHT]), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_rows_of_split_keys_meet_once(table: RoutingTable, seed: int) -> None:
    router = TableRouter(table)
    check_that_rows_meet(router, np.repeat(BASE[::4], 2), equal, seed)
    for side in (Side.LEFT, Side.RIGHT):
        stored = router.store(side, BASE, BASE)
        whole = {split.key: split for split in table.splits}
        for row, key in enumerate(BASE.tolist()):
            split = whole.get(key)
            if split is not None:
                expected = {1} if split.side in (Side.BOTH, side) else {len(split.instances)}
                assert {len(stored.of(row))} == expected
                assert set(stored.of(row)) <= set(split.instances)


@given(divided_tables([Side.BOTH]), st.integers(0, 2**32), st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_rows_in_a_band_of_split_keys_meet_once(table: RoutingTable, seed: int, width: int) -> None:
    values = np.arange(-20, 20)
    router = TableRouter(table, Band(width))
    check_that_rows_meet(router, values, lambda left, right: abs(left - right) <= width, seed)


def test_rows_are_divided_by_their_shares_and_a_second_attempt_agrees() -> None:
    split = Split(int(BASE[0]), (0, 3, 5), (0.5, 0.3, 0.2))
    router = TableRouter(table_with((split,), {}))
    values, salts = np.repeat(BASE[:1], 20_000), np.arange(20_000, dtype=np.uint64)
    first = router.store(Side.LEFT, values, salts).instances
    counts = np.bincount(first, minlength=INSTANCES) / len(values)
    assert counts[[0, 3, 5]].tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.02)
    assert (router.store(Side.LEFT, values, salts).instances == first).all()


def test_partial_keys_balance_a_stream_that_one_key_dominates() -> None:
    router = PartialKeyRouter(2)
    keys = np.where(np.arange(1000) % 10 < 8, np.uint64(1), np.arange(1000, dtype=np.uint64) + np.uint64(9))
    router.store(Side.LEFT, keys, keys)
    assert router.had.tolist() == [500, 500]


def test_the_hash_of_a_band_is_that_of_the_columns_type() -> None:
    assert (
        Band(1, hash_ints).identities(np.array([5])).tolist() == hash_ints(np.array([5], np.int32)).tolist()
    )


def test_routers_that_cannot_be_are_refused() -> None:
    one_sided = table_with((Split(int(BASE[0]), (0, 1), (0.5, 0.5), Side.LEFT),), {})
    with pytest.raises(ConfigError, match="split both sides"):
        TableRouter(one_sided, Band(1))
    with pytest.raises(ConfigError, match="wide"):
        Band(-1)
    with pytest.raises(ConfigError, match="two instances"):
        PartialKeyRouter(1)
    with pytest.raises(ConfigError, match="6 groups"):
        BicliqueRouter(5, 8, 6)
    with pytest.raises(ConfigError, match="at least one"):
        MatrixRouter(0, 3)
    with pytest.raises(ConfigError, match="at least one"):
        MatrixRouter.of_instances(0)


def test_no_rows_are_no_targets() -> None:
    nothing = np.empty(0, np.int64)
    for build in ROUTERS.values():
        for predicate in (Equal(), Band(1)):
            router = build(predicate)
            for targets in (
                router.store(Side.LEFT, nothing, nothing.astype(np.uint64)),
                router.probe(Side.RIGHT, nothing, nothing.astype(np.uint64)),
            ):
                assert isinstance(targets, Targets)
                assert len(targets) == 0
