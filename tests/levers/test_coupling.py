"""Coupled replicas on loaded models: the formula, the symmetries, schedules, refusals, undone."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from tests import networks as models
from torch import nn

from flowscope import Tap
from flowscope.errors import InvalidInputError, TapError, UnsupportedModelError
from flowscope.levers import couple, geometry_attention

PAIRS = 2
IMAGE = 16  # tokens of every transformer below
JOINT = {"sd3": slice(0, IMAGE), "sd3_dual": slice(0, IMAGE), "flux": slice(5, 5 + IMAGE)}


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _sd3_dual():
    """SD3.5: beside the joint attention, one over the image alone."""
    from diffusers import SD3Transformer2DModel

    torch.manual_seed(0)
    return SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        num_layers=3,
        attention_head_dim=8,
        num_attention_heads=2,
        caption_projection_dim=16,
        joint_attention_dim=24,
        pooled_projection_dim=12,
        out_channels=4,
        pos_embed_max_size=8,
        dual_attention_layers=(0, 1),
        qk_norm="rms_norm",
    )


def _flux():
    from diffusers import FluxTransformer2DModel

    torch.manual_seed(0)
    return FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=24,
        pooled_projection_dim=12,
        axes_dims_rope=(2, 2, 4),
    )


def _unet():
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        block_out_channels=(16, 32),
        layers_per_block=1,
        cross_attention_dim=24,
        attention_head_dim=4,
        norm_num_groups=4,
    )


def _aura():
    """Text beside the image in the first blocks, in one stream with it in the last."""
    from diffusers import AuraFlowTransformer2DModel

    torch.manual_seed(0)
    return AuraFlowTransformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        num_mmdit_layers=2,
        num_single_dit_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=24,
        caption_projection_dim=16,
        out_channels=4,
        pos_embed_max_size=16,
    )


MAKERS = {"sd3_dual": _sd3_dual, "flux": _flux, "unet": _unet, "aura": _aura}
FAMILIES = ("dit", "pixart", "sd3", "sd3_dual", "flux", "unet", "encoder", "llama", "bert")


def peaked(model, factor=4.0):
    """Attention of random weights is nearly flat: sharpen it, so that there is something to see."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if re.search(r"(query|q_proj|k_proj|key|to_q|to_k|c_attn)\.weight", name):
                parameter.mul_(factor)
    return model


def batch_for(name, rows):
    """Rows that differ in everything a model is given but the step."""
    text = {"encoder_hidden_states": drawn(rows, 5, 24, seed=2)}
    pooled = {**text, "pooled_projections": drawn(rows, 12, seed=3)}
    image = {"hidden_states": drawn(rows, 4, 8, 8)}
    step = {"timestep": torch.full((rows,), 300.0)}
    if name == "dit":
        labels = torch.arange(rows) % 10
        return {
            "hidden_states": drawn(rows, 3, 8, 8),
            "timestep": torch.full((rows,), 300),
            "class_labels": labels,
        }
    if name == "pixart":
        added = {"resolution": None, "aspect_ratio": None}
        return {**image, **text, **step, "added_cond_kwargs": added}
    if name == "flux":
        ids = {"img_ids": torch.zeros(IMAGE, 3), "txt_ids": torch.zeros(5, 3)}
        step = {"timestep": torch.full((rows,), 0.5)}
        return {"hidden_states": drawn(rows, IMAGE, 4), **pooled, **step, **ids}
    if name == "unet":
        return {"sample": image["hidden_states"], "timestep": torch.tensor([300]), **text}
    if name == "aura":
        return {**image, **text, **step}
    if name == "encoder":
        return {"src": drawn(rows, 12, 32)}
    if name in ("llama", "bert", "gemma2"):
        return {"input_ids": models._ids(rows)}
    return {**image, **pooled, **step}


def made(name, rows=2 * PAIRS):
    if name in MAKERS:
        model = models._shake(MAKERS[name]())
    else:
        model, _ = {**models.READABLE, **models.REFUSED}[name]()
    return peaked(model), batch_for(name, rows)


