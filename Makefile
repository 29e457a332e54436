# `make demo` and `make test` need git, make and Python 3.11 or newer with venv; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV ?= $(BIN)/uv
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
NOX := $(BIN)/nox
COMPILE = $(UV) pip compile --universal --generate-hashes --python-version 3.11 --extra postgres

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install demo test lint typecheck quality security build unit integration stories coverage benchmark docs faults agents bench lock clean

help:  ## list the targets
	@sed -nE 's/^([a-z]+):[^#]*## (.*)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(INSTALLED)  ## make .venv with exactly the locked packages, and Holdfast in it

demo: $(INSTALLED)  ## see Holdfast at work
	@$(BIN)/holdfast demo

test: $(INSTALLED)  ## everything that must pass (see CONTRIBUTING.md); the last line is the total of all suites
	@rm -rf build/results && mkdir -p build/results
	@$(NOX) --tags beside --report build/results/beside.json >build/results/beside.txt 2>&1 & beside=$$!; \
		failed=0; $(NOX) --tags measured --report build/results/measured.json || failed=1; \
		wait $$beside || failed=1; cat build/results/beside.txt; \
		$(BIN)/python -m tools.totals || failed=1; exit $$failed

lint: $(INSTALLED)  ## ruff: rules and format
	@$(NOX) -s lint

typecheck: $(INSTALLED)  ## mypy, strict
	@$(NOX) -s typecheck

quality: $(INSTALLED)  ## the layers of imports, dead code, complexity
	@$(NOX) -s quality

security: $(INSTALLED)  ## bandit, and known vulnerabilities of the locked packages
	@$(NOX) -s security

build: $(INSTALLED)  ## the sdist and the wheel, in dist/, tried in an environment of their own
	@$(NOX) -s build

unit: $(INSTALLED)  ## tests/unit
	@$(NOX) -s unit_tests

integration: $(INSTALLED)  ## tests/integration
	@$(NOX) -s integration_tests

stories: $(INSTALLED)  ## the scenarios, the end-to-end tests, a sample of faults
	@$(NOX) -s stories

coverage: $(INSTALLED)  ## what pytest covers; runs it first if the sources have changed since
	@$(NOX) -s coverage_report

benchmark: $(INSTALLED)  ## count the work, and compare it with the last release
	@$(NOX) -s benchmark

faults: $(INSTALLED)  ## the whole fault campaign (an hour; goes on where it was stopped; FLAGS="--every 25": a part of it)
	@$(BIN)/python -m tests.faults.campaign $(FLAGS)

agents: $(INSTALLED)  ## install the six coding agents into build/agents, and try each under holdfast run, in place, and as a client of holdfast mcp (needs npm and tmux)
	@$(BIN)/python -m tools.agents $(FLAGS)
	@$(BIN)/python -m tools.agents_in_place
	@$(BIN)/python -m tools.mcp_clients

bench: $(INSTALLED)  ## measure checkpoints beside git, restic and borg, then whole commands and their start (an hour; see docs/performance.md)
	@$(BIN)/python -m benchmarks.compare $(FLAGS)
	@$(BIN)/python -m benchmarks.whole_commands $(COMMAND_FLAGS)
	@$(BIN)/python -m benchmarks.hooks
	@$(BIN)/python -m benchmarks.command_line $(START_FLAGS)

docs: $(INSTALLED)  ## make the generated pages and the site of the documentation, in site/
	@$(BIN)/python -m tools.docs.commands
	@$(BIN)/python -m tools.docs.site

lock: $(INSTALLED)  ## renew both locks after a change of dependencies (FLAGS=--upgrade for newer versions)
	$(COMPILE) --group dev -o requirements.lock pyproject.toml $(FLAGS) >/dev/null
	$(COMPILE) --constraints requirements.lock -o requirements-runtime.lock pyproject.toml >/dev/null

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) build dist site .asv .hypothesis .import_linter_cache .mypy_cache .nox .pytest_cache .ruff_cache
	rm -rf src/*.egg-info src/holdfast/*.so src/holdfast/guard/hook-client
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

$(INSTALLED): $(LOCKED) pyproject.toml setup.py src/holdfast/system/_calls.c src/holdfast/guard/_client.c
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
