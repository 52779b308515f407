# Everything sets itself up: `make demo` on a machine with Python and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-gpu check format bench bench-gpu clean

demo: $(READY)  ## all operators through the aclnn door, checked against float64
	$(BIN)/aclgrad demo

test: $(READY)  ## the whole test suite
	$(BIN)/python -m pytest -n 2

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-gpu: $(READY)  ## the Triton kernels on this machine's GPU
	$(BIN)/python -m pytest -m gpu

bench: $(READY)  ## speed against peers, after a correctness gate; results under benchmarks/results
	$(BIN)/python -m benchmarks

bench-gpu: $(READY)  ## the same on this machine's GPU
	$(BIN)/python -m benchmarks --device cuda

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
