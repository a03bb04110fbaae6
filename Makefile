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
ROUNDS ?= 1000
TESTS ?= tests
ARGS ?=
COMMA := ,

.PHONY: help demo test lint format bench crash clean servers

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## count words, be killed with kill -9, recover, compare
	@$(BIN)/ckpt demo $(ARGS)

test: servers  ## run the tests (TESTS=path and ARGS=options narrow it down)
	@$(BIN)/python -m pytest $(TESTS) $(ARGS)

lint: $(READY)  ## ruff, formatting and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)  ## format the code and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: servers  ## time the backends and the SafeKeeper beside their peers
	@$(BIN)/python -m pytest tests/bench --benchmark-enable --benchmark-only --benchmark-group-by=group $(ARGS)

crash: $(READY)  ## kill -9 a writer ROUNDS times (default 1000), or with SERVERS=redis,… servers under load
ifdef SERVERS
	@CKPT_KILL_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest --timeout=0 -k "$(subst $(COMMA), or ,$(SERVERS))" tests/trust/test_*_kill.py $(ARGS)
else
	@$(BIN)/python -m ckpt.testing.crash --rounds $(ROUNDS) $(ARGS)
endif

# What cannot be installed is one line; the tests that need it are skipped with the reason, except in CI.
servers: $(READY)
	@$(BIN)/ckpt dev install || case "$${CI:-}" in 1|true) exit 1;; esac

clean:  ## remove the virtual environment, caches and build results
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find ckpt backends bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

# pip learned dependency groups in 25.1, so the environment's own pip is renewed first.
$(READY): pyproject.toml
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
