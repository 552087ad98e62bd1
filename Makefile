# `make` prints what there is; README.md says which two of them matter on a fresh machine.

PYTHON ?= python3
VENV   ?= .venv
SHARED ?= ../shared
PY     := $(VENV)/bin/python
CC     ?= cc
CXX    ?= c++

UV_VERSION  := 0.13.9
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GO_DIRS     := $(wildcard capi engine objectstore collective bindings tests)

export PYTHONDONTWRITEBYTECODE := 1
export UV_HTTP_TIMEOUT := 600
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test build generate check bench wheel wheel-arm64 sdist clean

help: ## print this
	@echo "raygo $$(cat VERSION): Ray's Python API on an engine written in Go"
	@echo
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22
	@echo
	@echo "Steps of make test, each also alone as make step-NAME:"
	@echo "  $(STEPS)" | fold -s -w 100

# ---- the environment

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "raygo needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "no virtual environment could be made in $(VENV) (on Debian: apt-get install python3-venv)" >&2; exit 1; }

# uv installs torch's gigabytes several times faster than pip; pip does it where uv cannot be had.
define install
@$(PY) -m uv --version >/dev/null 2>&1 || $(PY) -m pip install -q uv==$(UV_VERSION) || echo "no uv here, so pip installs (slower)" >&2
@if $(PY) -m uv --version >/dev/null 2>&1; then $(PY) -m uv pip install -q --python $(PY) -e '.[$(EXTRAS)]'; \
 else $(PY) -m pip install -q -e '.[$(EXTRAS)]'; fi
@touch $@
endef

$(VENV)/.demo: EXTRAS := examples
$(VENV)/.test: EXTRAS := all,examples,dev
$(VENV)/.demo $(VENV)/.test: pyproject.toml | $(PY)
	$(install)

# ---- what people use

demo: $(VENV)/.demo build ## install into .venv and train a small network on two workers
	@$(PY) python/examples/digits_ddp.py

build: | $(PY) ## rebuild the native parts in place
	@$(PY) python/hatch_build.py

generate: ## write the files that follow from capi/errors.tsv and VERSION
	@$(PYTHON) capi/generate.py

STEPS := gofmt vet staticcheck generated ruff mypy headers warnings gotest cuda pytest examples acceptance bugs wheel bench

test: $(VENV)/.test build ## install what is needed and run everything that CI runs
	@total=$$(date +%s); for step in $(STEPS); do \
	  printf '\n==> %s\n' "$$step"; start=$$(date +%s); \
	  $(MAKE) --no-print-directory step-$$step || { echo "==> make test stopped: step $$step failed after $$(( $$(date +%s) - start )) s" >&2; exit 1; }; \
	  echo "==> $$step: $$(( $$(date +%s) - start )) s"; \
	done; printf '\n==> all steps passed in %s s\n' "$$(( $$(date +%s) - total ))"

check: $(VENV)/.test build ## the quick part of make test: formats, types, generated files
	@for step in gofmt vet generated ruff mypy headers; do $(MAKE) --no-print-directory step-$$step || exit 1; done

bench: build ## a short benchmark
	@$(PY) tests/bench/quick.py

sdist: $(VENV)/.test ## source distribution into dist/
	@$(PY) -m build -q --sdist --outdir dist .

wheel: $(VENV)/.test ## manylinux_2_28 wheel for x86_64 into dist/, tested in a fresh environment
	@tests/packaging/wheel.sh $(PY) x86_64

wheel-arm64: $(VENV)/.test ## the same for aarch64: built and checked, not run
	@tests/packaging/wheel.sh $(PY) aarch64

clean: ## remove what was built (not .venv)
	@rm -rf build dist python/raygo/*.so python/raygo/raygo-gpus

# ---- the steps of make test

.PHONY: $(STEPS:%=step-%)

step-gofmt:
	@out=$$(gofmt -l $(GO_DIRS)); test -z "$$out" || { echo "not formatted, run gofmt -w: $$out" >&2; exit 1; }

step-vet:
	@go vet ./...

step-staticcheck:
	@go run $(STATICCHECK) ./...

step-generated:
	@$(PYTHON) capi/generate.py --check

step-ruff:
	@$(PY) -m ruff check .

step-mypy:
	@$(PY) -m mypy

step-headers:
	@for header in capi/include/*.h; do \
	  $(CC) -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c $$header || exit 1; \
	  if command -v $(CXX) >/dev/null; then $(CXX) -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ $$header || exit 1; fi; \
	done

# The binding once more, with every warning an error, into a folder of its own.
step-warnings:
	@rm -rf build/warnings && CFLAGS=-Werror $(PY) python/hatch_build.py --into build/warnings

step-gotest:
	@go test -race ./...

# What is built with the tag cuda: compiled against CUDA's headers and tested with a driver that only pretends.
step-cuda:
	@tests/gpu/cuda.sh $(PY)

step-pytest:
	@$(PY) -m pytest -q tests

# Every example ends by itself, and says so when what it computes is not right.
step-examples:
	@for example in python/examples/*.py; do \
	  echo "$$example"; out=$$(timeout 600 $(PY) $$example 2>&1) || { echo "$$out" | tail -40 >&2; echo "$$example failed" >&2; exit 1; }; \
	done

# Acceptance tests and bug reports stand beside a checkout, not in it; without them there is nothing to run.
ACCEPTANCE := core objects actors joblib train_torch train_lightning train_transformers train_gbdt storage_s3 \
  tune tune_search tune_schedulers trackers fault_tolerance
# The script that it runs has a syntax error of its own.
NOT_ACCEPTANCE := test_fault_tolerance.py::test_memory_monitor_kills_the_greedy_task
BUGS := 01 03 06 07 09 11 13 15 17 19 22 23 25 27 28 30 33 34 36 37 39 46 47 48

step-acceptance:
	@if [ -d $(SHARED)/acceptance ]; then py=$$(realpath -s $(PY)); cd $(SHARED)/acceptance && \
	  RAY_API=raygo $$py -m pytest -q -p no:cacheprovider $(ACCEPTANCE:%=test_%.py) $(NOT_ACCEPTANCE:%=--deselect %); \
	else echo "no $(SHARED)/acceptance here: skipped"; fi

step-bugs:
	@tests/bugs.sh $(PY) $(SHARED)/bugs $(BUGS)

step-wheel:
	@tests/packaging/wheel.sh $(PY) native

step-bench:
	@$(PY) tests/bench/quick.py || echo "the benchmark failed; it is no gate"
