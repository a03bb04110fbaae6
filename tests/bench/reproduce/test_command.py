"""`ckpt bench reproduce`: every experiment runs, is judged and drawn; what cannot run is said, not hidden."""

from __future__ import annotations

import contextlib
import os
import re
import signal

import pytest

from ckpt.dev import MissingToolError
from ckpt.errors import BackendUnavailableError
from ckpt_bench.reproduce import command
from ckpt_bench.reproduce.claims import at_least
from ckpt_bench.reproduce.experiments import Experiment, Paper, Shown
from ckpt_bench.reproduce.s4 import data_stores
from ckpt_bench.reproduce.spread import spread

ON_FILES = ["fig-4.1", "fig-4.2", "fig-4.5", "fig-4.7", "fig-5.1", "table-5.1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def on_files(reproduce, place):
    """All experiments that need no server, at their smallest."""
    os.mkdir(place / "stores")
    return reproduce(
        "s4", *ON_FILES, "--quick", "--json", "--folder", place / "stores", "--html", place / "page.html"
    )


def test_every_experiment_has_figures_and_verdicts(on_files):
    assert [each["name"] for each in on_files.document["experiments"]] == ON_FILES
    for each in on_files.document["experiments"]:
        assert each["error"] is None
        assert each["figures"]
        assert each["claims"]
        for claim in each["claims"]:
            assert claim["says"]
            assert claim["asserts"]
            assert claim["ours"]
            assert claim["holds"] or claim["why"]


def test_a_verdict_follows_from_the_figure_beside_it(on_files):
    checked = 0
    for each in on_files.document["experiments"]:
        for claim in each["claims"]:
            if found := re.search(r" ([≥≤]) ([\d.]+)$", claim["asserts"]):
                if claim["asserts"].count("≤") + claim["asserts"].count("≥") > 1:
                    continue
                ours, bar = float(claim["ours"]), float(found[2])
                if abs(ours - bar) > 0.01 * bar:
                    assert claim["holds"] is (ours > bar if found[1] == "≥" else ours < bar), claim
                    checked += 1
    assert checked > 10


def test_the_page_has_a_chart_for_each(on_files, place):
    page = (place / "page.html").read_text()
    for each in on_files.document["experiments"]:
        section = page.partition(f"<h2>{each['name']}: {each['title']}</h2>")[2].partition("</section>")[0]
        assert "<svg" in section
        verdicts = page.partition(f"<h2>{each['name']}: verdicts</h2>")[2].partition("</section>")[0]
        assert verdicts.count("<tr>") == 1 + len(each["claims"])


def test_nothing_is_left_behind(on_files, place):
    assert os.listdir(place / "stores") == []


def test_progress_goes_to_stderr(on_files):
    assert on_files.err.split() == [word for name in ON_FILES for word in (name, "runs")]


def test_one_experiment_as_text(reproduce):
    done = reproduce("s4", "table-5.1", "--quick")
    assert done.out.startswith("table-5.1: Sequential and random writes into one file\n  thesis: ")
    assert "local disk, seq fsync" in done.out
    assert "1,579" in done.out  # the thesis' figure stands beside ours
    assert "not checked:" in done.out
    assert "no folder on NFS was given (--nfs)" in done.out
    assert re.search(r"\d of 4 claims hold, 1 not checked \(quick; ", done.out)


def test_a_folder_that_stands_for_nfs(reproduce, tmp_path):
    done = reproduce("s4", "table-5.1", "fig-4.1", "--quick", "--json", "--nfs", tmp_path)
    assert done.experiment("fig-4.1")["figures"]["medium"] == "NFS"
    assert sorted(done.experiment("table-5.1")["figures"]["seconds"]) == ["NFS", "local disk"]
    assert None not in [claim["holds"] for claim in done.experiment("table-5.1")["claims"]]
    assert os.listdir(tmp_path) == []


def test_an_unknown_experiment_is_named(reproduce):
    done = reproduce("s4", "fig-4.8", code=2)
    assert "s4 has no experiment 'fig-4.8'; did you mean 'fig-4.7'" in done.err


def test_a_server_that_is_not_installed_is_left_out_with_the_reason(reproduce, dev_server, monkeypatch):
    dev_server("redis")

    def missing(_):
        raise MissingToolError("HBase needs Java 17", None)

    monkeypatch.setitem(data_stores._SERVERS, data_stores.HBASE, missing)
    done = reproduce("s4", "fig-4.6", "--quick", "--json")
    found = done.experiment("fig-4.6")
    assert list(found["figures"]["servers"]) == ["Redis"]
    assert "HBase is left out: HBase needs Java 17" in found["notes"]
    unchecked = [claim for claim in found["claims"] if claim["holds"] is None]
    assert len(unchecked) == 2
    assert all("HBase needs Java 17" in claim["why"] for claim in unchecked)


def test_without_any_server_that_experiment_could_not_run(reproduce, monkeypatch):
    def missing(_):
        raise MissingToolError("it is missing", None)

    for name in data_stores._SERVERS:
        monkeypatch.setitem(data_stores._SERVERS, name, missing)
    done = reproduce("s4", "fig-4.6", "table-5.1", "--quick", code=2)
    assert "could not run: Redis: it is missing; HBase: it is missing" in done.out
    assert "table-5.1: Sequential" in done.out
    assert "; could not run: fig-4.6 (" in done.out


def test_on_real_servers(reproduce, dev_server):
    dev_server("redis")
    dev_server("hbase")
    done = reproduce("s4", "fig-4.6", "table-5.2", "--quick", "--json")
    assert sorted(done.experiment("fig-4.6")["figures"]["servers"]) == ["HBase", "Redis"]
    claims = done.experiment("table-5.2")["claims"]
    assert len(claims) == 16
    unchecked = {claim["says"] for claim in claims if claim["verdict"] == "not checked"}
    never = {f"{name}: costly recovery: no" for name in ("Default FS", "Redis", "HBase")}
    # A busy machine may also keep a store from keeping up.
    assert never <= unchecked
    assert all("favors writes" in says for says in unchecked - never)


class TestOtherPapers:
    """The command knows papers only by their experiments."""

    @pytest.fixture
    def paper(self, monkeypatch):
        def put(*runs):
            experiments = [
                Experiment(f"fig-{n}", "Title", "It said.", "It is.", each, self.check, self.show)
                for n, each in enumerate(runs)
            ]
            monkeypatch.setattr(command, "PAPERS", {"s4": Paper("s4", "a paper", experiments)})

        return put

    @staticmethod
    def check(found):
        rounds = found if isinstance(found, list) else [found]
        return [at_least("as it was", "x", spread(rounds), 1, "it is another machine")]

    @staticmethod
    def show(found):
        return Shown("<svg></svg>", ["x"], [[str(found)]])

    @staticmethod
    def fail(_):
        raise BackendUnavailableError("the disk is away")

    @staticmethod
    def interrupt(_):
        raise KeyboardInterrupt

    @staticmethod
    def press(_):
        signal.raise_signal(signal.SIGINT)

    def test_a_claim_that_does_not_hold_is_a_result(self, paper, reproduce):
        paper(lambda _: 2, lambda _: 0)
        done = reproduce("s4")
        assert "  holds:         as it was. Checked: x ≥ 1; here 2.\n" in done.out
        assert "  does not hold: as it was. Checked: x ≥ 1; here 0.\n" in done.out
        assert "Likely reason: it is another machine." in done.out
        assert "1 of 2 claims hold (small; " in done.out

    def test_quartiles_on_both_sides_are_unsettled(self, paper, reproduce, tmp_path):
        paper(lambda _: [0.0, 0.8, 1.2, 3.0, 4.0], lambda _: 2)
        done = reproduce("s4", "--html", tmp_path / "page.html")
        assert "  unsettled:     as it was. Checked: x ≥ 1; here 1.2 [0.8 3].\n" in done.out
        assert "The quartiles lie on both sides of that" in done.out
        assert "1 of 2 claims hold, 1 unsettled (small; " in done.out
        html = (tmp_path / "page.html").read_text()
        assert ">unsettled</td>" in html
        assert ">1.2 [0.8 3]</td>" in html
        claim = reproduce("s4", "--json").experiment("fig-0")["claims"][0]
        assert (claim["verdict"], claim["holds"]) == ("unsettled", None)
        assert claim["spread"] == {"median": 1.2, "q1": 0.8, "q3": 3.0, "rounds": 5}

    def test_a_page_that_cannot_be_written_is_told_before_anything_runs(self, paper, reproduce, tmp_path):
        ran = []
        paper(ran.append)
        done = reproduce("s4", "--html", tmp_path / "missing" / "page.html", code=2)
        assert done.err.count("\n") == 1
        assert f"cannot write {tmp_path}/missing/page.html: there is no folder" in done.err
        assert ran == []

    def test_one_that_cannot_run_does_not_stop_the_others(self, paper, reproduce, tmp_path):
        paper(self.fail, lambda _: 2)
        done = reproduce("s4", "--html", tmp_path / "page.html", code=3)
        assert "could not run: the disk is away" in done.out
        assert "1 of 1 claims hold; could not run: fig-0" in done.out
        assert "the disk is away" in (tmp_path / "page.html").read_text()

    def test_ctrl_c_ends_with_what_is_there(self, paper, reproduce):
        paper(lambda _: 2, self.interrupt, self.fail)
        done = reproduce("s4", "--json", code=130)
        assert [each["name"] for each in done.document["experiments"]] == ["fig-0"]
        assert done.document["missing"] == ["fig-1", "fig-2"]

    @pytest.fixture
    def hears_ctrl_c(self):
        # Whoever starts the tests in the background may have it ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @pytest.mark.usefixtures("hears_ctrl_c")
    def test_another_ctrl_c_while_folders_are_removed_costs_no_results(
        self, paper, reproduce, monkeypatch, tmp_path
    ):
        @contextlib.contextmanager
        def folder(_):
            yield str(tmp_path)
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(command, "_new_folder", folder)
        paper(lambda _: 2, self.press, self.fail)
        done = reproduce("s4", "--json", code=130)
        assert [each["name"] for each in done.document["experiments"]] == ["fig-0"]
        assert done.document["missing"] == ["fig-1", "fig-2"]

    def test_and_says_what_is_missing(self, paper, reproduce, tmp_path):
        paper(lambda _: 2, self.interrupt, self.fail)
        done = reproduce("s4", "--html", tmp_path / "page.html", code=130)
        assert "1 of 1 claims hold; interrupted, missing: fig-1, fig-2 (small; " in done.out
        html = (tmp_path / "page.html").read_text()
        assert "<h2>Interrupted</h2><p>Interrupted, missing: fig-1, fig-2." in html
        assert reproduce("s4", "fig-0", "--json").document["missing"] == []

    def test_what_two_experiments_need_is_measured_once(self, paper, reproduce):
        measured = []
        run = lambda lab: lab.once("it", lambda: measured.append(lab) or 5)  # noqa: E731
        paper(run, run)
        assert "2 of 2 claims hold" in reproduce("s4").out
        assert len(measured) == 1
