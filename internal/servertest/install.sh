#!/usr/bin/env bash
# Installs the programs that the tests start, on Debian and Ubuntu, if they are missing:
# - Redis, MariaDB, and a C compiler for Go's race detector;
# - a real MySQL. Debian has it only in sid, so it goes into a folder of its own, FIRSTTAP_MYSQL_ROOT, outside the system;
# - faketime, for servers with a wrong clock;
# - HAProxy, for the tests of deploy/haproxy.cfg;
# - iproute2, for clusters on a network that is cut;
# - Prometheus' promtool, for the alert rules, beside that folder;
# - firebase-tools from npm, beside that folder: its emulator of Firebase Auth is the only one;
# - Debian's headless Chromium, for the pages, unless the whole one is there: that takes twice the processor time. The tests can't run
#   Ubuntu's, which is a snap: there set FIRSTTAP_CHROMIUM to another browser.
# install.sh --basic installs only the first line, and says which MySQL is there.
# FIREBASE=skip, MYSQL=skip and BROWSER=skip skip an installation. With "required" instead of "skip" the script fails if the
# installation is not possible; for BROWSER that includes Node 20. What is installed already is kept, whatever its version.
set -euo pipefail

root=${FIRSTTAP_MYSQL_ROOT:-/var/cache/firsttap/mysql}
promtool=$(dirname "$root")/promtool
firebase=$(dirname "$root")/firebase
firebase_tools=15.34.2
chromium=${FIRSTTAP_CHROMIUM:-/usr/bin/chromium-headless-shell}
[ -n "${FIRSTTAP_CHROMIUM:-}" ] || [ -x "$chromium" ] || [ ! -x /usr/bin/chromium ] || chromium=/usr/bin/chromium
pages=$(cd "$(dirname "$0")/../../web/browser" && pwd)
log=$(mktemp)
updated=
policy=/usr/sbin/policy-rc.d
PATH=$PATH:/usr/sbin:/usr/local/sbin
trap 'rm -f "$log"' EXIT

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

fail() {
	tail -n 20 "$log" >&2
	echo "$1" >&2
	exit 1
}

# apt_install installs packages without starting their services: the tests start their own.
apt_install() {
	local kept=yes
	if [ ! -e "$policy" ]; then
		kept=no
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
		as_root chmod +x "$policy"
	fi
	local code=0
	{
		{ [ "$updated" ] || as_root apt-get update; } && updated=yes &&
			as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
	} >>"$log" 2>&1 || code=$?
	[ "$kept" = yes ] || as_root rm -f "$policy"
	return "$code"
}

need() { # NAME PROGRAM PACKAGE [FLAG]: FLAG prints the version, --version by default
	if ! command -v "$2" >/dev/null; then
		apt_install "$3" || fail "$1: can't install the package $3"
	fi
	echo "$1: $("$2" "${4:---version}" | grep -m1 .)"
}

# compiler installs a C compiler and C's headers if Go has none: the race detector needs cgo.
compiler() {
	command -v "$(go env CC | cut -d ' ' -f 1)" >/dev/null || apt_install gcc libc6-dev || fail "C compiler: can't install gcc and libc6-dev"
}

mysql_in_path() {
	command -v mysqld >/dev/null && mysqld --no-defaults --version 2>/dev/null | grep -v MariaDB | grep -qE 'Ver ([89]|[1-9][0-9])\.'
}

# mysql_root renames the complete folder into place, so that an interrupted build never looks complete.
mysql_root() {
	command -v debootstrap >/dev/null || apt_install debootstrap debian-archive-keyring || return
	as_root mkdir -p "$(dirname "$root")" || return
	local new=$root.new.$$
	if as_root debootstrap --variant=minbase --include=mysql-server-core sid "$new" >>"$log" 2>&1 &&
		as_root rm -rf "$new/var/cache/apt" "$new/var/lib/apt/lists" &&
		as_root chmod 755 "$new" && as_root mv -T "$new" "$root"; then
		return 0
	fi
	as_root rm -rf "$new"
	return 1
}

# promtool_alone extracts one program from the package: the tests need no Prometheus server.
promtool_alone() {
	local dir
	dir=$(mktemp -d) && chmod 755 "$dir" || return
	(cd "$dir" && as_root apt-get update && apt-get download prometheus && dpkg -x prometheus_*.deb .) >>"$log" 2>&1 &&
		as_root mkdir -p "$(dirname "$promtool")" && as_root install -m 755 "$dir/usr/bin/promtool" "$promtool"
	local code=$?
	rm -rf "$dir"
	return "$code"
}

# firebase_alone skips the packages' install scripts: the emulator does not need their builds.
firebase_alone() {
	node_with_npm || return
	local new=$firebase.new.$$
	as_root mkdir -p "$new" || return
	if as_root npm install --prefix "$new" --no-audit --no-fund --ignore-scripts "firebase-tools@$firebase_tools" >>"$log" 2>&1 &&
		as_root rm -rf "$firebase" && as_root mv -T "$new" "$firebase"; then
		return 0
	fi
	as_root rm -rf "$new"
	return 1
}

# firebase_there checks for the pinned version, and for a Node that can run it.
firebase_there() {
	grep -qs "\"version\": \"$firebase_tools\"" "$firebase/node_modules/firebase-tools/package.json" && new_node
}

new_node() {
	command -v node >/dev/null && [ "$(node --version | sed 's/^v\([0-9]*\).*/\1/')" -ge 20 ]
}

