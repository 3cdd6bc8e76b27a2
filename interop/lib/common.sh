# Shared by the suites of interop/: counted checks, and a real `weft serve` to check.
#
# A suite prints one `ok - …` line per check and ends with `finish N`, which fails unless exactly N
# checks passed: a loop that ran no round is no success. The first failed check ends the suite.
# shellcheck shell=bash
set -uo pipefail
: "${WEFT:?path of the weft binary}" "${WORK:?a folder of the suite\'s own}"
WEFT=$(realpath "$WEFT")
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$WORK"
cd "$WORK" || exit 1
# A socket's path has at most 107 bytes, and $WORK may be deep.
sockets=$(mktemp -d "${TMPDIR:-/tmp}/weft.XXXXXX")
export XDG_RUNTIME_DIR=$sockets PATH=$PATH:/usr/sbin:/sbin PYTHONDONTWRITEBYTECODE=1
passed=0
declare -A server=() # name → process

ok() {
	passed=$((passed + 1))
	echo "ok - $*"
}

fail() {
	echo "not ok - $*"
	for name in "${!server[@]}"; do
		echo "# log of serve $name:"
		tail -20 "$WORK/$name.log" | sed 's/^/#   /'
	done
	exit 1
}

# check TEXT COMMAND… : passes when the command does
check() {
	local text=$1 log=$WORK/check.log status=0
	shift
	"$@" >"$log" 2>&1 || status=$?
	[ "$status" = 0 ] || { tail -20 "$log" | sed 's/^/#   /'; fail "$text (exit $status: $*)"; }
	ok "$text"
}

# exits STATUS TEXT COMMAND… : passes when the command exits with exactly that status
exits() {
	local want=$1 text=$2 log=$WORK/check.log status=0
	shift 2
	"$@" >"$log" 2>&1 || status=$?
	[ "$status" = "$want" ] || { tail -20 "$log" | sed 's/^/#   /'; fail "$text (exit $status, expected $want: $*)"; }
	ok "$text"
}

# equal TEXT A B
equal() {
	[ "$2" = "$3" ] || fail "$1: found '$2', expected '$3'"
	ok "$1 ($2)"
}

# at_least TEXT A B : A is B or more, and B is more than nothing
at_least() {
	[ "$3" -ge 1 ] 2>/dev/null && [ "$2" -ge "$3" ] 2>/dev/null || fail "$1: found '$2', expected at least $3"
	ok "$1 ($2 ≥ $3)"
}

finish() {
	[ "$passed" = "$1" ] || fail "$passed checks passed, expected exactly $1"
	echo "# $1 checks passed"
	exit 0
}

# uri NAME : where `serve NAME` listens
uri() { echo "nbd+unix:///$1?socket=$sockets/$1.sock"; }

# serve NAME ARGUMENT… : starts `weft serve`, waits for its `ready` line
serve() {
	local name=$1
	shift
	rm -f "$WORK/$name.ready"
	"$WEFT" serve --name "$name" --listen "$(uri "$name")" "$@" >"$WORK/$name.ready" 2>>"$WORK/$name.log" &
	server[$name]=$!
	for ((t = 0; t < 1500; t++)); do
		grep -q '^ready ' "$WORK/$name.ready" 2>/dev/null && return 0
		kill -0 "${server[$name]}" 2>/dev/null || break
		sleep 0.02
	done
	fail "serve $name did not become ready"
}

# stop NAME : SIGTERM; the server must flush, mark clean and exit 0
stop() {
	local pid=${server[$1]} status=0
	kill -TERM "$pid" || fail "serve $1 was gone"
	wait "$pid" || status=$?
	[ "$status" = 0 ] || fail "serve $1 exited $status after SIGTERM"
	unset "server[$1]"
}

end_servers() { # only those that this suite started
	for pid in "${server[@]}"; do kill -KILL "$pid" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$sockets"
}
trap end_servers EXIT
trap 'exit 143' TERM INT

# flip FILE BYTE… : inverts one bit of each byte
flip() {
	python3 - "$@" <<'P'
import sys
with open(sys.argv[1], "r+b") as f:
    for at in map(int, sys.argv[2:]):
        f.seek(at)
        old = f.read(1)
        f.seek(at)
        f.write(bytes([old[0] ^ 0x10]))
P
}

# data_offset MEMBER : bytes, read from the version-1.2 superblock (field at 128, in sectors)
data_offset() {
	python3 - "$1" <<'P'
import struct, sys
with open(sys.argv[1], "rb") as f:
    f.seek(4096)
    block = f.read(256)
assert struct.unpack_from("<I", block)[0] == 0xA92B4EFC, "no version-1.2 superblock"
print(struct.unpack_from("<Q", block, 128)[0] * 512)
P
}

# pattern COMMAND … : see pattern.py
pattern() { python3 "$lib/pattern.py" "$@"; }


# status NAME KEY… : see status.py; exit status 4 of `weft status` says that a volume is degraded
status() {
	{ "$WEFT" status --json 2>>"$WORK/status.log" || [ $? = 4 ]; } | python3 "$lib/status.py" "$@"
}

# wait_idle NAME : until no sync action runs
wait_idle() {
	local action
	for ((t = 0; t < 3000; t++)); do
		action=$(status "$1" sync_action 2>&1) || fail "$1: $action"
		[ "$action" = idle ] && return 0
		sleep 0.1
	done
	fail "$1: the sync action does not end"
}

# weft_check NAME : runs a check to its end; sets `stripes` (least sectors read of a member),
# `stripes_all` (data sectors of each member) and `mismatches`; the exit status must agree
weft_check() {
	local before exit_status=0
	before=$(status "$1" read_min) || fail "$1: status"
	"$WEFT" check "$1" >"$WORK/check.log" 2>&1 || exit_status=$?
	wait_idle "$1"
	stripes=$(($(status "$1" read_min) - before))
	stripes_all=$(status "$1" member_sectors)
	mismatches=$(status "$1" mismatch_cnt)
	[ "$exit_status" = "$([ "$mismatches" = 0 ] && echo 0 || echo 5)" ] ||
		fail "$1: weft check exited $exit_status with $mismatches mismatches: $(cat "$WORK/check.log")"
}

# clean_check NAME : three checks: every stripe was read, nothing differs
clean_check() {
	weft_check "$1"
	at_least "$1: weft check reads every stripe of every member" "$stripes" "$stripes_all"
	equal "$1: weft check counts 0" "$mismatches" 0
}

# create NAME LEVEL MEMBERS MIB [ARGUMENT…] : files NAME.0 … ; sets `members`
create() {
	local name=$1 level=$2 count=$3 mib=$4
	shift 4
	members=()
	for ((i = 0; i < count; i++)); do members+=("$WORK/$name.$i"); done
	check "$name: weft create, RAID $level on $count" "$WEFT" create --level "$level" --raid-devices "$count" \
		--member-size "${mib}M" --name "$name" "$@" "${members[@]}"
}
