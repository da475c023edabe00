"""Findings of every instrument: the numbers of its tables, in sentences that can be acted on."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.instruments.audit.synthetic import write_run
from tests.instruments.heads.synthetic_geometry import write_geometry
from tests.instruments.image.synthetic_image import write_images
from tests.instruments.sync.synthetic_replica import write_replicas
from tests.instruments.tiny import shown

from flowscope.instruments.audit.findings import split_half
from flowscope.instruments.image.findings import could_have_seen
from flowscope.lab.finding import findings_of
from flowscope.lab.registry import instrument
from flowscope.records import Run
from flowscope.report import report_html
from flowscope.report.numerals import bounds, numeral, percent

WRITERS = {
    "audit": write_run,
    "heads": write_geometry,
    "sync": write_replicas,
    "image": write_images,
}
KEYS = {"text", "value", "interval", "table", "figure", "next"}
every = pytest.mark.parametrize("name", list(WRITERS))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One hostile synthetic run of each instrument."""
    home = tmp_path_factory.mktemp("findings")
    return {name: write(home / name).folder for name, write in WRITERS.items()}


@pytest.fixture
def copy(folders, tmp_path):
    """Copy of a synthetic run, which a test may change."""

    def copied(name):
        return Run.open(shutil.copytree(folders[name], tmp_path / name))

    return copied


def _said(name, run, table):
    return next(f for f in findings_of(instrument(name), run) if f.table == table)


def _change(run, table, column, change):
    frame = run.read_table(table)
    frame[column] = change(frame)
    run.write_table(table, frame)


@every
def test_sentences_end_name_what_exists_and_say_what_to_do(name, folders):
    run, one = Run.open(folders[name]), instrument(name)
    findings = findings_of(one, run)
    figures = one.resolve(one.page).figures
    assert 3 <= len(findings) <= 6
    for finding in findings:
        assert finding.text.endswith(".")
        assert finding.next.endswith(".")
        assert finding.next[0].isupper()
        assert finding.table in run.tables()
        assert finding.figure in (*figures, "")
        assert "nan" not in finding.text
        if finding.interval is not None:
            assert finding.interval[0] <= finding.value <= finding.interval[1]
    assert sum(finding.interval is not None for finding in findings) >= 3


@every
def test_a_run_without_tables_has_no_findings(name, folders, tmp_path):
    empty = Run.create(tmp_path / "empty", Run.open(folders[name]).read_manifest())
    assert findings_of(instrument(name), empty) == ()


@every
def test_without_a_table_only_its_findings_are_gone(name, folders, tmp_path):
    one = instrument(name)
    full = findings_of(one, Run.open(folders[name]))
    for table in {finding.table for finding in full}:
        run = WRITERS[name](tmp_path / table, without=(table,))
        rest = findings_of(one, run)
        assert len(rest) < len(full) or table == "adequacy"  # that one stands in its verdict
        assert table not in {finding.table for finding in rest}


@every
def test_the_page_shows_them_first_and_escaped(name, folders):
    one = instrument(name)
    page = report_html(Run.open(folders[name]), one.resolve(one.page))
    first = page.index('<section id="findings"')
    assert first < page.index('<section id="verdicts"')
    assert page.index("<section ") == first
    section = page[first : page.index("</section>", first)]
    findings = findings_of(one, Run.open(folders[name]))
    assert section.count("<li>") == len(findings)
    assert "<script" not in section
    assert "<b>" not in section
    links = re.findall(r'href="#([^"]+)"', section)
    assert links
    for anchor in links:
        assert f'id="{anchor}"' in page, anchor
    assert "data-figure" not in page


def test_hostile_words_reach_the_findings_and_are_escaped(tmp_path):
    run = write_replicas(tmp_path / "run", classes=("<i>", "coat"))
    one = instrument("sync")
    assert any("<i>" in finding.text for finding in findings_of(one, run))
    page = report_html(run, one.resolve(one.page))
    section = page[page.index('<section id="findings"') : page.index("</section>")]
    assert "&lt;i&gt;" in section
    assert "<i>" not in section


@every
def test_a_small_run_shows_them_everywhere(name, tiny_run):
    run = tiny_run(name)
    findings = run.document["findings"]
    assert findings
    assert all(set(finding) == KEYS for finding in findings)
    assert json.loads(json.dumps(findings)) == [f.plain() for f in run.result.findings]
    html = run.result._repr_html_()
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    for finding in findings:
        assert finding["next"].split("“")[0] in page
        assert finding["next"].split("“")[0] in html
    assert "Findings" not in shown(name, run.document)  # the command prints them once, before


