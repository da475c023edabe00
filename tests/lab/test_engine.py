"""The engine on a toy instrument: abstention, needs, shards, what decides a folder."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.lab import toy
from tests.lab.toy import MADE, TOY, ToyConfig

from flowscope.errors import RecordWarning
from flowscope.lab import engine
from flowscope.lab.bench import Bench, seeded_generator
from flowscope.lab.instrument import resolved_reference


@pytest.fixture(autouse=True)
def _nothing_made():
    MADE.clear()


def run(folder=None, instrument=TOY, given=None, **settings):
    return engine.run(instrument, ToyConfig.resolved(settings), given=given, folder=folder)


def verdicts(result):
    return {verdict.name: (verdict.decision, verdict.because) for verdict in result.verdicts}


def test_stages_run_in_order_and_verdicts_are_sorted(tmp_path):
    result = run(tmp_path / "run")
    assert [verdict.name for verdict in result.verdicts] == ["T1", "T2", "T3"]
    assert verdicts(result)["T1"] == ("holds", "the last change is 0.1")
    assert set(result.tables) == {"fall", "follow"}


def test_stage_that_abstains_gives_its_reason_to_claims_and_measurements(tmp_path):
    result = run(tmp_path / "run")
    assert verdicts(result)["T3"] == ("abstains", "no verdict, because there is nothing to read")
    notes = {m.name: m.because for m in result.run.read_measurements()}
    assert notes == {"never": "there is nothing to read"}


def test_stage_abstains_when_a_claim_it_needs_does_not_hold(tmp_path):
    result = run(tmp_path / "run", last=0.5)
    assert verdicts(result)["T1"][0] == "fails"
    decision, because = verdicts(result)["T2"]
    assert decision == "abstains"
    assert because.startswith("no verdict, because T1 does not hold: the last change is 0.5")
    assert "follow" not in result.tables


def test_judge_that_abstains_keeps_the_tables_and_leaves_no_note(tmp_path):
    result = run(tmp_path / "run", silent=True)
    assert verdicts(result)["T1"] == ("abstains", "no verdict, because asked to be silent")
    assert "fall" in result.tables
    assert "fall" not in {m.name for m in result.run.read_measurements()}


def test_judge_must_decide_the_declared_claims(tmp_path):
    wrong = replace(TOY, stages=(replace(toy.FALL, judge="judge_wrongly", claims=(toy.AFTER,)),))
    with pytest.raises(RuntimeError, match=r"declares the claims \['T2'\] and judged \['T1'\]"):
        run(tmp_path / "run", wrong)


def test_shard_is_reused_until_a_setting_that_decides_it_changes(tmp_path):
    out = str(tmp_path)
    first = run(out=out)
    second = run(out=out, resamples=99)
    assert first.run.folder != second.run.folder
    assert first.run.shards()[0].file == second.run.shards()[0].file
    assert MADE == ["change"]
    run(out=out, steps=9)
    assert MADE == ["change"] * 2
    run(out=out, given={"start": 2.0})
    assert MADE == ["change"] * 3


def test_a_folder_that_the_caller_names_borrows_nothing(tmp_path):
    run(tmp_path / "toy-a")
    run(tmp_path / "toy-b", resamples=99)
    assert MADE == ["change"] * 2


def test_a_damaged_shard_is_not_borrowed(tmp_path):
    out = str(tmp_path)
    (shard,) = (run(out=out).run.folder / "shards").iterdir()
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.warns(RecordWarning, match="is damaged"):
        run(out=out, resamples=99)
    assert MADE == ["change"] * 2


def test_damaged_shard_is_made_again(tmp_path):
    folder = tmp_path / "run"
    first = run(folder).tables["fall"]
    (shard,) = (folder / "shards").glob("change--*.safetensors")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.warns(RecordWarning, match=r"change--.*is damaged\. It is measured again"):
        assert run(folder).tables["fall"].equals(first)
    assert MADE == ["change"] * 2


def test_default_folder_depends_on_everything_that_decides_the_numbers(tmp_path):
    out = str(tmp_path)
    folder = run(out=out).run.folder
    assert folder.parent == tmp_path
    assert folder.name.startswith("toy-a-toy-")
    assert run(out=out).run.folder == folder
    for changed in ({"resamples": 99}, {"last": 0.15}, {"seed": 7}, {"given": {"start": 2.0}}):
        assert run(out=out, **changed).run.folder != folder


def test_tables_of_a_longer_run_are_removed(tmp_path):
    folder = tmp_path / "run"
    assert "follow" in run(folder).tables
    shorter = replace(TOY, stages=TOY.stages[:1])
    assert "follow" not in run(folder, shorter).tables


def test_manifest_names_the_instrument(tmp_path):
    settings = run(tmp_path / "run").settings
    assert settings["command"] == "toy"
    assert settings["measured"] == {"steps": 8, "values_measured": 8}


def test_progress_is_optional_and_told_by_counters(tmp_path):
    calls = []
    config, subject = toy.prepare(ToyConfig(), {})
    bench = Bench(
        TOY, config, subject, folder=tmp_path / "run", progress=lambda *c: calls.append(c)
    )
    counter = bench.counter("part", 3)
    counter.advance(2)
    counter.advance(2)
    counter.finish()
    assert calls == [("part", 2, 3), ("part", 3, 3), ("part", 3, 3)]


def test_generator_depends_on_seed_and_key_alone(tmp_path):
    config, subject = toy.prepare(ToyConfig(seed=3), {})
    bench = Bench(TOY, config, subject, folder=tmp_path / "run")
    state = np.random.SeedSequence([3, 1, 4]).generate_state(1, np.uint64)[0] >> np.uint64(1)
    expected = torch.rand(4, generator=torch.Generator().manual_seed(int(state)))
    torch.testing.assert_close(torch.rand(4, generator=bench.generator(1, 4)), expected)
    other = torch.rand(4, generator=seeded_generator(3, 1, 5))
    assert not torch.equal(other, expected)


def test_reference_to_nothing_names_the_module_and_the_name():
    with pytest.raises(ImportError, match=r"tests\.lab\.toy has no 'nothing'"):
        resolved_reference("tests.lab", "toy.nothing")
    with pytest.raises(ModuleNotFoundError):
        resolved_reference("tests.lab", "absent.name")


def heard(bench):
    return {"own": object()}


def heard_too(bench):
    return {"own": object(), "more": object()}


def test_probes_of_all_stages_come_with_the_shards_of_their_stage(tmp_path):
    first = replace(TOY.stages[0], home=__name__, probes="heard")
    second = replace(TOY.stages[2], home=__name__, probes="heard_too", settings=("last",))
    instrument = replace(TOY, stages=(first, TOY.stages[1], second))
    config = ToyConfig.resolved({})
    _, subject = toy.prepare(config, {})
    bench = Bench(instrument, config, subject, folder=tmp_path / "run")
    probes, shards = bench.probes()
    assert list(probes) == list(shards) == ["own", "more"]
    bench.begin(first)
    assert shards["own"] == bench.shards
    bench.begin(second)
    assert shards["more"] == bench.shards
    assert shards["own"] != shards["more"]
    bench.stages = instrument.stages[1:]
    assert bench.probes()[1] == {"own": bench.shards, "more": bench.shards}


def test_passes_are_listed_in_the_manifest(tmp_path):
    config = ToyConfig.resolved({})
    _, subject = toy.prepare(config, {})
    bench = Bench(TOY, config, subject, folder=tmp_path / "run")
    bench.list_pass("all", 8)
    bench.list_pass("control", 2)
    resolved = bench.close().read_manifest().config_resolved
    assert resolved["passes"] == {"all": 8, "control": 2}
    assert resolved["steps"] == 8
