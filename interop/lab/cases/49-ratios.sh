# What `weft rescue --to` costs beside the kernel: the same files, out of the same disks, by `cp -a`
# from an ext4 that the kernel mounts on its own RAID 5, whole and with a disk missing, in turns.
# Emulated instructions take the time here, of both, so that ratios say something and seconds do
# not. Checked is the content; what a turn took is printed, for docs/rescue.md.
. /lab/tap.sh
. /lab/disks.sh
mkdir -p /tmp/w /tmp/mnt
TURNS=1 # 3 for a record

for number in 0 1 2 3; do truncate -s 24M "/tmp/w/sd$number.img" || fail "truncate"; done
attach /tmp/w/sd*.img
mdadm --create /dev/md0 --run -l5 -n4 -c512K --bitmap none --assume-clean --name home "${loops[@]}" >&2 || fail "mdadm"
mkfs.ext4 -q -E lazy_itable_init=0 /dev/md0 >&2 && mount /dev/md0 /tmp/mnt || fail "ext4"
for number in 1 2 3 4; do
	head -c 10000000 /tmp/lab/pattern-a | tail -c $((10000000 - number)) >"/tmp/mnt/$number.raw" || fail "write"
done
# By one program: to start one for each file takes a minute of the emulated processor.
python3 - <<'P' || fail "letters"
import os
text = open("/tmp/lab/pattern-b", "rb").read(24_000)
for number in range(400):
    folder = f"/tmp/mnt/letters/{number // 40}"
    os.makedirs(folder, exist_ok=True)
    open(f"{folder}/{number}", "wb").write(text[:number * 60 + 1])
P
sync
sums /tmp/mnt >/tmp/sums
umount /tmp/mnt
stop_md
detach
ok "$(wc -l </tmp/sums) files"

now() { date +%s%N; }

# by_kernel IMAGE… : milliseconds that the copy takes
by_kernel() {
	local begin missing=0
	rm -rf /tmp/out
	attach "$@"
	[ $# = 4 ] || missing=1
	mdadm --assemble /dev/md0 --run --readonly "${loops[@]}" >&2 || fail "mdadm --assemble"
	echo 3 >/proc/sys/vm/drop_caches
	begin=$(now)
	mount -o ro,noload /dev/md0 /tmp/mnt && cp -a /tmp/mnt /tmp/out || fail "cp -a"
	took=$((($(now) - begin) / 1000000))
	umount /tmp/mnt
	[ "$(cat /sys/block/md0/md/degraded)" = "$missing" ] || fail "md0 is not as expected"
	stop_md
	detach
	same_files "the kernel, $# of 4 disks: every file is right" /tmp/out /tmp/sums
}

# by_weft IMAGE… : the same
by_weft() {
	local begin
	rm -rf /tmp/out
	echo 3 >/proc/sys/vm/drop_caches
	begin=$(now)
	"$weft" rescue "$@" --to /tmp/out >&2 2>/tmp/rescue.err || { cat /tmp/rescue.err >&2; fail "weft rescue --to"; }
	took=$((($(now) - begin) / 1000000))
	same_files "weft, $# of 4 disks: every file is right" /tmp/out/home /tmp/sums
}

cd /tmp/w || exit 1
for disks in "sd0.img sd1.img sd2.img sd3.img" "sd0.img sd1.img sd3.img"; do
	for ((turn = 0; turn < TURNS; turn++)); do
		# shellcheck disable=SC2086
		{
			by_kernel $disks
			kernel=$took
			by_weft $disks
		}
		echo "# $disks: cp -a of the kernel's mount $kernel ms, weft rescue --to $took ms:" \
			"$((kernel * 100 / took)) percent of the kernel's speed"
	done
done
plan $((1 + 4 * TURNS))
