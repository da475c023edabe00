"""What the kept table of modes of the study of coupled replicas says under the rule of today.

The blocks of the study were read before the commitment of modes was judged against layers that are
shifted along the depth in their order; the rule before permuted layers, and neighbouring layers are
dependent. The table of all modes is kept, so that the row can be judged again.

Run: ``python -m benchmarks.sync_again``; writes ``benchmarks/results/sync_again.json`` and the row
"commitment of modes" of ``studies/results/synchronization_gap_blocks_bundled.csv``.
"""

import json
from pathlib import Path

import pandas as pd

from flowscope.instruments.sync.synchronization_gap.ranks import layerwise_rank_correlation

KEPT = Path(__file__).parents[1] / "studies" / "results"
RESULT = Path(__file__).parent / "results" / "sync_again.json"
ITEM = "commitment of modes"
LEVEL = 0.05


def judged_modes(table: pd.DataFrame) -> dict[str, float | int | str]:
    """Rank correlation of predicted and measured steps at g = 0, and its p over shifted layers."""
    rows = table[table["g"] == 0]
    both = rows[(rows["status"] == "ok") & rows["predicted"].notna()]
    correlation, p = layerwise_rank_correlation(rows)
    agrees = "cannot be told" if p > LEVEL else "yes" if correlation > 0 else "no"
    return {
        "modes": len(rows), "with both times": len(both), "layers": int(rows["layer"].nunique()),
        "rank correlation": round(correlation, 2), "p": round(p, 3), "agrees": agrees,
    }  # fmt: skip


def main() -> None:
    found = judged_modes(pd.read_csv(KEPT / "synchronization_gap_mode_commitment_bundled.csv"))
    text = json.dumps(found, indent=1, ensure_ascii=False)
    RESULT.write_text(text + "\n", encoding="utf-8")
    print(text)
    file = KEPT / "synchronization_gap_blocks_bundled.csv"
    claims = pd.read_csv(file).set_index("item", drop=False)
    claims.loc[ITEM, ["measured", "agrees", "rule"]] = [
        f"rank correlation {found['rank correlation']:.2f} over {found['with both times']} of "
        f"{found['modes']} modes (p = {found['p']:.2g} over {found['layers']} layers)",
        found["agrees"],
        "rank correlation of predicted and measured steps at g = 0, p ≤ .05 when layers are "
        "shifted along the depth in their order, which needs 10 layers",
    ]
    claims.to_csv(file, index=False, quoting=2)


if __name__ == "__main__":
    main()
