# Every target runs in .venv, which is made from a bare Python 3.11 or newer with pip (with uv where it is installed).
# A target installs what it needs, and installs again only after a change of pyproject.toml.

.DEFAULT_GOAL := help
SHELL := /bin/bash

# Tests start hundreds of short programs. Without compiled files each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

# The first interpreter that is new enough; PYTHON=... names another one.
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(firstword $(foreach name,python3 python3.11 python3.12 python3.13 python3.14,$(shell \
	$(name) $(NEW_ENOUGH) >/dev/null 2>&1 && command -v $(name))))
UV := $(shell command -v uv 2>/dev/null)

# A .venv is made again if it is incomplete (an interrupted make), if its Python is gone, or if the clone was moved.
VENV_STATE := $(shell \
	if ! [ -e $(VENV) ]; then echo missing; \
	elif [ -e $(STAMPS)/place ] && [ "$$(cat $(STAMPS)/place)" != "$(CURDIR)" ]; then echo broken; \
	elif ! $(BIN)/python $(NEW_ENOUGH) >/dev/null 2>&1; then echo broken; \
	elif [ -z "$(UV)" ] && ! $(BIN)/python -c 'import pip._vendor.packaging' >/dev/null 2>&1; then echo broken; \
	else echo good; fi)
ifneq ($(VENV_STATE),good)
.PHONY: $(STAMPS)/place pictures
endif

comma := ,
# install(what): into the environment, with uv or with pip.
ifneq ($(UV),)
install = $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --editable $(1)
else
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable $(1)
endif

.PHONY: help setup demo plans test typescript lint format docs docs-write prove prove-processes bench bench-ray ray-environments proto kubernetes-assets clean demo-kubernetes bench-kubernetes

help: ## Show all targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' \
		| while IFS=$$'\t' read -r name text; do printf '  make %-17s %s\n' "$$name" "$$text"; done

$(STAMPS)/place:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Windlass needs Python 3.11 or newer. python3 here is $$(python3 --version 2>&1 || true);" >&2; \
		echo "python3.11 to python3.14 were not found either. Install one, or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; fi
	@"$(PYTHON)" $(NEW_ENOUGH) || { \
		echo "$(PYTHON) is $$("$(PYTHON)" --version 2>&1); Windlass needs Python 3.11 or newer." >&2; exit 1; }
	@if [ "$(VENV_STATE)" = good ]; then :; else \
		echo "Making $(VENV) with $$("$(PYTHON)" --version)$(if $(filter broken,$(VENV_STATE)), again: it was incomplete)"; \
		rm -rf $(VENV); \
		$(if $(UV),$(UV) venv --quiet --seed --python "$(PYTHON)" $(VENV),"$(PYTHON)" -m venv $(VENV)) || { \
			echo "The environment could not be made. On Debian and Ubuntu, install python3-venv first." >&2; exit 1; }; fi
	@mkdir -p $(STAMPS) && echo "$(CURDIR)" > $@

$(STAMPS)/runtime: pyproject.toml $(STAMPS)/place
	@echo "Installing windlass"
	@$(call install,'.[pool]')
	@touch $@

$(STAMPS)/dev: pyproject.toml $(STAMPS)/place
	@echo "Installing windlass and the tools for its tests, with Ray for the pool's Ray engine"
	@$(call install,'.[dev$(comma)pool-ray]') || { echo "Ray cannot be installed here: its tests are skipped" >&2; \
		$(call install,'.[dev]'); }
	@touch $@ $(STAMPS)/runtime

$(STAMPS)/bench: pyproject.toml $(STAMPS)/place
	@echo "Installing windlass and what it is measured against"
	@$(call install,'.[bench]')
	@touch $@ $(STAMPS)/runtime

setup: $(STAMPS)/runtime ## Make .venv with the windlass command in it
	@echo "Done. Now: source .venv/bin/activate, then: windlass --help"

demo: $(STAMPS)/runtime ## See it work on this machine in 20 seconds: a burst of tasks, machines for it, the bill
	@$(BIN)/windlass demo

plans: $(STAMPS)/runtime ## Plan three example files: no cluster, no account, no network
	@BIN=$(BIN) ./examples/plans.sh

