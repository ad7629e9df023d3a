# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs; python3 and pip are enough to start.  make test A="-k tokenizer"  passes flags on.

PYTHON ?= python3
VENV ?= .venv
DEMO ?= .demo
BENCH ?= .bench
TOOLS ?= .tools
LOCALSTACK ?= .localstack
PORT ?= 4566
A ?=
# Of the function that `sam build` makes; they must agree with template.yaml. SHARDS is a shard set to put into the zip.
LAMBDA_PYTHON ?= 3.13
LAMBDA_ARCH ?= x86_64
LAMBDA_INTERPRETER ?= python$(LAMBDA_PYTHON)
HERE = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
SHARDS ?=

SOURCES = $(shell find handler layers snapshot -name '*.py' -o -name '*.bin')
FOLDERS = $(shell find handler layers snapshot -type d ! -name __pycache__)
QUESTION ?= Why is the sky blue?

.PHONY: help demo test test-aws check parity bench bench-overhead bench-starts bench-host bench-serve bench-shards bench-compiled bench-large build-ZipFunction localstack localstack-down localstack-files tools dev clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO)/installed ## split SmolLM2-135M, start the function cold, stream an answer, show where the time went
	$(DEMO)/bin/quickthaw shard smollm2 $(DEMO)/smollm2
	$(DEMO)/bin/quickthaw invoke --shards $(DEMO)/smollm2 --chat "$(QUESTION)" --max-tokens 48 --stream

test: $(VENV)/installed ## all tests but those that need torch
	$(VENV)/bin/python -m pytest $(A)

test-aws: $(VENV)/installed tools ## with the SAM CLI and LocalStack, in containers and beside them (installs both: 0.9 GB)
	$(VENV)/bin/python -m pytest tests/aws $(A)

check: $(VENV)/installed ## format, lint, types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy -p quickthaw.handler -p quickthaw.layers -p quickthaw.snapshot

parity: $(VENV)/installed-parity ## compare with transformers, live (installs torch)
	$(VENV)/bin/python -m pytest tests/parity $(A)

bench: $(BENCH)/installed ## measure against numpy, llama.cpp, transformers (builds llama-cpp-python: minutes)
	$(BENCH)/bin/python -m tests.bench.first_token $(A)

bench-overhead: $(BENCH)/installed ## what a request costs outside the model: before, between tokens, after
	$(BENCH)/bin/python -m tests.bench.overhead $(A)

bench-starts: $(BENCH)/installed ## cold, zygote and CRIU starts of three functions (CRIU needs root)
	$(BENCH)/bin/python -m tests.bench.starts $(A)

bench-host: $(BENCH)/installed ## the host beside AWS's emulator
	$(BENCH)/bin/python -m tests.bench.host $(A)

bench-serve: $(BENCH)/installed ## eight streams in one process beside one
	$(BENCH)/bin/python -m tests.bench.serve $(A)

bench-shards: $(BENCH)/installed ## shards that are not in memory, or do not fit into it
	$(BENCH)/bin/python -m tests.bench.shards $(A)

bench-compiled: $(BENCH)/installed ## the compiled engine beside llama-cpp-python
	$(BENCH)/bin/python -m tests.bench.compiled $(A)

bench-large: $(BENCH)/installed ## private memory with a 7B-shaped shard set (writes 13 GiB)
	$(BENCH)/bin/python -m tests.bench.memory $(A)

build-ZipFunction: ## what `sam build` runs: the function's folder, in ARTIFACTS_DIR, with the shards in SHARDS if any
	@rm -rf build/lib build/bdist*  # or a module that was removed would be installed again
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target "$(ARTIFACTS_DIR)" --upgrade --no-compile \
	  --only-binary :all: --platform manylinux_2_28_$(LAMBDA_ARCH) --platform manylinux2014_$(LAMBDA_ARCH) \
	  --python-version $(LAMBDA_PYTHON) .
	@if $(LAMBDA_INTERPRETER) -c "" 2>/dev/null; then \
	  $(LAMBDA_INTERPRETER) -m compileall -q --invalidation-mode unchecked-hash "$(ARTIFACTS_DIR)"; \
	else echo "no $(LAMBDA_INTERPRETER) here to compile with: each cold start will compile what it imports" >&2; fi
	$(if $(SHARDS),mkdir -p "$(ARTIFACTS_DIR)/shards" && cp -R "$(SHARDS)/." "$(ARTIFACTS_DIR)/shards/")

