# For the cases, in the guest: turns of the kernel and of weft on the block devices `loops`. What
# the array must contain is in /tmp/expected.
# shellcheck shell=bash
unset PYTHONDONTWRITEBYTECODE # compiled once, in /tmp
export XDG_RUNTIME_DIR=/tmp/run PATH=/usr/bin:$PATH
mkdir -p /tmp/run
weft=/tmp/lab/weft.bin
pattern="python3 -S /tmp/lab/lib/pattern.py"

# make_disks COUNT SIZE : sets `disks`, loop devices over new sparse files
make_disks() {
	mdadm --stop --scan >/dev/null 2>&1
	losetup -D
	rm -rf /tmp/w
	mkdir -p /tmp/w
	for ((i = 0; i < $1; i++)); do truncate -s "$2" "/tmp/w/m$i" || fail "truncate to $2"; done
	attach $(seq -f /tmp/w/m%.0f 0 $(($1 - 1)))
	disks=("${loops[@]}")
}

# expect_zeros : a new array, all zeros
expect_zeros() {
	rm -f /tmp/expected
	truncate -s "$(blockdev --getsize64 /dev/md0)" /tmp/expected
}

# kernel_writes SEED : stripes, and small pieces of them, all over the array
kernel_writes() {
	put $((16 * $1)) 400
	put $((900 + $1)) 3
	put $((1500 + $1)) 1
	put $(($(blockdev --getsize64 /dev/md0) / 4096 - 3)) 3
}

# put BLOCK COUNT : the kernel writes blocks of 4 KiB, of a pattern
put() {
	local from=(if=/tmp/lab/pattern-b bs=4k "seek=$1" "skip=$(($1 % 5000))" "count=$2" status=none)
	dd "${from[@]}" of=/dev/md0 oflag=direct || fail "the kernel's write at block $1"
	dd "${from[@]}" of=/tmp/expected conv=notrunc
}

# with_weft TEXT SCRIPT [OPTION…] : the script runs while weft serves the array, as `turns`
with_weft() {
	local text=$1
	echo "$2" >/tmp/script
	shift 2
	check "$text" "$weft" serve "${loops[@]}" --name turns "$@" --exec "sh -e /tmp/script"
}

# examined : what the members say of themselves, each different answer once: events; state; slots;
# and how many checksums are right
examined() {
	mdadm --examine "${loops[@]}" | awk -F ' : ' '
		$1 ~ /^ *Events$/ && !e[$2]++ { events = events " " $2 }
		$1 ~ /^ *State$/ && !s[$2]++ { state = state " " $2 }
		$1 ~ /Device Role$/ { split($2, word, " "); slot[word[3]]++ }
		/^this / { split($0, word, " "); slot[word[5]]++ }
		$1 ~ /Checksum$/ { right += $2 ~ /- correct$/ }
		END {
			for (i = 0; i < 16; i++) if (i in slot) slots = slots " " i
			print events ";" state ";" slots ";" right
		}'
}

# in_sync TEXT : the members agree, the kernel takes them all and has nothing to resync, finds the
# content, and no mismatch
in_sync() {
	local said
	said=$(examined)
	case ${said%%;*} in ' '*' '* | '') fail "$1: members differ: '$said'" ;; esac
	equal "$1: one event count, state, slots, right checksums" "${said#*;}" \
		" clean; $(seq 0 $((${#loops[@]} - 1)) | xargs);${#loops[@]}"
	assemble "$1"
	equal "$1: nothing to resync, no member missing" \
		"$(cat /sys/block/md0/md/{sync_action,degraded,array_state} | xargs)" "idle 0 clean"
	check "$1: content" same_as /tmp/expected
	checked "$1"
}

assemble() {
	mdadm --assemble /dev/md0 "${loops[@]}" >&2 || fail "$1: mdadm --assemble"
	[ "$(cat /sys/block/md0/md/array_state)" != inactive ] || fail "$1: the array did not start"
}

# checked TEXT : the kernel's check reads every stripe of every member, and counts no mismatch
checked() {
	local before least
	before=$(sectors_read)
	echo check >/sys/block/md0/md/sync_action || fail "$1: check was refused"
	wait_idle
	least=$(least_read "$before")
	[ "$least" -ge "$(component_sectors)" ] || fail "$1: check read $least sectors of a member"
	equal "$1: check counts 0" "$(cat /sys/block/md0/md/mismatch_cnt)" 0
}

# sectors_read : of each member of `loops`, since the boot
sectors_read() { cat $(printf '/sys/block/%s/stat ' "${loops[@]#/dev/}"); }

# least_read BEFORE : the fewest sectors that were read of a member since then
least_read() {
	{ echo "$1"; sectors_read; } | awk -v members="${#loops[@]}" '
		NR <= members { before[NR] = $3; next }
		{ count = $3 - before[NR - members] }
		NR == members + 1 || count < least { least = count }
		END { print least }'
}

# kill_weft_mid_write TEXT [OPTION…] : weft is killed while it writes from 8 to 17 MiB; what lies
# elsewhere was acknowledged, and is in /tmp/expected
kill_weft_mid_write() {
	local server t
	cat >/tmp/script <<'W'
python3 -S /tmp/lab/lib/pattern.py write "$uri" /tmp/expected 9 40
exec python3 -S - "$uri" <<'P'
import sys
sys.path.insert(0, "/tmp/lab/lib")
import nbd
client, block = nbd.Client(sys.argv[1]), open("/tmp/lab/pattern-b", "rb").read(1 << 20)
while True:
    for at in range(8, 16):
        client.write((at << 20) + 12288, block)
    open("/tmp/writing", "w").close()
P
W
	rm -f /tmp/writing
	"$weft" serve "${loops[@]}" --name turns "${@:2}" --exec "sh -e /tmp/script" >&2 &
	server=$!
	for ((t = 0; t < 600; t++)); do
		[ ! -e /tmp/writing ] || break
		kill -0 "$server" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	local status=$?
	equal "$1: weft was killed while it wrote" "$status $(examined | cut -d';' -f2)" "137  active"
}

# resynced TEXT : the kernel resyncs every stripe, finds what was acknowledged, and no mismatch
resynced() {
	local before least
	dmesg -C
	before=$(sectors_read)
	assemble "$1"
	wait_idle
	dmesg >/tmp/dmesg
	grep -q 'md: resync of RAID array md0' /tmp/dmesg || fail "$1: the kernel did not resync"
	least=$(least_read "$before")
	at_least "$1: the kernel resyncs all stripes" "$least" "$(component_sectors)"
	check "$1: content below" cmp -n $((8 << 20)) /dev/md0 /tmp/expected
	check "$1: content above" cmp -i $((17 << 20)) /dev/md0 /tmp/expected
	checked "$1"
}

# null_blk NUMBER KEY=VALUE… : a new device of that driver, /dev/nullbNUMBER; one of that name goes
null_blk() {
	local at=/sys/kernel/config/nullb/nullb$1 pair
	if [ -d "$at" ]; then
		rmdir "$at" || fail "nullb$1 goes"
	fi
	mkdir "$at" || fail "nullb$1"
	for pair in "${@:2}" power=1; do
		echo "${pair#*=}" >"$at/${pair%%=*}" || fail "nullb$1: $pair"
	done
}
