# `make test` is for each change; `make check`, with `make test-all`, is what CI runs; `make soak` is for a night or a release.

MYSQL ?= wanted
FIREBASE ?= wanted
BROWSER ?= wanted
export MYSQL FIREBASE BROWSER
export FIRSTTAP_MYSQL_ROOT ?= /var/cache/firsttap/mysql

# What these targets compile they share: without cgo, as the product is built, and without debug information, which takes a tenth of the time.
shared := -trimpath -buildvcs=false -gcflags=all=-dwarf=false
check test test-all cover soak tidb browser screenshots bench-console mutants lint client kubernetes: export CGO_ENABLED := 0
check test test-all cover soak tidb browser screenshots bench-console mutants lint client kubernetes: \
	export GOFLAGS := $(filter-out $(shared),$(shell go env GOFLAGS)) $(shared)

BIN := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/firsttap/bin
GOLANGCI := $(BIN)/golangci-lint-v2.15.0

.PHONY: build promises test test-all cover soak tidb browser screenshots vendored servers bench bench-locks seeds jdk bench-push bench-scale simulate bench-console types loadtest client kubernetes mutants lint format check clean

build:
	CGO_ENABLED=0 go build -o bin/firsttap .

# The packages whose goroutines share memory: their tests run with the race detector. The slowest are first.
export RACED := ./handler ./notify ./lock ./schedule ./internal/app ./service ./notify/stream ./internal/limit ./notify/fcm \
	./notify/fcmtest ./dispatch/cronjob ./internal/auth ./internal/redisclient ./internal/telemetry

# The tests of whole instances that `make test-all` runs with the race detector.
export MANY_AT_ONCE := ^Test(ExactlyOneWinner|RoundsUnderFire|RequestsFinish|RollingRestart|JobsOverInstances|PhonesShowWhatIsTrue|$\
	KilledInstancesLoseNothing|WebhooksOutliveKills|TraceOfAnAccept)$$

# Four packages are tested at a time, and eight parallel tests of each, because most of them wait. A program that has waited for its
# goroutines does not sleep for a second before it ends, as the race detector would. `make check` calls vet.
export GORACE := $(GORACE) atexit_sleep_ms=0
export GOTEST := go test -count=1 -vet=off -timeout=40m -p=4 -parallel=8

# Tests everything that a change can break, in minutes: each promise once, on Redis, MariaDB and what else is installed. At the end it says
# what failed, and what was left out. TESTFLAGS are those of go test.
test:
	@{ go list -deps -test ./... >/dev/null && go build ./internal/app ./internal/servertest; } & internal/servertest/install.sh --basic && wait # modules are fetched and compiled meanwhile
	@FIRSTTAP_TEST_REQUIRE=$$(internal/servertest/install.sh --list) go run ./internal/servertest/with internal/servertest/test.sh $(TESTFLAGS)
	@internal/servertest/install.sh --missing

# Runs every test but the long ones: on both database servers, with all locks, with the race detector but for most whole instances,
# and every page. Installs what is missing.
# MYSQL=required fails if no real MySQL can be installed; MYSQL=skip does not install it. FIREBASE does the same for the emulator of
# Firebase Auth, and BROWSER for Chromium.
test-all: servers
	FIRSTTAP_TEST=all $(MAKE) --no-print-directory test

# Runs `make test-all`, and prints which part of each package's statements ran, in the tests and in the instances that they start and do not
# kill.
cover: export GOCOVERDIR := $(CURDIR)/bin/coverage
cover:
	rm -rf $(GOCOVERDIR) && mkdir -p $(GOCOVERDIR)
	$(MAKE) test-all TESTFLAGS='-cover -covermode=atomic -coverpkg=firsttap/... -args -test.gocoverdir=$(GOCOVERDIR)'
	go tool covdata percent -i $(GOCOVERDIR)

# Runs the long tests, each for SOAK: storms, crowds, many streams, pushes while instances are killed. They print figures.
SOAK ?= 1m
soak: servers
	SOAK=$(SOAK) FIRSTTAP_TEST=all FIRSTTAP_TEST_REQUIRE=$$(internal/servertest/install.sh --list) go run ./internal/servertest/with \
		$(GOTEST) -p=2 -timeout=0 -v -tags=soak -run='^TestSoak' $(TESTFLAGS) $(sort $(dir $(shell find . -name '*_soak_test.go')))

# Tests the repository, the migrations, the relay, the jobs, the services, the table of locks and whole instances on a TiDB server, which it
# builds if it is not there: a quarter of an hour on two cores.
tidb: export FIRSTTAP_TEST = tidb
tidb: export FIRSTTAP_TEST_REQUIRE = tidb,mysql
tidb: servers
	internal/servertest/tidb.sh
	go run ./internal/servertest/with $(GOTEST) $(TESTFLAGS) ./repository/... ./migrations ./notify ./schedule ./service
	go run ./internal/servertest/with $(GOTEST) $(TESTFLAGS) \
		-run='TiDB|Fence|^Test(ExactlyOneWinner|RoundsUnderFire|DoctorOnAGoodSetUp)$$' ./lock ./systemtest

# Tests the pages in Chromium, if it is installed.
browser:
	@case ,$$(internal/servertest/install.sh --list) in \
		*,browser,*) web/browser/run.sh $(BROWSERFLAGS);; \
		*) echo "the pages were NOT tested in a browser";; \
	esac

# Checks the types of the pages, which are JavaScript with JSDoc.
types:
	web/browser/types.sh

