"""Run Spark's own test suites on the ckpt provider, and say for each what passed, failed and was left out.

The suites are those of Spark's published test jars, which Maven fetches once. `suites.toml` names them, and
each test that cannot apply with the reason. Two steps make them run on another provider:

- every suite becomes a subclass that takes part in the exclusions (`OnCkpt.scala`);
- suites that name Spark's RocksDB provider as a class get ours instead: its name is replaced in the constants
  of their class files, and nothing else is.

Exit code 1 if a test fails, or if one that is left out is not there; 3 if Java, Maven or jars are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from ckpt.dev import cache, tools
from ckpt.dev.jars import jars_of_pom
from ckpt.errors import CkptError

_HERE = Path(__file__).parent
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
_THEIRS = b"org/apache/spark/sql/execution/streaming/state/RocksDBStateStoreProvider"
_OURS = b"ckpt/spark/CkptStateStoreProvider"
# Neither its companion object nor its inner classes, which begin with the same name.
_NAMES_THEIRS = re.compile(re.escape(_THEIRS) + rb"(?![\w$])")
_NAMES_THEIRS_DOTTED = re.compile(re.escape(_THEIRS.replace(b"/", b".")) + rb"(?![\w$])")
_REMAPPED = ("sql/streaming/", "sql/execution/streaming/", "sql/execution/datasources/v2/state/")
_LEAST_JAVA = 17
_MISSING = 3
_QUICK_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A JVM that lives for a minute compiles more than it gains."""
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
"""The packages that Spark's launcher opens to itself."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A class of tests: one of Spark that is extended, or one of ours if it extends none."""

    name: str
    extends: str | None
    excluded: Mapping[str, str]
    """Patterns of whole names of tests, and the reason of each."""


@dataclass(slots=True)
class Result:
    """What became of the tests of one suite."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    """Tests that Spark itself leaves out."""
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, run, print the table; the exit code."""
    given = _parser().parse_args(arguments)
    known = known_suites(quick=given.quick)
    suites = [suite for suite in known if _wanted(suite, given.suite)]
    if not suites:
        print(f"no suite is called that; known are: {', '.join(suite.name for suite in known)}")
        return 2
    options = _QUICK_JAVA_OPTIONS if given.quick else ()
    try:
        with _work_folder(given.keep) as work:
            results = run(
                suites, work, tests=given.test, checkpoint_format=given.format, java_options=options
            )
    except CkptError as error:
        print(error)
        return _MISSING if isinstance(error, tools.MissingToolError) else 2
    complete = given.test is None
    print(table(suites, results))
    for name, result in results.items():
        for test, reason in result.failed.items():
            print(f"\nFAILED {name}: {test}\n  {reason}")
    unknown = [] if not complete else _unknown_exclusions(suites, results)
    for line in unknown:
        print(line)
    if given.report:
        _write_report(given.report, results)
    return 1 if unknown or any(result.failed for result in results.values()) else 0


def known_suites(*, quick: bool) -> list[Suite]:
    """What `suites.toml` lists, in its order; `quick`: only the suites and the tests that the gate runs."""
    listed = tomllib.loads((_HERE / "suites.toml").read_text(encoding="utf-8"))
    everywhere, only_in_full = listed.pop("everywhere")["excluded"], listed.pop("only-in-full")["excluded"]
    return [
        Suite(
            name,
            table.get("extends"),
            {**table.get("excluded", {}), **everywhere, **(only_in_full if quick else {})},
        )
        for name, table in listed.items()
        if not quick or table.get("quick", False)
    ]


def run(
    suites: Sequence[Suite],
    work: Path,
    *,
    tests: str | None = None,
    checkpoint_format: int = 1,
    java_options: Sequence[str] = (),
) -> dict[str, Result]:
    """Run suites one after the other in one JVM; what became of each."""
    class_path = build(suites)
    excluded = work / "excluded.tsv"
    excluded.write_text(
        "".join(f"{suite.name}\t{pattern}\n" for suite in suites for pattern in suite.excluded),
        encoding="utf-8",
    )
    settings = {
        "spark.testing": "1",
        "spark.test.home": str(work),
        "spark.ui.enabled": "false",
        "spark.master.rest.enabled": "false",
        "spark.memory.debugFill": "true",
        "java.io.tmpdir": str(work),
        "log4j2.configurationFile": str(_HERE / "log4j2.properties"),
        "ckpt.suites.excluded": str(excluded),
        "spark.sql.extensions": "ckpt.spark.CkptExtensions",
        "spark.sql.streaming.stateStore.providerClass": "ckpt.spark.CkptStateStoreProvider",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": str(checkpoint_format),
        "spark.sql.streaming.stateStore.ckpt.address": f"log://{work}/log",
        "spark.sql.streaming.stateStore.ckpt.python": sys.executable,
    }
    reports = work / "reports"
    command = [
        tools.java("Spark", _LEAST_JAVA),
        "-Xmx2g",
        "-Xss4m",
        *java_options,
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-cp",
        ":".join(class_path),
        "org.scalatest.tools.Runner",
        *("-R", class_path[0], "-oWDF", "-u", str(reports)),
        *(part for suite in suites for part in ("-s", f"{_PACKAGE}.{suite.name}")),
        *(("-z", tests) if tests else ()),
    ]
    subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, check=False)
    return {suite.name: _result(suite, reports) for suite in suites}


