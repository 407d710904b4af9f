# Targets make the virtual environment .venv on first use and add to it what they need; nothing else need be installed.
PYTHON ?= python3
JOBS ?= 2
MINUTES ?= 10
BIN := .venv/bin
# The versions of constraints.txt; `make LOCK= test` takes the newest instead.
LOCK ?= constraints.txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(LOCK),--constraint $(LOCK))

.PHONY: demo test test-seeds test-slow fuzz lint format docs docs-versions bench studio wheel sbom audit lock clean
.DEFAULT_GOAL := test

.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Armillary needs Python 3.11 or newer: make PYTHON=/path/to/python3" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[plot]'
	@touch $@

.venv/.installed-dev: .venv/.installed
	$(INSTALL) --editable '.[dev]'
	@touch $@

.venv/.installed-docs: .venv/.installed-dev
	$(INSTALL) --editable '.[docs]'
	@touch $@

demo: .venv/.installed  ## simulate a 512-NPU machine; files in out/demo
	$(BIN)/armillary demo

test: .venv/.installed-dev  ## the fast tests
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow'

# Files without such tests are not collected: that takes a third of a minute each time.
test-seeds: .venv/.installed-dev  ## the property tests of `make test`, with 20 seeds
	for seed in $$(seq 20); do \
	  $(BIN)/python -m pytest -n $(JOBS) -m 'hypothesis and not slow' --hypothesis-seed=$$seed \
	    $$(grep -rl hypothesis tests --include='test_*.py') || exit; \
	done

# The CPU build of a fixed version: a plain `torch` brings several GB of CUDA.
.venv/.installed-frameworks: .venv/.installed-dev
	$(INSTALL) torch==2.13.0 jax tensorflow-cpu
	@touch $@

# With npm, axe looks at every page, too: it is among the locked packages of web/.
test-slow: .venv/.installed-frameworks $(if $(shell command -v npm),web/node_modules/.package-lock.json)  ## the tests that take minutes, some with PyTorch, JAX and TensorFlow
	$(BIN)/python -m pytest -n $(JOBS) -m slow
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow' --checked tests/engine tests/collective tests/explore/search

fuzz: .venv/.installed-dev  ## break inputs of every reader, and programs of the engines, MINUTES each
	$(BIN)/python tests/fuzz/run.py --guided --each $(MINUTES)

lint: .venv/.installed-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

format: .venv/.installed-dev  ## rewrite the sources as ruff likes them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.installed-docs  ## the manual; docs/_build/html/index.html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

docs-versions: .venv/.installed-docs  ## the manuals of all versions; docs/_build/site/index.html
	$(BIN)/python docs/versions.py docs/_build/site

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --no-audit --no-fund --ignore-scripts
	@touch $@

studio: web/node_modules/.package-lock.json  ## the scripts of pages and studio, from web/ into src/armillary/web; needs npm
	cd web && npm run --silent build

# Tools of their own, so that they do not turn up in the list of what Armillary needs.
.venv/.tools: .venv/.installed
	$(PYTHON) -m venv .venv/tools
	.venv/tools/bin/python -m pip install --quiet --disable-pip-version-check build cyclonedx-bom pip-audit uv
	@touch $@

wheel: .venv/.tools  ## dist/*.whl and dist/*.tar.gz
	.venv/tools/bin/python -m build --outdir dist .

sbom: .venv/.tools  ## dist/armillary.cdx.json: what an installation of Armillary consists of, in CycloneDX 1.6
	@mkdir -p dist
	$(PYTHON) -m venv --clear --without-pip .venv/sbom
	$(BIN)/python -m pip --python .venv/sbom/bin/python install --quiet --disable-pip-version-check \
	  $(if $(LOCK),--constraint $(LOCK)) .
	.venv/tools/bin/cyclonedx-py environment --output-reproducible --sv 1.6 --of JSON \
	  --pyproject pyproject.toml --mc-type library -o dist/armillary.cdx.json .venv/sbom/bin/python

audit:  ## known vulnerabilities of the locked versions; says so and passes where nothing can be asked
	.ci/audit

lock: .venv/.tools  ## the newest versions into constraints.txt, without the address of any index
	head -2 constraints.txt > .venv/lock
	.venv/tools/bin/uv pip compile pyproject.toml --extra dev --extra docs --universal --python-version 3.11 \
	  --no-header --no-annotate --quiet >> .venv/lock
	mv .venv/lock constraints.txt

bench: .venv/.installed-dev  ## the speed claims, one JSON line each
	$(BIN)/python benchmarks/simulate.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/generate.py
	$(BIN)/python benchmarks/congestion.py
	$(BIN)/python benchmarks/rungs.py
	$(BIN)/python benchmarks/torus.py
	$(BIN)/python benchmarks/in_network.py
	$(BIN)/python benchmarks/synthesis.py
	$(BIN)/python benchmarks/sweep_point.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/validate.py
	$(BIN)/python benchmarks/extrapolate.py
	$(BIN)/python benchmarks/learn.py
	$(BIN)/python benchmarks/studio.py
	$(BIN)/python benchmarks/page.py

clean:  ## everything that make made
	rm -rf .venv dist out docs/_build web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
