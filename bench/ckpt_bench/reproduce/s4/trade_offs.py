"""Table 5.2: what speaks for which backend, taken from the other experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckpt.contract.registry import extra_of
from ckpt_bench.plot import Bar, bars
from ckpt_bench.reproduce.claims import Claim, Verdict, at_least, at_most, fact, not_checked
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.s4.data_stores import HBASE, REDIS, server_latencies
from ckpt_bench.reproduce.s4.index_rebuild import rebuilds
from ckpt_bench.reproduce.s4.latency import RATE_PER_S, Latency
from ckpt_bench.reproduce.s4.queue_rates import queue_rates
from ckpt_bench.reproduce.s4.saturation import DEFAULT, INDEXED, flushed_saturation
from ckpt_bench.reproduce.spread import Rounds, Spread, ratios, spread

_SCHEMES = {DEFAULT: "file", INDEXED: "log", REDIS: "redis", HBASE: "hbase"}
DEPENDENCY, FAVORS_WRITES, COSTLY_RECOVERY = "additional dependency", "favors writes", "costly recovery"
THESIS: Mapping[str, Mapping[str, bool]] = {
    DEPENDENCY: {DEFAULT: False, INDEXED: False, REDIS: True, HBASE: True},
    FAVORS_WRITES: {DEFAULT: False, INDEXED: True, REDIS: False, HBASE: True},
    COSTLY_RECOVERY: {DEFAULT: False, INDEXED: True, REDIS: False, HBASE: False},
}
SCENARIOS = {
    DEFAULT: "few states on a node, rare checkpoints",
    INDEXED: "many states on a node, frequent checkpoints",
    REDIS: "frequent checkpoints, durability not needed in full",
    HBASE: "many states on a node, frequent checkpoints",
}
_GROWS = 0.5
"""A recovery is costly if its time grows at least half as much as the number of states."""


@dataclass(frozen=True, slots=True)
class TradeOffs:
    """What the cells of the table are derived from."""

    dependencies: Mapping[str, bool]
    """Backend → whether ckpt needs an extra for it."""
    write_ms: Mapping[str, Rounds]
    """Backend that kept up with the thesis' rate → time of a durable save."""
    read_ms: Mapping[str, Rounds]
    """Backend → time of a recovering read."""
    open_growth: Spread
    """Indexed FS after `kill -9`: growth of the time to open, above one state's / growth of the states."""
    many_states_gain: Spread
    """Rate of the queue with the most states, Indexed FS / Default FS, durable."""
    few_states_loss: Spread
    """Time of a durable write of one thread at a time, Default FS / Indexed FS."""
    late: Mapping[str, str]
    """Backend that could not keep up → how far it fell behind."""
    left_out: Mapping[str, str]
    """Backend that could not be measured → why."""

    def why_no_save(self, name: str) -> str:
        """Why there is no time of a save."""
        return f"{name} {self.late[name]}" if name in self.late else f"left out: {self.left_out[name]}"


def measure(lab: Lab) -> TradeOffs:
    """From figures 4.2, 4.5, 4.6, 4.7 and 5.1, which are measured first if they were not."""
    servers = server_latencies(lab)
    latencies: dict[str, Latency] = {**servers.files.stores[lab.local.name], **servers.servers}
    rates = queue_rates(lab).rates[lab.local.name]
    one_thread = flushed_saturation(lab).curves
    return TradeOffs(
        {name: extra_of(scheme) is not None for name, scheme in _SCHEMES.items()},
        {name: latency.write_ms for name, latency in latencies.items() if latency.kept_up},
        {name: latency.read_ms for name, latency in latencies.items()},
        rebuilds(lab).growth("open_ms"),
        spread(ratios(rates[INDEXED][-1].written_per_s, rates[DEFAULT][-1].written_per_s)),
        spread(ratios(one_thread[DEFAULT][0].latency_ms, one_thread[INDEXED][0].latency_ms)),
        {name: latency.backlog for name, latency in latencies.items() if not latency.kept_up},
        servers.left_out,
    )


def _run(lab: Lab) -> TradeOffs:
    return lab.once("trade-offs", lambda: measure(lab))


def _properties(found: TradeOffs) -> dict[str, dict[str, Claim]]:
    """Property → backend → what the thesis' cell says, judged."""
    check = {DEPENDENCY: _dependency, FAVORS_WRITES: _favors_writes, COSTLY_RECOVERY: _costly_recovery}
    return {
        what: {
            name: check[what](found, name, f"{name}: {what}: {_word(theirs)}")
            for name, theirs in backends.items()
        }
        for what, backends in THESIS.items()
    }


