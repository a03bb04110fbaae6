"""Every code block in the README and the docs does what the page says; here it is run as a reader would.

Pages keep their stores under `/var/ckpt`; the harness puts a temporary folder in its place, in what is run
and, the other way round, in what is printed. Blocks of one page run in order:

- `python`: in one namespace per page; a block with `>>>` prompts is a doctest, whose output is compared.
- `console`: each `$ ` line is a command (`> ` continues it); what follows is its output, `...` stands for
  anything.
- `bash`: a script that must succeed.
- `toml`: must parse. `text` and `json` are for reading.
- `<!-- not run: reason -->` before a block: not run; the test counts these.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckpt.cli import main

ROOT = Path(__file__).parents[2]
PLACE = "/var/ckpt"
READ_ONLY = frozenset({"text", "json"})
_FENCE = re.compile(
    r"^(?P<marker><!-- not run: (?P<reason>\S.*?) -->\n+)?^```(?P<language>[a-z]*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_END = "--- end of command ---"


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    body: str
    not_run: str | None


def blocks_of(page: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [
        Block(
            page, text.count("\n", 0, match.start("body")), match["language"], match["body"], match["reason"]
        )
        for match in _FENCE.finditer(text)
    ]
    fences = len(re.findall(r"^```", text, re.MULTILINE))
    assert fences == 2 * len(found), f"{page}: a code block is not closed, or is indented"
    return found


def commands_of(body: str) -> Iterator[tuple[str, str]]:
    """The (command, expected output) pairs of a console block."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, *rest = part.splitlines()
        while rest and rest[0].startswith("> "):
            command += "\n" + rest.pop(0).removeprefix("> ")
        yield command, "\n".join(rest).strip("\n")


class Page:
    """Runs the blocks of one page in a fresh folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder / "ckpt")
        os.makedirs(self.place)
        self.module = types.ModuleType(f"page_{Path(name).stem}")

    def run(self, block: Block) -> None:
        """Run one block; raises AssertionError with the page and line where it does not do what it shows."""
        where = f"{block.page}:{block.line}"
        body = block.body.replace(PLACE, self.place)
        if block.language == "toml":
            tomllib.loads(body)
        elif block.language == "python" and ">>> " in body:
            self._doctest(block.body, where)
        elif block.language == "python":
            exec(compile(body, where, "exec"), self.module.__dict__)
        elif block.language == "console":
            self._console(block.body, where)
        elif block.language == "bash":
            done = self._bash(f"set -euo pipefail\n{body}")
            assert done.returncode == 0, f"{where}: {done.stdout}"
        else:
            assert block.language in READ_ONLY, f"{where}: what is a block of language {block.language!r}?"

    def _doctest(self, body: str, where: str) -> None:
        parser = doctest.DocTestParser()
        test = parser.get_doctest(body.replace(PLACE, self.place), self.module.__dict__, where, where, 0)
        failures: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append, clear_globs=False)
        self.module.__dict__.update(test.globs)
        assert not failures, "".join(failures)

    def _console(self, body: str, where: str) -> None:
        pairs = list(commands_of(body))
        assert pairs, f"{where}: a console block needs a line that starts with '$ '"
        script = "".join(
            f"{command}\n__code=$?; printf '\\n%s\\n' '{_END}'; (exit $__code)\n" for command, _ in pairs
        )
        printed = self._bash(script.replace(PLACE, self.place)).stdout.replace(self.place, PLACE)
        outputs = [text.strip("\n") for text in printed.split(_END)]
        checker = doctest.OutputChecker()
        for (command, expected), got in zip(pairs, outputs, strict=False):
            matches = checker.check_output(expected + "\n", got + "\n", doctest.ELLIPSIS)
            assert matches, f"{where}: $ {command}\nshown:\n{expected}\nprinted:\n{got}"

    def _bash(self, script: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]

NOT_RUN = {
    "README.md": 1,
    "CONTRIBUTING.md": 1,
    "docs/cassandra.md": 1,
    "docs/dev-servers.md": 2,
    "docs/spark.md": 12,  # tests/spark does what they show
    "docs/hbase.md": 1,
    "docs/planners.md": 1,
    "docs/redis.md": 2,
    "docs/s3.md": 1,
}
"""How many blocks of a page are marked as not run. A new one has to be argued for here."""


@pytest.mark.budget(45)
@pytest.mark.parametrize("name", PAGES)
def test_every_block_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(name, tmp_path)
    # Types that a page defines are found by name, as in any module.
    monkeypatch.setitem(sys.modules, page.module.__name__, page.module)
    for block in blocks_of(name):
        if block.not_run is None:
            page.run(block)


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_run_is_counted(name: str) -> None:
    skipped = [block.not_run for block in blocks_of(name) if block.not_run is not None]
    assert len(skipped) == NOT_RUN.get(name, 0), skipped


def test_every_command_has_an_executed_example() -> None:
    consoles = [b.body for b in blocks_of("docs/cli.md") if b.language == "console" and b.not_run is None]
    shown = {
        word
        for body in consoles
        for command, _ in commands_of(body)
        for word in re.findall(r"\bckpt ([a-z]+)", command)
    }
    assert sorted(main.commands.keys() - shown) == []


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", text)
    missing = [target for target in targets if not ((ROOT / name).parent / target).exists()]
    assert missing == []


class TestHarness:
    """A harness that passes everything would prove nothing."""

    def run(self, tmp_path: Path, language: str, body: str) -> None:
        Page("docs/made-up.md", tmp_path).run(Block("docs/made-up.md", 1, language, body, None))

    @pytest.mark.parametrize(
        ("language", "body"),
        [
            ("console", "$ echo one\ntwo\n"),
            ("console", "$ echo one\n$ false; echo $?\n0\n"),
            ("console", "no prompt\n"),
            ("bash", "false\n"),
            ("python", ">>> 1 + 1\n3\n"),
            ("python", "assert False\n"),
            ("", "nothing\n"),
        ],
    )
    def test_what_is_wrong_fails(self, tmp_path: Path, language: str, body: str) -> None:
        with pytest.raises(AssertionError):
            self.run(tmp_path, language, body)

    @pytest.mark.parametrize(
        ("language", "body"),
        [
            ("console", "$ echo one && \n> echo two\none\ntwo\n"),
            ("console", "$ echo /var/ckpt $RANDOM\n/var/ckpt ...\n$ (exit 3)\n$ echo $?\n3\n"),
            ("python", "import os\nassert os.listdir('/var/ckpt') == []\n"),
            ("toml", "[a]\nb = 1\n"),
        ],
    )
    def test_what_is_right_passes(self, tmp_path: Path, language: str, body: str) -> None:
        self.run(tmp_path, language, body)