def picked(batch, rows, size=2 * PAIRS):
    """The batch with its rows taken in another order."""
    return {
        key: value[rows] if torch.is_tensor(value) and len(value) == size else value
        for key, value in batch.items()
    }


@torch.no_grad()
def output(model, batch):
    return models.first_tensor(model(**batch))


def coupled(model, batch, g, **options):
    with couple(model, g, **options):
        return output(model, batch)


def close(found, expected, factor=1e-5):
    torch.testing.assert_close(found, expected, rtol=factor, atol=factor * expected.std().item())


def rows_attending(q, k, v, call, mask=None):
    """Softmax attention written out."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    z = torch.einsum("bhid,bhjd->bhij", q, k) * call.scale
    if call.softcap is not None:
        z = call.softcap * torch.tanh(z / call.softcap)
    if mask is not None:
        z = z.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else z + mask
    if call.causal:
        z = z.masked_fill(torch.ones_like(z, dtype=torch.bool).triu(1), -math.inf)
    return torch.einsum("bhij,bhjd->bhid", torch.softmax(z, -1), v)


def by_hand(g, branches=1, image=None):
    """Equation 19, written out: the keys of the other replica by an index, two softmaxes."""

    def listener(call):
        if call.cross:
            return None
        rows = call.q.shape[0]
        other = torch.arange(rows).view(branches, 2, -1).flip(1).flatten()
        k, v = call.k[other], call.v[other]
        mask = theirs = call.mask
        if mask is not None and len(mask) > 1:
            theirs = mask[other]
        joint = "+" in call.site.stream
        if joint and image is not None:
            text = torch.ones(call.k.shape[-2], dtype=torch.bool)
            text[image] = False
            k[..., text, :], v[..., text, :] = call.k[..., text, :], call.v[..., text, :]
        intra = rows_attending(call.q, call.k, call.v, call, mask)
        return (intra + g * rows_attending(call.q, k, v, call, theirs)) / (1 + g)

    return listener


def expected(model, batch, *args, **kwargs):
    with Tap(model) as tap:
        tap.on_attention(by_hand(*args, **kwargs))
        return output(model, batch)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_output_is_that_of_equation_19_written_out(name):
    """Cross-attention left alone, text keys one's own, grouped heads, causal and not."""
    model, batch = made(name)
    plain = output(model, batch)
    for g in (0.3, 1.0):
        reference = expected(model, batch, g, image=JOINT.get(name))
        found = coupled(model, batch, g)
        close(found, reference)
        assert (found - plain).abs().max() > 20 * (found - reference).abs().max()
    assert torch.equal(output(model, batch), plain)


def test_equation_19_holds_to_rounding_in_double_precision():
    model, batch = made("dit")
    model, batch["hidden_states"] = model.double(), batch["hidden_states"].double()
    close(coupled(model, batch, 1.0), expected(model, batch, 1.0), 1e-12)


def test_one_attention_call_is_equation_19_to_a_millionth():
    """The output of the lever itself, before the rest of the model."""
    q, k, v = (drawn(2 * PAIRS, 2, 7, 8, seed=i) for i in range(3))

    class Attention(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x + q, x + k, x + v)

    model = nn.Sequential(Attention())
    with couple(model, 0.7):
        found = model(torch.zeros_like(q))
    half = [slice(0, PAIRS), slice(PAIRS, 2 * PAIRS)]
    for own, other in (half, half[::-1]):
        scores = [torch.softmax(q[own] @ k[rows].mT / math.sqrt(8), -1) for rows in (own, other)]
        reference = (scores[0] @ v[own] + 0.7 * scores[1] @ v[other]) / 1.7
        torch.testing.assert_close(found[own], reference, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["dit", "sd3", "flux", "unet", "encoder"])
@pytest.mark.parametrize("form", ["number", "sequence", "mapping"])
def test_at_rest_it_is_bitwise_the_model(name, form):
    model, batch = made(name)
    plain = output(model, batch)
    with couple(model, {"number": 0, "sequence": [0.0] * 3, "mapping": {1: 0.0}}[form]) as lever:
        assert torch.equal(output(model, batch), plain)
    assert lever.summary() == ()


