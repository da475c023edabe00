"""Whether P1 "Forecast" holds where there is a flow, and only there.

Subjects whose answer is known, on a linear output: steps that are the same for every token
(``constant drift``), with noise that no forecast can know; a linear flow (``planted flow``) with
noise, also of tokens that have names; steps that depend on the name alone; and the same flow in
random order of its layers (``shuffled depth``). Then real architectures: the bundled model and the
same with random weights, small Llamas and GPT-2 networks with random weights, and any
trained Llama folder with a text.

    python -m benchmarks.forecast_panel --seeds 20
    python -m benchmarks.forecast_panel --only bundled,random --llama FOLDER --text FILE.gz

The gate on variation is not applied to random weights and shuffled depth (``gate`` says what it
would have done), so that the verdict itself is tried. Results are kept by subject in
``results/forecast_panel.json``.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import described
from flowscope.evidence.verdicts import ends
from flowscope.flows import segments_of
from flowscope.instruments.audit.adequacy.cross_forecasts import cross_forecasts, skill_table
from flowscope.instruments.audit.adequacy.judge import judge_forecast
from flowscope.instruments.audit.adequacy.rule import forecast_effect, integrated
from flowscope.instruments.audit.paths import Paths, read_tokens, sampled_paths
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.models.loading import Loaded, load
from flowscope.models.prompts import Prompts, batches_of, packaged_texts, prompts_of
from flowscope.models.twin import fresh_twin
from flowscope.nets import bundled_path
from flowscope.probes import LogitReadout
from flowscope.records import Unavailable
from flowscope.tap import LinearOutput

RESULTS = Path(__file__).parent / "results" / "forecast_panel.json"
PROMPTS, TOKENS, FITTED, CLOSE, LAYERS, WIDTH, VOCABULARY = 32, 128, 32, 12, 10, 16, 200
RANK, THRESHOLD, NAMES = 64, 0.15, 40
UNGATED = ("random", "shuffled")


class LinearTail:
    """z = U h, with the interface of a tail."""

    positionwise, device = True, torch.device("cpu")

    def __init__(self, U: Tensor) -> None:
        self.weight, self.bias, self.width = U, torch.zeros(len(U)), len(U)

    def widened(self, operands: str = "exact") -> "LinearTail":
        """Return itself: it is wide enough."""
        return self

    def linear_output(self) -> LinearOutput:
        """The product that it ends in."""
        program = SimpleNamespace(run=lambda hidden: hidden)
        return LinearOutput(weight=self.weight, bias=self.bias, _program=program)

    def rows(self, hidden: Tensor) -> Tensor:
        """Logits of each row."""
        return hidden @ self.weight.mT


def planted(
    seed: int, *, speed: float, drift: float, noise: float = 0.5, steady: bool = False,
    shuffled: bool = False, prompts: int = PROMPTS, layers: int = LAYERS,
) -> Paths:  # fmt: skip
    """Paths of h' = h + c_layer + A h / L + noise, every prompt around a centre of its own."""
    g = torch.Generator().manual_seed(seed)
    A = speed * torch.randn(WIDTH, WIDTH, generator=g) / WIDTH**0.5
    constant = drift * torch.randn(layers, WIDTH, generator=g) / layers**0.5
    if steady:
        constant = drift * torch.randn(1, WIDTH, generator=g).expand(layers, -1) / layers
    centre = 0.5 * torch.randn(prompts, 1, WIDTH, generator=g)
    h = (centre + torch.randn(prompts, CLOSE, WIDTH, generator=g)).flatten(0, 1)
    states = [h]
    flow = torch.linalg.matrix_exp(A / layers)
    for layer in range(layers):
        fresh = noise * torch.randn(h.shape, generator=g) / layers**0.5
        states.append(states[-1] @ flow.mT + constant[layer] + fresh)
    hidden = torch.stack(states, 1)
    if shuffled:
        hidden = hidden[:, torch.randperm(layers + 1, generator=g)]
    return linear_paths(hidden, g)


def named(
    seed: int, *, flow: bool, prompts: int = PROMPTS, layers: int = LAYERS
) -> tuple[Paths, np.ndarray]:
    """Paths of tokens with one of 40 names, and the names.

    Tokens of one name start around one place. Either each name has its own step at every layer and
    the state plays no part, or a linear flow carries all of them and the name plays no part.
    """
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(NAMES, (prompts * CLOSE,), generator=g)
    h = torch.randn(NAMES, WIDTH, generator=g)[tokens]
    h = h + (1.0 if flow else 0.2) * torch.randn(h.shape, generator=g)
    steps = torch.randn(NAMES, layers, WIDTH, generator=g)[tokens] / layers**0.5
    A = torch.randn(WIDTH, WIDTH, generator=g) / WIDTH**0.5
    carried = torch.linalg.matrix_exp(A / layers)
    states = [h]
    for layer in range(layers):
        fresh = 0.2 * torch.randn(h.shape, generator=g) / layers**0.5
        moved = states[-1] @ carried.mT if flow else states[-1] + steps[:, layer]
        states.append(moved + fresh)
    return linear_paths(torch.stack(states, 1), g), tokens.numpy()