def build(suites: Sequence[Suite]) -> list[str]:
    """The class path of the suites, compiled subclasses first; what did not change is not built again."""
    jars = jars_of_pom("spark-suites", (_HERE / "pom.xml").read_text(encoding="utf-8"), report=_say)
    home = _home(jars)
    os.environ["SPARK_HOME"] = home
    from ckpt.spark.jar import provider_jar  # finds the Spark of SPARK_HOME

    provider = provider_jar(report=_say)
    theirs = _unpacked(jars)
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(_HERE.glob("*.scala"))}
    sources["Extended.scala"] = "".join(
        [
            f"package {_PACKAGE}\n",
            *(f"class {s.name} extends {s.extends} with OnCkpt\n" for s in suites if s.extends),
        ]
    )
    digest = hashlib.sha256(json.dumps([sources, provider, theirs]).encode()).hexdigest()[:16]
    classes = cache.folder("spark", f"suites-{digest}")
    class_path = [f"{theirs}/classes", f"{theirs}/resources", provider, f"{jars}/*"]
    if not os.path.isdir(classes):
        with cache.locked("spark-suites", report=_say), cache.appearing(classes) as filling:
            _say("compiling the subclasses")
            # Against the suites as they were published: the types of the compiler know no replaced name.
            _compile(sources, [provider, f"{jars}/*"], filling)
    return [classes, *class_path]


def _home(jars: str) -> str:
    """A folder like SPARK_HOME: without the test jars, one of which looks like Spark itself."""
    home = f"{jars}-home"
    if not os.path.isdir(home):
        with cache.appearing(home) as filling:
            os.mkdir(os.path.join(filling, "jars"))
            for path in glob.glob(f"{glob.escape(jars)}/*.jar"):
                if not path.endswith("-tests.jar"):
                    os.symlink(path, os.path.join(filling, "jars", os.path.basename(path)))
    return home


def _unpacked(jars: str) -> str:
    """A folder with the classes that named their provider, naming ours, and checkpoints that suites read."""
    folder = f"{jars}-unpacked"
    if not os.path.isdir(folder):
        (path,) = glob.glob(f"{glob.escape(jars)}/spark-sql_*-tests.jar")
        with cache.appearing(folder) as filling, zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if name.startswith("structured-streaming/"):
                    jar.extract(name, os.path.join(filling, "resources"))
                elif name.endswith(".class") and any(part in name for part in _REMAPPED):
                    content = jar.read(name)
                    changed = with_our_provider(content)
                    if changed != content:
                        target = Path(filling, "classes", name)
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(changed)
    return folder


def with_our_provider(class_file: bytes) -> bytes:
    """The class file with the name of our provider wherever it had Spark's RocksDB provider."""
    if _THEIRS not in class_file and _THEIRS.replace(b"/", b".") not in class_file:
        return class_file
    source, out = io.BytesIO(class_file), io.BytesIO()
    out.write(source.read(8))
    (count,) = struct.unpack(">H", head := source.read(2))
    out.write(head)
    index = 1
    while index < count:
        tag = source.read(1)
        out.write(tag)
        if tag[0] == 1:  # a text: names, descriptors, signatures
            (length,) = struct.unpack(">H", source.read(2))
            text = _NAMES_THEIRS.sub(_OURS, source.read(length))
            text = _NAMES_THEIRS_DOTTED.sub(_OURS.replace(b"/", b"."), text)
            out.write(struct.pack(">H", len(text)) + text)
        else:
            out.write(source.read(_CONSTANT_BYTES[tag[0]]))
        index += 2 if tag[0] in (5, 6) else 1  # long and double take two places
    out.write(source.read())
    return out.getvalue()


