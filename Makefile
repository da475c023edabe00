# Each target works alone in a fresh clone with Python >= 3.11, make and a package index.
#   make demo                                  set up, run the main job
#   make test                                  set up, run every check
#   make golden                                compare every number with an earlier commit
#   make attack                                try to break what is promised; counts are kept
#   make mutants                               put errors into a copy of the code; tests must see them
#   make demo TORCH_INDEX=<index url>          take torch from another index (a CPU or CUDA build)

PYTHON ?= python3
TORCH_INDEX ?=
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint format types unit golden attack mutants bench clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: lint types unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not gpu"

golden: $(READY)
	$(BIN)/python -m benchmarks.golden

attack: $(READY)
	$(BIN)/python -m benchmarks.attack.threads
	$(BIN)/python -m benchmarks.attack.lever_threads
	$(BIN)/python -m benchmarks.attack.folders
	$(BIN)/python -m benchmarks.attack.fuzz
	$(BIN)/python -m benchmarks.attack.inputs
	$(BIN)/python -m benchmarks.attack.engines

mutants: $(READY)
	$(BIN)/python -m benchmarks.attack.mutants

bench: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,bench]'
	$(BIN)/python -m benchmarks.transport
	$(BIN)/python -m benchmarks.tap_overhead
	$(BIN)/python -m benchmarks.mobility_norm
	$(BIN)/python -m benchmarks.depth_statistics
	$(BIN)/python -m benchmarks.quadratic_variation
	$(BIN)/python -m benchmarks.audit_memory
	$(BIN)/python -m benchmarks.audit_time
	$(BIN)/python -m benchmarks.engines
	$(BIN)/python -m benchmarks.rotation
	$(BIN)/python -m benchmarks.scores
	$(BIN)/python -m benchmarks.weak_error
	$(BIN)/python -m benchmarks.heads
	$(BIN)/python -m benchmarks.markov_maps
	$(BIN)/python -m benchmarks.replica_null
	$(BIN)/python -m benchmarks.replica_mixture
	$(BIN)/python -m benchmarks.sync_time
	$(BIN)/python -m benchmarks.image_time
	$(BIN)/python -m benchmarks.image_null --out benchmarks/results/image_null.txt
	$(BIN)/python -m benchmarks.image_anchor --out benchmarks/results/image_anchor.txt
	$(BIN)/python -m benchmarks.calibration
	$(BIN)/python -m benchmarks.compare_null
	$(BIN)/python -m benchmarks.stein_null
	$(BIN)/python -m benchmarks.locking_slope
	$(BIN)/python -m benchmarks.forecast_panel
	$(BIN)/python -m benchmarks.rotation_panel
	$(BIN)/python -m benchmarks.verdict_panel
	$(BIN)/python -m benchmarks.default_runs

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "flowscope needs Python 3.11 or newer; this is %d.%d. Set PYTHON=..." % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis out
