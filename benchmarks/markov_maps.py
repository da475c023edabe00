"""Diffusion and magnetic maps of a head against the dense route: time, memory, accuracy.

Question: 16 coordinates of 4,096 tokens from queries and keys. Peers, in float64 as they are
usually written (``W``, ``D``, ``K``, the normalised matrix, each an array):

* ``dense eigh``: ``scipy.linalg.eigh`` with ``subset_by_index``;
* ``dense eigsh``: ``scipy.sparse.linalg.eigsh`` of the same matrix.

Figures to keep: at least 5 × less memory than the dense route and no slower, with eigenvalues
within 1e-9 (relative) and residuals within 1e-8. Times are taken in turn in one process, ratios
repeat by repeat (median, quartiles); memory is the growth of the resident set to its peak, each
route in a process of its own after a warm-up on 256 tokens.

Data: queries and keys of the bundled model on the packaged prompts, cut into pieces of 256 tokens.
Its heads have 24 dimensions; ``three heads`` are the summed scores of three (72 dimensions).
``FLOWSCOPE_HEAD`` may name a file (.npz or .safetensors) with arrays ``q`` and ``k``, tokens by
dimensions, of any other head; it is measured too. β is 1/√d; the charge makes the phases of pairs
π/4 in the root mean square.

    python -m benchmarks.markov_maps [--tokens 4096] [--repeats 5] [--threads 2] [--out FILE]
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULT = Path(__file__).parent / "results" / "markov_maps.json"
COORDINATES, LAYER = 16, 7
HEADS = {"one head": [5], "three heads": [0, 1, 2]}
KINDS = ("diffusion", "magnetic")
Pairs = tuple[
    np.ndarray, np.ndarray
]  # eigenvalues of the kernel, eigenvectors of its symmetric form
Route = Callable[[np.ndarray, np.ndarray, float, float | None], Pairs]


# The routes; a charge of None is the diffusion map


def normalised(q: np.ndarray, k: np.ndarray, beta: float, charge: float | None) -> np.ndarray:
    W = q @ k.T
    w = np.diag(W)
    D = w[:, None] + w[None, :] - W - W.T
    K = np.exp(-beta * D)
    g = K.sum(1)
    if charge is not None:
        K = K * np.exp(2j * np.pi * charge * (W - W.T))
    return K / np.sqrt(np.outer(g, g))


def leading(values: np.ndarray, vectors: np.ndarray, charge: float | None) -> Pairs:
    """Falling order, without the trivial mode of a diffusion map."""
    order = np.argsort(values)[::-1][0 if charge is not None else 1 :]
    return values[order], vectors[:, order]


def wanted(charge: float | None) -> int:
    return COORDINATES + (charge is None)


def dense_eigh(q: np.ndarray, k: np.ndarray, beta: float, charge: float | None) -> Pairs:
    import scipy.linalg

    M = normalised(q, k, beta, charge)
    first = len(M) - wanted(charge)
    return leading(*scipy.linalg.eigh(M, subset_by_index=[first, len(M) - 1]), charge)


def dense_eigsh(q: np.ndarray, k: np.ndarray, beta: float, charge: float | None) -> Pairs:
    import scipy.sparse.linalg

    M = normalised(q, k, beta, charge)
    return leading(*scipy.sparse.linalg.eigsh(M, wanted(charge), which="LA"), charge)


def ours(q: np.ndarray, k: np.ndarray, beta: float, charge: float | None) -> Pairs:
    import torch

    from flowscope.markov.eigenmaps import diffusion_map, magnetic_map
    from flowscope.markov.operators import FactoredScores

    scores = FactoredScores(q=torch.from_numpy(q), k=torch.from_numpy(k))
    if charge is None:
        plain = diffusion_map(scores, beta, coordinates=COORDINATES)
        root, values, functions = plain.stationary.sqrt(), plain.eigenvalues, plain.functions
        return values.numpy(), (functions * root[:, None]).numpy()
    turned = magnetic_map(scores, beta, charge, coordinates=COORDINATES)
    vectors = turned.vectors * turned.stationary.sqrt()[:, None]
    return 1 - turned.eigenvalues.numpy(), vectors.numpy()


ROUTES: dict[str, Route] = {"flowscope": ours, "dense eigsh": dense_eigsh, "dense eigh": dense_eigh}


# What is measured, each in a process of its own


def problem(file: Path, kind: str) -> tuple[np.ndarray, np.ndarray, float, float | None]:
    with np.load(file) as arrays:
        q, k = arrays["q"].astype(np.float64), arrays["k"].astype(np.float64)
    part = q[::8] @ k[::8].T
    charge = 1 / (8 * float(np.sqrt(np.mean((part - part.T) ** 2))))
    return q, k, 1 / math.sqrt(q.shape[1]), None if kind == "diffusion" else charge


def timed(file: Path, kind: str, repeats: int) -> dict[str, Any]:
    given = problem(file, kind)
    small = (given[0][:600], given[1][:600], *given[2:])
    for route in ROUTES.values():
        route(*small)
    seconds: dict[str, list[float]] = {name: [] for name in ROUTES}
    for _ in range(repeats):
        for name, route in ROUTES.items():
            start = time.perf_counter()
            route(*given)
            seconds[name].append(time.perf_counter() - start)
    mine = np.array(seconds["flowscope"])
    return {
        "seconds": {name: spread(np.array(taken)) for name, taken in seconds.items()},
        "times_faster_than": {
            name: spread(np.array(taken) / mine)
            for name, taken in seconds.items()
            if name != "flowscope"
        },
        "load_average": os.getloadavg()[0],
    }


def spread(numbers: np.ndarray) -> dict[str, Any]:
    low, middle, high = np.percentile(numbers, [25, 50, 75])
    return {"median": middle, "quartiles": [low, high], "all": numbers.tolist()}


def exact(file: Path, kind: str) -> dict[str, Any]:
    """Our pairs and those of eigsh against eigh, and the residuals of all on the dense matrix."""
    given = problem(file, kind)
    M = normalised(*given)
    reference, space = dense_eigh(*given)
    found: dict[str, Any] = {
        "tokens": len(M),
        "dimensions": given[0].shape[1],
        "beta": given[2],
        "charge": given[3],
        "eigenvalues": reference.tolist(),
        "matrix_megabytes": M.nbytes / 2**20,
    }
    for name, route in ROUTES.items():
        values, vectors = route(*given)
        off = vectors - space @ (space.conj().T @ vectors)
        found[name] = {
            "eigenvalue_error": float(np.abs(values / reference - 1).max()),
            "residual": float(np.linalg.norm(M @ vectors - vectors * values, axis=0).max()),
            "outside_the_subspace": float(np.linalg.norm(off, 2)),
        }
    return found


def peak_growth(file: Path, kind: str, name: str) -> dict[str, float]:
    given = problem(file, kind)
    ROUTES[name](given[0][:256], given[1][:256], *given[2:])
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = memory("VmRSS")
    ROUTES[name](*given)
    return {"megabytes": memory("VmHWM") - before}


def memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(field + ":")) / 1024


# Data


def bundled_heads(tokens: int, folder: Path) -> dict[str, Path]:
    """Files with queries and keys of the bundled model on its packaged prompts."""
    import torch

    import flowscope as fs
    from flowscope.models.prompts import packaged_texts
    from flowscope.nets import bundled_path

    loaded = fs.load(bundled_path())
    ids = [t for text in packaged_texts() for t in loaded.tokenizer(text)["input_ids"]]
    rows = -(-tokens // 256)
    calls = {}
    with fs.Tap(loaded.model) as tap, torch.no_grad():

        @tap.on_attention
        def keep(call: Any) -> None:
            if call.site.index == LAYER:
                keys = call.k.repeat_interleave(call.q.shape[1] // call.k.shape[1], 1)
                calls["q"], calls["k"] = call.q.float(), keys.float()

        loaded.model(torch.tensor(ids[: rows * 256]).reshape(rows, 256))
    files = {}
    for name, heads in HEADS.items():
        arrays = {
            key: x[:, heads].transpose(1, 2).flatten(-2).flatten(0, 1)[:tokens].numpy()
            for key, x in calls.items()
        }
        files[name] = folder / f"{name.replace(' ', '_')}.npz"
        np.savez(files[name], **arrays)
    return files


def given_head(tokens: int, folder: Path) -> dict[str, Path]:
    """The head named by ``FLOWSCOPE_HEAD``, if there is one."""
    source = os.environ.get("FLOWSCOPE_HEAD")
    if not source:
        return {}
    if source.endswith(".npz"):
        arrays = dict(np.load(source))
    else:
        from safetensors.numpy import load_file

        arrays = load_file(source)
    file = folder / "given.npz"
    np.savez(file, q=arrays["q"][:tokens], k=arrays["k"][:tokens])
    return {f"given: {Path(source).stem}": file}


def child(threads: int, *arguments: object) -> Any:
    """The result of this script with arguments, in a process of its own."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.markov_maps", "--child", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | dict.fromkeys(names, str(threads)),
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(file: Path, kind: str, repeats: int, threads: int) -> dict[str, Any]:
    record = {
        **child(threads, "timed", file, kind, repeats),
        "accuracy": child(threads, "exact", file, kind),
        "megabytes": {
            name: child(threads, "peak_growth", file, kind, name)["megabytes"] for name in ROUTES
        },
    }
    mine = record["megabytes"]["flowscope"]
    accuracy = record["accuracy"]["flowscope"]
    record["less_memory_than"] = {
        name: record["megabytes"][name] / mine for name in ROUTES if name != "flowscope"
    }
    faster = {name: r["median"] for name, r in record["times_faster_than"].items()}
    record["kept"] = {
        "5 x less memory": {name: r >= 5 for name, r in record["less_memory_than"].items()},
        "no slower": {name: r >= 1 for name, r in faster.items()},
        "as exact": accuracy["eigenvalue_error"] <= 1e-9 and accuracy["residual"] <= 1e-8,
    }
    return record


def main() -> None:
    if "--child" in sys.argv:
        name, file, kind, *rest = sys.argv[sys.argv.index("--child") + 1 :]
        arguments = [int(x) if x.isdigit() else x for x in rest]
        print(json.dumps(globals()[name](Path(file), kind, *arguments)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()

    from benchmarks.machine import described

    record: dict[str, Any] = {
        "machine": described() | {"threads": options.threads},
        "coordinates": COORDINATES,
        "cases": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        files = bundled_heads(options.tokens, Path(folder)) | given_head(
            options.tokens, Path(folder)
        )
        for name, file in files.items():
            for kind in KINDS:
                case = measured(file, kind, options.repeats, options.threads)
                record["cases"][f"{name}, {kind}"] = case
                print(summary(f"{name}, {kind}", case), flush=True)
    options.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"written: {options.out}")


def summary(name: str, case: dict[str, Any]) -> str:
    lines = [f"{name}: d = {case['accuracy']['dimensions']}, load {case['load_average']:.1f}"]
    for route in ROUTES:
        taken, exactness = case["seconds"][route], case["accuracy"][route]
        lines.append(
            f"  {route:<12} {taken['median']:7.2f} s  {case['megabytes'][route]:8.1f} MB  "
            f"eigenvalues {exactness['eigenvalue_error']:.1e}  residual {exactness['residual']:.1e}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
