# `make demo` and `make test` need git, make and Python 3.11 or newer with venv; everything else is installed into .venv.

PYTHON ?= python3
UV ?= uv
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
NOX := $(BIN)/nox

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types imports unit behave robot coverage faults bench docs lock clean

help:  ## list the targets
	@sed -nE 's/^([a-z]+):[^#]*## (.*)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(INSTALLED)  ## make .venv with exactly the locked packages, and Holdfast in it

demo: $(INSTALLED)  ## see Holdfast at work
	@$(BIN)/holdfast demo

test: $(INSTALLED)  ## everything that must pass: lint, types, imports, unit, behave, robot, coverage, a sample of faults
	@$(NOX)

lint: $(INSTALLED)  ## ruff: rules and format
	@$(NOX) -s lint

types: $(INSTALLED)  ## mypy, strict
	@$(NOX) -s types

imports: $(INSTALLED)  ## the layers, by import-linter
	@$(NOX) -s imports

unit: $(INSTALLED)  ## pytest
	@$(NOX) -s unit

behave: $(INSTALLED)  ## the scenarios in features/
	@$(NOX) -s behave

robot: $(INSTALLED)  ## the end-to-end tests in robot/
	@$(NOX) -s robot

coverage: $(INSTALLED)  ## run the unit tests, then report what they cover
	@$(NOX) -s unit coverage

faults: $(INSTALLED)  ## the whole fault campaign (an hour; goes on where it was stopped; FLAGS="--every 25": a part of it)
	@$(BIN)/python -m tests.faults.campaign $(FLAGS)

bench: $(INSTALLED)  ## measure Holdfast beside git, restic and borg (20 minutes; FLAGS="--files 1000 --rounds 3": one)
	@$(BIN)/python -m benchmarks.compare $(FLAGS)

docs: $(INSTALLED)  ## make the generated pages and the site of the documentation, in site/
	@$(BIN)/python -m tools.docs.commands
	@$(BIN)/python -m tools.docs.site

lock:  ## renew requirements.lock after a change of dependencies (needs uv; FLAGS=--upgrade for newer versions)
	$(UV) pip compile --universal --generate-hashes --python-version 3.11 --extra postgres --group dev -o requirements.lock pyproject.toml $(FLAGS) >/dev/null

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) build dist site .asv .hypothesis .import_linter_cache .mypy_cache .nox .pytest_cache .ruff_cache
	rm -rf src/*.egg-info src/holdfast/*.so
	find src tests tools features robot benchmarks noxfile.py -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# Two stamps: a change of the lock makes a new environment, so that nothing unlocked is left in it;
# a change of pyproject.toml, or of what is compiled, only installs Holdfast again.
$(LOCKED): requirements.lock
	@command -v $(PYTHON) >/dev/null || { \
		echo "No '$(PYTHON)' here. Holdfast needs Python 3.11 or newer: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Holdfast needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@touch $@

$(INSTALLED): $(LOCKED) pyproject.toml setup.py src/holdfast/_calls.c
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
