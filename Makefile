# Tessera's targets; `make help` lists them. Everything built lands in bin/ or in $(CACHE).

SHELL       := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO    ?= go
# Paths of the checkout do not become part of what is compiled, so that all clones share Go's build cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)
CACHE := $(or $(TESSERA_CACHE),$(HOME)/.cache/tessera)
export TESSERA_CACHE := $(CACHE)

MODULES      := . e2e/repo/tools e2e/tests/autoscaler e2e/tests/oracle e2e/tests/promql e2e/tests/upstream $(patsubst %/go.mod,%,$(wildcard e2e/repo/tools/*/go.mod e2e/env/lab/modules/*/go.mod e2e/bench/modules/*/go.mod))
LINT_VERSION := $(shell awk '/golangci-lint\/v2 v/ {print $$2}' e2e/repo/tools/go.mod)
LINT         := $(CACHE)/tools/golangci-lint-$(LINT_VERSION)
# With -trimpath, the linter would get the cgo files of another clone from Go's build cache, and read sources where that clone was.
RUN_LINT     := GOFLAGS='$(filter-out -trimpath,$(GOFLAGS))' $(LINT) run --allow-parallel-runners
# The linters that do not load imported packages: e2e/tests/upstream imports the whole API server, 6 GB.
LIGHT        := cyclop,depguard,errorlint,exhaustive,forcetypeassert,funlen,godot,importas,ineffassign,revive
GINKGO       := $(CACHE)/tools/ginkgo-$(shell awk '$$1 == "github.com/onsi/ginkgo/v2" {print $$2}' go.mod)
SBOM         := $(CACHE)/tools/cyclonedx-gomod-$(shell awk '/cyclonedx-gomod v/ {print $$2}' e2e/repo/tools/cyclonedx/go.mod)
COSIGN       := $(CACHE)/tools/cosign-$(shell awk '/cosign\/v2 v/ {print $$2}' e2e/repo/tools/cosign/go.mod)
HUGO         := $(CACHE)/tools/hugo-$(shell awk '$$1 == "github.com/gohugoio/hugo" {print $$2}' e2e/repo/tools/hugo/go.mod)
SPECS        := $(GINKGO) run -v --no-color --keep-going
FUZZTIME     ?= 30s

# Packages that need root and the lab's programs; all others run anywhere. Those of VERIFY are a part of `make verify`.
INTEGRATION := ./e2e/tests/agent ./e2e/tests/contract ./e2e/tests/installer ./e2e/tests/installer/lifecycle ./e2e/env/lab ./e2e/tests/scheduler
# NVIDIA's files are not in the repository: only test-contract runs this package.
CONTRACT    := ./e2e/tests/contract/nvidia
RELEASE     := ./e2e/tests/release
KUEUE       := ./e2e/tests/kueue
SUITE       := ./e2e/tests/suite ./e2e/tests/installation ./e2e/tests/vm
VERIFY      := ./e2e/repo/verify ./e2e/repo/verify/dialect
UNIT         = $$($(GO) list ./... | grep -vx $(patsubst ./%,-e '.*/%',$(INTEGRATION) $(SUITE) $(CONTRACT) $(RELEASE) $(KUEUE) $(1)))

##@ Daily

.PHONY: check
check: ## vet, unit tests, import law: before every commit
	$(GO) vet ./...
	$(GO) test $(call UNIT)

.PHONY: test-unit
test-unit: ## unit and property tests and fuzz seeds, with -race where code is concurrent; tests that require root are skipped without it
	units="$(call UNIT,$(VERIFY))"; \
	$(GO) test -race -timeout 20m $$($(GO) run ./e2e/repo/race $$units); \
	$(GO) test -timeout 20m $$($(GO) run ./e2e/repo/race -plain $$units)
	for module in autoscaler oracle; do $(GO) -C "e2e/tests/$$module" test ./...; done

.PHONY: build
build: ## the product's binaries, into bin/
	mkdir -p bin
	$(GO) build -tags grpcnotrace -o bin/ ./cmd/...

PREFIX ?= /usr/local

.PHONY: install
install: ## the CLI into PREFIX/bin, by default below /usr/local, as tessera and as kubectl's plugin
	mkdir -p bin
	CGO_ENABLED=0 $(GO) build -tags grpcnotrace -o bin/tessera ./cmd/tessera
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 0755 bin/tessera '$(DESTDIR)$(PREFIX)/bin/tessera'
	ln -sf tessera '$(DESTDIR)$(PREFIX)/bin/kubectl-tessera'

##@ Everything

.PHONY: test
test: lab ## all tests: test-unit, test-integration, test-lab and test-upstream (root)
	@$(MAKE) test-unit
	@$(MAKE) test-integration
	@$(MAKE) test-lab
	@$(MAKE) test-upstream
	@echo "left out: test-driver, which downloads NVIDIA's drivers (260 MB), test-modules, which also compiles them, test-vm, test-kueue, test-release, test-long and test-contract"

# Most of these tests wait for an agent or a controller, so more of them run in parallel than there are processors.
.PHONY: test-integration
test-integration: lab ## the real agent with a client in the place of kubelet, and the lab itself, with -race (root)
	$(GO) test -race -parallel 4 -timeout 40m -count=1 $(INTEGRATION)

# One suite after the other, each in two processes with clusters of their own: a cluster at rest needs processor time too (decision 0201).
.PHONY: test-lab
test-lab: lab $(GINKGO) ## the suites, in real clusters with fake GPUs (root)
	$(SPECS) --timeout 60m --label-filter '!long' --procs 2 ./e2e/tests/suite ./e2e/tests/installation

.PHONY: test-long
test-long: lab $(GINKGO) ## faults and inputs that take minutes to hours each: the installer killed at every step, a million hostile pools (root)
	TESSERA_HISTORIES=100000 $(GO) test -count=1 -timeout 30m -run '^TestExclusiveDevicesHaveOneTenant$$' ./kubelet-plugin/prepare
	TESSERA_ROOTS=100000 $(GO) test -count=1 -timeout 60m -v -run '^TestHostileRoots$$' ./kubelet-plugin/hook
	$(GO) test -count=1 -timeout 0 -run '^TestHostilePools$$' ./scheduler-plugin/index -pools 1000000
	$(GO) run ./e2e/repo/mutate ./kubelet-plugin/hook ./kubelet-plugin/checkpoint ./kubelet-plugin/prepare
	$(GO) test -count=1 -timeout 0 -v -run '^TestPolicyMutants$$' ./e2e/repo/verify -policy-mutants 150
	$(SPECS) --timeout 60m --label-filter 'long || install' --procs 2 ./e2e/tests/suite ./e2e/tests/installation

.PHONY: test-upstream
test-upstream: lab ## Kubernetes' test cases of the scheduler, with our plugin in the place of the in-tree one (root)
	$(GO) -C e2e/tests/upstream test -run '^$$' -bench '^BenchmarkUpstream$$' -benchtime 1x -timeout 30m .

.PHONY: test-vm
test-vm: $(GINKGO) ## the suite on virtual machines: stock kernels of Debian, systemd, cgroup v2, vfio-pci, kernel modules (root; QEMU, no KVM)
	$(GO) run ./e2e/env/lab/cmd/lab setup --virtual
	$(SPECS) --timeout 90m ./e2e/tests/vm

.PHONY: test-kueue
test-kueue: lab ## Kueue in a real cluster: quota for two teams, borrowing, preemption; builds Kueue once (root)
	$(GO) test -count=1 -v -timeout 60m $(KUEUE)

.PHONY: test-driver
test-driver: lab ## NVIDIA's own libraries and programs of drivers 535 and 550, downloaded from Debian's archive, without a GPU (root)
	e2e/tests/driver/packages.sh '$(CACHE)/driver'
	export TESSERA_DRIVER_ROOTS='$(CACHE)/driver'; { \
		$(GO) test -count=1 -v -timeout 20m -run '^TestNVIDIAs' ./dra-driver/nvml ./kubelet-plugin/mps ./e2e/tests/driver ./e2e/tests/agent; \
		for branch in 535 550; do $(GO) -C e2e/tests/oracle test -count=1 -v -timeout 10m -run "^TestNVIDIAsFiles$$/^$$branch" .; done; \
	} | awk -f e2e/tests/driver/count.awk

.PHONY: test-modules
test-modules: ## NVIDIA's kernel modules 535 and 550, compiled into driver images for Debian 12's newest cloud kernel; VERSION=535 TYPE=open: some (root)
	images="$$($(GO) run ./e2e/env/driverimage/cmd/driverimage -version '$(VERSION)' -type '$(TYPE)')"; echo "$$images"; \
	TESSERA_DRIVER_IMAGES="$$images" $(GO) test -count=1 -v -timeout 20m -run '^TestModules' ./e2e/tests/driver | awk -f e2e/tests/driver/count.awk

.PHONY: test-contract
test-contract: ## NVIDIA's entry points in the rendered driver pods: TESSERA_NVIDIA_FILES=<folder with driver-container> (root)
	@[ -n "$(TESSERA_NVIDIA_FILES)" ] || { echo "set TESSERA_NVIDIA_FILES to the folder with NVIDIA's gpu-driver-container as driver-container"; exit 2; }
	TESSERA_NVIDIA_FILES='$(abspath $(TESSERA_NVIDIA_FILES))' $(GO) test -count=1 -timeout 20m -v $(CONTRACT) $(CONTRACTFLAGS) | grep -v '^=== '

.PHONY: hardware-bundle
hardware-bundle: ## .hw/hardware-bundle.tar.xz, for one run on a machine with a GPU that changes nothing (e2e/hardware)
	XZ_OPT='-9 -T1' $(GO) run ./e2e/hardware/cmd/bundle

.PHONY: fuzz
fuzz: ## fuzz every Fuzz function for FUZZTIME each
	@grep -roE --include='*_test.go' '^func Fuzz\w+' . | sed -E 's|^\./(.*)/[^/]*:func (Fuzz\w+)|\1 \2|' | sort | \
	while read -r folder name; do \
		echo "== $$name in $$folder, $(FUZZTIME)"; \
		$(GO) test "./$$folder" -run '^$$' -fuzz "^$$name\$$" -fuzztime '$(FUZZTIME)' -fuzzminimizetime 200x || exit 1; \
	done

.PHONY: verify
verify: ## tidy, generate, format, vet, lint, import law, words, manifests; fails if a file changes
	@$(MAKE) verify-tidy
	@$(MAKE) verify-generate
	@$(MAKE) verify-format
	@$(MAKE) verify-lint
	@$(MAKE) verify-laws

.PHONY: verify-tidy
verify-tidy:
	@echo "== tidy"
	for module in $(MODULES); do $(GO) -C "$$module" mod tidy -diff; done

.PHONY: verify-generate
verify-generate:
	@echo "== generate"
	state() { git diff HEAD --binary; git ls-files --others --exclude-standard -z | xargs -0r sha256sum; }; \
	before=$$(state | sha256sum); \
	$(GO) generate ./...; \
	[ "$$before" = "$$(state | sha256sum)" ] || { echo "generated files were stale; they are new now: look at them and commit"; git status --short; exit 1; }

.PHONY: verify-format
verify-format:
	@echo "== format and vet"
	unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	[ -z "$$unformatted" ] || { echo "gofmt -w these files:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags crashtest ./cmd/...
	for module in e2e/tests/autoscaler e2e/tests/oracle e2e/tests/promql e2e/tests/upstream; do $(GO) -C "$$module" vet ./...; done

.PHONY: verify-lint
verify-lint: $(LINT)
	@echo "== lint"
	$(RUN_LINT) ./...
	for module in e2e/tests/autoscaler e2e/tests/oracle e2e/tests/promql; do (cd "$$module" && $(RUN_LINT) --config ../../../.golangci.yml ./...); done
	$(GO) -C e2e/repo/tools/actionlint tool actionlint $(CURDIR)/.github/workflows/*.yaml
	cd e2e/tests/upstream && $(RUN_LINT) --config ../../../.golangci.yml --enable-only '$(LIGHT)' ./...

.PHONY: verify-laws
verify-laws:
	@echo "== import law, house rules, manifests"
	$(GO) test -count=1 $(VERIFY)

$(GINKGO):
	@echo "building $(@F), once"
	$(GO) build -o $@ github.com/onsi/ginkgo/v2/ginkgo

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION), once"
	mkdir -p $(@D)
	$(GO) -C e2e/repo/tools build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(SBOM):
	@echo "building $(@F), once"
	mkdir -p $(@D)
	$(GO) -C e2e/repo/tools/cyclonedx build -o $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

$(COSIGN):
	@echo "building $(@F), once"
	mkdir -p $(@D)
	$(GO) -C e2e/repo/tools/cosign build -o $@ github.com/sigstore/cosign/v2/cmd/cosign

$(HUGO):
	@echo "building $(@F), once"
	mkdir -p $(@D)
	$(GO) -C e2e/repo/tools/hugo build -o $@ github.com/gohugoio/hugo

##@ A cluster on this machine

.PHONY: demo
demo: ## bare nodes with fake GPUs become ready through the chart, every example runs and is explained (root)
	@echo "compiling the demo: two minutes on an empty build cache, none later"
	$(GO) run ./e2e/demo up

.PHONY: demo-upgrade
demo-upgrade: ## a new driver for the demo's nodes: plan, canary, drain, swap, and a rollback where it fails (root)
	$(GO) run ./e2e/demo upgrade

.PHONY: demo-health
demo-health: ## a GPU in use faults: reports, the pod's replacement, the reset, and the GPU's return to service (root)
	$(GO) run ./e2e/demo health

.PHONY: demo-down
demo-down: ## remove the demo's cluster, if there is one
	$(GO) run ./e2e/demo down

.PHONY: lab
lab: ## install the requirements of the lab: host packages and built Kubernetes binaries (root)
	$(GO) run ./e2e/env/lab/cmd/lab setup

.PHONY: images
images: ## the container images, as OCI archives in the cache
	$(GO) run ./deployments/images

##@ Benchmarks

# The programs are built and then run: `go run` would not forward a SIGTERM, at which a bench removes
# everything that it has created. BENCHFLAGS=-help lists the flags of a program.
.PHONY: bench
bench: ## every bench, one after the other, on an otherwise idle machine (root)
	@$(MAKE) bench-node
	@$(MAKE) bench-publish
	@$(MAKE) bench-hook
	@$(MAKE) bench-shares
	@$(MAKE) bench-placement
	@$(MAKE) bench-topology
	@$(MAKE) bench-scheduler
	@$(MAKE) bench-hostile
	@$(MAKE) bench-installer
	@$(MAKE) bench-health

.PHONY: bench-node
bench-node: lab ## the agent: latency, memory, idle cost, restarts, upgrades (root)
	$(GO) build -o bin/bench/ ./e2e/bench/node
	bin/bench/node $(BENCHFLAGS)

.PHONY: bench-publish
bench-publish: lab ## the published ResourceSlices: sizes, time, memory of the API server (root)
	$(GO) build -o bin/bench/ ./e2e/bench/publish
	bin/bench/publish $(BENCHFLAGS)

.PHONY: bench-hook
bench-hook: lab ## the time that CDI adds to the start of a container (root)
	$(GO) build -o bin/bench/ ./e2e/bench/hook
	bin/bench/hook $(BENCHFLAGS)

.PHONY: bench-shares
bench-shares: lab ## enforced shares: limits over random histories of pods, their cost, packing; OPENB=<folder>: a trace (root)
	$(GO) build -o bin/bench/ ./e2e/bench/shares
	bin/bench/shares $(BENCHFLAGS)
	$(GO) test -count=1 -v ./kubelet-plugin/mps -timeout 30m -run 'TestHistories$$' -histories 10000

.PHONY: bench-scheduler
bench-scheduler: lab ## the scheduler, the in-tree plugin, and a scheduler without decisions compared; FULL=1: the large sizes (root)
	$(GO) build -o bin/bench/ ./e2e/bench/scheduler
	rm -f bin/bench/upstream.jsonl
	$(GO) -C e2e/tests/upstream test -run '^$$' -bench '^BenchmarkCompare$$' -benchtime 1x -timeout 2h . -args -compare-out '$(CURDIR)/bin/bench/upstream.jsonl' \
		-compare-workloads '$(if $(FULL),^Partitionable(Backtracking)?/(half|full)_(500|1000)nodes$$,^Partitionable(Backtracking)?/half_500nodes$$)'
	bin/bench/scheduler -upstream bin/bench/upstream.jsonl $(if $(FULL),-nodes 1000) $(BENCHFLAGS)

.PHONY: bench-hostile
bench-hostile: lab ## pods without claims in a cluster with 100 of the worst claims that the API permits (root)
	$(GO) build -o bin/bench/ ./e2e/bench/scheduler
	bin/bench/scheduler -hostile 100 -nodes 10 -pods 50 $(BENCHFLAGS)

.PHONY: bench-installer
bench-installer: lab ## the installer with 1,000 simulated nodes: requests, memory, reconciles; FULL=1 also at rest on 5,000 (root)
	$(GO) build -o bin/bench/ ./e2e/bench/installer
	bin/bench/installer $(BENCHFLAGS)
	$(if $(FULL),bin/bench/installer -settled -nodes 5000 $(BENCHFLAGS))

.PHONY: bench-health
bench-health: lab ## the time from a fault to the taint and to kubelet; the cost of monitoring and of a storm of events (root)
	$(GO) build -o bin/bench/ ./e2e/bench/health
	bin/bench/health $(BENCHFLAGS)

.PHONY: bench-placement
bench-placement: ## MIG placement policies over simulated demand; FULL=1: all cases, OPENB=<folder>: a trace
	$(GO) build -o bin/bench/ ./e2e/bench/placement
	bin/bench/placement $(BENCHFLAGS)

.PHONY: bench-topology
bench-topology: ## sets of whole GPUs over simulated demand: the quality of their links
	$(GO) build -o bin/bench/ ./e2e/bench/topology
	bin/bench/topology $(BENCHFLAGS)

.PHONY: push
push: ## build the images, push them, write values and overlay into bin/deploy: REGISTRY=registry.example.com/tessera [TAG=dev]
	@[ -n "$(REGISTRY)" ] || { echo "name the registry: make push REGISTRY=registry.example.com/tessera TAG=v1"; exit 2; }
	$(GO) run ./deployments/images -push $(REGISTRY) -tag $(or $(TAG),dev)

##@ Releases

OUT       ?= dist
PUBLISHED := ghcr.io/tessera-gpu/tessera

.PHONY: release
release: $(SBOM) ## all files of a release, into OUT: VERSION=v0.1.0 [OUT=dist] [REGISTRY=ghcr.io/tessera-gpu/tessera]
	@[ -n "$(VERSION)" ] || { echo "name the version: make release VERSION=v0.1.0"; exit 2; }
	$(GO) run ./deployments/release -version '$(VERSION)' -out '$(OUT)' -registry '$(or $(REGISTRY),$(PUBLISHED))' -cyclonedx-gomod '$(SBOM)'

# With a key, cosign works offline; without one, it gets a certificate for the account that runs it, and publishes the signature in the transparency log.
.PHONY: release-publish
release-publish: $(COSIGN) ## push the images and the chart of the release in OUT and sign them and SHA256SUMS: [KEY=cosign.key]
	$(GO) run ./deployments/release -publish '$(OUT)'
	flags='--yes $(if $(KEY),--key $(KEY) --tlog-upload=false)'; \
	$(COSIGN) sign-blob $$flags --bundle '$(OUT)/SHA256SUMS.bundle' '$(OUT)/SHA256SUMS'; \
	sed 's/:[^:@]*@/@/' '$(OUT)/references.txt' | xargs -n 1 $(COSIGN) sign $$flags --recursive

.PHONY: test-release
test-release: lab $(SBOM) $(COSIGN) ## a release of the last commit: made twice, programs for arm64 in an emulator, signatures, go install, an upgrade in a cluster (root)
	COSIGN='$(COSIGN)' $(GO) test -count=1 -v -timeout 90m $(RELEASE)

##@ Other

.PHONY: docs
docs: $(HUGO) ## the site of the documentation, into OUT/site, with its links checked: [OUT=dist] [REF=main]
	$(GO) run ./e2e/repo/site -hugo '$(HUGO)' -out '$(OUT)/site' -ref '$(or $(REF),main)'

.PHONY: generate
generate: ## write the generated files
	$(GO) generate ./...

.PHONY: clean
clean: ## remove build outputs in the tree; the cache stays
	rm -rf bin dist

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
