"""Every property that means something here, with YCSB's name, default and meaning; any other one is named.

A property of a YCSB database binding (`redis.host`) does not stop a file that others made: it is listed as
ignored. One that is nearly the name of a known property is refused, since a benchmark that silently runs
something else is worse than none.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError

CORE_WORKLOAD = "CoreWorkload"
_CORE_ELSEWHERE = "core"  # go-ycsb's name for it
_PACKAGES = ("site.ycsb.workloads", "com.yahoo.ycsb.workloads")
_NEARLY, _PERHAPS = 0.87, 0.7
_EXPORTERS = {
    "TextMeasurementsExporter": "text",
    "JSONMeasurementsExporter": "json",
    "JSONArrayMeasurementsExporter": "jsonarray",
}
_WITHOUT_EFFECT = frozenset(
    {
        "db",
        "dotransactions",
        "columnfamily",
        "maxscanrate",
        "scanoptimelimit",
        "discardscannedrecord",
        "measurement.trackjvm",
        "readallfieldsbyname",
        "spin.sleep",
    }
)
"""Properties of YCSB itself that have nothing to say here: nobody needs to be told."""
_OF_GO_YCSB = frozenset({"batch.size", "measurement.output_file"})
"""Properties of another YCSB that are no slips, though nearly the name of one here."""
_AT_LEAST_ONE = (
    "fieldcount", "threadcount", "status_interval", "batchsize", "histogram_buckets", "timeseries_granularity"
)  # fmt: skip
_AT_MOST = {
    "threadcount": 10_000,
    "zeropadding": 60_000,  # a key has up to 64 KiB
    "histogram_buckets": 10_000_000,
    "status_interval": 10**9,
    "maxexecutiontime": 10**9,
    "insertion_retry_interval": 10**9,
    "timeseries_granularity": 10**9,
}
_MOST = 1 << 62
"""More does not fit where numbers are counted, and no run gets there."""
_LEAST_RATE = 1e-5
"""One operation a day."""
MOST_BYTES = 1 << 30
"""No field is larger, and no record."""
_NAME_BYTES = 16
"""What a field takes beside its value, about."""
KEEPER_PREFIX = "safekeeper."


class Request(enum.StrEnum):
    """How the record of an operation is chosen."""

    UNIFORM = "uniform"
    ZIPFIAN = "zipfian"
    LATEST = "latest"
    HOTSPOT = "hotspot"
    EXPONENTIAL = "exponential"
    SEQUENTIAL = "sequential"


class Lengths(enum.StrEnum):
    """How long a field is."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    ZIPFIAN = "zipfian"
    HISTOGRAM = "histogram"


class ScanLengths(enum.StrEnum):
    """How many records a scan reads."""

    UNIFORM = "uniform"
    ZIPFIAN = "zipfian"


class Interval(enum.StrEnum):
    """From when on an operation is timed: from its start, from when it should have started, or both."""

    OP = "op"
    INTENDED = "intended"
    BOTH = "both"


class Kind(enum.StrEnum):
    """How latencies are kept and shown."""

    HDR = "hdrhistogram"
    HISTOGRAM = "histogram"
    HDR_AND_HISTOGRAM = "hdrhistogram+histogram"
    HDR_AND_RAW = "hdrhistogram+raw"
    TIMESERIES = "timeseries"
    RAW = "raw"


class Exporter(enum.StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"
    JSON_ARRAY = "jsonarray"
    CSV = "csv"


def _named(name: str, default: Any) -> Any:
    return field(default=default, metadata={"name": name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One workload: what is stored, what is asked, how often, and how it is measured."""

    table: str = "usertable"
    recordcount: int = 0
    operationcount: int | None = None
    insertstart: int = 0
    insertcount: int | None = None
    fieldcount: int = 10
    fieldlength: int = 100
    minfieldlength: int = 1
    fieldlengthdistribution: Lengths = Lengths.CONSTANT
    fieldlengthhistogram: str = "hist.txt"
    fieldnameprefix: str = "field"
    readallfields: bool = True
    writeallfields: bool = False
    readproportion: float = 0.95
    updateproportion: float = 0.05
    insertproportion: float = 0.0
    scanproportion: float = 0.0
    readmodifywriteproportion: float = 0.0
    requestdistribution: Request = Request.UNIFORM
    minscanlength: int = 1
    maxscanlength: int = 1000
    scanlengthdistribution: ScanLengths = ScanLengths.UNIFORM
    insertorder: str = "hashed"
    zeropadding: int = 1
    hotspotdatafraction: float = 0.2
    hotspotopnfraction: float = 0.8
    exponential_percentile: float = _named("exponential.percentile", 95.0)
    exponential_frac: float = _named("exponential.frac", 0.8571428571)
    dataintegrity: bool = False
    insertion_retry_limit: int = _named("core_workload_insertion_retry_limit", 0)
    insertion_retry_interval: int = _named("core_workload_insertion_retry_interval", 3)
    insertion_keep_going: bool = _named("core_workload_insertion_keep_going_on_error", False)
    threadcount: int = 1
    target: float = 0.0
    maxexecutiontime: int = 0
    status: bool = False
    status_interval: int = _named("status.interval", 10)
    label: str = ""
    measurementtype: Kind = Kind.HDR
    measurement_interval: Interval = field(default=Interval.OP, metadata={"name": "measurement.interval"})
    percentiles: tuple[float, ...] = _named("hdrhistogram.percentiles", (50.0, 95.0, 99.0))
    hdr_files: bool = _named("hdrhistogram.fileoutput", False)
    hdr_path: str = _named("hdrhistogram.output.path", "")
    histogram_buckets: int = _named("histogram.buckets", 1000)
    histogram_verbose: bool = _named("measurement.histogram.verbose", False)
    timeseries_granularity: int = _named("timeseries.granularity", 1000)
    raw_file: str = _named("measurement.raw.output_file", "")
    raw_no_summary: bool = _named("measurement.raw.no_summary", False)
    reportlatencyforeacherror: bool = False
    latencytrackederrors: str = ""
    exporter: Exporter = Exporter.TEXT
    exportfile: str = ""

    # -- what YCSB does not have -----------------------------------------------------------------

    seed: int | None = None
    """From which all random choices follow; without it every run is different."""
    batchsize: int = 1
    """How many records one call writes while loading."""
    safekeeper: bool = False
    """Operations go through a SafeKeeper; its options are `safekeeper.…`."""
    recovercount: int = 0
    """How often, spread over the run, the store is opened again and read whole."""
    gccount: int = 0
    """How often, spread over the run, garbage is collected."""
    migratecount: int = 0
    """How often, spread over the run, the table is copied to `migrate.to`."""
    migrate_to: str = _named("migrate.to", "")
    crashcount: int = 0
    """How often, after the run, a process that writes to the store is killed."""
    crash_seconds: float = _named("crash.seconds", 1.0)
    """How long, at most, such a process lives once it writes."""
    keeper_options: Mapping[str, Any] = field(default_factory=dict, metadata={"name": ""})

    @property
    def inserts(self) -> int:
        """How many records the load phase writes."""
        return self.recordcount - self.insertstart if self.insertcount is None else self.insertcount

    @property
    def files(self) -> list[str]:
        """Every file that is written, as far as its name is known before."""
        found = [path for path in (self.exportfile, self.raw_file) if path]
        if self.hdr_files:
            found += [f"{self.hdr_path}{name}.hdr" for name in (*self.proportions, "CLEANUP")]
        return found

    @property
    def asks_more(self) -> bool:
        """Whether there is something to do besides operations."""
        return bool(self.recovercount or self.gccount or self.migratecount or self.crashcount)

    @property
    def ordered(self) -> bool:
        """Whether keys follow each other as records do; YCSB takes everything but `hashed` for that."""
        return self.insertorder != "hashed"

    @property
    def proportions(self) -> dict[str, float]:
        """Operation → its weight, of those that occur."""
        weights = {
            "READ": self.readproportion,
            "UPDATE": self.updateproportion,
            "INSERT": self.insertproportion,
            "SCAN": self.scanproportion,
            "READ-MODIFY-WRITE": self.readmodifywriteproportion,
        }
        return {name: weight for name, weight in weights.items() if weight > 0}

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            most = _AT_MOST.get(one.name, math.inf if one.name == "seed" else _MOST)
            if isinstance(value, int) and value > most:
                raise ConfigError(f"property {_name_of(one)} is {most:,} at most, got {value:,}")
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise ConfigError(f"property {_name_of(one)} is 0 or more, got {value:,}")
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigError(f"property {name.replace('_', '.')} is 1 or more, got 0")
        self._check_lengths()
        if 0 < self.target < _LEAST_RATE:
            raise ConfigError(
                f"property target is {_LEAST_RATE:g} or more operations a second, or 0 for no limit; got "
                f"{self.target:g}"
            )
        if self.recordcount < self.insertstart + self.inserts:
            raise ConfigError(
                f"recordcount={self.recordcount} is less than insertstart={self.insertstart} plus "
                f"insertcount={self.inserts}; recordcount counts the records of all loads together"
            )
        if self.dataintegrity and self.fieldlengthdistribution is not Lengths.CONSTANT:
            raise ConfigError("dataintegrity=true needs fieldlengthdistribution=constant")
        if not all(0 <= percentile <= 100 for percentile in self.percentiles):
            raise ConfigError("hdrhistogram.percentiles lists numbers from 0 to 100, such as 50,95,99.9")
        for name in ("hotspotdatafraction", "hotspotopnfraction", "exponential_frac"):
            if getattr(self, name) > 1:
                shown = name.replace("_", ".")
                raise ConfigError(f"property {shown} is a share from 0 to 1, got {getattr(self, name):g}")
        if not 0 < self.exponential_percentile < 100:
            raise ConfigError("property exponential.percentile is between 0 and 100, such as 95")
        if self.migratecount and not self.migrate_to:
            raise ConfigError("migratecount needs an address to copy to; give -p migrate.to=ADDRESS")
        if self.safekeeper and self.scanproportion:
            raise ConfigError(
                "a SafeKeeper does not scan; set scanproportion=0, or leave safekeeper=true out"
            )

    def _check_lengths(self) -> None:
        vary = self.fieldlengthdistribution in (Lengths.UNIFORM, Lengths.ZIPFIAN)
        if vary and self.minfieldlength > self.fieldlength:
            raise ConfigError(
                f"minfieldlength={self.minfieldlength} is more than fieldlength={self.fieldlength}; "
                f"change one of them"
            )
        if self.scanproportion and self.minscanlength > self.maxscanlength:
            raise ConfigError(
                f"minscanlength={self.minscanlength} is more than maxscanlength={self.maxscanlength}; "
                f"change one of them"
            )
        if self.fieldcount * (self.fieldlength + _NAME_BYTES) > MOST_BYTES:
            raise ConfigError(
                f"a record of fieldcount={self.fieldcount} fields of fieldlength={self.fieldlength} bytes is "
                f"more than 1 GiB; make one of them smaller"
            )


def _name_of(one: dataclasses.Field[Any]) -> str:
    return str(one.metadata.get("name", one.name))


_FIELDS = {_name_of(one): one for one in dataclasses.fields(Settings) if _name_of(one)}


def settings_of(properties: Mapping[str, str], warn: Callable[[str], object]) -> Settings:
    """The workload that these properties describe; `warn` is told, once each, what is ignored.

    Examples
    --------
    >>> settings = settings_of({"recordcount": "1000", "redis.host": "localhost"}, print)
    ignored: redis.host, which is not a property of workloads (a YCSB database binding may have it)
    >>> settings.recordcount, settings.readproportion
    (1000, 0.95)
    >>> settings_of({"readpropotion": "1"}, print)
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: there is no property 'readpropotion'; did you mean 'readproportion'?
    """
    _require_core_workload(properties.get("workload"))
    hints = typing.get_type_hints(Settings)
    values: dict[str, Any] = {}
    keeper: dict[str, str] = {}
    for name, text in properties.items():
        if one := _FIELDS.get(name):
            values[one.name] = _parsed(hints[one.name], name, text)
        elif name.startswith(KEEPER_PREFIX):
            keeper[name.removeprefix(KEEPER_PREFIX)] = text
        elif name != "workload" and name not in _WITHOUT_EFFECT and not name.startswith("htrace."):
            if name not in _OF_GO_YCSB:
                _refuse_nearly(name)
            warn(
                f"ignored: {name if name.isprintable() and name else repr(name)}, which is not a property of "
                f"workloads (a YCSB database binding may have it){_perhaps(name)}"
            )
    if not values.get("recordcount") and "insertcount" in values:  # YCSB takes 0 for as many as there may be
        values["recordcount"] = values.get("insertstart", 0) + values["insertcount"]
    settings = Settings(**values, keeper_options=keeper)
    if settings.insertorder not in ("hashed", "ordered"):
        warn(f"insertorder={settings.insertorder} is taken for ordered, as in YCSB; the other one is hashed")
    return settings


def _require_core_workload(name: str | None) -> None:
    if name is None or (name := name.strip()) == _CORE_ELSEWHERE:
        return
    package, _, kind = name.rpartition(".")
    if kind != CORE_WORKLOAD or package not in ("", *_PACKAGES):
        raise ConfigError(
            f"workload {name or 'without a name'} is not one that runs here; only "
            f"{_PACKAGES[0]}.{CORE_WORKLOAD} does, which workloads A to F are"
        )


def _refuse_nearly(name: str) -> None:
    known = [*_FIELDS, "workload"]
    folded = {other.lower().replace("_", ""): other for other in known}
    same = folded.get(name.lower().replace("_", ""))
    near = [same] if same else difflib.get_close_matches(name, known, n=1, cutoff=_NEARLY)
    if near:
        raise ConfigError(f"there is no property {name!r}; did you mean {near[0]!r}?")


def _perhaps(name: str) -> str:
    """The property that may be meant; a binding has its own name before a dot, so that tells nothing."""
    near = [] if "." in name else difflib.get_close_matches(name, _FIELDS, n=1, cutoff=_PERHAPS)
    return f"; did you mean {near[0]}?" if near else ""


def _parsed(hint: Any, name: str, text: str) -> Any:
    kinds = [arm for arm in typing.get_args(hint) or (hint,) if arm is not type(None)]
    kind = hint if typing.get_origin(hint) is tuple else kinds[0]
    if kind is str:
        return text
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"property {name} is true or false, got {text!r}")
        return text.lower() == "true"
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        short = _EXPORTERS.get(text.rpartition(".")[2], text) if kind is Exporter else text
        if short not in list(kind):
            raise ConfigError(
                f"property {name} cannot be {text!r}; {suggestion(short, [each.value for each in kind])}"
            )
        return kind(short)
    try:
        if kind in (int, float):
            return kind(text)
        return tuple(float(part) for part in text.rstrip(",").split(","))
    except ValueError:
        what = {int: "a whole number", float: "a number"}.get(kind, "a list of numbers such as 50,95,99")
        raise ConfigError(f"property {name} is {what}, got {text!r}") from None
