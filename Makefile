# Every target sets up what it needs in .venv; the second time that costs nothing.
# The system needs Python 3.11 or later with its venv module, and make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The newest python3.x of the PATH that is recent enough; override with `make PYTHON=/path/to/python3`.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { command -v "$$p"; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS ?= tests
WHAT ?=
WORKERS ?= 3
ARGS ?=

# Tests of one group stay on one worker; tests/gate.py says which tests are a group, and which group begins first.
IN_PARALLEL := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

# Releases of Spark beside the installed one; the cache keeps them between runs, as it keeps servers.
SPARKS ?= 4.2.1 4.3.0
SPARK ?= $(firstword $(SPARKS))
SPARK_FOLDER := $(or $(CKPT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ckpt)/pyspark

.PHONY: help demo test prove spark lint format bench wheel clean servers

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## a Spark query is killed with kill -9, recovers, counts exactly
	@$(BIN)/ckpt demo $(ARGS)

test: servers  ## run the tests, exhaustive ones as samples (TESTS=path and ARGS=options narrow it down)
	@$(BIN)/python -m pytest $(IN_PARALLEL) $(TESTS) $(ARGS)

prove: servers  ## run everything exhaustively, for two hours, and print what it proves (WHAT="log redis" narrows it down)
	@$(BIN)/python -m tests.prove $(WHAT) $(ARGS)

spark: $(SPARK_FOLDER)/$(SPARK)/.ready  ## run the core of the Spark tests on another release (SPARK=4.2.1)
	@PYTHONPATH=$(<D)$(PYTHONPATH:%=:%) $(BIN)/python -c 'import pyspark; assert pyspark.__version__ == "$(SPARK)", pyspark'
	@PYTHONPATH=$(<D)$(PYTHONPATH:%=:%) $(BIN)/python -m pytest $(IN_PARALLEL) -m spark_core tests/spark $(ARGS)

lint: $(READY)  ## ruff, formatting and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)  ## format the code and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY)  ## time what one call costs, beside its nearest peer and the runs before (ARGS="-k put" narrows it down)
	@$(BIN)/python -m pytest tests/benchmarks -q --benchmark-enable --benchmark-only \
		--benchmark-autosave --benchmark-compare --benchmark-storage=build/benchmarks \
		--benchmark-max-time=0.5 --benchmark-min-rounds=10 --benchmark-warmup=on --benchmark-warmup-iterations=20 \
		--benchmark-name=short --benchmark-columns=min,median,iqr,rounds $(ARGS)

# The jars are in the package only while a wheel is built: a checkout compiles what it needs. There are two: one
# with the compiled half of the log for machines like this one, and one for all others.
wheel: $(SPARKS:%=$(SPARK_FOLDER)/%/.ready)  ## build wheels that carry the provider for SPARKS
	@rm -rf ckpt/spark/jars; mkdir ckpt/spark/jars; trap 'rm -rf ckpt/spark/jars' EXIT; \
	for version in $(SPARKS); do \
		cp "$$(SPARK_HOME="$(SPARK_FOLDER)/$$version/pyspark" $(BIN)/ckpt spark jar)" ckpt/spark/jars/; done; \
	$(BIN)/python -m hatchling build -t wheel -d dist; \
	CKPT_PURE=1 $(BIN)/python -m hatchling build -t wheel -d dist

# Without its dependencies: those of the installed Spark serve every supported release.
$(SPARK_FOLDER)/%/.ready: | $(READY)
	@echo "fetching pyspark $*"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(@D) 'pyspark==$*'
	@touch $@

# What cannot be installed is one line; the tests that need it are skipped with the reason, except in CI.
servers: $(READY)
	@$(BIN)/ckpt dev install || case "$${CI:-}" in 1|true) exit 1;; esac

clean:  ## remove the virtual environment, caches and build results
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find ckpt backends bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

# pip learned dependency groups in 25.1, so the environment's own pip is renewed first.
$(READY): pyproject.toml $(wildcard hatch_build.py backends/ckpt_backends/engine/native.c backends/ckpt_backends/engine/xxh3.h)
	@if [ -z "$(PYTHON)" ]; then \
		echo "ckpt needs Python 3.11 or later on the PATH: sudo apt-get install python3 (or make PYTHON=/path/to/python3)" >&2; exit 1; fi
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "$(PYTHON) is not Python 3.11 or later: sudo apt-get install python3 (or make PYTHON=/path/to/python3)" >&2; exit 1; fi
	@if ! "$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null; then \
		echo "$(PYTHON) lacks its venv module: sudo apt-get install python3-venv" >&2; exit 1; fi
	@echo "setting up $(VENV) with $(PYTHON)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@touch $@