@pytest.mark.parametrize("name", ["dit", "sd3", "flux", "unet", "encoder"])
def test_a_step_at_zero_is_bitwise_the_model_that_is_listened_to(name):
    model, batch = made(name)
    with Tap(model) as tap:  # the encoder of torch loses its fused path to any listener
        tap.on_attention(lambda call: None)
        plain = output(model, batch)
    with couple(model, lambda step: float(step)) as lever:
        assert torch.equal(output(model, batch), plain)
        assert lever.summary() == ()
        assert not torch.equal(output(model, batch), plain)


def test_a_layer_at_zero_is_bitwise_its_own_kernel():
    model, batch = made("dit")
    plain = []
    kept = coupled_hidden(model, batch, {2: 0.5})
    with Tap(model) as tap:
        tap.on_block(lambda event: plain.append(event.hidden_out.clone()))
        output(model, batch)
    assert torch.equal(kept[0], plain[0])
    assert torch.equal(kept[1], plain[1])
    assert not torch.allclose(kept[2], plain[2], rtol=1e-3, atol=1e-3)


def coupled_hidden(model, batch, g, **options):
    """Hidden states after every block, heard by an outer tap."""
    found = []
    with Tap(model) as tap, couple(model, g, **options):
        tap.on_block(lambda event: found.append(event.hidden_out.clone()))
        output(model, batch)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_exchanged_halves_exchange_the_outputs(name):
    model, batch = made(name)
    swap = torch.tensor([2, 3, 0, 1])
    found, swapped = (coupled(model, b, 0.6) for b in (batch, picked(batch, swap)))
    close(swapped, found[swap])
    assert not torch.allclose(found, found[swap], rtol=1e-2)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("g", [0.2, 1.0])
def test_equal_replicas_stay_what_they_are(name, g):
    model, batch = made(name)
    batch = picked(batch, torch.tensor([0, 1, 0, 1]))
    close(coupled(model, batch, g), output(model, batch))


def test_pairs_do_not_see_one_another():
    model, batch = made("dit")
    first = picked(batch, torch.tensor([0, 2]))
    close(coupled(model, first, 0.8), coupled(model, batch, 0.8)[[0, 2]])


@pytest.mark.parametrize("name", ["dit", "sd3", "unet"])
def test_two_branches_are_two_runs(name):
    model, batch = made(name, rows=8)
    branches = [picked(batch, torch.arange(i, i + 4), size=8) for i in (0, 4)]
    apart = torch.cat([coupled(model, branch, 0.5) for branch in branches])
    together = coupled(model, batch, 0.5, branches=2)
    close(together, apart)
    assert not torch.allclose(together, coupled(model, batch, 0.5), rtol=1e-2)


def test_a_schedule_by_layer_acts_where_it_says():
    model, batch = made("dit")
    with Tap(model) as tap:
        tap.on_attention(lambda call: by_hand([0.0, 0.4, 1.0][call.site.index])(call))
        reference = output(model, batch)
    for given in ([0, 0.4, 1], {1: 0.4, 2: 1.0}, torch.tensor([0, 0.4, 1.0])):
        with couple(model, given) as lever:
            close(output(model, batch), reference)
        assert [c.site.index for c in lever.summary()] == [1, 2]
        assert [c.g for c in lever.summary()] == pytest.approx([0.4, 1.0])
    close(coupled(model, batch, {1: 0.4}), coupled(model, batch, 0.4, layers=[1]))
    close(coupled(model, batch, [1, 0.4, 1], layers=[1]), coupled(model, batch, 0.4, layers=[1]))


def test_a_schedule_by_step_is_asked_once_a_pass():
    model, batch = made("dit")
    asked = []

    def g(step):
        asked.append(step)
        return [0.5, 0.0, {0: 1.0}, [0.2, 0.2, 0.2]][step]

    with couple(model, g) as lever:
        found = [output(model, batch) for _ in range(4)]
    alone = [coupled(model, batch, x) for x in (0.5, 0.0, {0: 1.0}, 0.2)]
    assert all(map(torch.equal, found, alone))
    assert asked == [0, 1, 2, 3]
    assert [c.passes for c in lever.summary()] == [3, 2, 2]
    assert [c.g for c in lever.summary()] == pytest.approx([1.7 / 3, 0.35, 0.35])
    with lever:
        assert torch.equal(output(model, batch), found[0])
    assert asked[4:] == [0]