# node_with_npm installs the system's Node if none is installed; the system's Node may be too old.
node_with_npm() {
	command -v npm >/dev/null || apt_install nodejs npm || return
	new_node || { echo "Node 20 is required, but this is $(node --version)" >>"$log" && return 1; }
}

browser_there() {
	[ -x "$chromium" ] && korean && command -v npm >/dev/null && new_node && [ -x "$pages/node_modules/.bin/playwright" ] &&
		[ -d "$pages/node_modules/standardwebhooks" ]
}

# korean checks for a Korean font: without one the driver's page shows boxes.
korean() {
	command -v fc-list >/dev/null && [ -n "$(fc-list :lang=ko)" ]
}

browser_alone() {
	node_with_npm && { korean || apt_install fontconfig fonts-nanum; } || return
	npm ci --prefix "$pages" --ignore-scripts --no-audit --no-fund >>"$log" 2>&1 || return
	command -v python3 >/dev/null || apt_install python3 || return
	[ ! -x "$chromium" ] || return 0
	if [ -n "${FIRSTTAP_CHROMIUM:-}" ]; then
		echo "FIRSTTAP_CHROMIUM is $FIRSTTAP_CHROMIUM, which is not a program" >>"$log" && return 1
	fi
	if grep -qs '^ID=ubuntu$' /etc/os-release; then
		echo "Ubuntu's chromium is a snap: set FIRSTTAP_CHROMIUM to a Chromium or Chrome that is not a snap" >>"$log" && return 1
	fi
	apt_install chromium-headless-shell
}

browser() {
	if [ "${BROWSER:-}" = skip ]; then
		echo "Browser: skipped"
	elif browser_there || { browser_alone && browser_there; }; then
		echo "Browser: $("$chromium" --version 2>>"$log" | grep -m1 .)"
	else
		tail -n 20 "$log" >&2
		echo "Browser: NOT AVAILABLE, the pages are not tested"
		[ "${BROWSER:-}" != required ] || exit 1
	fi
}

mysql_version() {
	local loader
	if mysql_in_path; then
		mysqld --no-defaults --version
	elif [ -x "$root/usr/sbin/mysqld" ]; then
		loader=$(ls "$root"/lib*/ld-linux-*.so.* | head -n 1)
		"$loader" --library-path "$(echo "$root"/usr/lib/*-linux-gnu)" "$root/usr/sbin/mysqld" --no-defaults --version
	else
		return 1
	fi
}

# have NAME checks for a program that the tests use. A name in a variable that says skip counts as not installed.
have() {
	case $1 in
		redis) command -v redis-server ;;
		mariadb) command -v mariadbd ;;
		faketime) command -v faketime ;;
		haproxy) command -v haproxy ;;
		promtool) [ -x "$promtool" ] ;;
		mysql) [ "${MYSQL:-}" != skip ] && { mysql_in_path || [ -x "$root/usr/sbin/mysqld" ]; } ;;
		firebase) [ "${FIREBASE:-}" != skip ] && firebase_there ;;
		browser) [ "${BROWSER:-}" != skip ] && browser_there ;;
		network) unshare --net ip link add hub type bridge 2>/dev/null ;; # only root may, and not in every container
	esac >/dev/null
}

programs="redis mariadb faketime haproxy promtool mysql firebase browser"

# install.sh --list prints the installed programs, in the form of FIRSTTAP_TEST_REQUIRE, and browser; and network where processes may have
# networks of their own.
if [ "${1:-}" = --list ]; then
	for name in $programs network; do ! have "$name" || printf '%s,' "$name"; done
	echo
	exit
fi

# install.sh --missing says which programs are not installed, so that what they test was left out.
if [ "${1:-}" = --missing ]; then
	missing=
	for name in $programs; do have "$name" || missing="$missing $name"; done
	[ -z "$missing" ] || echo "NOT TESTED, because it is not installed or skipped:$missing. make servers installs what is missing."
	exit
fi

# install.sh --haproxy installs only what loadtest/run.sh rolling needs beside the servers.
if [ "${1:-}" = --haproxy ]; then
	need HAProxy haproxy haproxy -v
need iproute2 ip iproute2 -V
	exit
fi

# install.sh --browser installs only what the pages' tests need.
if [ "${1:-}" = --browser ]; then
	browser
	exit
fi

need Redis redis-server redis-server
need MariaDB mariadbd mariadb-server
compiler
if [ "${1:-}" = --basic ]; then
	! have mysql || echo "MySQL: $(mysql_version)"
	exit
fi
need faketime faketime faketime
need HAProxy haproxy haproxy -v
need iproute2 ip iproute2 -V
[ -x "$promtool" ] || promtool_alone || fail "promtool: can't take it out of the package prometheus"
echo "promtool: $("$promtool" --version 2>&1 | grep -m1 .)"

if [ "${MYSQL:-}" = skip ]; then
	echo "MySQL: skipped"
elif have mysql || mysql_root; then
	echo "MySQL: $(mysql_version)"
else
	tail -n 20 "$log" >&2
	echo "MySQL: NOT AVAILABLE, tests on a real MySQL are not run"
	[ "${MYSQL:-}" != required ] || exit 1
fi

if [ "${FIREBASE:-}" = skip ]; then
	echo "Firebase Auth: skipped"
elif firebase_there || { firebase_alone && firebase_there; }; then
	echo "Firebase Auth: in $firebase"
else
	tail -n 20 "$log" >&2
	echo "Firebase Auth: NOT AVAILABLE, tests on its emulator are not run"
	[ "${FIREBASE:-}" != required ] || exit 1
fi

browser
