# `make test` is all there is to know; `make check` is what CI runs.

MYSQL ?= wanted
BROWSER ?= wanted
export BROWSER
export FIRSTTAP_MYSQL_ROOT ?= /var/cache/firsttap/mysql

BIN := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/firsttap/bin
GOLANGCI := $(BIN)/golangci-lint-v2.15.0

.PHONY: build test browser screenshots vendored servers bench bench-locks bench-push bench-console loadtest client mutants lint format check clean

build:
	CGO_ENABLED=0 go build -o bin/firsttap .

# Everything under -race, on real servers that the tests start themselves. Installs what is missing.
# One package at a time: what a partition or a TTL does is to be seen, and not what a busy machine does.
# FIREBASE=required or skip, as MYSQL: the emulator of Firebase Auth.
# MYSQL=required fails where a real MySQL can't be had; MYSQL=skip does without.
test: servers
	FIRSTTAP_TEST_REQUIRE=$$(MYSQL=$(MYSQL) servertest/install.sh --list) go test -race -p 1 -timeout 30m ./...
	$(MAKE) browser

# The pages in Chromium. BROWSER=required fails where it can't be had; BROWSER=skip does without.
browser:
	@servertest/install.sh --browser
	@case ,$$(servertest/install.sh --list), in \
		*,browser,*) console/browser/run.sh $(BROWSERFLAGS);; \
		*) echo "the pages were NOT tested in a browser";; \
	esac

# The pictures of docs/, taken by the test that looks at every page.
screenshots:
	FIRSTTAP_SCREENSHOTS=$(CURDIR)/docs console/browser/run.sh tests/screens.spec.ts

# What the pages use that is not ours is what npm's packages make.
vendored:
	console/vendor/build.sh --check

servers:
	@MYSQL=$(MYSQL) servertest/install.sh

# The table of docs/benchmarks.md, measured here and now.
bench: servers
	go run ./loadtest/bench $(BENCHFLAGS)

# The tables of docs/locks.md. A module of its own: the libraries it compares with are none of the product's.
bench-locks: servers
	cd loadtest/locks && go test -count=1 -v -timeout 30m . -args $(BENCHFLAGS) | grep -v '^==='

# What docs/outbox.md says of pushes: how long from the commit to FCM, how many a second, what they cost a claim.
bench-push: servers
	go test -v -run '^$$' -bench Push -benchtime 1x -timeout 30m ./loadtest/pushbench

# The board in Chromium with 500 open dispatches and 50 events a second: frames, bytes, first paint. Needs node 20 and chromium.
bench-console:
	console/browser/run.sh --config bench/playwright.config.ts

# k6 against two instances: race, storm or doubletap; or rolling, against three that are replaced behind a proxy.
SCRIPT ?= race
loadtest: servers
	loadtest/run.sh $(SCRIPT)

# A client generated from /openapi.json compiles, and races two drivers at a real instance. Needs node 20 and npm.
client:
	clients/typescript/run.sh

# Breaks the code in the ways that matter, one at a time, and checks that a test notices.
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