def test_a_mask_goes_with_its_keys():
    """What stands in the padding of the other replica must not matter; the rest does."""
    model, batch = made("bert")
    batch["attention_mask"] = torch.ones(4, models.LENGTH, dtype=torch.long)
    batch["attention_mask"][2, 9:] = 0
    found = coupled(model, batch, 0.7)
    close(found, expected(model, batch, 0.7))
    other = {**batch, "input_ids": batch["input_ids"].clone()}
    other["input_ids"][2, 9:] = (other["input_ids"][2, 9:] + 7) % models.VOCAB
    close(coupled(model, other, 0.7)[0], found[0])
    other["input_ids"][2, 8] = (other["input_ids"][2, 8] + 7) % models.VOCAB
    assert not torch.allclose(coupled(model, other, 0.7)[0], found[0], rtol=1e-3)


class Joint(nn.Module):
    """A block over text and image, text first, with a mask over the text of each row."""

    def __init__(self, scramble=False):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.scramble = scramble

    def forward(self, hidden_states, encoder_hidden_states, mask):
        both = torch.cat([encoder_hidden_states, hidden_states], 1)
        q, k, v = (m(both).unflatten(-1, (2, 4)).transpose(1, 2) for m in self.maps)
        if self.scramble:
            k = k + k.mean(-2, keepdim=True)
        out = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(-2)
        text, image = out.split([encoder_hidden_states.shape[1], hidden_states.shape[1]], 1)
        return hidden_states + image, encoder_hidden_states + text


class Stack(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.blocks = nn.ModuleList(Joint(**options) for _ in range(3))

    def forward(self, image, text, mask):
        for block in self.blocks:
            image, text = block(image, text, mask)
        return image


def test_text_keys_keep_their_own_mask():
    """Text as long as the image, so that lengths tell nothing; every row hides other text."""
    torch.manual_seed(0)
    model = models._shake(Stack())
    mask = torch.ones(4, 1, 1, 12, dtype=torch.bool)
    for row, hidden in enumerate((1, 3, 2, 5)):
        mask[row, ..., hidden:6] = False
    mask[2, ..., 10:] = False
    batch = {"image": drawn(4, 6, 8), "text": drawn(4, 6, 8, seed=2), "mask": mask}

    def listener(call):
        own, k, v = mask.clone(), call.k.clone(), call.v.clone()
        other = torch.tensor([2, 3, 0, 1])
        own[..., 6:], k[..., 6:, :] = mask[other][..., 6:], call.k[other][..., 6:, :]
        v[..., 6:, :] = call.v[other][..., 6:, :]
        intra = rows_attending(call.q, call.k, call.v, call, mask)
        return (intra + 0.5 * rows_attending(call.q, k, v, call, own)) / 1.5

    with Tap(model) as tap:
        tap.on_attention(listener)
        reference = output(model, batch)
    close(coupled(model, batch, 0.5), reference)


def test_text_of_another_length_is_found_again():
    model, batch = made("flux")
    longer = {**batch, "encoder_hidden_states": drawn(4, 9, 24), "txt_ids": torch.zeros(9, 3)}
    with couple(model, 0.5):
        found = [output(model, b) for b in (batch, longer, batch)]
    close(found[0], expected(model, batch, 0.5, image=slice(5, 21)))
    close(found[1], expected(model, longer, 0.5, image=slice(9, 25)))
    assert torch.equal(found[2], found[0])


def test_keys_that_mix_text_and_image_are_refused():
    model = models._shake(Stack(scramble=True))
    batch = {"image": drawn(4, 6, 8), "text": drawn(4, 3, 8), "mask": None}
    with pytest.raises(UnsupportedModelError, match="9 of 9 keys move with the 6 tokens"):
        coupled(model, batch, 0.5)


def test_text_in_one_stream_with_the_image_is_refused():
    model, batch = made("aura")
    with pytest.raises(UnsupportedModelError, match=r"takes text .encoder_hidden_states.*chain="):
        coupled(model, batch, 0.5)
    found = coupled(model, batch, 0.5, chain="joint_transformer_blocks")
    swap = torch.tensor([2, 3, 0, 1])
    exchanged = coupled(model, picked(batch, swap), 0.5, chain="joint_transformer_blocks")
    close(exchanged[swap], found)
    assert not torch.allclose(found, output(model, batch), rtol=1e-3)


def test_a_unet_with_as_many_text_tokens_as_image_tokens_is_refused():
    """It has no chain of blocks; then only lengths tell cross-attention from self-attention."""
    model, batch = made("unet")
    batch["encoder_hidden_states"] = drawn(4, 16, 24)
    with pytest.raises(UnsupportedModelError, match=r"as many image tokens as text tokens \(16\)"):
        coupled(model, batch, 0.5)


def test_gradients_flow_from_one_replica_to_the_other():
    model, batch = made("dit")
    for g, flows in ((0.5, True), (0.0, False)):
        image = batch["hidden_states"].clone().requires_grad_()
        with couple(model, g):
            model(**{**batch, "hidden_states": image}).sample[0].square().sum().backward()
        assert bool(image.grad[2].abs().max() > 0) == flows
        assert not image.grad[3].any()  # another pair


def test_gradients_are_those_of_the_formula_written_out():
    model, batch = made("sd3")
    found = []
    for context in ("lever", "hand"):
        model.zero_grad()
        if context == "lever":
            with couple(model, 0.5):
                model(**batch).sample.square().sum().backward()
        else:
            with Tap(model) as tap:
                tap.on_attention(by_hand_with_gradients(0.5))
                model(**batch).sample.square().sum().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert found[0]
    for name, gradient in found[0].items():
        size = found[1][name].abs().max().item()
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-3, atol=1e-4 * size + 1e-6)


