# Everything that is needed beyond Go and make comes through the Go module proxy, pinned in go.mod, go.tools.mod and go.lint.mod; the virtual
# machine of e2e-v2 comes from Debian.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Randomized tests of one commit always draw the same numbers; a failure prints the seed it ran with. quick and plain go test have one seed for
# all commits.
test soak e2e-v2: export PLIMSOLL_SEED ?= $(shell printf %d 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1))

BUF := go tool -modfile=go.tools.mod buf
GOLANGCI := go tool -modfile=go.lint.mod golangci-lint

.PHONY: help
help:
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

.PHONY: quick
quick: ## the loop of daily work, 90 s: format, vet, lint of what changed since BASE, every test without its long part
	@scripts/step quick scripts/quick

.PHONY: test
test: export TIMES := $(CURDIR)/.cache/times
test: ## all that CI runs, 50 min on a clean machine: lint, generated code, short fuzzing, every test, the race detector, e2e-v2
	@mkdir -p .cache && : >"$$TIMES"
	@scripts/step lint $(MAKE) --no-print-directory lint
	@scripts/step 'generated code' scripts/generated
	@scripts/step 'bench module' go test -C bench ./...
	@scripts/step 'example module' scripts/example-module
	@scripts/step build $(MAKE) --no-print-directory build
	@scripts/step 'fuzz, an eighth of the packages' scripts/fuzz 5000x "$$PLIMSOLL_SEED" 8
	@scripts/step "tests, PLIMSOLL_SEED=$$PLIMSOLL_SEED" scripts/test
	@scripts/step e2e-v2 scripts/e2e-v2
	@scripts/times "$$TIMES"

.PHONY: lint
lint: ## formatting, vet, golangci-lint, buf lint
	@status=0; \
	$(GOLANGCI) fmt --diff || status=1; \
	go vet ./... || status=1; \
	for module in bench examples/qos-loop; do \
		go vet -C $$module ./... || status=1; \
		go mod tidy -C $$module -diff || { echo "run go mod tidy in $$module too" >&2; status=1; }; \
	done; \
	$(GOLANGCI) run ./... || status=1; \
	$(BUF) lint || status=1; \
	exit $$status

.PHONY: fmt
fmt: ## format the Go and proto files
	@$(GOLANGCI) fmt
	@$(BUF) format -w

.PHONY: generate
generate: ## write gen/ and the reference of the calls anew from proto/
	@$(BUF) generate
	@mkdir -p .cache && $(BUF) build -o .cache/api.binpb
	@go run ./internal/apidoc/write -in .cache/api.binpb -out .

.PHONY: build
build: ## build bin/plimsoll
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$(VERSION)" -o bin/plimsoll ./cmd/plimsoll

.PHONY: dev
dev: build ## build and start everything in one process, with its data in ./data
	@exec bin/plimsoll dev --data data --listen 127.0.0.1:9080

.PHONY: demo
demo: build ## build, start everything in a temporary directory, run the jobs of examples/, show what became of them
	@scripts/demo

.PHONY: demo-qos
demo-qos: build ## drive a node over its waterlines, and see who is slowed down, stopped and given back what was taken, and why
	@scripts/demo-qos

.PHONY: e2e-v2
e2e-v2: ## the tests of control groups and of the executor once more, in a virtual machine with cgroup v2 alone
	@scripts/e2e-v2

.PHONY: bench
bench: build ## measure, and print the figures beside the targets
	@scripts/bench

.PHONY: bench-history
bench-history: ## build a history of 50,000,000 events, say how long it took, and ask it
	@PLIMSOLL_HISTORY_EVENTS=50000000 go test -run='^$$' -bench=History -timeout=60m ./internal/history/sqlite

.PHONY: qos-latency
qos-latency: ## measure a server beside batch work, with and without the QoS agent (3 min, root, a quiet machine)
	@CGO_ENABLED=0 go build -o bin/latency ./internal/latency
	@bin/latency -rounds 6

.PHONY: soak
soak: ## the randomized tests with their full counts, the mutants, then 300,000 inputs of fuzzing for each target
	@PLIMSOLL_SOAK=1 go test -count=1 -timeout=4h ./...
	@scripts/mutants
	@scripts/fuzz 300000x

.PHONY: attacks
attacks: ## attack a fleet of real processes in 2 GiB and 1,024 descriptors, beside a canary (15 min, root)
	@PLIMSOLL_SOAK=1 go test -count=1 -v -timeout=2h ./internal/attacks

.PHONY: mutants
mutants: ## change queues, rules, replication and the store on etcd one line at a time, and see that a test notices it (20 min)
	@scripts/mutants

.PHONY: fuzz
fuzz: ## 50,000 inputs of fuzzing for each target; FUZZTIME=5m for more
	@scripts/fuzz $(or $(FUZZTIME),50000x)

.PHONY: deadcode
deadcode: ## list functions that nothing calls
	@go tool -modfile=go.tools.mod deadcode -test ./...

.PHONY: clean
clean: ## remove what build, dev and e2e-v2 made
	@rm -rf bin data .cache
