# Everything from a bare checkout with python3 (3.10 to 3.13), make and g++:
#
#   make tune     tune the decode GEMMs of GLM-5 (predicted without a GPU, measured with one)
#   make test     lint, types and every test that needs no GPU
#   make help     the rest
#
# Variables: PYTHON (the interpreter that makes the environments), TOOLCHAIN (auto: the CUDA compiler of this
# machine if it is 12.8 or newer, else the one from wheels; wheels: always those; system: never those),
# TORCH (what pip installs for the tests that need it; empty: nothing, and those tests are skipped),
# MODEL, TUNE_ARGS and DB (of `make tune`), PYTEST_ARGS.

PYTHON    ?= python3
VENV      ?= .venv
FI_VENV   ?= .venv-flashinfer
TOOLCHAIN ?= auto
# Pinned: a bare `torch` takes whatever is newest, a CUDA build of several GB.
TORCH      ?= torch==2.13.0
FLASHINFER ?= flashinfer-python==0.7.4
MODEL      ?= examples/models/glm-5.yaml
TUNE_ARGS  ?= --ep 8 --format nvfp4 --rows 1,4,16,64
DB         ?= tuned
PYTEST_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Errors only: pip's warnings are about the machine's own configuration.
PIP = $(VENV)/bin/python -m pip install -qq

# The CUDA compiler: SM120's arch-specific features need 12.8.
ifeq ($(TOOLCHAIN),auto)
NVCC := $(firstword $(TILEFORGE_NVCC) $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
NVCC := $(shell test -n "$(NVCC)" && "$(NVCC)" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' \
          | awk '$$1 * 100 + $$2 >= 1208 { print "$(NVCC)" }')
WHEELS := $(if $(NVCC),,yes)
else ifeq ($(TOOLCHAIN),wheels)
WHEELS := yes
else ifeq ($(TOOLCHAIN),system)
WHEELS :=
else
$(error TOOLCHAIN=$(TOOLCHAIN): use auto, wheels or system)
endif
ifdef WHEELS
COMPILER := $(VENV)/.toolchain
endif

# A GPU is there when the driver lists one; measuring on it needs torch and NVML.
GPU := $(shell nvidia-smi -L 2>/dev/null | head -n 1)

.DEFAULT_GOAL := help
.PHONY: help tune test lint oracle-check test-gpu test-flashinfer headers wheel clean distclean

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile
	@echo "  make lint | oracle-check | test-gpu | test-flashinfer (2.6 GB) | wheel | clean (build products) | distclean (environments too)"

tune: headers $(if $(GPU),$(VENV)/.torch)
	TILEFORGE_DB=$(DB) $(VENV)/bin/tileforge tune --model $(MODEL) $(TUNE_ARGS)

test: lint $(VENV)/.torch headers
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The confusion table of tests/data/compiler_truth, and 24 tactics of each version that the compiler is asked about now.
oracle-check: headers
	$(VENV)/bin/python tests/confusion.py --fresh 24

test-gpu: $(VENV)/.dev $(VENV)/.torch headers
	$(VENV)/bin/python -m pytest -m gpu $(PYTEST_ARGS)

test-flashinfer: $(FI_VENV)/.dev
	$(FI_VENV)/bin/python -m pytest -m flashinfer $(PYTEST_ARGS)

# CUTLASS 4.5.0 headers (small-N block-scaled tiles) into tileforge's cache; says so and stops where they are there.
headers: $(VENV)/.base $(COMPILER)
	$(VENV)/bin/tileforge toolchain fetch-headers

wheel: $(VENV)/.dev
	$(VENV)/bin/python -m build

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) $(FI_VENV)

# Environments. A stamp is newer than pyproject.toml when the environment holds what it asks for.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tileforge needs Python 3.10 or newer: make PYTHON=python3.12 ..." >&2; exit 2; }
	@test -x $(1)/bin/pip || $(PYTHON) -m venv $(1) || \
	  { rm -rf $(1); echo "$(PYTHON) cannot make environments: install python3-venv" >&2; exit 2; }
endef

$(VENV)/.base: pyproject.toml
	$(call make_venv,$(VENV))
	@echo "installing tileforge into $(VENV)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.toolchain: $(VENV)/.base
	@echo "installing the CUDA 13.0 compiler from wheels (105 MB)"
	$(PIP) --editable '.[toolchain]'
	@touch $@

$(VENV)/.torch: $(VENV)/.base
	$(if $(TORCH),@echo "installing $(TORCH)")
	$(if $(TORCH),$(PIP) $(TORCH) nvidia-ml-py)
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the development tools"
	$(PIP) --editable '.[dev]'
	@touch $@

$(FI_VENV)/.dev: pyproject.toml
	$(call make_venv,$(FI_VENV))
	@echo "installing tileforge, $(TORCH) and $(FLASHINFER) into $(FI_VENV) (2.6 GB)"
	$(FI_VENV)/bin/python -m pip install -qq --editable '.[dev]' $(TORCH) $(FLASHINFER)
	@touch $@
