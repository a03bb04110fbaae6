"""Every stateful operator, placed by tables that change at each restart: exact, and each key in its place."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import SparkSession

from tests.spark.operators import OPERATORS, Operator
from tests.spark.routing.routed import SETTINGS_BY_CLOCK, RoutedQuery, routing_session

AT_ONCE = 3
# Its keys are all in one partition.
ROUTED = [name for name in OPERATORS if name != "limit"]


@pytest.fixture(scope="module")
def routed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    address: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Future[RoutedQuery]]]:
    """By operator; those that are tested run side by side, a few at once."""
    here = [item for item in request.session.items if item.path == request.path]
    names = [item.callspec.params["name"] for item in here if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("routed")
    by_data, by_clock = routing_session(spark), routing_session(spark, **SETTINGS_BY_CLOCK)
    for name in names:
        (folder / name).mkdir()

    def run(operator: Operator) -> RoutedQuery:
        session = by_clock if operator.by_clock else by_data
        return RoutedQuery(session, address, folder / operator.name, operator)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, OPERATORS[name]) for name in names}


@pytest.mark.spark_core
@pytest.mark.parametrize("name", ROUTED)
def test_keys_that_move_between_files_change_nothing(
    routed: dict[str, Future[RoutedQuery]], name: str
) -> None:
    operator, found = OPERATORS[name], routed[name].result()
    assert operator.outcome(found.batches) == operator.expected(found.rows.rows(), found.right.rows())
    assert found.misplaced == []
    assert found.moved > 0
