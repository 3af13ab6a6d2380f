# Everything a person types. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
# Most tests on Kafka wait for a minute to come, so there are more of them at a time than cores.
JOBS ?= 4
CHECKED := schemas buckets streams deploy tests

.DEFAULT_GOAL := help
.PHONY: help setup up test check schemas bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("minutewheel needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

setup: .venv/installed ## make the virtual environment from the lock file

up: setup ## set everything up and run it: Kafka, a processor, a delivery worker (ARGS="--port 29092" …)
	@exec $(BIN)/minutewheel up $(ARGS)

test: setup check ## set everything up and run every test, on a real Kafka
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

check: setup ## format, lint, types, import rules
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports

schemas: setup ## write the JSON Schema and AsyncAPI files from the types
	$(BIN)/python -m schemas.documents

bench: setup ## measure intake, drain, restore and lateness beside a bare transaction loop
	$(BIN)/python -m tests.bench

lock: ## resolve the dependencies anew (needs uv)
	uv pip compile pyproject.toml --extra local --group dev --python-version 3.11 --universal --generate-hashes --no-header --quiet --output-file requirements.lock

clean: ## remove the virtual environment and caches (not the data)
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