_CONSTANT_BYTES = dict.fromkeys((7, 8, 16, 19, 20), 2) | {15: 3} | dict.fromkeys((5, 6), 8)
_CONSTANT_BYTES |= dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4)
"""How long each kind of constant is in a class file, beside texts (JVM specification, 4.4)."""


def _compile(sources: Mapping[str, str], class_path: Sequence[str], target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [
                *(tools.java("Spark", _LEAST_JAVA), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss8m"),
                *(
                    "-cp",
                    ":".join(class_path),
                    "scala.tools.nsc.Main",
                    "-usejavacp",
                    "-deprecation",
                    "-d",
                    target,
                ),
                *(str(Path(folder, name)) for name in sources),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise CkptError(f"the subclasses do not compile:\n{done.stdout}")


def _result(suite: Suite, reports: Path) -> Result:
    result = Result()
    path = reports / f"TEST-{_PACKAGE}.{suite.name}.xml"
    if not path.exists():
        result.failed["the suite itself"] = "it did not run to its end; see what it said above"
        return result
    root = ET.parse(path).getroot()
    result.seconds = float(root.get("time", "0"))
    for case in root.iter("testcase"):
        name = case.get("name", "")
        failure = case.find("failure")
        if failure is None:
            failure = case.find("error")
        if failure is not None:
            result.failed[name] = " ".join((failure.get("message") or failure.get("type") or "").split())
        elif case.find("skipped") is None:
            result.passed.append(name)
        elif (reason := _reason(suite, name)) is not None:
            result.excluded[name] = reason
        else:
            result.ignored.append(name)
    return result


def _reason(suite: Suite, test: str) -> str | None:
    return next((why for pattern, why in suite.excluded.items() if re.fullmatch(pattern, test)), None)


def _unknown_exclusions(suites: Sequence[Suite], results: Mapping[str, Result]) -> list[str]:
    """Patterns of a suite that fit none of its tests: what they left out is gone, or called otherwise."""
    own = tomllib.loads((_HERE / "suites.toml").read_text(encoding="utf-8"))
    return [
        f"{suite.name} has no test to leave out that is called: {pattern}"
        for suite in suites
        for pattern in own[suite.name].get("excluded", {})
        if not any(re.fullmatch(pattern, test) for test in results[suite.name].excluded)
    ]


def table(suites: Sequence[Suite], results: Mapping[str, Result]) -> str:
    """Suites, how many of their tests passed, failed and were left out, and why."""
    rows = [f"{'suite':<66} {'passed':>7} {'failed':>7} {'excluded':>9} {'ignored by Spark':>17} {'s':>6}"]
    counts = [0, 0, 0, 0]
    for suite in suites:
        result = results[suite.name]
        numbers = [len(part) for part in (result.passed, result.failed, result.excluded, result.ignored)]
        counts = [a + b for a, b in zip(counts, numbers, strict=True)]
        rows.append(_row(suite.name, numbers, result.seconds))
        reasons: dict[str, int] = {}
        for reason in result.excluded.values():
            reasons[reason] = reasons.get(reason, 0) + 1
        rows += [f"    excluded {number}: {reason}" for reason, number in reasons.items()]
    rows.append(_row("all", counts, sum(result.seconds for result in results.values())))
    return "\n".join(rows)


def _row(name: str, numbers: Sequence[int], seconds: float) -> str:
    passed, failed, excluded, ignored = numbers
    return f"{name:<66} {passed:>7} {failed:>7} {excluded:>9} {ignored:>17} {seconds:>6.0f}"


def _write_report(path: str, results: Mapping[str, Result]) -> None:
    content = {name: asdict(result) for name, result in results.items()}
    Path(path).write_text(json.dumps(content, indent=2), encoding="utf-8")


@contextlib.contextmanager
def _work_folder(keep: str | None) -> Iterator[Path]:
    if keep:
        shutil.rmtree(keep, ignore_errors=True)
        os.makedirs(keep)
        yield Path(keep).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="ckpt-suites-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _wanted(suite: Suite, names: Sequence[str]) -> bool:
    return not names or any(name in suite.name for name in names)


def _say(line: str) -> None:
    print(f"spark suites: {line}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", nargs="*", help="suites whose name contains this; all if none is given")
    parser.add_argument("--quick", action="store_true", help="only those that the gate runs")
    parser.add_argument("--test", help="only tests whose name contains this")
    parser.add_argument("--format", type=int, choices=(1, 2), default=1, help="Spark's checkpoint format (1)")
    parser.add_argument("--report", help="write what became of each test to this file, as JSON")
    parser.add_argument("--keep", help="work in this folder, which is emptied first, and leave it there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
