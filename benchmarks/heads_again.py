"""What M1 and M2 say of the run folder of ``flowscope heads`` or of its study, finished or not.

Question: what do the verdicts on heads say of a model that takes longer than one sitting? The stage
of the walk is measured first and stored at once; the verdicts need nothing else.

    python -m benchmarks.heads_again RUN --name SmolLM2-135M

The result goes to ``benchmarks/results/heads_again.json``, beside those of other models.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from benchmarks.machine import described
from benchmarks.panel_runs import row_of
from flowscope.instruments.heads.geometry.judge import irreversibility
from flowscope.lab.view import Records
from flowscope.records import Run

RESULT = Path(__file__).parent / "results" / "heads_again.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--name", required=True, help="of the model")
    options = parser.parse_args()
    records = Records(run=Run.open(options.run))
    heads, labels = records.table("geometry"), records.table("labels")
    measured = records.settings["measured"]
    entry = {
        "machine": described(),
        "prompts": measured["prompts"],
        "tokens": measured["tokens_measured"],
        "verdicts": {verdict.name: row_of(verdict) for verdict in irreversibility(records)},
        "heads": len(heads),
        "medians": {
            name: round(float(heads[name].median()), 4)
            for name in heads
            if name.startswith(("entropy_production", "effective_keys"))
            and pd.api.types.is_numeric_dtype(heads[name])
        },
        "labels": labels.to_dict("records"),
    }
    kept = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {}
    text = json.dumps({**kept, options.name: entry}, indent=1, ensure_ascii=False)
    RESULT.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
