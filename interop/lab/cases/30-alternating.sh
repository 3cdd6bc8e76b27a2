# One array, written in turns by the kernel and by weft, both in the guest; each finds what the
# other wrote, and the kernel's check stays at 0.
. /lab/tap.sh
export XDG_RUNTIME_DIR=/tmp/run PYTHONDONTWRITEBYTECODE=1 PATH=/usr/bin:$PATH
mkdir -p /tmp/run /tmp/w
weft=/tmp/lab/weft.bin
check "weft runs on $(uname -r)" "$weft" --version

# The kernel makes it, degraded; the fourth member comes later and the kernel recovers onto it.
for i in 0 1 2 3; do truncate -s 5M "/tmp/w/m$i"; done
attach /tmp/w/m*
check "the kernel creates it degraded" mdadm --create /dev/md0 --run --level 5 --raid-devices 4 --chunk 32K \
	--metadata 1.2 --bitmap none --name turns "${loops[@]:0:3}" missing
size=$(blockdev --getsize64 /dev/md0)
head -c "$size" /tmp/lab/pattern-a >/tmp/expected
dd if=/tmp/expected of=/dev/md0 bs=1M oflag=direct 2>/dev/null || fail "first write"
check "a fourth member is added" mdadm /dev/md0 --add "${loops[3]}"
sleep 1
wait_idle
equal "the kernel has recovered it" "$(cat /sys/block/md0/md/degraded)" 0
stop_md
detach

for turn in 1 2; do
	# weft: sees the kernel's bytes, writes its own, in many sizes.
	"$weft" cat /tmp/w/m* >/tmp/seen || fail "turn $turn: weft cat"
	check "turn $turn: weft cat equals what the kernel wrote" cmp /tmp/seen /tmp/expected
	cat >/tmp/writer <<W
exec python3 /tmp/lab/lib/pattern.py write "\$uri" /tmp/expected $turn 60
W
	check "turn $turn: weft serves and writes" "$weft" serve /tmp/w/m* --name turns --exec "sh /tmp/writer"

	# The kernel: the same bytes, no mismatch; then it writes.
	attach /tmp/w/m*
	check "turn $turn: the kernel assembles it again" mdadm --assemble /dev/md0 "${loops[@]}"
	equal "turn $turn: it was clean, nothing to resync" "$(cat /sys/block/md0/md/sync_action)" idle
	check "turn $turn: content" same_as /tmp/expected
	sync_action check
	at_least "turn $turn: check reads every stripe" "$stripes_read" "$(component_sectors)"
	equal "turn $turn: check counts 0" "$mismatches" 0
	dd if=/tmp/lab/pattern-b of=/dev/md0 bs=20k seek=$turn skip=$turn count=9 oflag=direct 2>/dev/null || fail "write"
	dd if=/tmp/lab/pattern-b of=/tmp/expected bs=20k seek=$turn skip=$turn count=9 conv=notrunc 2>/dev/null
	stop_md
	detach
done

# Left dirty by the kernel, degraded at once: weft refuses to serve it and writes nothing.
attach /tmp/w/m*
check "the kernel assembles it a last time" mdadm --assemble /dev/md0 "${loops[@]}"
echo 600 >/sys/block/md0/md/safe_mode_delay
dd if=/tmp/lab/pattern-b of=/dev/md0 bs=64k seek=2 skip=2 count=1 oflag=direct 2>/dev/null
sync
mkdir -p /tmp/w/dirty
cp /tmp/w/m0 /tmp/w/m1 /tmp/w/m2 /tmp/w/dirty/
before=$(cat /tmp/w/dirty/m? | sha256sum)
"$weft" serve /tmp/w/dirty/m? --run --name dirty --exec true >&2
equal "weft refuses a dirty array that lacks a member (exit 3)" $? 3
equal "and wrote nothing" "$(cat /tmp/w/dirty/m? | sha256sum)" "$before"
stop_md
detach
plan 20
