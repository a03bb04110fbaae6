"""Results as YCSB writes them: text that its scripts parse, JSON objects or one array of them; and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence

from ckpt_bench.ycsb.measures import Row
from ckpt_bench.ycsb.settings import Exporter


def text(rows: Sequence[Row]) -> str:
    """One line each.

    Examples
    --------
    >>> text([("OVERALL", "RunTime(ms)", 12), ("READ", "AverageLatency(us)", 1.5)])
    '[OVERALL], RunTime(ms), 12\\n[READ], AverageLatency(us), 1.5\\n'
    """
    return "".join(f"[{metric}], {measurement}, {value}\n" for metric, measurement, value in rows)


def json_lines(rows: Sequence[Row]) -> str:
    """One object on each line."""
    return "".join(f"{json.dumps(each)}\n" for each in _objects(rows))


def json_array(rows: Sequence[Row]) -> str:
    """One array of all objects."""
    return json.dumps(_objects(rows), indent=1) + "\n"


def comma_separated(rows: Sequence[Row]) -> str:
    """A header, then one line each.

    Examples
    --------
    >>> comma_separated([("OVERALL", "RunTime(ms)", 12)])
    'metric,measurement,value\\nOVERALL,RunTime(ms),12\\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("metric", "measurement", "value"))
    writer.writerows(rows)
    return out.getvalue()


def _objects(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [
        {"metric": metric, "measurement": measurement, "value": value} for metric, measurement, value in rows
    ]


EXPORTERS: dict[Exporter, Callable[[Sequence[Row]], str]] = {
    Exporter.TEXT: text,
    Exporter.JSON: json_lines,
    Exporter.JSON_ARRAY: json_array,
    Exporter.CSV: comma_separated,
}
