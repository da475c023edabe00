"""Hostile inputs by name: what is run on a world, and the words of the answer.

Words of None mean that a result is as good as a sentence; an empty string asks for a result.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.hostile.subjects import World, changed_config, changed_weights, sentence_of
from torch import nn

import flowscope

__all__ = ["COMMANDS", "FUNCTIONS", "Command", "Function"]

Command = tuple[str, Callable[[World], list[Any]], str | None]
Function = tuple[str, Callable[[World], object], str | None]
LONG, DENOISER = sentence_of(400), "transformer/diffusion_pytorch_model.safetensors"
QUICK = [
    "--tokens", "8", "--prompts", "2", "--only", "P0", "--set", "resamples=4", "--set",
    "controls=false",
]  # fmt: skip


def _audit(world: World, *more: Any) -> list[Any]:
    return ["audit", world.language, "--text", world.prompts, *QUICK, *more]


def _prompt_files() -> Iterator[Command]:
    row, broken = '{"text": %s}\n', "line 1 of .*"
    files: list[tuple[str, str | bytes, str | None]] = [
        ("null.jsonl", row % "null", "got nothing .null.. Leave it out"),
        ("number.jsonl", row % "3", "must be a string; got int 3"),
        ("nan.jsonl", row % "NaN", "must be a string; got float nan"),
        ("nested.jsonl", row % '{"a": 1}', "must be a string; got dict"),
        ("separators.jsonl", row % f'"{LONG}\u2028{LONG}\u0085{LONG}"', ""),
        ("surrogate.jsonl", row % '"\\ud800 w1"', "surrogate pair .U.D800.*Replace it"),
        ("list.jsonl", "[1, 2]", broken + "JSON object"),
        ("cut.jsonl", '{"text": "w1', broken + "JSON object"),
        ("deep.jsonl", "[" * 100_000, broken + "JSON object"),
        ("fields.jsonl", '{"body": "w1"}', "has no “text”; its fields: body"),
        ("copies.jsonl", (row % f'"{LONG}"') * 9, ""),
        ("table.csv", f"id,text\n1,{LONG}\n", ""),
        ("semicolons.csv", f"id;text\n1;{LONG}\n", ""),
        ("long.csv", f'text\n"{LONG * 100}"\n', ""),
        ("other.csv", "id,body\n1,w1\n", "no column “text”; its first line names: id, body"),
        ("header.csv", "text\n", "a header and no row"),
        ("quotes.csv", 'text\n"w1', "could not be read as a table"),
        ("table.tsv", f"id\ttext\n1\t{LONG}\n", ""),
        ("list.json", f'["{LONG}"]', ""),
        ("rows.json", f'[{{"text": "{LONG}"}}]', ""),
        ("number.json", "3", "JSON list of texts; found int"),
        ("cut.json", "[", "is not valid JSON.*name it .jsonl"),
        ("latin.txt", b"caf\xe9 w1 w2", "not UTF-8: byte 0xe9 in line 1. Save it as UTF-8"),
        ("utf16.txt", LONG.encode("utf-16"), "is not UTF-8 but UTF-16. .*iconv -f UTF-16"),
        ("utf32.txt", LONG.encode("utf-32"), "is not UTF-8 but UTF-32"),
        ("unmarked.txt", LONG.encode("utf-16-le"), "UTF-16 without a mark.*Save it as UTF-8"),
        ("bytes.txt", bytes(range(256)) * 9, "not UTF-8"),
        ("zeros.txt", bytes(900), "binary data"),
        ("image.png", b"\x89PNG\r\n\x1a\n" + bytes(99), "is an image, not text"),
        ("packed.txt.gz", b"\x1f\x8b\x08" + bytes(99), "compressed .gzip., not text. Unpack"),
        ("office.docx", b"PK\x03\x04" + bytes(99), "zip archive or an office document"),
        ("paper.pdf", b"%PDF-1.4", "is a PDF"),
        ("empty.txt", "", "is empty. Give a file"),
        ("spaces.txt", " \n\t ", "is empty"),
        ("mark.txt", "\ufeff", "is empty"),
        ("one.txt", "w1", "fewer than two tokens"),
        ("line.txt", LONG * 50, ""),
        ("special.txt", "[UNK] " * 40, ""),
        ("strange.txt", "never seen before in this vocabulary at all", ""),
        ("nul.txt", LONG + "\0" + LONG, ""),
        ("rtl.txt", LONG + " \u202e\u0007\x1b[31m<script>alert(1)</script> " + LONG, ""),
        ("windows.txt", LONG.replace(" w1", "\r\nw1"), ""),
    ]  # fmt: skip
    for name, content, words in files:

        def command(world: World, name: str = name, content: str | bytes = content) -> list[Any]:
            return ["audit", world.language, "--text", world.file(name, content), *QUICK]

        yield f"text {name}", command, words
    read = "could not be read"
    for name, words in [
        ("nowhere.txt", read), ("x" * 300, read), ("a\0b", read), ("", "is empty"),
        (".", read), ("/dev/zero", "it is a device"),
    ]:  # fmt: skip
        yield f"text {name[:12]!r}", lambda w, n=name: _audit(w, "--text", n), words
    yield "text pipe", _from_a_pipe, ""


def _from_a_pipe(world: World) -> list[Any]:
    pipe = world.out
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_text(LONG), daemon=True).start()
    return _audit(world, "--text", pipe)


def _options() -> Iterator[Command]:
    plain = "device must be cpu"
    for name, words in [
        ("cuda:0", "cannot be used here" if not torch.cuda.is_available() else None),
        ("cuda:99", "cannot be used here"), ("meta", "no values"), ("nonsense", plain),
        ("", plain), ("-1", plain), ("CPU", plain), ("cuda:-1", plain), ("xla", "cannot be used"),
        ("mps", None), ("auto", ""), ("cpu:7", ""),
    ]:  # fmt: skip
        yield f"audit device {name!r}", lambda w, n=name: _audit(w, "--device", n), words
        if words:
            for base in ("doctor", "image", "sync"):
                yield (
                    f"{base} device {name!r}",
                    lambda w, n=name, b=base: [
                        b, w.language if b == "doctor" else w.pipeline, "--device", n,
                    ],
                    words,
                )  # fmt: skip
    for value, words in [
        ("-1", "at least 0; got '-1'"), ("1e26", "whole number; got '1e26'"), ("abc", "whole"),
        (str(10**26), "at most 9223372036854775807"), ("1.5", "whole number"), ("", "whole"),
        ("9" * 5000, "seed"),
    ]:  # fmt: skip
        for name in ("audit", "heads", "sync", "image"):
            yield f"{name} seed {value[:9]!r}", lambda w, n=name, v=value: [n, "--seed", v], words
    for value, words in [
        ("float8", "one of"),
        ("int8", "one of"),
        ("bfloat16", ""),
        ("float64", ""),
    ]:
        yield f"dtype {value}", lambda w, v=value: _audit(w, "--dtype", v), words
    for value, words in [
        ("P9", "No claim or stage is named 'P9'. Known"), ("", "takes names"), (",", "takes names"),
        ("p0", "No claim"), ("P0,,P0", ""),
    ]:  # fmt: skip
        yield f"only {value!r}", lambda w, v=value: _audit(w, "--only", v), words
    for value, words in [
        ("nope=1", "No setting is named 'nope'"), ("nope", "takes name=value"), ("=1",
        "takes name"),
        ("prompts=[", "not valid YAML"), ("prompts=[1, 2]", "whole number"), ("a.b.c=1",
        "named 'a'"),
        ("prompts=true", "must be a number; got True"), ("prompts=2020-99-99", "prompts"),
        ("prompts=" + "9" * 5000, "not valid YAML"), ("prompts=" + "[" * 1200, "not valid YAML"),
        ("prompts.x=1", "whole number"), ("chain=nope", "unmasked"), ("controls=7", "yes or no"),
    ]:  # fmt: skip
        base = "heads" if "chain" in value else "audit"
        yield f"set {value[:20]}", lambda w, v=value, b=base: [b, "--set", v], words
    yield "tokens beyond positions", lambda w: [
        "audit", w.language, "--text", w.file("a.txt", LONG), "--tokens", "64",
    ], "has 16 positions; the longest prompt has 64 tokens. Take --tokens 16"  # fmt: skip
    yield "heads beyond positions", lambda w: [
        "heads", w.language, "--text", w.file("a.txt", LONG),
    ], "16 positions"  # fmt: skip
    yield "tokenizer nowhere", lambda w: _audit(w, "--tokenizer", w.root / "no"), "No tokenizer"
    yield "tokenizer elsewhere", lambda w: _audit(w, "--tokenizer", w.language), ""
    yield "revision of a folder", lambda w: _audit(w, "--revision", "nope"), None
    for name, content, words in [
        ("a.yaml", b"\xff\xfe", "not valid YAML.*UTF-8"), ("b.yaml", "- a", "a mapping of names"),
        ("c.yaml", "1: 2", "Keys should be strings"), ("d.yaml", "a: [", "not valid YAML"),
        ("e.yaml", "a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("f.yaml", "promts: 3", "Did you mean 'prompts'"), ("g.yaml", "", ""),
    ]:  # fmt: skip
        yield (
            f"config {name} {content[:8]!r}",
            lambda w, n=name, c=content: _audit(w, "--config", w.file(n, c)),
            words,
        )
    yield "config nowhere", lambda w: _audit(w, "--config", w.root / "no.yaml"), "could not be read"
    yield "config folder", lambda w: _audit(w, "--config", w.root), "could not be read"


def _folders() -> Iterator[Command]:
    file = "should be a folder, found a file"
    yield "out is a file", lambda w: _audit(w, "--out", w.file("out", "")), file
    yield "out below a file", lambda w: _audit(w, "--out", w.file("out", "") / "x"), file
    yield "out too long", lambda w: _audit(w, "--out", w.root / ("x" * 300)), "File name too long"
    yield "out with NUL", lambda w: _audit(w, "--out", "a\0b"), "NUL"
    yield "out in /proc", lambda w: _audit(w, "--out", "/proc/nowhere"), "could not be written"
    yield "compare nothing", lambda w: ["compare", w.out, w.out], "there is no folder"
    yield "compare no runs", lambda w: ["compare", w.root, w.root], "is no run"
    yield "runs of a file", lambda w: ["runs", w.prompts], "found a file"
    yield "runs of nothing", lambda w: ["runs", w.out], ""
    yield "unknown study", lambda w: ["reproduce", "nope"], "No study is named 'nope'"
    yield "study of nothing", lambda w: ["reproduce", "track_t", w.out], "There is no folder"
    yield (
        "study on cuda",
        lambda w: ["reproduce", "track_i", "--device", "cuda:99"],
        "cannot be used",
    )
    for option in ("--prompts", "--tokens"):
        for value, words in [
            ("0", "at least"),
            ("-1", "at least"),
            ("x", "must be a whole number"),
        ]:
            yield (
                f"study with {option} {value}",
                lambda w, o=option, v=value: ["reproduce", "track_t", o, v],
                words,
            )
    yield "bundled by name", lambda w: ["doctor", "language"], ""
    yield "bundled image by name", lambda w: ["doctor", "image"], ""
    names = {
        "long": ("n" * 256, "File name too long"), "longer": ("n/" * 5000, "too long|no folder"),
        "NUL": ("a\0b", "null byte"), "empty": ("", "is empty"), "space": (" ", "is empty"),
        "file": ("/dev/null", "is a file"), "root": ("/", "has no config.json"),
        "html": ("<script>alert(1)</script>", "not a folder|no folder"),
        "hub id": ("nobody/nothing", "no model of that id"), "gguf": ("no.gguf", "no file no.gguf"),
        "home": ("~nobody/x", "cannot be|no folder"), "dots": ("../../..",
        "has no config.json|no fo"),
    }  # fmt: skip
    for label, (name, words) in names.items():
        for command in ("doctor", "audit", "image"):
            yield f"{command} name {label}", lambda w, n=name, c=command: [c, n], words
    for content, words in [(b"", "could not be loaded"), (b"GGUF" + bytes(99), "could not be")]:
        yield (
            f"gguf of {len(content)} bytes",
            lambda w, c=content: ["doctor", w.file("a.gguf", c)],
            words,
        )


def _models() -> Iterator[Command]:
    sizes = "says {} = {}; expected a whole number"
    changes: list[tuple[str, Any, str | None]] = [
        ("config in Latin-1", lambda d: (d / "config.json").write_bytes(b'{"a": "\xe9"}'), "UTF-8"),
        ("empty config", lambda d: (d / "config.json").write_text(""), "not valid JSON"),
        ("config of a list", lambda d: (d / "config.json").write_text("[]"), "a JSON object"),
        ("config of nothing", lambda d: (d / "config.json").write_text("{}"), "model_type"),
        ("deep config", lambda d: (d / "config.json").write_text("[" * 99_999), "not valid JSON"),
        *((f"n_layer {value!r}", changed_config(n_layer=value), sizes.format("n_layer", value))
          for value in (-1, 0, 10**9, True)),
        ("n_layer in words", changed_config(n_layer="three"), "expected a whole number"),
        ("n_layer too many", changed_config(n_layer=4), "lacks 24 of the weights.*first: transf"),
        ("n_layer too few", changed_config(n_layer=1), ""),
        ("vocabulary without end", changed_config(vocab_size=10**12), "says vocab_size"),
        ("another vocabulary", changed_config(vocab_size=10), "other shapes than config.json"),
        ("no heads", changed_config(n_head=0), "says n_head = 0"),
        ("heads that do not divide", changed_config(n_head=3), "could not be loaded"),
        *((f"architecture {value!r}", changed_config(architectures=value), words)
          for value, words in [
              (["logging"], "architecture logging, which is no model"),
              (["Nope"], "no model of tr"),
              ([5], "name of a class"), ("GPT2LMHeadModel", ""),
              (["GPT2Config"], "no model of tra"),
              (["__name__"], "no model"), (["BertForMaskedLM"], "lacks"), ([], ""), (None, ""),
          ]),
        ("code with the weights", changed_config(auto_map={"AutoModel": "evil.Model"},
                                                 architectures=["Evil"]), "trust_remote_code"),
        ("no weights", lambda d: (d / "model.safetensors").unlink(), "could not be loaded"),
        ("pickle only", _pickled, "pickled weights only .pytorch_model.bin.*Convert"),
        *((f"weights cut to {size}", lambda d, n=size: _cut(d / "model.safetensors", n),
           "could not be loaded.*Take the files again") for size in (0, 99, 1000, -100)),
        ("weights of noise", lambda d: (d / "model.safetensors").write_bytes(b"\xff" * 999),
        "could"),
        ("a missing weight", changed_weights(lambda t: t.pop("transformer.ln_f.weight")),
         "lacks 1 of the weights of GPT2LMHeadModel .the first: transformer.ln_f.weight"),
        ("an extra weight", changed_weights(lambda t: t.update(extra=torch.zeros(3))), ""),
        ("a weight of another shape",
         changed_weights(lambda t: t.update({"transformer.ln_f.weight": torch.zeros(3)})),
         "shapes"),
        *((f"a weight of {value}", changed_weights(
            lambda t, v=value: t["transformer.ln_f.weight"].fill_(v)),
            "8 values that are NaN or inf")
          for value in (float("nan"), float("inf"))),
        ("nothing in it", lambda d: [file.unlink() for file in d.iterdir()], "contains nothing"),
        ("no vocabulary", lambda d: [p.unlink() for p in d.glob("tokenizer*")], None),
        ("half a tokenizer", lambda d: _cut(d / "tokenizer.json", 50), None),
    ]  # fmt: skip
    for label, change, words in changes:
        for command in ("doctor", "audit"):

            def made(world: World, change: Any = change, command: str = command) -> list[Any]:
                folder, rest = world.broken(change), ["--text", world.prompts, *QUICK]
                return [command, folder, *(rest if command == "audit" else [])]

            yield f"{command} {label}", made, words
    yield (
        "a name of 250 characters",
        lambda w: ["audit", w.broken(lambda d: None, name="n" * 250), *_audit(w)[2:]],
        "",
    )


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def _pipelines() -> Iterator[Command]:
    index, scheduler = "model_index.json", "scheduler/scheduler_config.json"

    def missing(number: int) -> Any:
        return changed_weights(lambda t: [t.pop(name) for name in sorted(t)[:number]], DENOISER)

    changes: list[tuple[str, Any, str | None]] = [
        ("19 missing weights", missing(19), "lacks 19 of the weights of DiT.*pos_embed.proj.bias"),
        ("a missing weight", missing(1), "lacks 1 of the weights"),
        ("a NaN weight", changed_weights(
            lambda t: t["proj_out_2.weight"].fill_(float("nan")), DENOISER), "NaN or infinite"),
        ("cut weights", lambda d: _cut(d / DENOISER, 500), "could not be loaded"),
        ("no weights", lambda d: (d / DENOISER).unlink(), "could not be loaded"),
        ("another shape", changed_weights(
            lambda t: t.update({"proj_out_2.weight": torch.zeros(3)}), DENOISER), "other shapes"),
        *((f"class {value!r}", changed_config("transformer/config.json", _class_name=value),
        "is no")
          for value in ("logging", 5, "Nope", "DDIMScheduler")),
        *((f"layers {value}", changed_config("transformer/config.json", num_layers=value), "whole")
          for value in (-1, 0, 10**9)),
        ("index of a list", lambda d: (d / index).write_text("[]"), "a JSON object"),
        ("index of nothing", lambda d: (d / index).write_text("{}"), "no transformer and no unet"),
        ("index of empty parts", lambda d: (d / index).write_text('{"unet": []}'), "no unet"),
        ("index in Latin-1", lambda d: (d / index).write_bytes(b"\xe9"), "not valid JSON"),
    ]  # fmt: skip
    for label, change, words in changes:
        for command in ("doctor", "image"):
            yield (
                f"{command} pipeline with {label}",
                lambda w, c=change, n=command: [n, w.broken(c, "pipeline")],
                words,
            )
    for label, change in {
        "no schedule": lambda d: shutil.rmtree(d / "scheduler"),
        "half a schedule": lambda d: (d / scheduler).write_text("{"),
        "a schedule in Latin-1": lambda d: (d / scheduler).write_bytes(b'{"a": "\xe9"}'),
        "a schedule of -1 times": changed_config(scheduler, num_train_timesteps=-1),
        "a schedule of another class": changed_config(scheduler, _class_name="logging"),
    }.items():
        for command in ("image", "sync"):
            yield (
                f"{command} pipeline with {label}",
                lambda w, c=change, n=command: [n, w.broken(c, "pipeline")],
                "holds no scheduler of diffusers.*Give a folder",
            )
    yield "extra weights", lambda w: ["doctor", w.broken(changed_weights(
        lambda t: t.update(extra=torch.zeros(3)), DENOISER), "pipeline")], ""  # fmt: skip
    for command in ("image", "sync"):
        yield f"{command} of a text model", lambda w, c=command: [c, w.language], "not a denoiser"
    yield "audit of a pipeline", lambda w: ["audit", w.pipeline], "kind diffusion.*flowscope heads"
    yield "no reader", lambda w: ["image", w.pipeline, "--reader", w.out], "There is no folder"
    yield "no encoder", lambda w: ["sync", w.pipeline, "--encoder", w.out], "There is no folder"
    yield "no scheduler", lambda w: ["sync", w.pipeline, "--scheduler", w.out], "no scheduler"


def _functions() -> Iterator[Function]:
    wanted = {
        "a number": (5, "got int"), "bytes": (b"abc", "got bytes"), "a path": (Path("x"), "Path"),
        "a function": (print, "Give a list"), "a class": (int, "got type"),
        "nothing": ([], "least"),
        "numbers": ([1, 2], "text 0 must be a string; got int"),
        "no text": ({"a": 1}, "columns: a"),
        "a vector": (torch.zeros(3), "reads no images"), "images": (torch.zeros(2, 3, 8, 8),
        "no im"),
        "an array": (np.zeros((3, 4)), "reads no images"), "None inside": ([None], "nothing .null"),
        "blank": ("  ", "empty"), "half a pair": (["\ud800"], "surrogate"),
        "rows": ([{}], "no “text"),
    }  # fmt: skip
    for label, (texts, words) in wanted.items():
        for name in ("audit", "heads"):
            yield (
                f"{name} texts of {label}",
                lambda w, n=name, t=texts: getattr(flowscope, n)(w.loaded, t, progress=False),
                words,
            )
    for label, (source, words) in {
        "a number": (5, "load expects"), "bytes": (b"x", "load expects"), "a dict": ({}, "expects"),
        "a list": ([1], "load expects"), "a class": (nn.Linear, "expects"), "a tensor":
        (torch.zeros(3), "expects"), "a layer": (nn.Linear(2, 2), "plain torch|no token|denoiser"),
        "None": (None, "None|expects"),
    }.items():  # fmt: skip
        for name in ("audit", "heads", "sync", "image", "doctor"):

            def called(world: World, name: str = name, source: Any = source) -> object:
                more = (world.texts,) if name in ("audit", "heads") else ()
                quiet = {} if name == "doctor" else {"progress": False}
                return getattr(flowscope, name)(source, *more, **quiet)

            yield f"{name} of {label}", called, words
    cases: dict[str, tuple[Callable[[World], object], str]] = {
        "load(None)": (lambda w: flowscope.load(None), "load expects"),
        "open_run(5)": (lambda w: flowscope.open_run(5), "by its path; got int"),
        "open_run of nothing": (lambda w: flowscope.open_run(w.out), "there is no folder"),
        "reproduce(5)": (lambda w: flowscope.reproduce(5), "No study is named 5"),
        "out=5": (lambda w: flowscope.audit(w.loaded, w.texts, out=5), "out must be the path"),
        "only=5": (lambda w: flowscope.audit(w.loaded, w.texts, only=5), "only takes names"),
        "tokenizer=5": (lambda w: flowscope.audit(w.loaded.model, w.texts, tokenizer=5),
        "tokenizer"),
        "inputs=5": (lambda w: flowscope.heads(w.loaded, inputs=5), "inputs must be batches"),
        "no inputs": (lambda w: flowscope.heads(w.loaded, inputs=[]), "got none"),
        "bare tensors": (lambda w: flowscope.heads(w.loaded, inputs=[torch.ones(2)]), "mappings"),
        "wrong inputs": (
            lambda w: flowscope.heads(w.loaded, inputs=[{"nope": torch.ones(1)}]),
            "could not be run on nope .1.: .*Give inputs that its forward pass takes",
        ),
        "texts and inputs": (lambda w: flowscope.audit(w.loaded, w.texts, inputs=[{}]), "not both"),
        "doctor of a wrong batch": (
            lambda w: flowscope.doctor(w.loaded, inputs={"nope": torch.ones(1)}),
            "could not be run",
        ),
        "misspelt": (lambda w: flowscope.audit(w.loaded, promts=3), "Did you mean 'prompts'"),
        "a generator": (
            lambda w: flowscope.audit(
                w.loaded, (text for text in w.texts), only="P0", tokens=8, resamples=4,
                progress=False, out=w.out,
            ), "",
        ),
    }  # fmt: skip
    for label, (call, sentence) in cases.items():
        yield label, call, sentence


COMMANDS = [*_prompt_files(), *_options(), *_folders(), *_models(), *_pipelines()]
FUNCTIONS = list(_functions())