def by_hand_with_gradients(g):
    """As `by_hand` for SD3, without writing into tensors."""

    def listener(call):
        other = torch.tensor([2, 3, 0, 1])
        text = (torch.arange(call.k.shape[-2]) >= IMAGE)[:, None]
        k, v = (torch.where(text, x, x[other]) for x in (call.k, call.v))
        intra = rows_attending(call.q, call.k, call.v, call)
        return (intra + g * rows_attending(call.q, k, v, call)) / (1 + g)

    return listener


def test_a_derivative_along_a_direction_is_a_difference():
    """Forward-mode derivatives of a coupled model: what linear theory of the gap is made of."""
    model, batch = made("dit")
    model, image = model.double(), batch["hidden_states"].double()
    direction = drawn(*image.shape, seed=9).double()

    def run(x):
        return model(**{**batch, "hidden_states": x}).sample

    kernel = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.no_grad(), couple(model, 0.5), kernel:
        run(image)
        _, found = torch.func.jvp(run, (image,), (direction,))
        h = 1e-5
        difference = (run(image + h * direction) - run(image - h * direction)) / (2 * h)
    close(found, difference, 1e-6)


@pytest.mark.parametrize("name", ["dit", "sd3", "flux"])
def test_half_precision_rounds_no_more_than_the_model_does(name):
    model, batch = made(name)
    whole = output(model, batch), coupled(model, batch, 0.5)
    model = model.bfloat16()
    half = {
        k: v.bfloat16() if torch.is_tensor(v) and v.is_floating_point() else v
        for k, v in batch.items()
    }
    found = output(model, half), coupled(model, half, 0.5)
    assert found[1].dtype == torch.bfloat16
    own, new = ((a.float() - b).norm() for a, b in zip(found, whole, strict=True))
    assert new < 1.5 * own


