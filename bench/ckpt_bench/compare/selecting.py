"""From what a user asks for to the matches that are played; whoever cannot take part is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ckpt.errors import ConfigError
from ckpt_bench.compare.cases import CASES, Case, checked_store, stores_of
from ckpt_bench.compare.places import SERVER_OF, SERVERS, lacks
from ckpt_bench.compare.referee import Match, sized


@dataclass(frozen=True)
class Wish:
    """What a user asks for."""

    cases: Sequence[str] = ()
    stores: Sequence[str] = ()
    baseline: str | None = None
    servers: bool = False
    quick: bool = False
    keys: int | None = None
    rounds: int | None = None


def matches(wish: Wish, say: Callable[[str], object]) -> list[Match]:
    """What is to be played, without addresses; a ConfigError if that is nothing."""
    for name in (*wish.stores, *((wish.baseline,) if wish.baseline else ())):
        checked_store(name)
    found = [match for case in _cases(wish) if (match := _match(case, wish, say)) is not None]
    left_out = dict.fromkeys(
        reason for match in found for name in match.stores if (reason := lacks(name)) is not None
    )
    for reason in left_out:
        say(f"left out: {reason}")
    there = [without(match, {name for name in match.stores if lacks(name)}) for match in found]
    played = [match for match in there if match is not None]
    if not played:
        raise ConfigError("nothing is left to compare; `ckpt bench compare --help` lists cases and stores")
    return played


def without(match: Match, missing: set[str]) -> Match | None:
    """The match without some stores; None if too few are left, or the baseline is not among them."""
    stores = [name for name in match.stores if name not in missing]
    if match.baseline not in stores or len(stores) < 2:
        return None
    return Match(match.case, match.baseline, stores, match.sizes, match.addresses)


def at(match: Match, addresses: Mapping[str, str]) -> Match | None:
    """The match with the addresses of servers, and without stores whose server there is none of."""
    gone = {name for name in match.stores if name in SERVER_OF and SERVER_OF[name] not in addresses}
    left = without(match, gone)
    if left is None:
        return None
    of = {name: addresses[SERVER_OF[name]] for name in left.stores if name in SERVER_OF}
    return Match(left.case, left.baseline, left.stores, left.sizes, of)


def _cases(wish: Wish) -> list[Case]:
    if wish.cases:
        return [CASES[name] for name in CASES if name in wish.cases]
    if wish.servers:
        return [case for case in CASES.values() if set(SERVERS) <= set(stores_of(case))]
    # Those on an object store need a server, so they are run when they are named.
    return [case for case in CASES.values() if case.baseline not in SERVER_OF]


def _match(case: Case, wish: Wish, say: Callable[[str], object]) -> Match | None:
    allowed = stores_of(case)
    baseline = wish.baseline or case.baseline
    if baseline not in allowed:
        say(f"{case.name}: {baseline} cannot take part, so the baseline is {case.baseline}")
        baseline = case.baseline
    wanted = wish.stores or (SERVERS if wish.servers else case.stores)
    if apart := [name for name in wish.stores if name not in allowed and case.name in wish.cases]:
        say(f"{case.name}: {', '.join(apart)} cannot take part")
    stores = list(dict.fromkeys([baseline, *(name for name in wanted if name in allowed)]))
    if len(stores) < 2:
        say(f"{case.name}: left out, for none of the stores can take part beside {baseline}")
        return None
    return Match(
        case, baseline, stores, sized(case, quick=wish.quick, keys=wish.keys, rounds=wish.rounds), {}
    )
