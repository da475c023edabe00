"""What the verdicts L1 to L3 say of random weights, of noise and of networks built to show each.

Question: what makes a verdict on the cloud of tokens say *holds*, and what makes it say something
else? Networks are read by ``flowscope.latent`` itself, on the packaged texts; noise is given to
the judges as clouds of independent points at every layer.

    python -m benchmarks.latent_panel --seeds 4

Every run is stored at once in ``benchmarks/results/latent_panel.json``; stored runs are kept.
"""

import argparse
import math
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import torch

import flowscope as fs
from benchmarks.panel_models import opened, random_model, untrained
from benchmarks.panel_runs import PanelRuns
from flowscope.flows.entropy import half_samples
from flowscope.instruments.latent.clouds import Clouds, Sample
from flowscope.instruments.latent.entropy.judge import READINGS, Reading, judge_readings
from flowscope.instruments.latent.entropy.reading import (
    ENTROPIES,
    cloud_entropies,
    principal_axes,
)
from flowscope.instruments.latent.rate.judge import judge_rates
from flowscope.instruments.latent.rate.steps import step_arrays
from flowscope.instruments.latent.rate.tables import halves_of_rates
from flowscope.models.loading import Loaded, load
from flowscope.models.prompts import packaged_texts
from flowscope.nets import bundled_path
from flowscope.records import Unavailable, Verdict

RESULT = Path(__file__).parent / "results" / "latent_panel.json"
RUNS = PanelRuns(RESULT, ("known", "random", "real"))
WIDTH, CORE = 64, 8
CONSTANT, LINEAR = 16.0, 12.0
COURSES = {
    "rise and fall": (0.3, 0.3, 0.3, 0.3, -0.3, -0.3, -0.3, -0.3),
    "gradient flow": (0.3, -0.2, 0.1, -0.3, 0.2, -0.1, 0.3, -0.2),
    "fall and rise": (-0.3, -0.3, -0.3, -0.3, 0.3, 0.3, 0.3, 0.3),
}
"""Growth of the cloud in each block of the networks that move every token by itself."""

PARTICLES = {"particles that attract": 0.1, "particles that flee": -0.1}


def tokenwise(name: str, seed: int) -> Loaded:
    """A network in the manner of GPT-2 whose blocks move every token by itself.

    A state is a constant and eight coordinates, of the token and of its position. Attention writes
    nothing; the feed-forward part of a block, read where its activation is linear, adds a multiple
    of the eight coordinates: minus the gradient of a quadratic potential.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    bundled = load(bundled_path())
    growths = COURSES[name]
    torch.manual_seed(seed)
    config = GPT2Config(
        n_embd=WIDTH, n_layer=len(growths), n_head=4, n_inner=WIDTH, n_positions=256,
        vocab_size=int(bundled.model.config.vocab_size), eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    core = torch.zeros(WIDTH)
    core[2 : CORE + 2] = 1.0
    scale = CONSTANT * math.sqrt(2 / WIDTH)  # by which the norm divides a state
    with torch.no_grad():
        table, places = model.transformer.wte.weight, model.transformer.wpe.weight
        table.copy_(0.5 * torch.randn(table.shape) * core)
        places.copy_(0.5 * torch.randn(places.shape) * core)
        table[:, 0], table[:, 1] = CONSTANT, -CONSTANT
        for growth, block in zip(growths, model.transformer.h, strict=True):
            block.attn.c_proj.weight.zero_()
            block.mlp.c_fc.weight.copy_(torch.eye(WIDTH))
            block.mlp.c_fc.bias.fill_(LINEAR)
            block.mlp.c_proj.weight.copy_(growth * scale * torch.diag(core))
            block.mlp.c_proj.bias.copy_(-LINEAR * growth * scale * core)
    return load(model, tokenizer=bundled.tokenizer)


def twice_each(prompts: int, tokens: int, vocabulary: int) -> list[dict[str, torch.Tensor]]:
    """Inputs in which every token stands twice, at different positions of different prompts."""
    count = prompts * tokens // 2
    first = torch.arange(count) % (vocabulary - 1) + 1
    ids = torch.cat([first, first.roll(7)]).reshape(prompts, tokens)
    return [{"input_ids": part} for part in ids.split(4)]


def particles(sign: float, seed: int, layers: int = 4) -> Loaded:
    """A Llama whose tokens attend to like tokens and write ``sign`` times what they see."""
    from transformers import LlamaConfig, LlamaForCausalLM

    bundled = load(bundled_path())
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=layers,
        num_attention_heads=1, num_key_value_heads=1, initializer_range=1.0,
        vocab_size=int(bundled.model.config.vocab_size), max_position_embeddings=256,
        rope_theta=1e6,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for block in model.model.layers:
            attention = block.self_attn
            attention.q_proj.weight.copy_(torch.eye(WIDTH))
            attention.k_proj.weight.copy_(torch.eye(WIDTH))
            attention.v_proj.weight.copy_(torch.eye(WIDTH))
            attention.o_proj.weight.copy_(sign * torch.eye(WIDTH))
            block.mlp.down_proj.weight.zero_()
    return load(model, tokenizer=bundled.tokenizer)


def noise(seed: int, layers: int = 10, prompts: int = 24, each: int = 42) -> list[Verdict]:
    """L1 and L2 on independent Gaussian points at every layer."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(prompts * each, layers, 32, generator=g)
    x = x / x.norm(dim=-1, keepdim=True)
    groups = torch.arange(prompts).repeat_interleave(each)
    samples = {}
    for name in ("all", "types"):
        samples[name] = Sample(
            name=name, places=torch.arange(len(x)), prompt=groups,
            kind=torch.arange(len(x)), halves=half_samples(groups, 48, g),
        )  # fmt: skip
    clouds = Clouds(
        directions=x, lengths=torch.ones(len(x), layers), samples=samples,
        tail=Unavailable("noise"), massive=0, repeated=0,
    )  # fmt: skip
    readings = {}
    for sample, column in READINGS:
        rows = [
            cloud_entropies(
                principal_axes(x[:, depth].double()), samples[sample], (8,), k=3, surrogates=0,
                generator=g,
            )[0][0, :, ENTROPIES.index(column)]
            for depth in range(layers)
        ]  # fmt: skip
        values = np.stack(rows, 1)
        readings[sample, column] = Reading(values[0], values[1:], prompts)
    steps = [
        {name: step_arrays(clouds, sample, block, 8, 3, curved=False)
         for name, sample in samples.items()}
        for block in range(1, layers)
    ]  # fmt: skip
    arrays = halves_of_rates("model", dict.fromkeys(samples, prompts), steps)
    return [judge_readings(readings, {}, rank=8, seed=seed), judge_rates(arrays, rank=8, seed=seed)]