def test_inference_mode_gives_the_same_numbers():
    model, batch = made("sd3")
    kept = coupled(model, batch, 0.5)
    with torch.inference_mode(), couple(model, 0.5):
        assert torch.equal(model(**batch).sample, kept)
    with couple(model, 0.5):
        close(model(**batch).sample.detach(), kept)


def test_soft_capped_attention_is_coupled_too():
    model, batch = made("gemma2")
    close(coupled(model, batch, 0.5), expected(model, batch, 0.5))


def test_the_change_is_measured_when_asked_for():
    model, batch = made("dit")
    moved = {}

    def measured(call):
        intra, new = call.output(), by_hand(0.5)(call)
        moved[call.site.index] = ((new - intra).norm() / intra.norm()).item()
        return new

    with Tap(model) as tap:
        tap.on_attention(measured)
        output(model, batch)
    with couple(model, 0.5, watch=True) as lever:
        first = output(model, batch)
        output(model, batch)
    table = lever.table
    assert list(table.columns) == ["chain", "layer", "call", "passes", "g", "change"]
    assert table["change"].tolist() == pytest.approx(list(moved.values()), rel=1e-4)
    assert table["passes"].tolist() == [2, 2, 2]
    with couple(model, 0.5) as silent:
        assert torch.equal(output(model, batch), first)
    assert [c.change for c in silent.summary()] == [None] * 3


def test_it_nests_with_a_reading_tap():
    """An outer reader hears each call of the model once, with the model's own arguments."""
    model, batch = made("sd3")
    alone, heard = coupled(model, batch, 0.5), []
    with Tap(model) as tap:  # below the lever: its kernels must not be heard
        tap.on_attention(lambda call: heard.append(call.site.index))
        assert torch.equal(coupled(model, batch, 0.5), alone)
    with couple(model, 0.5), Tap(model) as tap:  # above it
        tap.on_attention(lambda call: heard.append(call.site.index))
        assert torch.equal(output(model, batch), alone)
    assert heard == [0, 1, 2] * 2


def test_an_output_that_shares_memory_is_not_written_into():
    """Another lever may answer with a tensor of the model's own, such as the values."""
    model, batch = made("dit")
    values = []

    def answer(call):
        values.append((call.v, call.v.clone()))
        return call.v

    with Tap(model) as tap:
        tap.on_attention(answer)
        coupled(model, batch, 0.5)
    assert len(values) == 3
    assert all(torch.equal(*pair) for pair in values)


def test_it_nests_with_another_lever():
    model, batch = made("dit")
    alone = coupled(model, batch, 0.5)
    with geometry_attention(model, temperature=3.0, layers=[0]), couple(model, 0.5, layers=[2]):
        both = output(model, batch)
    assert not torch.allclose(both, alone, rtol=1e-3)


def test_a_lever_can_be_entered_again():
    model, batch = made("sd3")
    asked = []
    lever = couple(model, lambda step: asked.append(step) or 0.5)
    found = []
    for _ in range(2):
        with lever:
            found.append(output(model, batch))
        assert [c.passes for c in lever.summary()] == [1, 1, 1]
    assert torch.equal(*found)
    assert asked == [0, 0]


def test_the_model_is_itself_again_after_an_error():
    model, batch = made("sd3")
    plain = output(model, batch)
    hooks = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]
    with pytest.raises(InvalidInputError, match="got 3"):
        coupled(model, picked(batch, torch.arange(3)), 0.5)
    assert torch.equal(output(model, batch), plain)
    assert hooks == [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]


@pytest.mark.parametrize(
    "g", [-0.1, 1.01, math.nan, math.inf, True, "0.5", None, [], [0.1, 2.0], {0: -1.0}, {}, {-1: 1}]
)
def test_a_strength_outside_its_range_is_refused(g):
    with pytest.raises(InvalidInputError, match=r"\[0, 1\]|whole numbers"):
        couple(nn.Linear(2, 2), g)


def test_a_schedule_that_goes_out_of_range_is_refused_when_it_does():
    model, batch = made("dit")
    with couple(model, lambda step: [0.5, 1.5][step]):
        output(model, batch)
        with pytest.raises(InvalidInputError, match=r"g\(1\) must be a number.*got 1\.5"):
            output(model, batch)


