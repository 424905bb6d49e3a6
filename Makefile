# fedlens: `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.installed
CHECKS := $(VENV)/.installed-for-tests
PEERS  := build/peers/.installed
# uv where it is there, pip elsewhere; what is not compiled in advance is when it is first imported
ifneq ($(shell command -v uv),)
MAKE_VENV := uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
INSTALL   := uv pip install --quiet --python $(BIN)/python -c constraints.txt
else
MAKE_VENV := $(PYTHON) -m venv $(VENV)
INSTALL   := $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt
endif

# The fast lane: whole files of a few seconds each, one of every kind of promise.
QUICK  := accountant/test_account.py accountant/test_ledger.py accountant/test_privacy_events.py \
          accountant/test_moments.py client/test_clipping.py \
          fedlens/test_api.py foundation models/test_critics.py models/test_generators.py \
          server/test_aggregation.py server/test_config.py server/test_sampling.py \
          simulations/test_cli.py transports/test_inprocess.py

# The lane of studies and benchmarks, which users have no need of.
RESEARCH := tests/research

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-fault quick quick-tests test test-thorough test-research lint format dashboard docs sbom bench bench-quick bench-rounds bench-accountant bench-noise bench-records bench-gate clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUN): pyproject.toml constraints.txt
	$(MAKE_VENV)
	$(INSTALL) -e .
	@touch $@

$(CHECKS): $(RUN)
	$(INSTALL) -e '.[test]' -e ./research
	@touch $@

setup: $(CHECKS) ## create .venv with pinned dependencies, those of the tests too

demo: $(RUN) ## train on the embedded data, show what came out and diagnose it
	$(BIN)/fedlens simulate --preset demo --out runs/demo --overwrite
	$(BIN)/fedlens samples runs/demo --beside
	$(BIN)/fedlens diagnose runs/demo

demo-fault: $(RUN) ## the same with 30% of the users' images turned: see the bug, and name it
	$(BIN)/fedlens simulate --preset demo --fault rotate90:0.3 --no-student \
	    --out runs/demo-fault --overwrite
	$(BIN)/fedlens samples runs/demo-fault --beside $(wildcard runs/demo)
	$(BIN)/fedlens diagnose runs/demo-fault

dashboard: $(RUN) ## open the dashboard on all runs below runs/
	$(BIN)/fedlens dashboard runs

quick: setup ## lint and the fast tests side by side: a minute on two cores
	$(MAKE) --no-print-directory -j 2 --output-sync=target lint quick-tests

quick-tests: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow and not thorough and not ray and not browser" \
	    $(wildcard $(addprefix tests/,$(QUICK)))

test: setup ## test the product, two tests at a time
	$(BIN)/python tests/browser_setup.py
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 40 -m "not thorough" --ignore $(RESEARCH)

test-thorough: setup ## what takes longer: all cases of what is tested on some, the walk of the docs
	$(BIN)/python tests/browser_setup.py
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 20 -m thorough --ignore $(RESEARCH)

test-research: setup ## the tests of studies and benchmarks, two at a time
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 20 $(RESEARCH)

lint: setup ## format check, lint, types, import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite the code in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## build the site strictly, into build/site
	$(BIN)/python -m sphinx -W -n --keep-going -q -b html -d build/doctrees docs build/site

sbom: setup ## list all packages (CycloneDX) and their licences, into build/sbom
	@mkdir -p build/sbom
	$(PYTHON) -m venv build/sbom-tool
	build/sbom-tool/bin/python -m pip install --quiet cyclonedx-bom==7.5.0
	build/sbom-tool/bin/cyclonedx-py environment --pyproject pyproject.toml \
	    --output-reproducible --output-file build/sbom/fedlens.cdx.json $(BIN)/python

$(PEERS): benchmarks/peers/requirements.txt | setup
	@mkdir -p $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(@D) -r $< \
	    && touch $@ || echo "pfl cannot be installed here: its rows will say not measured"

bench: setup $(PEERS) ## beside pfl, Flower's simulation and Opacus, in one run
	OMP_NUM_THREADS=1 PYTHONPATH=build/peers:tests $(BIN)/python -m benchmarks.peers

bench-quick: setup $(PEERS) ## the same with fewer users and turns, without curves
	OMP_NUM_THREADS=1 PYTHONPATH=build/peers:tests $(BIN)/python -m benchmarks.peers --quick

bench-rounds: setup ## what a run does outside training, its memory, the whole demo
	PYTHONPATH=tests $(BIN)/python -m benchmarks.rounds

bench-accountant: setup ## the accountants beside their peers, in one run
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.accountant

bench-records: setup ## record mode beside Opacus, in one run
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.records

bench-gate: setup ## forty leaky filters and twenty sound ones: what the attack says of each
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.leaky_filters

bench-noise: setup ## what exact noise and exact sums cost
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.noise

clean: ## remove what make made, but no run
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache
