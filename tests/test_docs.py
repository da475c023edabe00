"""Code in the documentation runs, links lead somewhere, nothing speaks of places a user has not."""

import re
from pathlib import Path

import pytest
import torch
from tests import networks as models

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def _snippets(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


@pytest.mark.parametrize(
    "page",
    [
        "docs/how-to/read-a-model.md",
        "docs/how-to/which-distance.md",
        "docs/how-to/estimate-a-drift.md",
        "docs/how-to/measure-rotation.md",
    ],
)
def test_snippets_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, batch = models.gpt2()
    names = {"model": model, "batch": batch, "torch": torch}
    snippets = _snippets(page)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)


_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"


def _words_and_numbers(text):
    """Words of a text in order, and its numbers in order; a path is one word."""
    text = re.sub(r"\S*/\S+", "PATH", text)
    return re.sub(_NUMBER, "#", text).split(), [float(x) for x in re.findall(_NUMBER, text)]


def _blocks(page):
    """Pairs of a Python block and the text block below it, which is empty if there is none."""
    text = (ROOT / page).read_text()
    return re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.S)


def _compare_output(printed, shown):
    (words, numbers), (expected, figures) = map(_words_and_numbers, (printed, shown))
    assert words == expected
    # Sums of float32 products differ from one processor to the next.
    assert numbers == pytest.approx(figures, rel=0.05, abs=5e-3)


@pytest.mark.parametrize(("snippet", "shown"), _blocks("README.md"))
def test_each_block_of_the_readme_runs_alone_and_prints_what_it_shows(
    snippet, shown, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert shown
    exec(compile(snippet, "README.md", "exec"), {})
    _compare_output(capsys.readouterr().out, shown)


def test_the_readme_has_a_snippet_and_three_recipes():
    text = (ROOT / "README.md").read_text()
    assert len(_blocks("README.md")) == text.count("```python") == 4
    assert text.count("**What to do:**") == text.count("## Recipe") == 3


def test_the_glossary_is_short_and_linked_from_the_readme():
    assert len((ROOT / "docs/glossary.md").read_text().splitlines()) <= 30
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    "page",
    [
        "docs/tutorials/what-is-this-head-doing.md",
        "docs/tutorials/when-does-this-model-decide.md",
        "docs/tutorials/do-two-models-agree.md",
        "docs/tutorials/how-many-passes-can-i-drop.md",
        "docs/how-to/turn-the-dials.md",
        "docs/how-to/couple-a-model.md",
        "docs/how-to/read-a-sampler.md",
        "docs/how-to/use-from-python.md",
        "docs/how-to/which-block-can-go.md",
        "docs/how-to/does-my-model-collapse-its-tokens.md",
    ],
)
def test_pages_show_what_their_snippets_print(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs, names = _blocks(page), {}
    assert sum(bool(shown) for _, shown in pairs) >= 4
    for snippet, shown in pairs:
        capsys.readouterr()
        exec(compile(snippet, page, "exec"), names)
        _compare_output(capsys.readouterr().out, shown)


def test_the_how_to_measures_what_it_says():
    model, batch = models.gpt2()
    names = {"model": model, "batch": batch}
    for snippet in _snippets("docs/how-to/read-a-model.md"):
        exec(compile(snippet, "how-to", "exec"), names)
    assert len(names["entropies"]) == 3
    assert [kind for _, kind, _ in names["norms"]] == ["attention", "feed_forward"] * 3
    with torch.no_grad():
        logits = model(**batch).logits
    torch.testing.assert_close(names["lens"][-1], logits)
    assert not torch.allclose(names["steered"].logits, logits)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_name_no_private_place(page):
    assert not re.search(r"/work/|\.\./shared|/tmp/|seeds/", page.read_text())


def test_tests_named_in_the_errata_exist():
    text = (ROOT / "docs/theory/errata.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 20
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
