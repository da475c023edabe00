"""What holds for every instrument: its document, its folder, resuming, its page, comparison."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.instruments.tiny import SMALL, command

import flowscope
from flowscope.errors import RecordError
from flowscope.lab import engine
from flowscope.lab.registry import instrument, instrument_names
from flowscope.lab.result import open_run
from flowscope.records import Run
from flowscope.records.storage.documents import SCHEMA, sealed
from flowscope.records.verdict_text import outcome_text

NAMES = instrument_names()
GOLDEN = Path(__file__).parents[1] / "golden" / "folders"
BASE = {"model", "measured", "verdicts", "tables", "run", "report"}
PAIRS = list(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))
REPLACED = {("audit", "rotation"), ("image", "rotation")}
NAMELESS_ROWS = {("audit", "budget")}  # one row a token, and the token is not in the table

every_instrument = pytest.mark.parametrize("name", NAMES)


def _words(text):
    return " ".join(text.split())


def _declared(name):
    """Tables of an instrument and of its studies."""
    one = instrument(name)
    studies = [one.study(reference) for reference in one.studies]
    return {**one.tables, **{n: t for study in studies for n, t in study.tables.items()}}


def _tables_of_other_studies(name, run):
    """Tables of studies that a run is not of: it has none of them."""
    one = instrument(name)
    studies = [one.study(reference) for reference in one.studies]
    others = [study for study in studies if study.name not in run.tables()]
    return {table for study in others for table in study.tables}


def _without_tables(folder, *names):
    for name in names:
        for file in (folder / "tables").glob(f"{name}.*"):
            file.unlink()


@pytest.fixture
def shards_written(monkeypatch):
    """Names of the shards that are written, in order."""
    names = []
    write = Run.write_shard

    def writing(run, key, arrays, meta):
        names.append(key.file)
        return write(run, key, arrays, meta)

    monkeypatch.setattr(Run, "write_shard", writing)
    return names


def test_every_instrument_has_a_small_run():
    assert set(SMALL) == set(NAMES)


@every_instrument
def test_the_document_is_alone_on_standard_output(name, tiny_run):
    run = tiny_run(name)
    document = run.document
    assert set(document) >= BASE
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert Path(document["run"]).name.startswith(f"{name}-")
    assert Path(document["report"]).is_file()
    assert set(document["tables"]) == set(run.result.tables)
    assert all(Path(table).is_file() for table in document["tables"].values())
    result = run.result
    assert document["model"] == result.model
    assert json.loads(json.dumps(result.to_json())) == document
    assert not run.folder.joinpath("figures").exists()


@every_instrument
def test_verdicts_are_those_on_the_declared_claims(name, tiny_run):
    run, claims = tiny_run(name), {claim.name: claim for claim in instrument(name).claims}
    document = run.document["verdicts"]
    assert [verdict["name"] for verdict in document] == sorted(claims)
    for verdict in document:
        assert set(verdict) == {
            "name", "title", "gate", "gate_words", "decision", "outcome", "strength", "statistic",
            "interval", "null", "effect", "effect_interval", "p", "because", "claim", "n",
        }  # fmt: skip
        assert verdict["decision"] in ("holds", "fails", "abstains")
        silent = verdict["outcome"] == "uninformative"
        assert verdict["decision"] == ("abstains" if silent else verdict["outcome"])
        assert verdict["because"]
        assert verdict["claim"] == claims[verdict["name"]].says
        if verdict["interval"] is not None:
            low, high = verdict["interval"]
            assert low <= high
    for verdict in run.result.verdicts:
        assert verdict.name in str(run.result)
        shown = outcome_text(verdict.outcome, instrument(name).gates.get(verdict.name))
        assert shown.upper() in str(run.result)
    assert "<table" in run.result._repr_html_()


@every_instrument
def test_a_finished_command_prints_eighty_columns_and_makes_no_shard_again(
    name, tiny_run, tmp_path, shards_written
):
    run = tiny_run(name)
    shards_written.clear()  # where this test is the first that asks for the run
    folder = shutil.copytree(run.folder, tmp_path / run.folder.name)
    printed = command(name, *run.options, "--out", tmp_path)
    assert printed.exit_code == run.outcome.exit_code
    lines = [line for line in printed.stdout.splitlines() if not line.startswith("report:")]
    assert max(cell_len(line) for line in lines) <= 80
    for claim in instrument(name).claims:
        assert claim.name in _words(printed.stdout)
    assert shards_written == []
    assert _contents(folder, "tables") == _contents(run.folder, "tables")


def _assert_keys_name_a_row(table, keys, frame):
    assert set(keys) <= set(frame), table
    assert not keys or not frame.duplicated(list(keys)).any(), table


@every_instrument
def test_tables_have_their_declared_columns_and_keys_name_a_row(name, tiny_run):
    run, declared = tiny_run(name).result.run, _declared(name)
    assert set(run.tables()) <= set(declared)
    for table in run.tables():
        frame, schema = run.read_table(table), declared[table].schema
        _assert_keys_name_a_row(table, declared[table].keys, frame)
        expected = [c for c in schema if c in frame or not schema[c].optional]
        assert list(frame) == expected, table


@every_instrument
def test_columns_and_tables_of_an_earlier_version_are_still_declared(name):
    """A version may add columns, and tables that a run may lack; it takes none away.

    A table of `REPLACED` holds other numbers than before, because its verdict was replaced.
    """
    run, declared = Run.open(GOLDEN / name), _declared(name)
    assert set(run.tables()) <= set(declared)
    lacking = set(declared) - set(run.tables()) - _tables_of_other_studies(name, run)
    assert all(declared[table].optional for table in lacking)
    for table in run.tables():
        frame = run.read_table(table)
        _assert_keys_name_a_row(table, declared[table].keys, frame)
        if (name, table) not in REPLACED:
            assert [c for c in declared[table].schema if c in frame] == list(frame), table


@every_instrument
def test_every_table_declares_keys_and_columns_and_one_stage_writes_it(name):
    one = instrument(name)
    stages = [table for stage in one.stages for table in stage.tables]
    studies = [table for reference in one.studies for table in one.study(reference).tables]
    assert len({*stages, *studies}) == len(stages) + len(studies)
    assert one.main_table in one.tables
    assert not one.tables[one.main_table].optional
    for table, declared in _declared(name).items():
        assert declared.columns, table
        assert declared.keys or (name, table) in NAMELESS_ROWS, table
        for column in declared.schema.values():
            assert column.meaning, (table, column.name)
            assert not column.meaning.endswith("."), (table, column.name)


@every_instrument
def test_a_run_exits_with_three_if_and_only_if_it_decides_nothing(name, tiny_run, monkeypatch):
    run = tiny_run(name)
    assert run.outcome.exit_code == (3 if run.result.abstained else 0)
    kind = type(run.result)
    monkeypatch.setattr(engine, "run", lambda *given, **more: run.result)
    monkeypatch.setattr(kind, "report", lambda result: result.run.folder / "report.html")
    for abstained, code in ((True, 3), (False, 0)):
        monkeypatch.setattr(kind, "abstained", abstained)
        assert command(name, "--json").exit_code == code


def _contents(folder, part):
    """Files of a part of a run folder; an instrument without arrays has no such part."""
    return {file.name: file.read_bytes() for file in folder.glob(f"{part}/*")}


@every_instrument
def test_interrupted_run_resumes_with_equal_tables(name, tiny_run, tmp_path, monkeypatch):
    whole = tiny_run(name)
    shards = set(_contents(whole.folder, "shards"))
    write, written, allowed = Run.write_shard, [], [0]

    def writing(run, key, arrays, meta):
        if len(written) == allowed[0]:
            raise KeyboardInterrupt
        written.append(key.file)
        return write(run, key, arrays, meta)

    monkeypatch.setattr(Run, "write_shard", writing)
    given = [name, *whole.options, "--out", tmp_path, "--json"]
    for allowed[0] in sorted({1, len(shards) // 2, len(shards) - 1}):
        interrupted = command(*given)
        assert interrupted.exit_code == 130
        sentence = "Interrupted. Finished work is saved; run the same command to resume."
        assert _words(interrupted.stderr).endswith(sentence)
        (folder,) = tmp_path.iterdir()
        assert set(_contents(folder, "shards")) == set(written)
        assert not folder.joinpath("verdicts.json").exists()
    allowed[0] = len(shards)
    resumed = command(*given)
    assert resumed.exit_code == whole.outcome.exit_code, resumed.stderr
    assert sorted(written) == sorted(shards), "each shard is made once"
    assert folder.name == whole.folder.name
    document = json.loads(resumed.stdout)
    for part in ("model", "measured", "verdicts"):
        assert document[part] == whole.document[part]
    for part in ("tables", "arrays"):
        assert _contents(folder, part) == _contents(whole.folder, part)


@every_instrument
def test_verdicts_made_again_from_the_folder_alone_are_equal(name, copied, tiny_run):
    result = copied(name)
    shutil.rmtree(result.run.folder / "shards")
    engine.rejudge(result)
    assert result.to_json()["verdicts"] == tiny_run(name).document["verdicts"]


def test_reports_are_written_again_from_the_folders_alone_and_without_torch(copied, tiny_run):
    """All of them in one process, because starting one takes most of the time."""
    folders = [copied(name).run.folder for name in NAMES]
    for folder in folders:
        shutil.rmtree(folder / "shards")
        (folder / "report.html").unlink()
    code = f"""
