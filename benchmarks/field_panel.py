"""What the verdicts F1 to F3 say of random weights, and of attention built to gather or scatter.

Question: what makes a verdict on the field say *holds*, and what makes it
say something else? Every subject is read by ``flowscope.field`` itself, on the packaged texts.

    python -m benchmarks.field_panel --seeds 16

Every run is stored at once in ``benchmarks/results/field_panel.json``; stored runs are kept.
"""

import argparse
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import torch

import flowscope as fs
from benchmarks.panel_models import Bytes, opened, random_model, untrained
from benchmarks.panel_runs import PanelRuns
from flowscope.models.loading import Loaded, load
from flowscope.models.prompts import packaged_texts
from flowscope.nets import bundled_path
from flowscope.records import Verdict

RESULT = Path(__file__).parent / "results" / "field_panel.json"
RUNS = PanelRuns(RESULT, ("known", "random", "real"))
SIGNS = {"copies of like tokens subtracted": -0.1, "copies of like tokens added": 0.1}
"""Factor of the values: like tokens attend to each other and write this much of themselves."""


def planted(sign: float, seed: int, layers: int = 4, width: int = 64) -> Loaded:
    """A Llama whose tokens attend to like tokens and write ``sign`` times what they see.

    Queries and keys are the normed token itself; the feed-forward part writes nothing. With a
    negative sign every token loses what it has in common with like tokens, so the spread falls;
    with permuted keys the lost part is that of any other token, and the spread hardly changes.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=width, num_hidden_layers=layers,
        num_attention_heads=1, num_key_value_heads=1, vocab_size=256, initializer_range=1.0,
        max_position_embeddings=256, rope_theta=1e6,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for block in model.model.layers:
            attention = block.self_attn
            attention.q_proj.weight.copy_(torch.eye(width))
            attention.k_proj.weight.copy_(torch.eye(width))
            attention.v_proj.weight.copy_(torch.eye(width))
            attention.o_proj.weight.copy_(sign * torch.eye(width))
            block.mlp.down_proj.weight.zero_()
    return load(model, tokenizer=Bytes())


def collapsing(seed: int, layers: int = 9, width: int = 64) -> Loaded:
    """A Llama that takes from every token what it does not share with all others.

    Embeddings have one common direction. Tokens attend to themselves, and attention writes minus
    a part of what is read, a larger part of some directions than of others and nothing of the
    common one: tokens become alike, and their differences keep fewer and fewer directions.
    """
    subject = planted(-0.1, seed, layers, width)
    model = subject.model
    speeds = torch.linspace(0.05, 0.4, width)
    speeds[0] = 0.0
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 6.0
        for block in model.model.layers:
            block.self_attn.q_proj.weight.copy_(3 * torch.eye(width))
            block.self_attn.k_proj.weight.copy_(3 * torch.eye(width))
            block.self_attn.o_proj.weight.copy_(-torch.diag(speeds))
    return load(model, tokenizer=Bytes())


def read(subject: Loaded, seed: int, prompts: int = 16, tokens: int = 64) -> list[Verdict]:
    """Verdicts of a run on the packaged texts."""
    with tempfile.TemporaryDirectory() as folder:
        texts = [text for text in packaged_texts() if len(text) > tokens][:prompts]
        result = fs.field(
            subject, texts, out=f"{folder}/run", progress=False, prompts=prompts, tokens=tokens,
            seed=seed, draws=16,
        )  # fmt: skip
        return list(result.verdicts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH")
    options = parser.parse_args()
    jobs = []
    for seed in range(options.seeds):
        for name, sign in SIGNS.items():
            jobs.append(("known", name, seed, partial(planted, sign, seed)))
        jobs.append(("known", "tokens that lose what they do not share", seed,
                     partial(collapsing, seed)))  # fmt: skip
        kind, model = random_model(seed)
        jobs.append(("random", kind, seed, lambda model=model: model))
    for seed in range(3):
        make = partial(untrained, load(bundled_path()), seed)
        jobs += [("random", "bundled, untrained", seed, make)]
    for name, path in [("bundled", "bundled"), *(m.split("=", 1) for m in options.model)]:
        jobs += [("real", name, 0, partial(opened, path))]
    for part, name, seed, make in jobs:
        if RUNS.has(part, name, str(seed)):
            continue
        start = time.process_time()
        verdicts = read(make(), seed)
        rows = RUNS.store(part, name, str(seed), verdicts, time.process_time() - start)
        short = ", ".join(f"{v} {row['outcome']} {row['effect']}" for v, row in rows.items())
        print(part, name, seed, short, flush=True)
    document = RUNS.document()
    for part in RUNS.parts:
        for name, runs in document[part].items():
            for verdict in ("F1", "F2", "F3"):
                counts = Counter(run["verdicts"][verdict]["outcome"] for run in runs.values())
                print(f"{part}: {name}: {verdict} {dict(counts)}")


if __name__ == "__main__":
    main()
