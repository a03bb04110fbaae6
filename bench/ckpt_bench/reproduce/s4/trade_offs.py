"""Table 5.2: what speaks for which backend, taken from the other experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckpt.registry import extra_of
from ckpt_bench.plot import Bar, bars
from ckpt_bench.reproduce.experiments import Claim, Experiment, Lab, Shown
from ckpt_bench.reproduce.s4.index_rebuild import rebuilds
from ckpt_bench.reproduce.s4.latency import HBASE, RATE_PER_S, REDIS, Latency, server_latencies
from ckpt_bench.reproduce.s4.queue_rates import queue_rates
from ckpt_bench.reproduce.s4.saturation import DEFAULT, INDEXED, flushed_saturation

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
    """Properties of each backend, and what they were derived from."""

    properties: Mapping[str, Mapping[str, bool | None]]
    """Property → backend → whether it has it; None where it could not be measured."""
    read_over_write: Mapping[str, float]
    """Backend → time of a recovering read / time of a save, durable."""
    open_growth: float
    """Indexed FS after `kill -9`: growth of the time to open, above one state's / growth of the states."""
    many_states_gain: float
    """Rate of the queue with the most states, Indexed FS / Default FS, durable."""
    few_states_loss: float
    """Time of a durable write of one thread at a time, Default FS / Indexed FS."""
    keeps_up_ms: Mapping[str, float]
    """Backend → time of a durable save at the thesis' rate."""
    left_out: Mapping[str, str]


def measure(lab: Lab) -> TradeOffs:
    """From figures 4.2, 4.5, 4.6, 4.7 and 5.1, which are measured first if they were not."""
    servers = server_latencies(lab)
    latencies: dict[str, Latency] = {**servers.files.stores[lab.local.name], **servers.servers}
    ratios = {name: latency.read_ms / latency.write_ms for name, latency in latencies.items()}
    opening = rebuilds(lab).growth("open_ms")
    rates = queue_rates(lab).rates[lab.local.name]
    one_thread = flushed_saturation(lab).curves
    properties: dict[str, dict[str, bool | None]] = {
        DEPENDENCY: {name: extra_of(scheme) is not None for name, scheme in _SCHEMES.items()},
        FAVORS_WRITES: {name: ratios[name] > 1 if name in ratios else None for name in _SCHEMES},
        # One file per state has nothing to read before the first state, and a server stays up.
        COSTLY_RECOVERY: {name: opening >= _GROWS if name == INDEXED else False for name in _SCHEMES},
    }
    return TradeOffs(
        properties,
        ratios,
        opening,
        rates[INDEXED][-1].written_per_s / rates[DEFAULT][-1].written_per_s,
        one_thread[DEFAULT][0].latency_ms / one_thread[INDEXED][0].latency_ms,
        {name: latency.write_ms for name, latency in latencies.items()},
        servers.left_out,
    )


def _run(lab: Lab) -> TradeOffs:
    return lab.once("trade-offs", lambda: measure(lab))


_WHY = {
    DEPENDENCY: "ckpt installs other drivers with itself than S4 did",
    FAVORS_WRITES: "a save waits until it is durable, a read is answered from memory that recently wrote it",
    COSTLY_RECOVERY: "only what came after the index was last stored is read again, and the log stores it as "
    "it grows",
}


def _check(found: TradeOffs) -> list[Claim]:
    claims = []
    for what, backends in THESIS.items():
        for name, theirs in backends.items():
            ours = found.properties[what][name]
            says, asserts = f"{name}: {what}: {_word(theirs)}", _asserted(what, name)
            if ours is None:
                claims.append(Claim(says, asserts, "-", None, f"left out: {found.left_out[name]}"))
            else:
                claims.append(Claim(says, asserts, _word(ours), ours is theirs, _WHY[what]))
    budget_ms = 1000 / RATE_PER_S
    for name, scenario in SCENARIOS.items():
        says = f"{name}: {scenario}"
        if name == INDEXED:
            gain = found.many_states_gain
            asserts = "rate of the queue with the most states, Indexed FS / Default FS ≥ 1"
            why = "with so few states the batches of the log are short"
            claims.append(Claim(says, asserts, f"{gain:.3g}", gain >= 1, why))
        elif name == DEFAULT:
            loss = found.few_states_loss
            asserts = "one writer, few states: time of a durable write, Default FS / Indexed FS ≤ 2"
            why = "a new or replaced file is more than one thing to sync, also when nobody else writes"
            claims.append(Claim(says, asserts, f"{loss:.3g}", loss <= 2, why))
        elif name in found.keeps_up_ms:
            took_ms = found.keeps_up_ms[name]
            asserts = f"a durable save takes less than the {budget_ms:g} ms between two of {RATE_PER_S:g}/s"
            why = "this server takes longer for one save; a SafeKeeper still keeps up, by batches"
            claims.append(Claim(says, asserts, f"{took_ms:.3g} ms", took_ms < budget_ms, why))
        else:
            claims.append(Claim(says, "time of a save", "-", None, f"left out: {found.left_out[name]}"))
    return claims


def _asserted(what: str, name: str) -> str:
    if what == DEPENDENCY:
        return "whether ckpt needs an extra for it"
    if what == FAVORS_WRITES:
        return "whether a recovering read takes longer than a durable save"
    if name == INDEXED:
        return f"whether growth of the time to open after kill -9 / growth of the states ≥ {_GROWS:g}"
    return "whether anything has to be read before the first state"


def _word(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _show(found: TradeOffs) -> Shown:
    rows = [
        [what, *(f"{_word(THESIS[what][name])} / {_word(ours)}" for name, ours in backends.items())]
        for what, backends in found.properties.items()
    ]
    rows.append(["at its best with", *SCENARIOS.values()])
    marks = [Bar(name, ratio, f"{ratio:.3g}") for name, ratio in found.read_over_write.items()]
    notes = [
        "Each cell: the thesis / here.",
        f"Time to open the log after kill -9: grows {found.open_growth:.2g} times as much as the states.",
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