import sys
from flowscope.cli import app
for folder in {[str(folder) for folder in folders]}:
    app(["report", folder, "--png"], standalone_mode=False)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, folder in zip(NAMES, folders, strict=True):
        whole = tiny_run(name).folder
        assert str(folder / "report.html") in done.stdout
        assert (folder / "report.html").read_bytes() == (whole / "report.html").read_bytes()
        drawn = {file.name for file in (folder / "figures").iterdir()}
        assert drawn
        assert drawn <= {f"{picture}.png" for picture in _page_of(name).figures}
    assert max((folder / "report.html").stat().st_size for folder in folders) < 10e6


def _page_of(name):
    one = instrument(name)
    return one.resolve(one.page)


@every_instrument
def test_the_report_is_written_into_a_copy(name, tiny_run, tmp_path):
    run = tiny_run(name)
    before = {file: file.stat().st_mtime_ns for file in run.folder.rglob("*")}
    page = run.result.report(tmp_path / "copy")
    assert page == tmp_path / "copy" / "report.html"
    assert page.read_bytes() == (run.folder / "report.html").read_bytes()
    assert {file: file.stat().st_mtime_ns for file in run.folder.rglob("*")} == before
    with pytest.raises(RecordError, match="is not empty"):
        run.result.report(tmp_path / "copy")


