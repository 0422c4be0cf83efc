# langadapt. `make run` and `make test` make their environment themselves; everything lands in .venv and runs/.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := containers/constraints.txt
# `make requirements UV_ARGS=--upgrade` takes newer versions than the files have; `make image-gpu` wants a BASE.
UV_ARGS ?=
BASE ?=
BUILDER ?= docker build
BUILD_ARGS ?=
TAG ?= langadapt:$*
VENV_STAMP := $(VENV)/.made
RUN_STAMP := $(VENV)/.installed-run
INFRA_STAMP := $(VENV)/.installed-infra
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: run test check format verify test-container requirements image-cpu image-gpu bench bench-train bench-gpu \
  bench-phases results synth

run: $(RUN_STAMP)  ## the whole DAG on this machine, on the sample
	$(BIN)/langadapt run

test: $(DEV_STAMP)  ## the test suite, under 12 minutes on two cores
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder -m "not verify"

check: $(DEV_STAMP)  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

verify: $(DEV_STAMP)  ## the longer proofs: claim, number, limit
	$(BIN)/python -m pytest -q -s -m verify

test-container: $(DEV_STAMP)  ## builds the image and runs three jobs inside it; as root, with buildah, podman and debootstrap
	$(BIN)/python -m pytest -q -s tests/verify/test_container.py

requirements: $(DEV_STAMP)  ## pins what the images install anew, with hashes, from containers/requirements-*.in
	@# No address and no path gets into the files: each machine asks the index that it is set up for.
	cd containers && for target in cpu gpu; do \
	  ../$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make requirements" \
	    --excludes requirements-base.txt -c constraints.txt $(UV_ARGS) \
	    requirements-$$target.in -o requirements-$$target.txt || exit 1; done

# Neither make nor a shell may read anything in BASE: it is taken as it was given, checked, and goes by the environment.
image-cpu image-gpu: override export BASE := $(value BASE)
image-cpu image-gpu: image-%:  ## the environment image on BASE=IMAGE@sha256:DIGEST, by docker or BUILDER="buildah bud"
	@printf '%s' "$$BASE" | tr '\n' ' ' | grep -Eqx '[A-Za-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}' || \
	  { printf "error: BASE: '%s'; limit IMAGE@sha256:DIGEST. %s\n" "$$BASE" "docs/containers.md tells how to find one."; exit 1; }
	$(BUILDER) --target $* --build-arg $(if $(filter cpu,$*),CPU,GPU)_BASE="$$BASE" -t $(TAG) $(BUILD_ARGS) containers

# All are run and told, whatever the first of them measures.
bench: $(DEV_STAMP)  ## tokenizers beside the library tokenizers on the text of TEXT=DIR, bits per byte beside lm-eval
	@failed=0; for bench in train_beside_tokenizers encode_beside_tokenizers; do \
	  $(BIN)/python tests/bench/$$bench.py $(TEXT) || failed=1; done; \
	$(BIN)/python tests/bench/beside_lm_eval.py || failed=1; exit $$failed

bench-train: $(DEV_STAMP)  ## the training loop's speed on this CPU beside a bare PyTorch loop
	$(BIN)/python tests/bench/train_beside_plain_loop.py

bench-gpu: $(DEV_STAMP)  ## a Llama 3.2 1B on one GPU, eager against Liger, by batch; skipped without CUDA
	$(BIN)/python tests/bench/gpu_throughput.py

bench-phases: $(DEV_STAMP)  ## initialisers and phases compared on real text, three seeds, about 20 minutes
	$(BIN)/python tests/bench/compare_training.py

synth: $(INFRA_STAMP)  ## the CloudFormation templates of infra/environments, in build/cdk.out; offline, with Node.js
	@# CDK's own checker takes longer than all the rest: `make verify` runs it.
	CDK_VALIDATION=false CDK_OUTDIR=$(CURDIR)/build/cdk.out $(BIN)/python -m infra.app
	@ls build/cdk.out/*.template.json

results: $(DEV_STAMP)  ## measures, writes results.json and the README's tables
	$(BIN)/python tests/make_results.py

$(VENV_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
	  { echo "error: $(PYTHON): $$($(PYTHON) --version 2>&1); limit Python 3.11 to 3.13. Name one: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "error: $(PYTHON): no venv module. Install it: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# A stamp is written only when an installation is whole; an interrupted one goes on from pip's cache.
$(RUN_STAMP): pyproject.toml $(CONSTRAINTS) | $(VENV_STAMP)
	@echo "Installing into $(VENV): about 0.7 GB to download with a CPU build of torch (4 GB with CUDA), 2 to 10 minutes."
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) $(PIP_ARGS) -e .
	@touch $@

$(INFRA_STAMP): pyproject.toml $(CONSTRAINTS) | $(VENV_STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) $(PIP_ARGS) -e '.[infra]'
	@touch $@ $(RUN_STAMP)

$(DEV_STAMP): pyproject.toml $(CONSTRAINTS) | $(VENV_STAMP)
	@echo "Installing into $(VENV): about 1.0 GB to download with a CPU build of torch (4 GB with CUDA), 3 to 12 minutes."
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) $(PIP_ARGS) -e '.[dev]'
	@# For Llama 3's own vocabulary alone, which lies in it: what it depends on is not needed.
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) $(PIP_ARGS) --no-deps llama-models
	@touch $@ $(RUN_STAMP) $(INFRA_STAMP)