@pytest.mark.parametrize("branches", [0, -1, 1.0, True])
def test_branches_must_be_whole(branches):
    with pytest.raises(InvalidInputError, match="branches must be a whole number from 1"):
        couple(nn.Linear(2, 2), 0.5, branches)


@pytest.mark.parametrize(("rows", "branches", "multiple"), [(3, 1, 2), (1, 1, 2), (6, 2, 4)])
def test_a_batch_that_is_not_in_pairs_is_refused(rows, branches, multiple):
    model, batch = made("dit", rows=rows)
    with pytest.raises(InvalidInputError, match=f"multiple of {multiple}; got {rows} at layer 0"):
        coupled(model, batch, 0.5, branches=branches)


@pytest.mark.parametrize(
    ("g", "message"),
    [([0.5, 0.5], "g has 2 values.*has 3 layers"), ({0: 0.1, 3: 0.5}, r"layers \[3\].*0 to 2")],
)
def test_a_schedule_of_another_depth_is_refused(g, message):
    model, batch = made("dit")
    with pytest.raises(InvalidInputError, match=message):
        coupled(model, batch, g)


def test_a_schedule_by_layer_needs_one_chain():
    model, batch = models.t5()
    with pytest.raises(InvalidInputError, match="several chains"):
        coupled(model, batch, [0.5] * 3)
    with couple(model, [0.5] * 3, chain="encoder.block") as lever:
        output(model, batch)
    assert {c.site.chain for c in lever.summary()} == {"encoder.block"}


def test_layers_that_are_not_there_are_refused():
    model, batch = made("dit")
    with pytest.raises(InvalidInputError, match=r"layers \[7\].*0 to 2"):
        coupled(model, batch, 0.5, layers=[7])


def test_a_model_that_computes_attention_by_hand_is_refused():
    model, _ = models.bloom()
    with pytest.raises(UnsupportedModelError, match="computes attention by hand"):
        coupled(model, {"input_ids": models._ids()}, 0.5)


def test_a_model_without_attention_is_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    with pytest.raises(UnsupportedModelError, match="not an attention model"), couple(model, 0.5):
        model(drawn(2, 4))


def test_a_cache_is_refused():
    model, batch = made("llama")
    with torch.no_grad(), couple(model, 0.5):
        past = model(input_ids=batch["input_ids"], use_cache=True).past_key_values
        with pytest.raises(TapError, match=r"key-value cache.*use_cache=False"):
            model(input_ids=batch["input_ids"][:, :1], past_key_values=past)


def test_axes_folded_into_the_batch_are_refused():
    """Three images of four windows each: twelve rows, an even number, and yet no pairs."""

    class Windows(nn.Module):
        def forward(self, x):
            parts = x.unflatten(1, (4, -1)).flatten(0, 1)[:, None]
            return F.scaled_dot_product_attention(parts, parts, parts).view_as(x) + x

    model = nn.Sequential(Windows(), Windows())
    with pytest.raises(UnsupportedModelError, match=r"12 rows.*folded"), couple(model, 0.5):
        model(drawn(3, 20, 8))


def test_what_an_outer_tap_was_given_is_not_overwritten():
    """Mixing in place is for a tensor that nobody else holds."""
    model, batch = made("dit")
    kept, patched = [], []

    def keep(call):
        kept.append((call.output(), call.output().clone()))

    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(keep)
        with couple(model, 0.5):
            output(model, batch)
    assert kept
    assert all(torch.equal(held, copied) for held, copied in kept)
    stored = [copied for _, copied in kept]
    for _ in range(2):
        with torch.no_grad(), Tap(model) as tap:
            tap.on_attention(lambda call: stored[call.site.index])
            with couple(model, 0.5):
                patched.append(output(model, batch))
    assert torch.equal(*patched)


def test_a_tap_around_the_lever_reads_multi_head_modules_too():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    seen = []
    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(lambda call: seen.append(call.site.index))
        with couple(model, 0.5):
            model(drawn(4, 5, 8))
    assert seen == [0, 1]
