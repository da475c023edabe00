"""Infillers: what sees both ways, what is refused, shifts, padding, functions, broken logits."""

import re

import numpy as np
import pytest
import torch
from tests.instruments.decode.folders import denoiser_folder, two_way_llama
from torch import nn

import flowscope as fs
from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.models.infilling.loading import infiller
from flowscope.models.infilling.templates import (
    Template,
    appended,
    canvas_of,
    hidden,
    overlapping,
    written,
)

MASK, OUTCOMES = 3, 20


def masked_lm(kind):
    import transformers

    sizes = {
        "vocab_size": OUTCOMES, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0,
    }  # fmt: skip
    ends = {"bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    more = ends if kind == "ModernBert" else {}
    config = getattr(transformers, f"{kind}Config")(**sizes, **more)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(transformers, f"{kind}ForMaskedLM")(config).eval()


def logits(made, templates):
    canvas = canvas_of(made, templates)
    return made.logits(canvas.ids, canvas.present, canvas.blank)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_llama_that_is_not_causal_fills_and_the_causal_one_is_refused(attention):
    two_way = two_way_llama()
    two_way.set_attn_implementation(attention)
    made = infiller(two_way)
    assert (made.mask, made.shift, made.forbidden, made.pad) == (0, False, (0,), 1)
    causal = two_way_llama(causal=True)
    causal.set_attn_implementation(attention)
    with pytest.raises(UnsupportedModelError, match="is causal: changing the last token leaves"):
        infiller(causal)


def test_what_the_configuration_says_is_not_believed(monkeypatch):
    """As under a library that ignores is_causal: the model says two-way and is not."""
    liar = two_way_llama(causal=True)
    liar.config.is_causal = False
    forward = type(liar).forward

    def ignoring(self, *given, **more):
        self.config.is_causal = True
        try:
            return forward(self, *given, **more)
        finally:
            self.config.is_causal = False

    monkeypatch.setattr(type(liar), "forward", ignoring)
    with pytest.raises(UnsupportedModelError, match=r"says is_causal = false, and transformers \d"):
        infiller(liar)


@pytest.mark.parametrize("kind", ["Bert", "ModernBert"])
def test_masked_language_models_fill(kind):
    made = infiller(masked_lm(kind), mask=MASK)
    found = logits(made, [written([5, MASK, 7, MASK], MASK)])
    assert found.shape == (2, OUTCOMES)
    assert bool((found[:, MASK] == -torch.inf).all())


def test_padding_changes_no_logit():
    made = infiller(two_way_llama())
    short = appended([5, 6, 7], 2, mask=0)
    alone = logits(made, [short])
    beside = logits(made, [short, appended(range(4, 30), 5, mask=0)])[: len(alone)]
    torch.testing.assert_close(alone, beside, rtol=1e-4, atol=1e-5)


def test_a_model_named_dream_reads_each_position_from_the_one_before():
    class DreamModel(nn.Module):
        """Position i of the output names token i + 1; presence comes as pairs."""

        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(OUTCOMES, OUTCOMES))
            self.masks = []

        def forward(self, input_ids, attention_mask=None):
            self.masks.append(attention_mask)
            rows = self.table[input_ids]
            return rows + rows.mean(1, keepdim=True)

    model = DreamModel()
    made = infiller(model, mask=MASK, outcomes=OUTCOMES)
    assert made.shift
    templates = [written([5, 6, MASK], MASK), written([5, MASK], MASK)]
    found = logits(made, templates)
    canvas = canvas_of(made, templates)
    whole = model(canvas.ids)
    torch.testing.assert_close(found[0, 4:], whole[0, 1, 4:])
    torch.testing.assert_close(found[1, 4:], whole[1, 0, 4:])
    assert model.masks[-2].shape == (2, 1, 3, 3)
    straight = infiller(model, mask=MASK, outcomes=OUTCOMES, shift=False)
    torch.testing.assert_close(logits(straight, templates)[0, 4:], whole[0, 2, 4:])


def test_a_function_fills_with_its_mask_and_vocabulary():
    made = infiller(lambda ids, present: torch.zeros(*ids.shape, 4), mask=3, outcomes=4)
    assert logits(made, [written([0, 3], 3)]).tolist() == [[0.0, 0.0, 0.0, -np.inf]]
    with pytest.raises(InvalidInputError, match="mask token and the size of its vocabulary"):
        infiller(lambda ids, present: ids)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (lambda ids: torch.full((*ids.shape, 4), torch.nan), "returned nan as a logit"),
        (lambda ids: torch.full((*ids.shape, 4), torch.inf), "returned inf as a logit"),
        (lambda ids: torch.full((*ids.shape, 4), -torch.inf), "leaves no token"),
        (lambda ids: torch.zeros(*ids.shape, 5), "must return logits of shape"),
        (lambda ids: "logits", "it returned str"),
    ],
)
def test_broken_logits_get_a_sentence(output, words):
    made = infiller(lambda ids, present: output(ids), mask=3, outcomes=4)
    with pytest.raises(UnsupportedModelError, match=re.escape(words)):
        logits(made, [written([0, 3], 3)])


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: infiller(masked_lm("Bert")), InvalidInputError, "has no mask token"),
        (lambda: infiller(two_way_llama(), mask=99), InvalidInputError, "mask token 99 is outside"),
        (lambda: infiller(two_way_llama(), forbidden=[99]), InvalidInputError, "names token 99"),
        (lambda: infiller(nn.Linear(2, 2), mask=0), InvalidInputError, "how large its vocabulary"),
        (
            lambda: infiller(two_way_llama(), forbidden=range(1, 32)),
            InvalidInputError,
            "tokens to fill in",
        ),
    ],
)
def test_models_without_a_mask_or_a_vocabulary_get_a_sentence(make, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Template(ids=[1, 2], blank=[False, False]), "has no masked position"),
        (lambda: Template(ids=[1, 2], blank=[True, False], region=[False, False]), "is empty"),
        (
            lambda: Template(ids=[1, 2], blank=[True, False], region=[False, True]),
            "which is not to be filled",
        ),
        (lambda: Template(ids=[1, 2], blank=[True]), "of one length"),
        (lambda: Template(ids=[1, 2], blank=[True, False], truth=[1]), "one token per position"),
        (lambda: appended([1], 0, mask=3), "at least one position"),
        (lambda: hidden([1, 2], [False, False], 0.5, 3, [0]), "no token that may be hidden"),
    ],
)
def test_bad_templates_get_a_sentence(make, words):
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_a_stray_mask_and_a_foreign_token_are_named():
    made = infiller(lambda ids, present: torch.zeros(*ids.shape, 4), mask=3, outcomes=4)
    stray = Template(ids=[0, 3, 3], blank=[False, True, False])
    with pytest.raises(InvalidInputError, match="Prompt 7 holds the mask token 3 at position 2"):
        canvas_of(made, [stray], numbers=[7])
    with pytest.raises(InvalidInputError, match="Token 9 is outside"):
        canvas_of(made, [Template(ids=[9, 3], blank=[False, True])])
    with pytest.raises(InvalidInputError, match="no prompt to fill"):
        canvas_of(made, [])


def test_templates_are_told_apart_by_what_is_given_and_asked():
    one = Template(ids=[5, 1, 7], blank=[False, True, False], truth=[5, 6, 7])
    same = Template(ids=[5, 2, 7], blank=[False, True, False])
    other = Template(ids=[5, 1, 8], blank=[False, True, False])
    assert one.mark == same.mark != other.mark
    assert overlapping([one], [same, other]) == 1


def test_the_doctor_says_whether_a_model_can_fill(tmp_path):
    two_way = fs.doctor(str(denoiser_folder(tmp_path)))
    assert any("fill masked positions" in line and "moves a logit" in line for line in two_way.can)
    causal = fs.doctor(two_way_llama(causal=True))
    (obstacle,) = [o for o in causal.cannot if o.what.startswith("fill masked positions")]
    assert "leaves the first position as it is" in obstacle.because
    assert two_way.kind == "masked_lm"
    assert causal.kind == "causal_lm"


def test_a_diffusion_gemma_is_sent_to_its_own_rule():
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "DiffusionGemmaConfig"):
        pytest.skip("this version of transformers has no DiffusionGemma")
    model = nn.Module()
    model.config = transformers.DiffusionGemmaConfig()
    with pytest.raises(UnsupportedModelError, match="calibrated_stop"):
        infiller(model)