@every_instrument
def test_a_page_without_a_table_says_which_and_for_what(name, copied):
    result, one = copied(name), instrument(name)
    for removed in ([one.main_table], list(result.tables)):
        _without_tables(result.run.folder, *removed)
        page = re.sub(r"</?abbr[^>]*>", "", result.report().read_text(encoding="utf-8"))
        for table in removed:
            if not one.tables[table].optional:
                purpose = one.tables[table].purpose
                assert f"table {table}" in page
                assert f"not in this run; it would contain {purpose}" in page
        for claim in one.claims:
            assert claim.name in page


@every_instrument
def test_two_runs_are_compared_or_a_table_of_both_is_named(name, tiny_run):
    folder, one = tiny_run(name).folder, instrument(name)
    compared = command("compare", folder, folder, "--json")
    document = json.loads(compared.stdout)
    if one.compare:
        assert compared.exit_code == 0
        assert document["table"]
        assert document["changes"] == []
        assert [row["first"] for row in document["verdicts"]] == [
            verdict.outcome for verdict in tiny_run(name).result.verdicts
        ]
        printed = _words(command("compare", folder, folder).stdout)
        assert "No change is reported, because at least 8 prompts are needed" in printed
    else:
        assert compared.exit_code == 1
        (table,) = re.findall(r"tables/(\w+)\.csv", document["error"])
        assert table == one.main_table
        assert (folder / "tables" / f"{table}.csv").is_file()


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_runs_of_two_instruments_are_not_compared(first, second, tiny_run):
    compared = command("compare", tiny_run(first).folder, tiny_run(second).folder, "--json")
    assert compared.exit_code == 1
    sentence = json.loads(compared.stdout)["error"]
    assert f"is a run of {first}," in sentence
    assert f"of {second}: only runs of the same instrument can be compared" in sentence


@every_instrument
def test_an_opened_folder_gives_its_class_and_completes_its_tables(name, tiny_run):
    result = open_run(tiny_run(name).folder)
    assert type(result) is getattr(flowscope, name.capitalize())
    assert result.instrument is instrument(name)
    tables = result.tables
    assert set(tables) <= set(dir(tables))
    for table in tables:
        frame = result.run.read_table(table)
        assert result[table].equals(frame)
        assert getattr(tables, table).equals(frame)
    assert result.table.equals(result[instrument(name).main_table])
    with pytest.raises(
        KeyError, match=f"no table 'nothing'; it has .*{result.instrument.main_table}"
    ):
        result["nothing"]
    with pytest.raises(AttributeError, match="no table 'nothing'"):
        tables.nothing  # noqa: B018 - the access is the test


@every_instrument
def test_a_run_of_version_one_without_a_command_is_known_by_its_tables(name, copied):
    result = copied(name)
    resolved = {k: v for k, v in result.settings.items() if k != "command"}
    result.run.update_manifest(config_resolved=resolved)
    assert open_run(result.run.folder).instrument is instrument(name)


@pytest.mark.parametrize("verb", ["report", "compare"])
def test_a_run_of_an_instrument_that_is_not_installed_gets_a_sentence(verb, copied):
    result = copied(NAMES[0])
    result.run.update_manifest(config_resolved={**result.settings, "command": "sonar"})
    folder = result.run.folder
    refused = command(verb, *([folder, folder] if verb == "compare" else [folder]))
    assert refused.exit_code == 1
    sentence = _words(refused.stderr)
    assert "was made by the instrument 'sonar', which this version of flowscope" in sentence
    assert f"it has {', '.join(NAMES)}" in sentence


def test_a_run_of_a_newer_schema_gets_a_sentence_that_says_what_to_do(copied):
    folder = copied(NAMES[0]).run.folder
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    parts = {k: v for k, v in manifest.items() if k not in ("schema", "kind", "sha256")}
    (folder / "manifest.json").write_text(sealed("manifest", parts, SCHEMA + 1), encoding="utf-8")
    refused = command("report", folder)
    assert refused.exit_code == 1
    assert _words(refused.stderr).endswith("upgrade flowscope.")
    with pytest.raises(RecordError, match=f"made by schema {SCHEMA + 1}"):
        open_run(folder)