localstack: $(TOOLS)/localstack/with-executor ## the function in LocalStack, without Docker: prints the URL to ask
	@$(MAKE) --no-print-directory localstack-files LAMBDA_PYTHON=$(HERE) LAMBDA_INTERPRETER=$(PYTHON)
	@TOOLS=$(abspath $(TOOLS)) RUN=$(abspath $(LOCALSTACK))/run FILES=$(abspath $(LOCALSTACK))/files RUNTIME=python$(HERE) \
	  PORT=$(PORT) localstack/up.sh

localstack-down: ## end it, and take away what it wrote
	RUN=$(abspath $(LOCALSTACK))/run localstack/down.sh
	rm -rf $(LOCALSTACK)

localstack-files: $(LOCALSTACK)/files/function-$(LAMBDA_PYTHON).zip $(DEMO)/installed ## what LocalStack is given, in .localstack/files
	@$(DEMO)/bin/quickthaw shard smollm2 $(LOCALSTACK)/files/shards
	@ln -f $< $(LOCALSTACK)/files/function.zip
	@cp localstack/stack.yaml $(LOCALSTACK)/files/

tools: $(TOOLS)/sam/installed $(TOOLS)/localstack/with-executor ## the SAM CLI and LocalStack, which some tests need, in .tools

dev: $(VENV)/installed ## an environment to work in

clean: ## remove what the other targets made
	rm -rf .venv* $(VENV) $(DEMO) $(BENCH) $(TOOLS) $(LOCALSTACK) .aws-sam build *.egg-info tests/.cache tests/bench/.cache

# The demo and the benchmarks use a plain install, as users have it; development uses links to the sources.
$(DEMO)/installed: pyproject.toml $(SOURCES)
	$(PYTHON) -m venv $(DEMO)
	@rm -rf build/lib build/bdist*  # or a module that was removed would be installed again
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check '.[shard]'
	touch $@

$(VENV)/installed: pyproject.toml $(FOLDERS)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' --config-settings editable_mode=strict
	touch $@

$(VENV)/installed-parity: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,parity]' --config-settings editable_mode=strict
	touch $@

$(BENCH)/installed: pyproject.toml $(SOURCES)
	$(PYTHON) -m venv $(BENCH)
	@rm -rf build/lib build/bdist*
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check '.[host,shard,bench]'
	touch $@

# Of their own, since what they need contradicts each other, and the development's.
$(TOOLS)/sam/installed: Makefile
	$(PYTHON) -m venv $(TOOLS)/sam
	$(TOOLS)/sam/bin/python -m pip install --quiet --disable-pip-version-check aws-sam-cli==1.170.0
	touch $@

$(LOCALSTACK)/files/function-$(LAMBDA_PYTHON).zip: pyproject.toml $(SOURCES)
	@mkdir -p $(LOCALSTACK)/files
	@$(MAKE) --no-print-directory build-ZipFunction ARTIFACTS_DIR=$(abspath $(LOCALSTACK))/function SHARDS=
	@cd $(LOCALSTACK)/function && $(PYTHON) -m zipfile -c $(abspath $@) *
	@rm -rf $(LOCALSTACK)/function

$(TOOLS)/localstack/with-executor: $(TOOLS)/localstack/installed pyproject.toml $(SOURCES) $(wildcard localstack/*.toml localstack/*/*.py)
	@rm -rf build/lib build/bdist* localstack/build
	$(TOOLS)/localstack/bin/python -m pip install --quiet --disable-pip-version-check . ./localstack
	@rm -rf localstack/build localstack/*.egg-info
	touch $@

$(TOOLS)/localstack/installed: localstack/requirements.txt
	$(PYTHON) -m venv $(TOOLS)/localstack
	$(TOOLS)/localstack/bin/python -m pip install --quiet --disable-pip-version-check -r localstack/requirements.txt
	touch $@