def read(
    subject: Loaded, seed: int, *, repeated: bool = False, prompts: int = 24, tokens: int = 64
) -> list[Verdict]:
    """Verdicts of a run on the packaged texts, or on tokens that stand twice each."""
    with tempfile.TemporaryDirectory() as folder:
        texts = [text for text in packaged_texts() if len(text) > tokens][:prompts]
        given = (
            {"texts": texts}
            if not repeated
            else {"inputs": twice_each(prompts, tokens, int(subject.model.config.vocab_size))}
        )
        result = fs.latent(
            subject, **given, out=f"{folder}/run", progress=False, prompts=prompts, tokens=tokens,
            seed=seed, points=600, ranks=(8,), twins=1, surrogates=1, halves=24, output_tokens=8,
            refinements=(1,),
        )  # fmt: skip
        return list(result.verdicts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH")
    options = parser.parse_args()
    jobs = []
    for seed in range(options.seeds):
        jobs += [("known", name, seed, partial(tokenwise, name, seed)) for name in COURSES]
        jobs += [
            ("known", name, seed, partial(particles, sign, seed))
            for name, sign in PARTICLES.items()
        ]
        jobs.append(("known", "noise", seed, None))
        kind, model = random_model(seed if seed < 3 else seed + 2)
        jobs.append(("random", kind, seed, lambda model=model: model))
        jobs.append(("random", "bundled, untrained", seed,
                     partial(untrained, load(bundled_path()), seed)))  # fmt: skip
    for name, path in [("bundled", "bundled"), *(m.split("=", 1) for m in options.model)]:
        jobs += [("real", name, 0, partial(opened, path))]
    for part, name, seed, make in jobs:
        if RUNS.has(part, name, str(seed)):
            continue
        start = time.process_time()
        verdicts = noise(seed) if make is None else read(make(), seed, repeated=name in COURSES)
        rows = RUNS.store(part, name, str(seed), verdicts, time.process_time() - start)
        short = ", ".join(f"{v} {row['outcome']} {row['effect']}" for v, row in rows.items())
        print(part, name, seed, short, flush=True)
        assert all(math.isfinite(row["statistic"] or 0.0) for row in rows.values())
    document = RUNS.document()
    for part in RUNS.parts:
        for name, runs in document[part].items():
            for verdict in ("L1", "L2", "L3"):
                outcomes = [
                    run["verdicts"][verdict]["outcome"]
                    for run in runs.values()
                    if verdict in run["verdicts"]
                ]
                if outcomes:
                    print(f"{part}: {name}: {verdict} {dict(Counter(outcomes))}")


if __name__ == "__main__":
    main()