def linear_paths(hidden: Tensor, g: torch.Generator) -> Paths:
    """Paths of the states of a model that ends in a random linear map."""
    U = torch.randn(VOCABULARY, WIDTH, generator=g) / WIDTH**0.5
    place = np.arange(len(hidden))
    return Paths(
        prompt=place // CLOSE,
        position=place % CLOSE,
        hidden=hidden,
        close=place,
        between=Unavailable("a linear map has no writes"),
        readout=LogitReadout(LinearTail(U)),  # type: ignore[arg-type]
    )


Reading = tuple[Paths, np.ndarray | None]

PLANTED: dict[str, Callable[[int], Reading]] = {
    "constant drift": lambda seed: (planted(seed, speed=0, drift=1), None),
    "constant drift, all layers": lambda seed: (planted(seed, speed=0, drift=1, steady=True), None),
    "noise": lambda seed: (planted(seed, speed=0, drift=0, noise=1), None),
    "planted flow": lambda seed: (planted(seed, speed=1, drift=1), None),
    "planted flow, steady": lambda seed: (planted(seed, speed=1, drift=1, steady=True), None),
    "flow of named tokens": lambda seed: named(seed, flow=True),
    "steps by name": lambda seed: named(seed, flow=False),
    "shuffled depth": lambda seed: (planted(seed, speed=1, drift=1, shuffled=True), None),
}


def model_paths(loaded: Loaded, prompts: Prompts) -> tuple[Paths, np.ndarray]:
    """Depth paths of a model, as the audit reads them, and the token of each."""
    paths = sampled_paths(
        loaded.model,
        batches_of(loaded, prompts, 8),
        prompts=len(prompts),
        positions=FITTED,
        close=CLOSE,
    )
    assert not isinstance(paths, Unavailable), paths.reason
    return paths, read_tokens(paths, prompts)


def byte_pairs(text: str, pieces: list[dict[str, object]]) -> list[int]:
    """Tokens of a text under the vocabulary of a small Llama: the best-scored merge first."""
    names = [str(piece["piece"]) for piece in pieces]
    place = {name: number for number, name in enumerate(names)}
    ids = [
        i for c in f" {text}" for i in ([place[c]] if c in place else [b + 3 for b in c.encode()])
    ]
    while True:
        merges = [
            (float(str(pieces[place[both]]["score"])), -k, place[both])
            for k, both in enumerate(names[a] + names[b] for a, b in pairwise(ids))
            if both in place
        ]
        if not merges:
            return [1, *ids]
        _, k, merged = max(merges)
        ids[-k : 2 - k] = [merged]


def story_prompts(folder: Path, text: Path) -> Prompts:
    """Windows of a text as tokens of the model in a folder, far apart from each other."""
    pieces = json.loads((folder / "tok512.json").read_text())
    story = gzip.decompress(text.read_bytes()).decode()
    starts = range(0, len(story) - 600, (len(story) - 600) // PROMPTS)
    items = tuple(np.array(byte_pairs(story[k : k + 600], pieces)[:TOKENS]) for k in starts)
    return Prompts(
        items=items[:PROMPTS], source=text.name, data_hash="", text_hash="", images=False
    )


def random_gpt2(seed: int, size: int) -> torch.nn.Module:
    """A GPT-2 network of 12 layers and width 96 with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(
        n_embd=96, n_layer=12, n_head=4, vocab_size=size, n_positions=256, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def small_llama(seed: int, layers: int) -> torch.nn.Module:
    """A Llama of width 64 with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=172, num_hidden_layers=layers, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=512, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def models(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], Reading]]]:
    """Real architectures, trained and with random weights."""
    bundled = load(bundled_path())
    texts = prompts_of(bundled, packaged_texts(), count=PROMPTS, length=TOKENS)
    yield "bundled", 0, lambda: model_paths(bundled, texts)
    for seed in range(options.random):
        twin = fresh_twin(bundled.model, seed)
        assert not isinstance(twin, Unavailable)
        yield "random bundled", seed, lambda m=twin: model_paths(replace(bundled, model=m), texts)
    for seed in range(options.random):
        network = random_gpt2(seed, int(bundled.model.config.vocab_size))
        yield "random GPT-2", seed, lambda m=network: model_paths(replace(bundled, model=m), texts)
    if options.llama is None:
        return
    llama = load(options.llama)
    stories = story_prompts(options.llama, options.text)
    yield options.llama.name, 0, lambda: model_paths(llama, stories)
    for layers in (5, 24):
        for seed in range(options.random):
            made = replace(llama, model=small_llama(seed, layers))
            name = f"random Llama, {layers} layers"
            yield name, seed, lambda m=made: model_paths(m, stories)


