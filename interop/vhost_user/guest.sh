# In the virtual machine: a file system on the disk, fio's verify across the death of the server,
# and the loss and recovery of a member, which the host sees to.
. /lab/tap.sh
. /lab/disks.sh
mkdir -p /tmp/w /tmp/mnt
cd /tmp/w || exit 1

# host STEP : lets the host do a step, and waits until it is done
host() {
	local t
	touch "/lab/ask-$1"
	for ((t = 0; t < 600; t++)); do
		[ -e "/lab/done-$1" ] && return 0
		sleep 0.1
	done
	fail "the host does not end its step $1"
}

disk=/sys/block/vda
equal "the size of the disk" "$(blockdev --getsize64 /dev/vda)" "$(cat /lab/size)"
equal "its serial number" "$(cat $disk/serial)" vol
equal "its preferred request is a full stripe" "$(cat $disk/queue/optimal_io_size)" 131072
equal "it is flushed" "$(cat $disk/queue/write_cache)" "write back"
at_least "it takes discards of up to" "$(cat $disk/queue/discard_max_bytes)" $((1 << 30))
at_least "and writes of zeroes of up to" "$(cat $disk/queue/write_zeroes_max_bytes)" $((1 << 30))

mkfs.ext4 -q /dev/vda >&2 && mount /dev/vda /tmp/mnt || fail ext4
mkdir /tmp/mnt/few && cp /lab/pattern-a /tmp/mnt/few/a && cp /lab/pattern-b /tmp/mnt/few/b || fail cp
sync
ok "files are on it"
verify() {
	fio --name="$1" --filename="/tmp/mnt/$1" --size=2m --rw=randwrite --bs=4k --ioengine=libaio --iodepth=8 --direct=1 \
		--verify=crc32c --do_verify=1 --verify_fatal=1 >"$1.out" 2>&1 &
	fio=$!
	local before
	before=$(awk '{print $7}' $disk/stat)
	for ((t = 0; t < 200; t++)); do # it writes
		[ "$(awk '{print $7}' $disk/stat)" -gt $((before + 500)) ] && break
		sleep 0.05
	done
	kill -0 "$fio" 2>/dev/null || { cat "$1.out" >&2; fail "fio has ended before the host's step"; }
}
verify killed
host kill
ok "the host has killed the server, and started another"
wait "$fio" || { cat killed.out >&2; fail "fio found other data than it wrote"; }
ok "fio has verified what it wrote across the death of the server"
verify degraded
host member
wait "$fio" || { cat degraded.out >&2; fail "fio found other data than it wrote"; }
ok "and across the loss and recovery of a member"

rm /tmp/mnt/degraded
at_least "bytes that fstrim discards" "$(fstrim -v /tmp/mnt | sed 's/.*(\([0-9]*\) bytes.*/\1/')" $((1 << 20))
sums /tmp/mnt lost+found >/lab/sums
umount /tmp/mnt || fail umount
check "the file system is whole" fsck.ext4 -f -n /dev/vda
before=$(dd if=/dev/vda bs=1M iflag=direct status=none | sha256sum)
host restart
equal "and reads the same from the next server" "$(dd if=/dev/vda bs=1M iflag=direct status=none | sha256sum)" "$before"
plan 13
