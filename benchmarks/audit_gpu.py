"""The audit of the bundled model on a CUDA device, in float32 and bfloat16, without P3.

Run by hand where there is one: ``python -m benchmarks.audit_gpu``; its output is kept, condensed,
in ``results/audit_gpu.txt``.
"""

import tempfile
import time

import torch

import flowscope as fs
from flowscope.nets import bundled_path

LESS = {"curvature_pairs": 0, "evi_positions": 0, "temperatures": (), "key_norms": ()}


def main() -> None:
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for dtype in (torch.float32, torch.bfloat16):
        loaded = fs.load(bundled_path(), device="cuda", dtype=dtype)
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            audit = fs.audit(loaded, out=f"{folder}/run", **LESS)
            print(f"{dtype}: {time.perf_counter() - start:.1f} s")
            print(audit)
            table = audit.run.read_table("rotation")
            print(table[["layer", "normalised", "low", "high"]].round(3).to_string())


if __name__ == "__main__":
    main()