def _dependency(found: TradeOffs, name: str, says: str) -> Claim:
    return fact(
        says,
        "whether ckpt needs an extra for it",
        ours=found.dependencies[name],
        theirs=THESIS[DEPENDENCY][name],
        why="ckpt installs other drivers with itself than S4 did",
    )


def _favors_writes(found: TradeOffs, name: str, says: str) -> Claim:
    what = "time of a recovering read / of a durable save"
    if name not in found.write_ms:
        return not_checked(says, what, found.why_no_save(name))
    ratio = spread(ratios(found.read_ms[name], found.write_ms[name]))
    if THESIS[FAVORS_WRITES][name]:
        why = "a save waits until it is durable, a read is answered from memory that recently wrote it"
        return at_least(says, what, ratio, 1.0, why)
    return at_most(says, what, ratio, 1.0, "a save is acknowledged sooner than a state is found again")


def _costly_recovery(found: TradeOffs, name: str, says: str) -> Claim:
    if name == INDEXED:
        what = "growth of the time to open after kill -9 / growth of the states"
        why = (
            "only what came after the index was last stored is read again, and the log stores it as it grows"
        )
        return at_least(says, what, found.open_growth, _GROWS, why)
    why = (
        "not measured: this backend opens without reading any state, whatever their number"
        if name == DEFAULT
        else "not measured: only the operator is killed here, and the server stays up"
    )
    return not_checked(says, "growth of the time of a recovery / growth of the states", why)


def _scenario(found: TradeOffs, name: str, says: str) -> Claim:
    if name == INDEXED:
        what = "rate of the queue with the most states, Indexed FS / Default FS"
        why = "with so few states the batches of the log are short"
        return at_least(says, what, found.many_states_gain, 1.0, why)
    if name == DEFAULT:
        what = "one writer, few states: time of a durable write, Default FS / Indexed FS"
        why = "a new or replaced file is more than one thing to sync, also when nobody else writes"
        return at_most(says, what, found.few_states_loss, 2.0, why)
    what = f"ms until a save is durable, while {RATE_PER_S:g} of them come every second"
    if name in found.write_ms:
        why = "this server takes longer for one save; a SafeKeeper still keeps up, by batches"
        return at_most(says, what, spread(found.write_ms[name]), 1000 / RATE_PER_S, why)
    if name in found.late:
        return Claim(says, what, found.late[name], Verdict.FAILS, "this server takes longer for its saves")
    return not_checked(says, what, found.why_no_save(name))


def _check(found: TradeOffs) -> list[Claim]:
    cells = [claim for backends in _properties(found).values() for claim in backends.values()]
    return cells + [_scenario(found, name, f"{name}: {scenario}") for name, scenario in SCENARIOS.items()]


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _here(claim: Claim, theirs: bool) -> str:
    if claim.holds is not None:
        return _word(theirs is claim.holds)
    return "not measured" if claim.verdict is Verdict.NOT_CHECKED else str(claim.verdict)


def _show(found: TradeOffs) -> Shown:
    rows = [
        [what, *(f"{_word(theirs)} / {_here(judged[name], theirs)}" for name, theirs in THESIS[what].items())]
        for what, judged in _properties(found).items()
    ]
    rows.append(["at its best with", *SCENARIOS.values()])
    marks = []
    for name, write_ms in found.write_ms.items():
        ratio = spread(ratios(found.read_ms[name], write_ms))
        marks.append(Bar(name, ratio.median, f"{ratio.median:.3g}", ratio.q1, ratio.q3))
    notes = [
        "Each cell: the thesis / here.",
        f"Time to open the log after kill -9: grows {found.open_growth} times as much as the states.",
        *(f"{name} {why}." for name, why in found.late.items()),
        *(f"{name} is left out: {why}" for name, why in found.left_out.items()),
    ]
    chart = bars("Time of a recovering read over that of a durable save", marks)
    return Shown(chart, ["property", *_SCHEMES], rows, notes)


TABLE_5_2 = Experiment(
    "table-5.2",
    "Trade-offs between the backends",
    "The file backends need nothing beside S4; the indexed one and HBase favour writes; the indexed one has "
    "the costly recovery.",
    "Derived from what figures 4.2, 4.5, 4.6, 4.7 and 5.1 measure on the local disk; with HBase and Redis as "
    "they are set up for figure 4.6.",
    _run,
    _check,
    _show,
)