# Ray of two versions, for the tests with the marker `ray` and for bench-ray. Plain ray: workers start twice as fast.
RAY_VENVS ?= .ray
RAY_OLD := $(abspath $(RAY_VENVS))/old/bin
RAY_NEW := $(abspath $(RAY_VENVS))/new/bin

$(RAY_VENVS)/%/.made: | $(STAMPS)/place
	@echo "Installing $(RAY_PACKAGE) in $(RAY_VENVS)/$*"
	@$(BIN)/python -m venv $(RAY_VENVS)/$* \
		&& $(RAY_VENVS)/$*/bin/python -m pip install --quiet --disable-pip-version-check "$(RAY_PACKAGE)" && touch $@ \
		|| echo "Ray cannot be installed here: its tests are skipped"

$(RAY_VENVS)/old/.made: RAY_PACKAGE = ray==2.48.0
$(RAY_VENVS)/new/.made: RAY_PACKAGE = ray

ray-environments: $(RAY_VENVS)/old/.made $(RAY_VENVS)/new/.made ## Install Ray of two versions for its tests

proto: ## Generate the messages of the Ray workload; needs grpcio-tools
	cd src && python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. windlass/workloads/ray/wire.proto

PYTEST = RAY_OLD=$(RAY_OLD) RAY_NEW=$(RAY_NEW) $(BIN)/python -m pytest

# The type checker of the dashboard's JavaScript; without npm its test is skipped.
tools/typescript/node_modules/.made: tools/typescript/package.json
	@npm install --prefix tools/typescript --no-package-lock --no-audit --no-fund --silent && touch $@ \
		|| echo "TypeScript cannot be installed here: the test that needs it is skipped"

typescript: tools/typescript/node_modules/.made ## Install the type checker of the dashboard's JavaScript (needs npm)

# Tests run in parallel: tests/conftest.py says which share a worker. Those that measure time run alone, at the end.
test: lint ray-environments typescript ## Lint, types, layers and all tests
ifdef PYTEST_ARGS
	$(PYTEST) $(PYTEST_ARGS)
else
	$(PYTEST) -n 3 --dist loadscope --no-loadscope-reorder -m "not alone" tests
	$(PYTEST) -m alone tests
endif

lint: $(STAMPS)/dev ## Style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMPS)/dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMPS)/runtime ## Check that the reference pages are what the code says
	$(BIN)/python tools/reference.py

docs-write: $(STAMPS)/runtime ## Write the reference pages from the code
	$(BIN)/python tools/reference.py --write

SEEDS ?= 10000
prove: $(STAMPS)/runtime ## Run the controller in SEEDS random simulations with faults, and check every promise
	$(BIN)/windlass simulate swarm --seeds $(SEEDS) $(PROVE_ARGS)

EVENTS ?= 200
prove-processes: $(STAMPS)/dev ## Kill and stop real controllers EVENTS times, with SQLite and with PostgreSQL; check tasks and bill
	$(BIN)/python -m tests.control.process_proof --events $(EVENTS) --journal sqlite
	$(BIN)/python -m tests.control.process_proof --events $(EVENTS) --journal postgres

bench: $(STAMPS)/bench ## Measure speed and cost of plans
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

bench-ray: $(STAMPS)/bench $(RAY_VENVS)/new/.made ## Measure against Ray's own autoscaler on one real head
	RAY_NEW=$(RAY_NEW) $(BIN)/python -m benchmarks.ray_cluster $(BENCH_ARGS)

ASSETS ?= .kubernetes-assets
bench-kubernetes: $(STAMPS)/dev ## Measure the Kubernetes workload: 1,000 nodes with 30 pods each
	$(BIN)/python benchmarks/run.py --only kubernetes

demo-kubernetes: $(STAMPS)/dev ## Scenario C on a real Kubernetes control plane, in a minute (first: make kubernetes-assets)
	@KUBEBUILDER_ASSETS="$${KUBEBUILDER_ASSETS:-$(abspath $(ASSETS))}" $(BIN)/python examples/kubernetes_demo.py

kubernetes-assets: ## Get or build the Kubernetes binaries that the tier of tests `kubernetes` runs on
	@./tools/kubernetes_assets.sh $(ASSETS)

pictures: $(STAMPS)/dev ## Take the screenshots of the dashboard anew, from a live run
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/pictures.py docs/images

clean: ## Remove .venv and all build output
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
