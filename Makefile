# `make help` lists the targets. Every target does its own set-up; the next `make` finds it in place.
.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
PY := $(VENV)/bin/python
JOBS ?= 2
PYTEST := $(PY) -m pytest -q $(if $(filter-out 1,$(JOBS)),-n $(JOBS))
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Pages of 2 MiB for XLA's memory; see launch/hugepages.py.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES ?= none

.PHONY: help venv setup reproduce report test quick lint format clean

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

venv: setup ## Build .venv with exactly pinned packages (PYTHON=... names the interpreter)
	@echo "$(VENV) is in place: $$($(PY) --version)"

setup:
	@PYTHON="$(PYTHON)" sh requirements/venv.sh

reproduce: setup ## Train Table 2 of Reformer at scale cpu (3 seeds), set it beside the paper
	$(VENV)/bin/repro run reformer/table2 --scale cpu --seed 0,1,2
	$(VENV)/bin/repro compare reformer/table2
	$(VENV)/bin/repro report

report: setup ## The page with tables and plots, and results/README.md, from the records
	$(VENV)/bin/repro report

test: setup ## All tests (JOBS processes, 2 unless you say otherwise; so does quick)
	$(PYTEST)

quick: setup ## The fast tests
	$(PYTEST) -m "not slow"

lint: setup ## Format, lint and types, without changing anything
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: setup ## Apply the formatter and the linter's fixes
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

clean: ## Remove .venv and caches; runs and records stay
	rm -rf $(VENV) .cache
