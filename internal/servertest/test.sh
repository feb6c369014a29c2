#!/usr/bin/env bash
# Runs the tests of `make test` and `make test-all`, which start the servers that the packages share: the packages of RACED with the race
# detector, all others without it, and then the pages, where a browser is installed. What fails ends nothing, and is listed at the end.
# GOTEST is the command with its flags; arguments go to `go test` too.
set -uo pipefail
cd "$(dirname "$0")/../.."
trap 'exit 1' INT # go test ends like one whose tests have failed
log=bin/test.log
mkdir -p bin
: >$log

# SQLite, which is C translated to Go, and its driver run without the race detector: watching their own memory takes most of the time of a
# test on SQLite. For each package only the last flag counts whose pattern matches it, so these flags repeat -dwarf=false of the Makefile.
# The flag of SQLite itself is last: a program knows only the last flag that it was built with, and systemtest's buildProgram repeats it.
unwatched=(
	"-gcflags=github.com/glebarez/go-sqlite/...=-race=false -dwarf=false"
	"-gcflags=modernc.org/...=-race=false -dwarf=false"
)

tests() { $GOTEST "$@" 2>&1 | tee -a $log; }

# The packages that take longest begin first, so that no processor is idle at the end.
longest="./systemtest ./repository/dispatches ./repository/database"
raced=$(go list $RACED) || exit
plain=$(go list $longest ./... | grep -vxF "$raced")

failed=
if [ "${FIRSTTAP_TEST:-}" = all ]; then
	# All are raced but systemtest, whose limits by the clock do not hold with the detector in every instance. It watches those tests in
	# which an instance does many things at once. systemtest mostly waits, so the others run beside it.
	{
		tests ./systemtest -skip "$MANY_AT_ONCE" "$@" || systemtest=failed
		CGO_ENABLED=1 tests -race "${unwatched[@]}" ./systemtest -run "$MANY_AT_ONCE" "$@" || systemtest=failed
		[ -z "${systemtest:-}" ]
	} &
	CGO_ENABLED=1 tests -p=3 -race "${unwatched[@]}" $(go list $RACED ./... | grep -vxF firsttap/systemtest) "$@" || failed=yes
	wait $! || failed=yes
else
	tests $plain "$@" || failed=yes
	CGO_ENABLED=1 tests -race "${unwatched[@]}" $raced "$@" || failed=yes
fi
case ,${FIRSTTAP_TEST_REQUIRE:-} in
*,browser,*) web/browser/run.sh 2>&1 | tee -a $log || failed=yes ;;
esac
echo "The tests took $SECONDS s."
[ -n "$failed" ] || exit 0

printf '\nFailed, and %s has all that was said:\n' $log
of_go='^ *--- FAIL: |^ +\w+\.go:[0-9]+: |^FAIL\s'
of_a_program='^(panic|fatal error): |^WARNING: DATA RACE|^\s+Test\w+ \(|^\S+\.go:[0-9:]+ ' # also one that does not compile
of_the_pages='^ +[0-9]+\) |^test at '
grep -E "$of_go|$of_a_program|$of_the_pages" $log
exit 1
