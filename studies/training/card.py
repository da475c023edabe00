"""Write the model card ``README.md`` of a training folder from its ``training.json``.

python -m studies.training.card FOLDER
"""

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["card"]


def card(record: dict[str, Any], config: dict[str, Any]) -> str:
    """The card as Markdown; every number in it comes from the record or the configuration."""
    parts = [
        _head(record, config),
        _data(record["corpus"]),
        _training(record),
        _quality(record),
        _depth(record),
        _files(record),
    ]
    return "\n\n".join(parts) + "\n"


def _head(record: dict[str, Any], config: dict[str, Any]) -> str:
    return f"""# The bundled language model

A small real language model to try flowscope on without a download: a plain `LlamaForCausalLM` of
{record["parameters"]:,} parameters, stored in bfloat16. It is made to be measured, not to be
believed: it writes English that looks like its sources and knows nothing.

| | |
|---|---|
| layers | {config["num_hidden_layers"]} |
| width | {config["hidden_size"]} |
| heads, key heads | {config["num_attention_heads"]}, {config["num_key_value_heads"]} |
| feed-forward width | {config["intermediate_size"]} |
| vocabulary | {config["vocab_size"]} byte-level pieces; output matrix tied to the embeddings |
| context | {config["max_position_embeddings"]} tokens |"""


def _data(corpus: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {s['origin']} | {s['licence']} | {s['train']['bytes']:,} | "
        f"{s['train']['tokens']:,} | {s['heldout']['tokens']:,} |"
        for name, s in corpus["sources"].items()
    ]
    head = "| source | what | licence | bytes | tokens | held-out tokens |\n" + 6 * "|---" + "|"
    note = (
        "Held-out documents were chosen by the rank of a hash, whole groups at a time (a question "
        "with its answer); neither the tokenizer nor the weights saw them. WikiText-2 is in its "
        "published spacing, `<unk>` included."
    )
    return "\n".join(["## Data", "", head, *rows, "", note])


def _training(record: dict[str, Any]) -> str:
    options = record["options"]
    shown = ("batch", "rate", "warmup", "decay", "weight_decay", "dropout", "attention_dropout",
             "clip", "memory", "temper", "seed")  # fmt: skip
    values = ", ".join(f"{name} {options[name]}" for name in shown)
    versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
    return f"""## Training

{record["steps"]:,} steps, {record["tokens_seen"]:,} tokens ({record["epochs"]:.1f} times the
training text), {record["seconds"]:.0f} s on {record["device"]}. AdamW; warm-up, plateau and decay
of the learning rate (the decay began at step {record["decay_since"]}); the average of the weights
at step {record["best"]["step"]:,}, best on held-out text, is what is stored.

Options: {values}.

    {record["command"]}

{versions}."""


def _quality(record: dict[str, Any]) -> str:
    kinds = ("model", "unigram", "random_weights")
    rows = []
    for name, row in record["heldout"].items():
        token = " | ".join(f"{row[kind]['per_token']:.1f}" for kind in kinds)
        byte = " | ".join(f"{row[kind]['per_byte']:.3f}" for kind in kinds)
        rows.append(f"| {name} | {row['tokens']:,} | {token} | {byte} |")
    return "\n".join([
        "## Held-out perplexity",
        "",
        "Of the stored weights, beside the token frequencies of the training text (unigram) and "
        "the same architecture with fresh random weights. Windows do not overlap.",
        "",
        "| source | tokens | per token: model | unigram | random | per byte: model | unigram "
        "| random |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip


def _depth(record: dict[str, Any]) -> str:
    names = {
        "variation": "normalised variation of the depth path",
        "mobility_last": "mobility at the last layer",
        "mobility_mean": "mobility, mean over layers",
        "locking_depth": "locking depth (layer)",
    }
    depth = record["depth"]
    rows = [
        f"| {title} | {depth['trained'][key]:.3g} | {depth['random_weights'][key]:.3g} |"
        for key, title in names.items()
    ]
    head = "| median over held-out tokens | trained | random weights |\n|---|---|---|"
    return "\n".join(["## The depth path", "", head, *rows])


def _files(record: dict[str, Any]) -> str:
    return (
        f"## Files\n\n`model.safetensors`: {record['bytes']:,} bytes, sha256\n`{record['sha256']}`."
        "\n`training.json` holds everything above, `training_curve.csv` the depth path while it "
        "learned."
    )


def main() -> None:
    """Write the card of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "README.md").write_text(card(record, config), encoding="utf-8")


if __name__ == "__main__":
    main()