# Takes the pictures of docs/, with the test that opens every page.
screenshots:
	FIRSTTAP_SCREENSHOTS=$(CURDIR)/docs web/browser/run.sh tests/screens.spec.ts

# Makes docs/promises.md of the tests' comments.
promises:
	mkdir -p bin && go run ./internal/servertest/promises > bin/promises.md && mv bin/promises.md docs/promises.md

# Checks that the vendored files of the pages are what npm's packages build.
vendored:
	web/vendor/build.sh --check

# Installs the programs that the tests start, those that are missing.
servers:
	@internal/servertest/install.sh

# Measures and prints the table of docs/benchmarks.md.
bench: servers
	go run ./loadtest/bench $(BENCHFLAGS)

# Measures and prints the tables of docs/locks.md. It is a separate module: the product does not depend on the compared libraries.
bench-locks: servers
	cd loadtest/locks && go test -count=1 -v -timeout 30m . -args $(BENCHFLAGS) | grep -v '^==='

# Checks that Java's ShedLock and FirstTap share their locks, and measures FirstTap's beside Redisson's; see docs/locks.md. It needs a JDK,
# 17 or later, and Maven, which nothing else does, so neither `make test` nor `make check` runs it.
seeds: jdk servers
	mvn -q -B -f loadtest/jvm compile dependency:build-classpath
	cd loadtest/locks && FIRSTTAP_JVM=$(CURDIR)/loadtest/jvm/target/classes:$$(cat ../jvm/target/classpath) \
		go test -count=1 -v -timeout 30m -run 'ShedLock|Redisson' .

jdk:
	@for tool in javac mvn; do \
		command -v $$tool >/dev/null || { echo "make seeds needs a JDK, 17 or later, and Maven: there is no $$tool" >&2; exit 1; }; \
	done

# Measures the figures of docs/outbox.md, in a module of its own: the delay from the commit to FCM, pushes per second, and what they cost a claim.
bench-push: servers
	cd loadtest/benchmarks && go test -v -run '^$$' -bench Push -benchtime 1x -timeout 30m ./push

# Measures what the numbers of drivers (FIRSTTAP_SCALE), devices (FIRSTTAP_AUDIENCE, FIRSTTAP_ENDS), ended and open dispatches (FIRSTTAP_HISTORY,
# FIRSTTAP_OPEN) and live streams (FIRSTTAP_STREAMS) cost, what deleting FIRSTTAP_PRUNE ended dispatches does to taps, and what FIRSTTAP_RACES
# races cost each master of a Redis Cluster.
bench-scale: servers
	cd loadtest/benchmarks && go test -v -run '^$$' -bench 'Scale|Audience|Ends|History|Open|Prune|Streams|Shards' -benchtime 1x -timeout 60m ./scale

# Simulates MINUTES of a day of DRIVERS drivers and PER_MINUTE dispatches a minute, scaled down to this machine, and says what it cost beside
# the cost model of docs/scaling.md.
DRIVERS ?= 100000
PER_MINUTE ?= 1000
MINUTES ?= 2
simulate: servers
	cd loadtest/benchmarks && FIRSTTAP_DRIVERS=$(DRIVERS) FIRSTTAP_PER_MINUTE=$(PER_MINUTE) FIRSTTAP_MINUTES=$(MINUTES) \
		go test -v -run '^$$' -bench Day -benchtime 1x -timeout 60m ./scale

# Measures the board in Chromium with 500 open dispatches and 50 events a second: frames, bytes, first paint. Needs Node 20 and Chromium.
bench-console:
	web/browser/run.sh --config bench/playwright.config.ts

# Runs k6 against two instances (race, storm or doubletap), or against three that are replaced behind a proxy (rolling).
SCRIPT ?= race
loadtest: servers
	loadtest/run.sh $(SCRIPT)

# Generates a client from /openapi.json, compiles it, and races two drivers with it at a real instance. Needs Node 20 and npm.
client:
	clients/typescript/run.sh

# Tests deploy/kubernetes without a cluster. It is a separate module: the product does not depend on the libraries of Kubernetes.
kubernetes:
	cd deploy/kubernetestest && go vet . && go test -count=1 .

# Breaks the code on purpose, one condition at a time, and checks that a test notices.
mutants: servers
	go run ./internal/servertest/with loadtest/mutants.sh

lint: $(GOLANGCI)
	$(GOLANGCI) run ./...

$(GOLANGCI):
	mkdir -p $(BIN)
	cd / && GOFLAGS='$(shared)' GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(BIN)/golangci-lint $@

format:
	gofmt -w .

check: servers
	@test -z "$$(gofmt -l .)" || { gofmt -l . && echo "not formatted: make format" && exit 1; }
	go vet ./...
	go vet -tags soak ./...
	loadtest/mutants.sh --check
	$(MAKE) lint
	$(MAKE) vendored
	$(MAKE) types
	go build -o bin/firsttap .
	FIRSTTAP_BIN=$(CURDIR)/bin/firsttap $(MAKE) test-all
	$(MAKE) client
	loadtest/run.sh race short
	loadtest/run.sh rolling short
	go run ./loadtest/bench -quick
	cd loadtest/locks && go vet ./... && go test -count=1 -run 'TestCost$$' . -args -rounds 3
	cd loadtest/benchmarks && go vet ./...
	cd loadtest/picture && go vet .
	go run -C loadtest/picture . < loadtest/picture/figures.txt | cmp - docs/scaling.svg
	$(MAKE) kubernetes

clean:
	rm -rf bin