def test_a_report_shows_them_without_torch(tiny_run, tmp_path):
    code = (
        "import sys\nfrom flowscope.lab.result import open_run\nresult = open_run(sys.argv[1])\n"
        "assert result.findings\nresult.report()\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    folder = shutil.copytree(tiny_run("audit").folder, tmp_path / "run")
    (folder / "report.html").unlink()
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    assert '<section id="findings"' in (folder / "report.html").read_text(encoding="utf-8")


# ----- audit


def test_cost_of_stopping_early_is_that_of_the_table(copy):
    run = copy("audit")
    rows = run.read_table("depth_loss").set_index("removed")
    finding = _said("audit", run, "depth_loss")
    high = rows["increase_high"]
    most = next(k for k in range(len(rows)) if high[k + 1] >= 0.1)
    assert most == 4
    assert finding.value == rows["increase"][most]
    assert finding.interval == (rows["increase_low"][most], rows["increase_high"][most])
    for k in (1, most):
        ends = bounds(rows["increase_low"][k], rows["increase_high"][k])
        assert f"{numeral(rows['increase'][k])} {ends}" in finding.text
    assert "Remove the last 4 layers (read the output at layer 26)" in finding.next
    _change(run, "depth_loss", "increase_high", lambda frame: frame["increase_high"] + 0.1)
    finding = _said("audit", run, "depth_loss")
    assert finding.next == "Keep all 30 layers."
    assert finding.value == rows["increase"][1]
    assert "No layer can go for less than 0.1 nat" in finding.text


def test_a_layer_behind_an_expensive_one_is_not_cheap(copy):
    run = copy("audit")
    _change(run, "depth_loss", "increase_high",
            lambda frame: frame["increase_high"].where(frame["removed"] != 2, 5.0))  # fmt: skip
    assert "Remove the last 1 layer (" in _said("audit", run, "depth_loss").next


def test_the_middle_layer_is_where_half_of_the_tokens_are_final(copy):
    run = copy("audit")
    shares = run.read_table("locking_depth").set_index("layer")["share"].cumsum()
    agreement = run.read_table("layers").set_index("layer")
    finding = _said("audit", run, "locking_depth")
    middle = int(finding.value)
    assert shares[middle - 1] < 0.5 <= shares[middle]
    assert f"from layer {middle} of 30 on" in finding.text
    assert f"{percent(shares[7])} have it by layer 7" in finding.text
    assert percent(agreement["agreement"][29]) in finding.text
    low = int(finding.interval[0])
    half = agreement["agreement_high"] - agreement["agreement"]
    assert shares[low] + half[low] >= 0.5 > shares[low - 1] + half[low - 1]
    layers = len(shares) - 1
    early = lambda frame: np.where(frame["layer"] == 3, 1.0, 0.0)  # noqa: E731
    _change(run, "locking_depth", "share", early)
    finding = _said("audit", run, "locking_depth")
    assert (finding.value, finding.interval) == (3.0, (3.0, 3.0))
    assert finding.next.startswith("Try an early exit")
    _change(run, "locking_depth", "share", lambda frame: (frame["layer"] == layers).astype(float))
    assert _said("audit", run, "locking_depth").next.startswith("Do not rely on outputs before")


def test_the_layer_that_moves_most_is_named(copy):
    run = copy("audit")
    _change(run, "layers", "total_variation",
            lambda frame: frame["total_variation"].where(frame["layer"] != 17, 1.5))  # fmt: skip
    finding = _said("audit", run, "layers")
    assert "Layer 17 rewrites the output most: it moves 1.5 [" in finding.text
    assert "Leave layer 17 alone" in finding.next
    least = run.read_table("layers").set_index("layer")["total_variation"].idxmin()
    assert f"least layer {least} with" in finding.text


def test_the_flow_is_judged_by_its_verdict(folders, tmp_path):
    finding = _said("audit", Run.open(folders["audit"]), "adequacy")
    verdict = next(v for v in Run.open(folders["audit"]).read_verdicts() if v.name == "P1")
    assert finding.value == verdict.effect
    assert f"{percent(verdict.effect)} [" in finding.text
    silent = write_run(tmp_path / "silent", abstained=True)
    assert "adequacy" not in {f.table for f in findings_of(instrument("audit"), silent)}


def test_halves_that_agree_and_halves_that_do_not():
    generator = np.random.default_rng(3)
    profile = np.linspace(0.1, 0.9, 12)
    alike = split_half(profile + 0.001 * generator.standard_normal((16, 12)))
    assert alike == (pytest.approx(1.0),) * 3
    apart = split_half(generator.standard_normal((16, 12)))
    assert abs(apart[0]) < 0.5
    assert apart[1] < apart[0] < apart[2]
    assert split_half(np.ones((16, 12))) is None
    assert split_half(profile[None].repeat(3, 0)) is None


def test_halves_of_the_prompts_are_compared(copied):
    result = copied("audit")
    prompts = result.settings["measured"]["prompts"]
    finding = result.findings[-1]
    assert f"{prompts} prompts" in finding.text
    assert "too few to compare" in finding.text
    arrays = dict(result.run.read_arrays("prompts"))
    layers = arrays["total_variation"].shape[1]
    profile = np.linspace(0.1, 0.9, layers)
    for change, word in ((0.0, "agree"), (9.0, "disagree")):
        noise = np.random.default_rng(0).standard_normal((8, layers))
        arrays["total_variation"] = profile + change * noise
        result.run.write_arrays("prompts", arrays)
        assert f"Two halves of the prompts {word}:" in result.findings[-1].text


# ----- heads


def test_the_strongest_and_the_narrowest_head_are_those_of_the_table(copy):
    run = copy("heads")
    frame = run.read_table("geometry")
    focus, *_, direction = [
        f for f in findings_of(instrument("heads"), run) if f.figure == "geometry"
    ]
    assert direction.value == frame["entropy_production"].max()
    assert focus.value == frame["effective_keys"].min()
    row = frame.loc[frame["entropy_production"].idxmax()]
    assert f"layer {row['layer']} head {row['head']}" in direction.next
    for name in ("effective_keys", "effective_keys_low", "effective_keys_high"):
        _change(run, "geometry", name, lambda frame, name=name: frame[name].where(
            frame.index != 5, 1.2))  # fmt: skip
    focus = findings_of(instrument("heads"), run)[0]
    assert focus.text.startswith("1 of ")
    assert focus.value == 1.2
    place = f"layer {frame['layer'][5]} head {frame['head'][5]}"
    assert place in focus.text
    assert place in focus.next


def test_the_dearest_and_the_cheapest_dial_are_those_of_the_table(copy):
    run = copy("heads")
    frame = run.read_table("dials")
    turned = frame[frame["dial"] != "none"]
    finding = _said("heads", run, "dials")
    assert finding.value == turned["change"].max()
    assert numeral(turned["change"].min()) in finding.text
    assert finding.next.startswith("Turn the dial “flux”")
    for name in ("change", "change_low", "change_high"):
        _change(run, "dials", name, lambda frame, name=name: frame[name] + 1)
    assert _said("heads", run, "dials").next.startswith("Leave the dials alone")


# ----- sync


def test_the_step_of_the_decision_is_that_of_the_weakest_coupling(copy):
    run = copy("sync")
    frame = run.read_table("commitment")
    row = frame[(frame["measure"] == "feature") & (frame["g"] == 0.1) & (frame["label"] == 0)]
    finding = _said("sync", run, "commitment")
    assert finding.value == row["midpoint"].item()
    assert finding.interval == (row["low"].item(), row["high"].item())
    assert "coupling g = 0.1" in finding.text
    _change(run, "commitment", "status",
            lambda frame: frame["status"].where(frame["g"] != 0.1, "no transition"))  # fmt: skip
    assert "coupling g = 0.3" in _said("sync", run, "commitment").text


@pytest.mark.parametrize(
    ("shift", "words", "numbers"),
    [
        (0.0, "Coarse structure is decided", "13 [9, 17.5]"),
        (-30.0, "Fine detail is decided", "17 [12.5, 21]"),
        (-12.0, "It cannot be told", "1 [−3, 5.5]"),
    ],
)
def test_the_order_of_the_scales_follows_the_interval(shift, words, numbers, copy):
    run = copy("sync")
    for name in ("gap", "low", "high"):
        _change(run, "commitment_gap", name, lambda frame, name=name: frame[name] + shift)
    finding = _said("sync", run, "commitment_gap")
    assert finding.text.startswith(words)
    assert numbers in finding.text


# ----- image


def test_the_fewest_steps_within_noise_are_recommended(copy):
    run = copy("image")
    finding = _said("image", run, "family")
    assert finding.next.startswith("Try more than")
    steps = sorted(set(run.read_table("family")["steps"]))
    near = lambda frame: np.where(  # noqa: E731
        (frame["lam"] == 0) & (frame["steps"] >= steps[1]), 0.02, frame["tv"]
    )
    _change(run, "family", "tv", near)
    finding = _said("image", run, "family")
    assert finding.value == 0.02
    assert f"the ODE needs {steps[1]} steps" in finding.text
    assert f"the SDE needs more than {steps[-1]} steps" in finding.text
    assert finding.next.startswith(f"Sample with the ODE and {steps[1]} steps")
    late = lambda frame: np.where(frame["steps"] == steps[-1], 0.5, frame["tv"])  # noqa: E731
    _change(run, "family", "tv", late)
    assert f"the ODE needs more than {steps[-1]} steps" in _said("image", run, "family").text
    _change(run, "family", "tv", near)
    _change(run, "family", "images", lambda frame: 16)
    finding = _said("image", run, "family")
    assert "as far as 16 images can tell" in finding.text
    assert finding.next.startswith("Read more images")


def _judged_again(run, name, outcome):
    """Give a verdict of a run another outcome."""
    verdicts = [
        replace(v, decision="abstains" if outcome == "uninformative" else outcome, outcome=outcome)
        if v.name == name
        else v
        for v in run.read_verdicts()
    ]
    run.write_verdicts(verdicts)


@pytest.mark.parametrize(
    ("outcome", "words", "action"),
    [
        ("fails", "differ by more than their step errors after step 18 of 20", "Take 40 steps or"),
        ("holds", "differ by no more than their step errors", "Use the ODE"),
        ("abstains", "cannot be told: the excess is", "Run again with more images"),
    ],
)
def test_samplers_are_compared_with_their_step_errors(copy, outcome, words, action):
    run = copy("image")
    _judged_again(run, "I1", outcome)
    frame = run.read_table("step_budget")
    finding = _said("image", run, "step_budget")
    assert words in finding.text
    assert finding.next.startswith(action)
    assert finding.value == frame["excess"].max()
    assert finding.interval == (frame["excess_low"].max(), frame["excess_high"].max())


def test_step_errors_that_are_too_large_ask_for_more_steps(copy):
    run = copy("image")
    _judged_again(run, "I1", "uninformative")
    _change(run, "step_budget", "budget", lambda frame: 0.13)
    finding = _said("image", run, "step_budget")
    assert "the steps alone move ODE and SDE by up to 0.13" in finding.text
    assert finding.next.startswith("Take 40 steps or a solver of second order (DPM++)")


def test_a_sampler_that_diverged_is_not_asked_for_more_images(copy):
    run = copy("image")
    _judged_again(run, "I1", "uninformative")
    _change(run, "step_budget", "outside", lambda frame: 0.97)
    _change(run, "step_budget", "budget", lambda frame: 0.13)
    finding = _said("image", run, "step_budget")
    assert "97% of the values lie beyond the bins" in finding.text.replace("\u00a0", "")
    assert finding.next.startswith("Look at the samples in the report")
    seen = could_have_seen({name: run.read_table(name) for name in run.tables()})
    assert "of ODE against SDE" not in seen
    assert "a rotation of" in seen


def test_rotation_is_told_with_its_windows(copy):
    run = copy("image")
    finding = _said("image", run, "rotation")
    assert finding.next.startswith("Expect ODE and SDE to differ where it rotates")
    _judged_again(run, "I3", "uninformative")
    assert "cannot be told" in _said("image", run, "rotation").text


def test_the_class_is_decided_where_nine_of_ten_images_retain_it(copy):
    run = copy("image")
    frame = run.read_table("uturn")
    stable = frame[frame["same_class"] >= 0.9]
    row = stable.loc[stable["log_snr"].idxmin()]
    finding = _said("image", run, "uturn")
    assert finding.value == row["same_class"]
    assert f"times above {row['time']:g}," in finding.next
    _change(run, "uturn", "same_class", lambda frame: 0.5)
    assert "was lost at each time" in _said("image", run, "uturn").next
