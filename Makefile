# Every target sets up what it needs in .venv by itself; the second time that is quick.  `make help` lists them.
#
# Settings, given as `make TARGET NAME=value`:
#   PYTHON    the Python (3.11 or newer) that .venv is made from          python3
#   VENV      where the environment lies                                  .venv
#   TORCH     what pip is told to install for torch                       torch==2.13.*
#   PIP_ARGS  more arguments for pip, such as a package index of your own
#   MODEL     the architecture of `make enable`                           llama
#   PART      the part of the tests, see `make test`                      all but what is nightly
#   JOBS      how many tests run at once                                  auto: the cores
#   ARGS      more arguments for the command that the target runs

PYTHON   ?= python3
VENV     ?= .venv
TORCH    ?= torch==2.13.*
PIP_ARGS ?=
MODEL    ?= llama
ARGS     ?=

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN   := $(VENV)/bin
PY    := $(BIN)/python
PIP   := $(PY) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)
OW    := $(BIN)/opwright
STAMP := $(VENV)/stamp
# One stamp per torch that was asked for: another TORCH installs again.
TORCH_STAMP := $(STAMP)/torch-$(shell printf %s '$(TORCH)' | tr -c 'A-Za-z0-9.' _)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z_-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; sed -n '/^# Settings/,/^$$/s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# ---- what people run ----

.PHONY: enable
enable: models ## take MODEL from a transformers config to parity with PyTorch
	$(OW) enable $(MODEL) $(ARGS)

.PHONY: test
test: models dev ## all tests, or those of PART=unit|judge|conformance|cuda|scorecard|sanitizers|nightly|examples
	$(PY) -m pytest -n $(JOBS) --dist worksteal -q $(PART_MARK) $(ARGS)

.PHONY: lint
lint: dev ## ruff, mypy, import-linter, clang-format
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

.PHONY: format
format: dev ## rewrite Python and C++ in the house's layout
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CXX_FILES)

.PHONY: judge
judge: ## the judge at work, then a share of the accepted operators judged again
	@$(MAKE) --no-print-directory test PART=judge
	@$(MAKE) --no-print-directory rejudge

.PHONY: rejudge
rejudge: models ## does the evidence hold; judge a SHARE of it again, chosen by the commit
	$(OW) gate --base HEAD --no-models $(if $(SHARE),--sample $(SHARE)) $(ARGS)

.PHONY: scorecard
scorecard: ## wrong kernels that the judge must kill, honest ones that it must pass, and the rates
	@$(MAKE) --no-print-directory test PART=scorecard

.PHONY: conformance
conformance: models dev ## PyTorch's own samples against our operators, to docs/conformance.md (CI runs a part)
	$(PY) -m tests.conformance.run $(ARGS)

.PHONY: bench
bench: models rivals ## the suite of docs/speed.md against PyTorch, Inductor, ONNX Runtime and JAX (ARGS='--only sum')
	$(OW) bench --suite speed --vs torch,torch-out,inductor,onnxruntime,jax --out build/speed.html $(ARGS)

.PHONY: sweep
sweep: models ## every model type of transformers as far as it goes, and what stops which (UNTIL=supplied: quick)
	$(OW) sweep $(if $(UNTIL),--until $(UNTIL)) $(ARGS)

.PHONY: nightly
nightly: ## what does not fit into CI's budget; run again, it goes on where it stopped
	.ci/run nightly

.PHONY: ci
ci: ## what CI runs: lint, every part of the tests within its budget, the wheel elsewhere
	.ci/run

.PHONY: wheel
wheel: core stubs ## build the wheel into dist/
	rm -rf build/lib build/bdist.* dist/opwright-*.whl
	$(PY) -m pip wheel --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps --wheel-dir dist .

.PHONY: check-wheel
check-wheel: ## install the wheel into an empty environment elsewhere, and accept an operator there
	TORCH='$(TORCH)' PYTHON='$(PYTHON)' PIP_ARGS='$(PIP_ARGS)' .ci/check-wheel

.PHONY: clean
clean: ## remove what was built here (not .venv, not the artifact cache)
	rm -rf build dist runtime/generated *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## the same, and .venv
	rm -rf $(VENV)

# ---- parts of the tests: a test without one of these marks is `unit` ----

PARTS := judge conformance cuda scorecard sanitizers
JOBS  ?= auto
PART  ?=
SHARE ?=
empty :=
space := $(empty) $(empty)
ifeq ($(PART),)
PART_MARK := -m "not nightly"
else ifeq ($(PART),unit)
PART_MARK := -m "not nightly and not $(subst $(space), and not ,$(PARTS))"
else ifeq ($(PART),nightly)
PART_MARK := -m nightly
else ifeq ($(PART),examples)
# Tests of properties, with many more examples than by day.
PART_MARK := -m hypothesis --hypothesis-profile=nightly
else
PART_MARK := -m "$(PART) and not nightly"
endif

CXX_FILES := $(wildcard runtime/include/opwright/*.h runtime/src/*.cpp runtime/src/*.h runtime/bodies/*.cpp)

# ---- the environment ----

.PHONY: setup
setup: models dev ## install everything that tests and lint need

.PHONY: stubs
stubs: core ## ops.pyi and _core.pyi, which editors and type checkers read, from the specs
	$(OW) generate --stubs
	@$(PY) .ci/link.py >/dev/null

.PHONY: link
link: $(STAMP)/venv ## bring build/src/opwright (the package as links) up to date
	@$(PY) .ci/link.py --pth "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

.PHONY: core models dev cuda rivals
core: $(STAMP)/core link
models: $(STAMP)/models link
dev: $(STAMP)/dev link
rivals: $(STAMP)/rivals link
cuda: $(STAMP)/cuda link ## install NVRTC and its headers, to compile CUDA text without a GPU

$(STAMP)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "opwright needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Say: make PYTHON=python3.12 …" >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMP) && touch $@

# The editable install gives metadata and the `opwright` command; imports come from the link tree (docs/decisions.md).
$(STAMP)/core: pyproject.toml $(STAMP)/venv
	$(PIP) --editable .
	@touch $@

# torch by itself and first: beside others, pip may pick a newer one of several gigabytes.
$(TORCH_STAMP): $(STAMP)/venv
	$(PIP) '$(TORCH)'
	@rm -f $(STAMP)/torch-* && touch $@

$(STAMP)/models: $(STAMP)/core $(TORCH_STAMP)
	$(PIP) 'opwright[models]'
	@touch $@

$(STAMP)/dev: $(STAMP)/core
	$(PIP) 'opwright[dev]'
	@touch $@

$(STAMP)/cuda: $(STAMP)/core
	$(PIP) 'opwright[cuda]'
	@touch $@

$(STAMP)/rivals: $(STAMP)/core
	$(PIP) 'opwright[rivals]'
	@touch $@
