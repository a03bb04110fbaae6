"""A workload file means what it means to YCSB, and a property that means nothing is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckpt.errors import ConfigError
from ckpt_bench.ycsb.properties import gathered, parse
from ckpt_bench.ycsb.settings import Exporter, Kind, Request, Settings, settings_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1\nb:2\nc : 3\nd 4\ne\t=\t5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("# no\n! no\n  # no\n\n   a=1", {"a": "1"}),
        ("a=one, \\\n    two", {"a": "one, two"}),
        ("a=ends in two\\\\\nb=2", {"a": "ends in two\\", "b": "2"}),
        ("a\\ b\\:c\\=d=x", {"a b:c=d": "x"}),
        ("a=\\u00e9\\t\\n!", {"a": "é\t\n!"}),
        ("a==1\nb=:2", {"a": "=1", "b": ":2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=\nb", {"a": "", "b": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=# no comment", {"a": "# no comment"}),
        ("a=1   ", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a=\\\n# text, since the line goes on", {"a": "# text, since the line goes on"}),
        ("a=\\ 1", {"a": " 1"}),
        ("a\xa0b=1", {"a\xa0b": "1"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


def test_the_mark_of_an_editor_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfrecordcount=10\r\n")
    assert gathered([str(tmp_path / "marked")], []) == {"recordcount": "10"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"label=C:\\users", "four hex digits.*C:.users; for a backslash write two"),
        (b"\x7fELF\0", "not text"),
    ],
)
def test_a_file_that_java_does_not_read_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ConfigError, match=f"-P {tmp_path}/other: .*{message}"):
        gathered([str(tmp_path / "other")], [])


def test_later_files_win_and_pairs_win_over_all(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a=1\nb=1\nc=1\n")
    (tmp_path / "two").write_bytes("b=2\nc=2\nd=\xe9\n".encode("latin-1"))
    found = gathered([str(tmp_path / "one"), str(tmp_path / "two")], ["c=3", "e=x=y"])
    assert found == {"a": "1", "b": "2", "c": "3", "d": "é", "e": "x=y"}


def test_a_pair_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="name=value"):
        gathered([], ["recordcount"])


def test_the_defaults_are_those_of_ycsb() -> None:
    settings = settings_of({}, pytest.fail)
    assert (settings.table, settings.fieldcount, settings.fieldlength) == ("usertable", 10, 100)
    assert settings.proportions == {"READ": 0.95, "UPDATE": 0.05}
    assert settings.requestdistribution is Request.UNIFORM
    assert (settings.minscanlength, settings.maxscanlength) == (1, 1000)
    assert (settings.insertorder, settings.zeropadding, settings.threadcount) == ("hashed", 1, 1)
    assert (settings.readallfields, settings.writeallfields, settings.dataintegrity) == (True, False, False)
    assert (settings.measurementtype, settings.percentiles) == (Kind.HDR, (50, 95, 99))
    assert (settings.hotspotdatafraction, settings.hotspotopnfraction) == (0.2, 0.8)
    assert (settings.exponential_percentile, settings.exponential_frac) == (95, 0.8571428571)
    assert (settings.insertion_retry_limit, settings.insertion_retry_interval) == (0, 3)
    assert settings.status_interval == 10


def test_a_property_of_a_binding_is_named_and_stops_nothing() -> None:
    told: list[str] = []
    settings_of(
        {
            "redis.host": "h",
            "cassandra.readconsistencylevel": "ONE",
            "hosts": "h",
            "db": "x",
            "htrace.a": "b",
        },
        told.append,
    )
    assert [line.split(",")[0] for line in told] == [
        "ignored: redis.host",
        "ignored: cassandra.readconsistencylevel",
        "ignored: hosts",
    ]


def test_a_property_of_go_ycsb_is_named_and_stops_nothing() -> None:
    """Also one that is nearly another one here: a file that others made runs unchanged."""
    told: list[str] = []
    others = {"batch.size": "100", "measurement.output_file": "raw.txt", "dropdata": "true"}
    settings = settings_of({"workload": "core", "recordcount": "10", **others}, told.append)
    assert [line.split(",")[0] for line in told] == [f"ignored: {name}" for name in others]
    assert (settings.batchsize, settings.raw_file) == (1, "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("requestdistrib", "ignored: requestdistrib, .*; did you mean requestdistribution\\?$"),
        ("redis.host", "ignored: redis.host, .* may have it\\)$"),
        ("", "ignored: '', "),
    ],
)
def test_what_is_ignored_is_named_with_what_may_be_meant(name: str, said: str) -> None:
    told: list[str] = []
    settings_of({name: "1"}, told.append)
    assert len(told) == 1
    assert re.match(said, told[0])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("readpropotion", "readproportion"),
        ("recordCount", "recordcount"),
        ("operation_count", "operationcount"),
        ("measurement.intervall", "measurement.interval"),
        ("field_length", "fieldlength"),
        ("requestdistributon", "requestdistribution"),
    ],
)
def test_a_misspelt_property_is_refused_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}'; did you mean '{meant}'"):
        settings_of({name: "1"}, pytest.fail)


@pytest.mark.parametrize(
    "workload",
    ["site.ycsb.workloads.CoreWorkload", "com.yahoo.ycsb.workloads.CoreWorkload", "core", " CoreWorkload "],
)
def test_the_core_workload_has_several_names(workload: str) -> None:
    assert isinstance(settings_of({"workload": workload}, pytest.fail), Settings)


@pytest.mark.parametrize("kind", ["TimeSeriesWorkload", "RestWorkload", "ConstantOccupancyWorkload"])
def test_other_workloads_are_refused_by_name(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind} is not one that runs here"):
        settings_of({"workload": f"site.ycsb.workloads.{kind}"}, pytest.fail)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("site.ycsb.measurements.exporter.TextMeasurementsExporter", Exporter.TEXT),
        ("com.yahoo.ycsb.measurements.exporter.JSONMeasurementsExporter", Exporter.JSON),
        ("site.ycsb.measurements.exporter.JSONArrayMeasurementsExporter", Exporter.JSON_ARRAY),
        ("csv", Exporter.CSV),
    ],
)
def test_exporters_by_class_or_by_name(given: str, found: Exporter) -> None:
    assert settings_of({"exporter": given}, pytest.fail).exporter is found


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"recordcount": "many"}, "recordcount is a whole number"),
        ({"recordcount": "-1"}, "recordcount is 0 or more"),
        ({"readallfields": "yes"}, "readallfields is true or false"),
        ({"requestdistribution": "zipfan"}, "did you mean 'zipfian'"),
        ({"measurement.interval": "bth"}, "did you mean 'both'"),
        ({"recordcount": "10", "insertstart": "5", "insertcount": "6"}, "recordcount=10 is less than"),
        ({"dataintegrity": "true", "fieldlengthdistribution": "uniform"}, "constant"),
        ({"hdrhistogram.percentiles": "50,x"}, "list of numbers"),
        ({"hdrhistogram.percentiles": "101"}, "from 0 to 100"),
        ({"threadcount": "0"}, "threadcount is 1 or more"),
        ({"threadcount": "50000"}, "threadcount is 10,000 at most, got 50,000"),
        ({"recordcount": "9" * 400}, "recordcount is 4,611.* at most"),
        ({"recordcount": "-" + "9" * 400}, "recordcount is 0 or more"),
        ({"zeropadding": "100000000000"}, "zeropadding is 60,000 at most"),
        ({"status.interval": "10000000000"}, "status.interval is 1,000,000,000 at most"),
        ({"target": "1e-300"}, "target is 1e-05 or more .* or 0"),
        ({"target": "nan"}, "target is 0 or more, got nan"),
        ({"fieldlength": "99999999999"}, "fieldlength=99999999999 bytes is more than 1 GiB"),
        ({"fieldcount": "99999999999"}, "fieldcount=99999999999 fields .* more than 1 GiB"),
        ({"fieldlengthdistribution": "uniform", "minfieldlength": "500"}, "minfieldlength=500 is more than"),
        ({"scanproportion": "1", "minscanlength": "5", "maxscanlength": "2"}, "more than maxscanlength=2"),
        ({"hotspotopnfraction": "1.5"}, "share from 0 to 1"),
        ({"exponential.frac": "1e300"}, "exponential.frac is a share from 0 to 1"),
        ({"workload": ""}, "workload without a name is not one"),
        ({"exporter": "XMLExporter"}, "exporter cannot be"),
        ({"migratecount": "1"}, "migrate.to"),
        ({"safekeeper": "true", "scanproportion": "1"}, "does not scan"),
    ],
)
def test_a_wrong_value_is_one_sentence(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(properties, pytest.fail)


def test_percentiles_are_listed_as_ycsb_lists_them() -> None:
    assert settings_of({"hdrhistogram.percentiles": "0, 50,99.9,"}, pytest.fail).percentiles == (0, 50, 99.9)


def test_without_a_recordcount_a_load_of_some_records_is_all_there_are() -> None:
    settings = settings_of({"insertstart": "5", "insertcount": "10"}, pytest.fail)
    assert (settings.recordcount, settings.inserts) == (15, 10)


def test_an_unknown_order_of_inserts_is_ordered_and_said() -> None:
    told: list[str] = []
    assert settings_of({"insertorder": "random"}, told.append).ordered
    assert "taken for ordered" in told[0]
