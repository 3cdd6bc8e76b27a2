# All volumes of a file as a service: arrays of the kernel's md and of weft, on partitions with
# metadata at their ends, are found by UUID and name among all block devices, and served as block
# devices (ublk) under ext4; a server that is killed comes back under fio's verify, the file is read
# again, and the kernel's md finds clean arrays.
. /lab/tap.sh
. /lab/disks.sh
mkdir -p /tmp/w /tmp/mnt
cd /tmp/w || exit 1
export XDG_RUNTIME_DIR=/tmp/w

# lines FILE PATTERN COUNT : waits until the file has that many lines with the pattern
lines() {
	local t
	for ((t = 0; t < 600; t++)); do
		[ "$(grep -c "$2" "$1")" -ge "$3" ] && return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
	done
	cat ready log >&2
	fail "not in $1: $2"
}
told() { lines ready "$1" "$2"; }
logged() { lines log "$1" 1; }

# Partitions that end with their disks: a superblock of version 0.90 is where the whole disk would
# have one, too.
for number in 0 1 2; do
	truncate -s 48M "k$number" || fail truncate
	printf '\0\0\0\0\375\0\0\0\0\010\0\0\0\170\001\0' | dd of="k$number" bs=1 seek=446 conv=notrunc 2>/dev/null
	printf '\125\252' | dd of="k$number" bs=1 seek=510 conv=notrunc 2>/dev/null
	loops[number]=$(losetup --show -P -f "k$number") || fail losetup
done
partitions=("${loops[@]/%/p1}")
mdadm --create /dev/md0 --run --level=5 -n3 --metadata=0.90 --chunk=64 --assume-clean "${partitions[@]}" >&2 ||
	fail "mdadm --create"
check "a whole disk seems to be a member too" "$weft" examine "${loops[0]}"
uuid=$(mdadm --detail /dev/md0 | awk '/UUID/ {print $3}')
stop_md
for number in 0 1; do truncate -s 32M "w$number"; done
disks=("${loops[@]}")
attach w0 w1
"$weft" create -l1 -n2 --assume-clean --name own "${loops[@]}" >&2 || fail "weft create"

cat >weft.toml <<T
[volume.first]
uuid = "$uuid"
listen = "ublk:7"
set.stripe_cache_size = 300

[volume.second]
array = "own"
T
check "the file has no mistake" "$weft" daemon --config weft.toml --check
losetup -d "${disks[0]}" || fail "losetup -d"
"$weft" daemon --config weft.toml >ready 2>log &
daemon=$!
told '^ready ' 1
sleep 17 # starts fail after 0, 1, 3, 7 and 15 s; the next would be after 31 s
check "an array without a member is refused" grep -q '^first: not served: exit status: 3' log
[ "$(losetup --show -P -f k0)" = "${disks[0]}" ] || fail losetup
for ((t = 0; t < 100; t++)); do grep -q '^ready first' ready && break; sleep 0.1; done
check "and served soon after the member came" grep -q '^ready first' ready
equal "the kernel's array is found by its UUID" "$(grep -c '^ready first /dev/ublkb7$' ready)" 1
equal "weft's array is found by its name" "$(grep -c '^ready second nbd' ready)" 1
# members NAME : labels of its members
members() { "$weft" status "$1" --json | grep -o '"label": "[^"]*"' | cut -d'"' -f4 | sort | tr '\n' ' '; }
equal "members are the partitions, not their disks" "$(members first)" "$(printf '%s\n' "${partitions[@]}" | sort | tr '\n' ' ')"

mkfs.ext4 -q /dev/ublkb7 >&2 && mount /dev/ublkb7 /tmp/mnt || fail ext4
cp /tmp/lab/pattern-a /tmp/mnt/a && sync || fail cp
fio --name=verify --filename=/tmp/mnt/fio --size=2m --rw=randwrite --bs=4k --ioengine=psync --direct=1 \
	--verify=crc32c --do_verify=1 --verify_fatal=1 >fio.out 2>&1 &
fio=$!
sleep 2
kill -KILL "$(pgrep -f 'serve --name=first')"
told '^ready first ' 2
wait "$fio" || { cat fio.out >&2; fail "fio found other data than it wrote"; }
ok "fio has verified what it wrote across the death of the server"

sed -i -e 's/= 300/= 400/' -e '/second/,$d' weft.toml
kill -HUP "$daemon"
logged '^first: set stripe_cache_size=400'
equal "a knob is set while the device is mounted" "$("$weft" get first stripe_cache_size)" stripe_cache_size=400
logged '^second: INFO stopped'
ok "a volume that is gone from the file is stopped"

sums /tmp/mnt lost+found >/tmp/sums
umount /tmp/mnt || fail umount
kill -TERM "$daemon"
wait "$daemon"
equal "the daemon ends in good order" "$?" 0
check "the device is gone" test ! -e /dev/ublkb7
mdadm --assemble /dev/md0 --run --readonly "${partitions[@]}" >&2 || fail "mdadm --assemble"
equal "the kernel finds its array clean" "$(cat /sys/block/md0/md/array_state)" readonly
mount -o ro,noload /dev/md0 /tmp/mnt || fail mount
sums /tmp/mnt lost+found | diff /tmp/sums - >&2 || fail "the kernel reads other files"
ok "and the same files ($(wc -l </tmp/sums))"
umount /tmp/mnt
stop_md
losetup -D
plan 14
