# `make help` lists the targets. Every target does its own set-up; a second `make` finds it in place.
.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PINS := requirements/cpu.txt
# Interpreters are probed by running them: a version manager's shim may exist and still fail.
CANDIDATES := python3.12 python3.11 python3 python3.13
GOOD := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
export TF_CPP_MIN_LOG_LEVEL ?= 3
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES ?= none

.PHONY: help venv reproduce report test quick lint format clean

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

venv: $(STAMP) ## Build .venv with exactly pinned packages (PYTHON=... chooses the interpreter)

$(STAMP): $(PINS) pyproject.toml
	@found=""; for p in $(or $(PYTHON),$(CANDIDATES)); do \
	  if $$p -c '$(GOOD)' >/dev/null 2>&1; then found=$$p; break; fi; done; \
	if [ -z "$$found" ]; then echo "needs Python 3.11, 3.12 or 3.13: none of '$(or $(PYTHON),$(CANDIDATES))' is one; install it, or name it with make PYTHON=/path/to/python3"; exit 1; fi; \
	if ! $$found -c 'import venv, ensurepip' >/dev/null 2>&1; then \
	  echo "$$found has no venv module; on Debian or Ubuntu: apt install python3-venv"; exit 1; fi; \
	if $$found -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))'; then \
	  header=$$($$found -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")'; ); \
	  if ! command -v c++ >/dev/null 2>&1 || ! [ -f "$$header" ]; then \
	    echo "on Python 3.13 one package (editdistance) is compiled and needs a C++ compiler and Python.h: apt install g++ python3-dev, or use Python 3.11 or 3.12"; exit 1; fi; fi; \
	echo "building $(VENV) with $$($$found --version) (about 0.6 GB of packages, one to three minutes)"; \
	rm -rf $(VENV) && $$found -m venv $(VENV)
	@unset PYTHONDONTWRITEBYTECODE; \
	$(PY) -m pip install --disable-pip-version-check -q --no-deps -r $(PINS) && \
	$(PY) -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e . && touch $@

reproduce: $(STAMP) ## Train Table 2 of Reformer at scale cpu (3 seeds), set it beside the paper
	$(VENV)/bin/repro run reformer/table2 --scale cpu --seed 0,1,2
	$(VENV)/bin/repro compare reformer/table2
	$(VENV)/bin/repro report

report: $(STAMP) ## The page with tables and plots, and results/README.md, from the records
	$(VENV)/bin/repro report

test: $(STAMP) ## All tests
	$(PY) -m pytest -q

quick: $(STAMP) ## The fast tests
	$(PY) -m pytest -q -m "not slow"

lint: $(STAMP) ## Format, lint and types, without changing anything
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: $(STAMP) ## Apply the formatter and the linter's fixes
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

clean: ## Remove .venv and caches; runs and records stay
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache
