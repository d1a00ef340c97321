# Two commands do everything on a bare Linux machine with Python 3.11+ and make: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests side by side: on two cores those with a control plane in one process, all others in a second that stands back.
WORKERS ?= $(shell n=$$(nproc); if [ $$n -ge 6 ]; then echo 3; elif [ $$n -ge 2 ]; then echo 2; else echo 0; fi)
SEED ?= $(shell date +%s)
export PYTHONPATH := operator:.

.PHONY: help venv build lint unit cluster test demo demo-preempt demo-node up down soak bench crds docs stubs lock clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/dev.lock
	@test -x $(BIN)/python || { echo "creating the virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the locked dependencies (about half a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

venv: $(STAMP) ## create .venv with the locked dependencies

build: $(STAMP) ## build etcd, the control plane, kwok and, for a real node, containerd from Go modules (cached)
	@$(BIN)/python -m devcluster build

lint: $(STAMP) ## ruff (rules and format), mypy (strict), import contracts
	@$(BIN)/ruff check operator tests devcluster benchmarks
	@$(BIN)/ruff format --check --quiet operator tests devcluster benchmarks
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: $(STAMP) ## tests that need no cluster
	@$(BIN)/python -m pytest -q -m "not cluster and not soak"

cluster: build ## tests against a real etcd, API server and scheduler; as root also a real kubelet and containerd
	@$(BIN)/python -m pytest -q -m "cluster and not soak"

test: lint build ## everything that CI runs
	@$(BIN)/python -m pytest -q -m "not soak" -n $(WORKERS)

demo: build ## the story in a few minutes on a local control plane
	@$(BIN)/python -m devcluster.demo

demo-preempt: build ## who goes, who stays, who comes back: preemption on a full cluster of 160 cards
	@$(BIN)/python -m devcluster.demo_preempt

demo-node: build ## the product in pods from its own image, on a real kubelet and containerd (root, Debian)
	@devcluster/install-packages
	@$(BIN)/python -m devcluster.demo_node

up: build ## leave a control plane running, with a kubeconfig for kubectl
	@$(BIN)/python -m devcluster up

down: ## end the control plane that `make up` left running
	@$(BIN)/python -m devcluster down

soak: build ## long runs: 20,000 random examples (SEED=N repeats them), 1,000 pods on a real node
	@echo "seed $(SEED)"
	@VGPU_SOAK=1 $(BIN)/python -m pytest -q -m soak -s --timeout=0 --hypothesis-seed=$(SEED) --hypothesis-show-statistics

bench: build ## measure against a plain kube-scheduler in the same run
	@$(BIN)/python -m benchmarks

crds: $(STAMP) ## regenerate crds/ from the models
	@$(BIN)/python -m vgpu.api.crd crds

docs: $(STAMP) ## regenerate docs/settings.md from the models
	@$(BIN)/python -m vgpu.settings_page docs/settings.md

stubs: $(STAMP) ## regenerate the gRPC stubs of kubelet's APIs from our .proto files
	@cd operator && ../$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. vgpu/agent/kubelet/*.proto

lock: ## resolve the dependencies anew
	@$(BIN)/python -m pip install --quiet pip-tools
	@$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --allow-unsafe --extra dev -o requirements/dev.lock pyproject.toml
	@$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras -o requirements/runtime.lock pyproject.toml
	@$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --allow-unsafe --only-build-deps --build-deps-for wheel -o requirements/build.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
