# A RAID 5 that weft serves as a block device of the kernel (ublk): ext4 on it, fio's verify across
# kill -9 of the server and its return, a stop that is refused while the device is mounted, and the
# kernel's md, which finds the same files and a clean array.
. /lab/tap.sh
. /lab/disks.sh
mkdir -p /tmp/w /tmp/mnt
cd /tmp/w || exit 1
export XDG_RUNTIME_DIR=/tmp/w
ready=0

# serve : starts the server, and waits until the device is there
serve() {
	local t
	"$weft" serve --name vol --listen ublk: d0 d1 d2 d3 >>ready 2>>log &
	server=$!
	ready=$((ready + 1))
	for ((t = 0; t < 600; t++)); do
		[ "$(grep -c '^ready ' ready)" = "$ready" ] && return 0
		kill -0 "$server" 2>/dev/null || break
		sleep 0.1
	done
	cat log >&2
	fail "the server is not ready"
}

for number in 0 1 2 3; do truncate -s 48M d$number || fail truncate; done
"$weft" create -l5 -n4 -c64K --assume-clean --name vol d0 d1 d2 d3 >&2 || fail create
serve
equal "the device is told" "$(tail -1 ready)" "ready /dev/ublkb0"
size=$(blockdev --getsize64 /dev/ublkb0)
mkfs.ext4 -q /dev/ublkb0 >&2 && mount /dev/ublkb0 /tmp/mnt || fail ext4
mkdir /tmp/mnt/few && cp /tmp/lab/pattern-a /tmp/mnt/few/a && cp /tmp/lab/pattern-b /tmp/mnt/few/b || fail cp
sync
ok "files are on it"

fio --name=verify --filename=/tmp/mnt/fio --size=2m --rw=randwrite --bs=4k --ioengine=psync --direct=1 \
	--verify=crc32c --do_verify=1 --verify_fatal=1 --loops=1 >fio.out 2>&1 &
fio=$!
for ((t = 0; t < 200; t++)); do # it writes
	[ "$(awk '{print $7}' /sys/block/ublkb0/stat)" -gt 101000 ] && break
	sleep 0.1
done
kill -0 "$fio" 2>/dev/null || { cat fio.out >&2; fail "fio has ended before the server is killed"; }
kill -KILL "$server"
wait "$server" 2>/dev/null
sleep 1
kill -0 "$fio" 2>/dev/null || { cat fio.out >&2; fail "fio did not wait for the server"; }
ok "fio waits for a server that was killed"
serve
equal "the same device goes on" "$(tail -1 ready)" "ready /dev/ublkb0"
wait "$fio" || { cat fio.out >&2; fail "fio found other data than it wrote"; }
ok "fio has verified what it wrote across the death of the server"

kill -TERM "$server"
for ((t = 0; t < 100; t++)); do grep -q 'not stopped' log && break; sleep 0.1; done
check "a stop is refused while the device is mounted" grep -q 'not stopped: /dev/ublkb0 is in use: unmount it first' log
check "and the server goes on" kill -0 "$server"
sums /tmp/mnt lost+found >/tmp/sums
umount /tmp/mnt || fail umount
"$weft" stop vol >&2 || fail "weft stop"
wait "$server"
equal "the server stops once nothing uses it" "$?" 0
check "the device is gone" test ! -e /dev/ublkb0

attach d0 d1 d2 d3
mdadm --assemble /dev/md0 --run --readonly "${loops[@]}" >&2 || fail "mdadm --assemble"
equal "the kernel's array has the size of the device" "$(blockdev --getsize64 /dev/md0)" "$size"
equal "the kernel finds it clean" "$(cat /sys/block/md0/md/array_state)" readonly
check "and its file system" fsck.ext4 -f -n /dev/md0
mount -o ro,noload /dev/md0 /tmp/mnt || fail mount
sums /tmp/mnt lost+found | diff /tmp/sums - >&2 || fail "the kernel reads other files"
ok "and the same files ($(wc -l </tmp/sums))"
umount /tmp/mnt
stop_md
detach
plan 12
