# `make test` runs every test; `make check` is what CI runs.

MYSQL ?= wanted
BROWSER ?= wanted
export BROWSER
export FIRSTTAP_MYSQL_ROOT ?= /var/cache/firsttap/mysql

# Tests keep their databases in memory where that has 4 GB free: a kill loses nothing of it either. Benchmarks use the disk.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "TMPDIR=/dev/shm GOTMPDIR=" (ENVIRON["TMPDIR"] ? ENVIRON["TMPDIR"] : "/tmp") }')

BIN := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/firsttap/bin
GOLANGCI := $(BIN)/golangci-lint-v2.15.0

.PHONY: build test browser screenshots vendored servers bench bench-locks bench-push bench-console loadtest client mutants lint format check clean

build:
	CGO_ENABLED=0 go build -o bin/firsttap .

# Runs every test under -race, on real servers that the tests start themselves. Installs missing servers.
# One package at a time, so that a busy machine does not look like a partition or an expired TTL.
# MYSQL=required fails if no real MySQL can be installed; MYSQL=skip skips its tests.
# FIREBASE=required or skip does the same for the emulator of Firebase Auth.
test: servers
	FIRSTTAP_TEST_REQUIRE=$$(MYSQL=$(MYSQL) servertest/install.sh --list) $(MEMORY) go test -race -p 1 -timeout 30m ./...
	$(MAKE) browser

# Tests the pages in Chromium. BROWSER=required fails if it can't be installed; BROWSER=skip skips these tests.
browser:
	@servertest/install.sh --browser
	@case ,$$(servertest/install.sh --list), in \
		*,browser,*) console/browser/run.sh $(BROWSERFLAGS);; \
		*) echo "the pages were NOT tested in a browser";; \
	esac

# Takes the pictures of docs/, with the test that opens every page.
screenshots:
	FIRSTTAP_SCREENSHOTS=$(CURDIR)/docs console/browser/run.sh tests/screens.spec.ts

# Checks that the vendored files of the pages are what npm's packages build.
vendored:
	console/vendor/build.sh --check

servers:
	@MYSQL=$(MYSQL) servertest/install.sh

# Measures and prints the table of docs/benchmarks.md.
bench: servers
	go run ./loadtest/bench $(BENCHFLAGS)

# Measures and prints the tables of docs/locks.md. It is a separate module: the product does not depend on the compared libraries.
bench-locks: servers
	cd loadtest/locks && go test -count=1 -v -timeout 30m . -args $(BENCHFLAGS) | grep -v '^==='

# Measures the figures of docs/outbox.md: the delay from the commit to FCM, pushes per second, and what they cost a claim.
bench-push: servers
	go test -v -run '^$$' -bench Push -benchtime 1x -timeout 30m ./loadtest/pushbench

# Measures the board in Chromium with 500 open dispatches and 50 events a second: frames, bytes, first paint. Needs Node 20 and Chromium.
bench-console:
	console/browser/run.sh --config bench/playwright.config.ts

# Runs k6 against two instances (race, storm or doubletap), or against three that are replaced behind a proxy (rolling).
SCRIPT ?= race
loadtest: servers
	loadtest/run.sh $(SCRIPT)

# Generates a client from /openapi.json, compiles it, and races two drivers with it at a real instance. Needs Node 20 and npm.
client:
	clients/typescript/run.sh

# Breaks the code on purpose, one condition at a time, and checks that a test notices.
mutants: servers
	loadtest/mutants.sh

lint: $(GOLANGCI)
	$(GOLANGCI) run ./...

$(GOLANGCI):
	mkdir -p $(BIN)
	cd / && GOFLAGS= GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(BIN)/golangci-lint $@

format:
	gofmt -w .

check: servers
	@test -z "$$(gofmt -l .)" || { gofmt -l . && echo "not formatted: make format" && exit 1; }
	go vet ./...
	loadtest/mutants.sh --check
	$(MAKE) lint
	$(MAKE) vendored
	CGO_ENABLED=0 go build -trimpath -o bin/firsttap .
	$(MAKE) test
	$(MAKE) client
	loadtest/run.sh race short
	go run ./loadtest/bench -quick
	cd loadtest/locks && go vet ./... && go test -count=1 -run 'TestCost$$' . -args -rounds 3

clean:
	rm -rf bin
