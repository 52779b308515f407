# Everything sets itself up: `make demo` on a machine with Python and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs

# The oldest Python that the metadata allows, if it is here, else $(PYTHON); asked when first needed.
LOWEST := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
LOWEST_PYTHON ?= $(shell for python in python$(LOWEST) $$HOME/.pyenv/versions/$(LOWEST).*/bin/python $(PYTHON); do \
	$$python -c '' 2>/dev/null && echo $$python && break; done)
LOWEST_VENV ?= .venv-lowest
NEWEST_VENV ?= .venv-newest

SEED ?= 1
DEVICE ?= cpu
PROCESSES ?= 1

# Two workers that begin far apart and take from each other at the end: neighbours share kernels, programs and fixtures.
PYTEST := python -m pytest -n 2 --dist worksteal

# A hundred programs of the tests import the package: its bytecode is kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo docs docs-serve test test-all test-lowest test-newest test-gpu check examples format generate bench bench-gpu plane clean

demo: $(READY)  ## all operators through the aclnn door, checked against float64
	$(BIN)/aclgrad demo

docs: $(DOCS)  ## the documentation site, every warning an error; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: $(DOCS)  ## the same on http://127.0.0.1:8000 while you write; the search works there only
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

test: $(READY)  ## every proof once; four and a half minutes on two idle cores, CPU kernels compiled
	$(BIN)/$(PYTEST) -m 'not slow'

test-all: $(READY)  ## with what is marked slow: before a release
	$(BIN)/$(PYTEST)

test-lowest:  ## the suite with the lowest version of everything that pyproject.toml declares; TESTS=tests/cpu for a part
	$(LOWEST_PYTHON) -m venv --clear $(LOWEST_VENV)
	$(LOWEST_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(LOWEST_VENV)/bin/python -m pip install --quiet --no-deps --editable .
	$(LOWEST_VENV)/bin/python tools/lowest.py > $(LOWEST_VENV)/lowest.txt
	$(LOWEST_VENV)/bin/python -m pip install --quiet --constraint $(LOWEST_VENV)/lowest.txt --editable '.[dev]'
	$(LOWEST_VENV)/bin/python -m pip list
	$(LOWEST_VENV)/bin/$(PYTEST) $(TESTS)

test-newest:  ## the suite with the newest version of everything, whatever constraints.txt says
	$(PYTHON) -m venv --clear $(NEWEST_VENV)
	$(NEWEST_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(NEWEST_VENV)/bin/python -m pip install --quiet --upgrade --editable '.[dev]'
	$(NEWEST_VENV)/bin/python -m pip list
	$(NEWEST_VENV)/bin/$(PYTEST) $(TESTS)

examples: $(READY)  ## the models of examples/training, with torch's modules and ours; pictures in build/; minutes
	mkdir -p build
	$(BIN)/python examples/training/train.py --steps 60 --out build/curves.png
	$(BIN)/python examples/training/train.py --zoo --steps 100 --out build/zoo.png
	$(BIN)/python examples/training/causal.py --steps 60

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(READY)  ## the doors' stubs and the table of operators, from the contracts
	$(BIN)/python tools/generate.py

test-gpu: $(READY)  ## the Triton kernels on this machine's GPU; PROCESSES=16 takes three minutes where memory allows it
	$(BIN)/python -m pytest -m gpu -n $(PROCESSES) --dist worksteal

bench: $(READY)  ## speed against peers, after a correctness gate; results under benchmarks/results
	$(BIN)/python -m benchmarks

bench-gpu: $(READY)  ## the same on this machine's GPU, and a picture of many sizes of an LSTM
	$(BIN)/python -m benchmarks --device cuda
	$(BIN)/python -m benchmarks plane --family lstm --seed grid --device cuda --save

plane: $(READY)  ## sizes drawn at random beside the peers: make plane SEED=3 DEVICE=cuda
	for family in lstm head pointwise cell batch_norm; do \
		$(BIN)/python -m benchmarks plane --family $$family --seed $(SEED) --device $(DEVICE) --save || exit 1; done

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $(DOCS)

clean:
	rm -rf $(VENV) $(LOWEST_VENV) $(NEWEST_VENV) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
