"""A toy instrument: a folder and one line give everything that an instrument has."""

import ast
import json
import re
from pathlib import Path

import pandas as pd
import pytest

TOY = Path(__file__).parent / "toy_instrument"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-an-instrument.md"
FILES = sorted(file for file in TOY.rglob("*") if file.suffix in (".py", ".yaml"))


@pytest.fixture(scope="module")
def cli(flowscope_with_toy):
    """Function that runs a command of flowscope."""
    return lambda *given: flowscope_with_toy("-m", "flowscope.cli", *given)


@pytest.fixture(scope="module")
def first(cli, tmp_path_factory):
    """A finished run of the command: where it was made, and its document."""
    out = tmp_path_factory.mktemp("toy")
    done = cli("toy", "--rounds", 2, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_the_toy_is_small():
    assert sum(len(file.read_text().splitlines()) for file in FILES) <= 150


def test_the_help_lists_the_command_and_its_settings(cli):
    assert "Throw a coin in several rounds" in cli("--help").stdout
    assert "Probability of heads" in cli("toy", "--help").stdout


def test_the_command_prints_a_document_and_writes_a_report(first):
    out, document = first
    assert document["measured"] == {"throws": 2000}
    assert [(v["name"], v["decision"]) for v in document["verdicts"]] == [("T1", "holds")]
    page = Path(document["report"]).read_text(encoding="utf-8")
    assert 'id="plot-rounds"' in page
    assert 'title="lower end of the 95 % interval of `share`"' in page
    assert Path(document["run"]).parent == out


def test_the_terminal_shows_the_verdict(cli, tmp_path):
    done = cli("toy", "--heads", 0.8, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"T1\s+FAILS: heads in 0\.\d+ ± 0\.\d+ of 4000 throws", done.stdout)


def test_a_run_that_decides_nothing_exits_with_three(cli, tmp_path):
    assert cli("toy", "--throws", 10, "--rounds", 1, "--out", tmp_path).returncode == 3


def test_a_longer_run_has_a_folder_of_its_own_and_borrows_the_shards_of_a_shorter_one(cli, first):
    out, document = first
    before = {file.name: file for file in (Path(document["run"]) / "shards").iterdir()}
    longer = json.loads(cli("toy", "--rounds", 3, "--out", out, "--json").stdout)
    assert longer["run"] != document["run"]
    after = {file.name: file for file in (Path(longer["run"]) / "shards").iterdir()}
    assert len(before) == 2
    assert len(after) == 3
    assert all(after[name].read_bytes() == file.read_bytes() for name, file in before.items())


def test_the_function_returns_tables_as_they_are_declared(flowscope_with_toy, tmp_path):
    code = f"""
import json, sys
import flowscope as fs
result = fs.toy(rounds=3, throws=50, out={str(tmp_path / "run")!r})
assert type(result) is fs.Toy
assert list(result.tables.rounds) == list(result.instrument.tables["rounds"].schema)
assert "Probability of heads" in fs.toy.__doc__
assert "torch" not in sys.modules
print(json.dumps([len(result.table), result.instrument.name]))
"""
    done = flowscope_with_toy("-c", code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [3, "toy"]


def test_judging_and_drawing_again_need_the_tables_alone(cli, tmp_path):
    run = Path(json.loads(cli("toy", "--out", tmp_path, "--json").stdout)["run"])
    verdicts = run / "verdicts.json"
    before = verdicts.read_bytes()
    for file in [run / "report.html", *run.glob("shards/*")]:
        file.unlink()
    done = cli("report", run, "--judge")
    assert done.returncode == 0, done.stderr
    assert verdicts.read_bytes() == before
    assert (run / "report.html").is_file()


def test_comparing_two_runs_names_the_table_and_its_key(cli, first):
    folder = first[1]["run"]
    done = cli("compare", folder, folder, "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert "compare tables/rounds.csv in both folders, where a row is named by round" in error


def test_the_study_is_reproduced_with_its_claims_and_what_chance_does(cli, tmp_path):
    done = cli("reproduce", "fair_coins", "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["measured"] == {"throws": 8000}
    assert [claim["agrees"] for claim in document["claims"]] == ["yes"]
    assert document["by_chance"]["expected"] == 0.05
    claims = pd.read_csv(Path(document["run"]) / "tables" / "fair_coins.csv")
    assert list(claims["item"]) == ["fair coin"]
    page = Path(document["report"]).read_text(encoding="utf-8")
    assert 'id="claims"' in page
    assert "at most 0.05 of these rows would disagree by chance" in page


def test_the_toy_keeps_the_laws_of_instruments():
    import tests.test_architecture as laws

    for file in FILES:
        if file.suffix == ".py":
            tree = ast.parse(file.read_text())
            assert laws.broken_arrows("instruments", tree) == []
            assert laws.broken_bans("instruments", tree) == []
            allowed = {"errors", "lab", "records", "report", "evidence", "instruments"}
            assert laws.heavy_imports(tree, allowed) == []


def test_the_page_of_the_documentation_shows_the_files_as_they_are():
    blocks = re.findall(r"`toy/([\w/.]+)`[^\n]*\n+```(?:python|yaml)\n(.*?)```",
                        PAGE.read_text(encoding="utf-8"), re.S)  # fmt: skip
    shown = dict(blocks)
    assert len(shown) == len(blocks)
    assert shown == {file.relative_to(TOY).as_posix(): file.read_text() for file in FILES}
