#!/usr/bin/env bash
# All tests, the ones with real Java and Go clients included. Installs what they need when it is missing: a C compiler
# (for the race detector), a JDK and Maven, from Debian's packages. Everything else comes through Go's and Maven's own
# registries. A part that can't run fails; nothing is skipped.
#
#   ./test.sh            everything
#   ./test.sh quick      what needs no Java and is done in a few minutes
set -euo pipefail
cd "$(dirname "$0")"
what=${1:-all}

step() { printf '\n== %s\n' "$*"; }

install() { # command package
	command -v "$1" >/dev/null && return
	step "install $2"
	local sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	[ -n "${updated:-}" ] || { $sudo apt-get update -q; updated=yes; }
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q "$2"
}

command -v go >/dev/null || { echo "Go is needed: https://go.dev/doc/install" >&2; exit 1; }
install gcc gcc
install git git

step "format, vet, generated files, lint"
unformatted=$(gofmt -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || { echo "not formatted: $unformatted" >&2; exit 1; }
go vet ./...
go vet -tags conformance ./...
(cd internal/tools && go build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
bin/golangci-lint run --allow-parallel-runners ./...

step "tests"
go test -count=1 -timeout 20m ./...

step "tests with the race detector" # -short: the same tests with fewer seeds, queues and kills
go test -race -short -count=1 -timeout 20m ./...

# fuzz plays one target. Before Go 1.27 it can take the end of the time for a failure (golang/go#75804): nothing has failed
# then, no input is written, and the target is played again.
fuzz() { # package target
	local log status
	log=$(mktemp)
	for _ in 1 2 3; do
		status=0
		go test -run '^$' -fuzz "^$2\$" -fuzztime "${FUZZTIME:-5s}" "$1" 2>&1 | tee "$log" || status=$?
		[ "$status" != 0 ] || break
		grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log" || break
	done
	rm "$log"
	return "$status"
}

step "fuzzing, a little of each"
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		fuzz "$pkg" "$target"
	done
done
[ "$what" = all ] || exit 0

install javac openjdk-17-jdk-headless
install mvn maven
PATH=$PATH:/usr/sbin:/sbin
install mkfs.ext4 e2fsprogs
install mkfs.xfs xfsprogs
install losetup mount
install ip iproute2

step "real processes: kill -9, a million messages, hostile clients"
go test -count=1 -timeout 30m -tags conformance -skip 'PowerCut|Partition' ./crash/...

step "power cuts and partitions; they mount file systems and make networks, so as root"
as_root=
[ "$(id -u)" = 0 ] || as_root="sudo --preserve-env env PATH=$PATH"
go test -count=1 -timeout 30m -tags conformance -run 'PowerCut|Partition' -exec "$as_root" ./crash/...

step "real clients and brokers"
go test -count=1 -timeout 40m -tags conformance ./conformance/... ./namesrv/... ./store/...