def segments(paths: Paths, *, gate: bool) -> tuple[list[SegmentEvidence], str]:
    """Segments of the depth that the gate on variation passes (all, without it), and its words."""
    shown = paths.hidden[torch.from_numpy(paths.close)]
    z = torch.stack([paths.readout.logits(shown[:, k]) for k in range(paths.layers + 1)], 1)
    z = (z - z.mean(-1, keepdim=True)).double()
    moved, size = z.diff(dim=1).square().sum(-1), z[:, :-1].square().sum(-1)
    made, words = [], []
    absent = Unavailable("not part of the panel")
    for part in segments_of((moved / size).median(0).values.numpy()):
        rows = slice(part.first - 1, part.last)
        variation = float((moved[:, rows].sum(1) / size[:, rows].sum(1)).median())
        evidence = SegmentEvidence(
            first=part.first, last=part.last, kind=part.kind, relative_variation=variation,
            interval=absent, share_above=0.0, mass_residual=0.0, mass_bound=1.0,
            threshold=THRESHOLD, random_weights=absent, linear_interpolation=absent,
        )  # fmt: skip
        words.append(f"{evidence.layers}: {evidence.decision} ({variation:.3f})")
        if evidence.decision == "holds" or (not gate and part.kind == "segment"):
            made.append(evidence)
    return made, "; ".join(words)


def reading(
    paths: Paths, *, seed: int, gate: bool, tokens: np.ndarray | None = None
) -> dict[str, object]:
    """The verdict on one subject and what it rests on."""
    start = time.process_time()
    parts, words = segments(paths, gate=gate)
    made = [cross_forecasts(paths, part, rank=RANK, tokens=tokens, seed=seed) for part in parts]
    forecasts = [part for part in made if not isinstance(part, Unavailable)]
    if not forecasts:
        reasons = [part.reason for part in made if isinstance(part, Unavailable)]
        return {"outcome": "abstains", "because": "; ".join(reasons) or "no segment", "gate": words}
    table = integrated(skill_table(forecasts))
    effect, verdict = forecast_effect(table, seed=seed), judge_forecast(table, seed=seed)
    if isinstance(effect, Unavailable) or isinstance(effect.interval, Unavailable):
        return {"outcome": verdict.outcome, "because": verdict.because, "gate": words}
    return {
        "outcome": verdict.outcome,
        "because": verdict.because,
        "effect": round(effect.effect, 4),
        "interval": [round(end, 4) for end in ends(effect.interval)],
        "reference": effect.reference,
        "room": round(effect.room, 4),
        "share": round(effect.share, 4),
        "strength": verdict.strength,
        "skills": {name: round(value, 4) for name, value in effect.skills.items()},
        "drifts": [part.chosen for part in forecasts],
        "gate": words,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def summary(name: str, runs: list[dict[str, object]]) -> str:
    """One line per subject."""
    outcomes = [str(run["outcome"]) for run in runs]
    counts = ", ".join(f"{w} {outcomes.count(w)}" for w in dict.fromkeys(sorted(outcomes)))
    effects = [float(str(run["effect"])) for run in runs if "effect" in run]
    middle = f"median effect {np.median(effects):+.3f}" if effects else "no effect"
    return f"{name:<28} {len(runs):3d} runs: {counts}; {middle}"


def store(name: str, rows: list[dict[str, object]]) -> None:
    """Write the runs of one subject beside those of the others."""
    document = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    document[name] = {"machine": described(), "runs": rows}
    RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="of every planted subject")
    parser.add_argument("--random", type=int, default=4, help="of every random architecture")
    parser.add_argument("--only", default="", help="names that start so, separated by commas")
    parser.add_argument("--llama", type=Path, help="folder of a trained Llama with tok512.json")
    parser.add_argument("--text", type=Path, help="gzipped text for it")
    options = parser.parse_args()
    wanted = tuple(part for part in options.only.split(",") if part)
    runs: dict[str, list[dict[str, object]]] = {}
    subjects = [
        (name, seed, lambda make=make, seed=seed: make(seed))
        for name, make in PLANTED.items()
        for seed in range(options.seeds)
    ]
    for name, seed, make in chain(subjects, models(options)):
        if wanted and not name.startswith(wanted):
            continue
        paths, tokens = make()
        gate = not name.startswith(UNGATED)
        row = {"seed": seed, **reading(paths, seed=seed, gate=gate, tokens=tokens)}
        runs.setdefault(name, []).append(row)
        print(name, json.dumps(row), flush=True)
        store(name, runs[name])
    for name, rows in runs.items():
        print(summary(name, rows))


if __name__ == "__main__":
    main()
