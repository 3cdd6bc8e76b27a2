# Discards of an array on block devices: a whole loop device, a partition, a place in a device, and
# one on device-mapper. What was discarded reads as zeros, nothing is stored for it, the kernel
# finds the same and no mismatch. Planted: a device that cannot discard (dm-integrity) gets zeros,
# and stores them.
. /lab/tap.sh
. /lab/turns.sh
export DM_DISABLE_UDEV=1
cat >/tmp/discards.py <<'P'
import sys

sys.path.insert(0, "/tmp/lab/lib")
import nbd

SEND_TRIM, FUA, MIB = 1 << 5, 1, 1 << 20
uri, expected, command = sys.argv[1:4]
client = nbd.Client(uri)
size = client.size
piece = bytes(range(1, 252)) * (2 + MIB // 251)
data = b"".join(piece[at % 251 :][: min(MIB, size - at)] for at in range(0, size, MIB))
start, length = MIB + 1536, size - 3 * MIB
if command == "fill":
    for at in range(0, size, MIB):
        client.write(at, data[at : at + MIB])
elif command == "trim":
    assert client.flags & SEND_TRIM, "trims are not offered"
    client.trim(start, length, FUA)
elif command == "zero":
    assert not client.flags & SEND_TRIM, "trims are offered"
    client.zero(start, length, FUA)
client.flush()
found = b"".join(client.read(at, min(MIB, size - at)) for at in range(0, size, MIB))
if command == "fill":
    assert found == data
else:
    first, end = next(at for at, byte in enumerate(found) if byte == 0), len(found)
    while found[end - 1]:
        end -= 1
    assert start <= first <= start + MIB and start + length - MIB <= end <= start + length, (first, end)
    assert found == data[:first] + bytes(end - first) + data[end:], "zeros end where they should not"
open(expected, "wb").write(found)
client.close()
P
discards="python3 -S /tmp/discards.py \"\$uri\" /tmp/expected"
stored() { du -k /tmp/w/m? | awk '{ sum += $1 } END { print sum }'; }

make_disks 4 6M
losetup -d "${disks[1]}"
python3 /tmp/lab/lib/gpt.py /tmp/w/m1 2048-10239 || fail "gpt.py"
disks[1]=$(losetup --show -P -f /tmp/w/m1) || fail "losetup -P"
[ -b "${disks[1]}p1" ] || mknod "${disks[1]}p1" b $(tr : ' ' <"/sys/block/${disks[1]#/dev/}/${disks[1]#/dev/}p1/dev") ||
	fail "no partition"
dmsetup create holed --table "0 $((6 << 11)) linear ${disks[3]} 0" || fail "dmsetup create"
under=("${disks[0]}" "${disks[1]}#1" "${disks[2]}@1M" /dev/mapper/holed)
for level in 5 10; do
	name="RAID $level"
	check "$name: weft create" "$weft" create --level "$level" --raid-devices 4 --chunk 16K --assume-clean \
		--force --name turns "${under[@]}"
	loops=("${under[@]}")
	with_weft "$name: every byte is written" "$discards fill"
	full=$(stored)
	with_weft "$name: a trim from and to the middle of blocks" "$discards trim"
	at_least "$name: KiB that are stored no more" "$((full - $(stored)))" 5000
	# The kernel's own names of them; it has none for a place in a device.
	place=$(losetup --show -o 1M -f /tmp/w/m2) || fail "losetup -o"
	loops=("${disks[0]}" "${disks[1]}p1" "$place" "/dev/$(dmsetup info -c --noheadings -o blkdevname holed)")
	assemble "$name"
	check "$name: the kernel reads the same" same_as /tmp/expected
	echo check >/sys/block/md0/md/sync_action || fail "$name: check was refused"
	wait_idle
	equal "$name: the kernel's check counts 0" "$(cat /sys/block/md0/md/mismatch_cnt)" 0
	stop_md
	losetup -d "$place"
done
dmsetup remove holed

# Planted: one member cannot discard. Zeros are stored on all.
make_disks 4 6M
options="0 - D 1 internal_hash:crc32c"
dmsetup create keeps --table "0 8 integrity ${disks[1]} $options" && dmsetup remove keeps || fail "formatting"
provided=$(od -An -tu8 -j16 -N8 /tmp/w/m1 | xargs)
dmsetup create keeps --table "0 $provided integrity ${disks[1]} $options" || fail "dmsetup create"
dd if=/dev/zero of=/dev/mapper/keeps bs=64k oflag=direct status=none 2>/dev/null
loops=("${disks[0]}" /dev/mapper/keeps "${disks[2]}" "${disks[3]}")
name="a member that cannot discard"
check "$name: weft create" "$weft" create --level 5 --raid-devices 4 --chunk 16K --assume-clean --force \
	--name turns "${loops[@]}"
with_weft "$name: every byte is written" "$discards fill"
full=$(stored)
with_weft "$name: no trims are offered, zeros are written" "$discards zero"
equal "$name: KiB that are stored no more" "$((full - $(stored)))" 0
dmsetup remove keeps
plan 16
