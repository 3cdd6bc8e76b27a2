# For the cases that bring files back, in the guest: disks with partitions, LVM on arrays, sums of
# files, and what weft copies out of images of the disks.
# shellcheck shell=bash
export PATH=/usr/bin:$PATH
weft=/tmp/lab/weft.bin

lvm() { command lvm "$@" --config 'activation{udev_sync=0 udev_rules=0} devices{use_devicesfile=0 obtain_device_list_from_udev=0 scan="/dev"} backup{backup=0 archive=0}' 2>/dev/null; }

# disk FILE SIZE FIRST-LAST… : a new image with these partitions (sectors); its loop device is added
# to `loops`
disk() {
	local file=$1 size=$2 loop
	shift 2
	truncate -s "$size" "$file" && python3 /tmp/lab/lib/gpt.py "$file" "$@" || fail "gpt.py $file"
	loop=$(losetup --show -P -f "$file") || fail "losetup $file"
	loops+=("$loop")
}

# part NUMBER LOOP… : the partitions of that number
part() { local number=$1; shift; printf "%sp$number " "$@"; }

# mount_quiet DEVICE : ext4 at /tmp/mnt, to which nothing is written by itself, however slow the
# machine is: what a loss of power leaves can be copied file by file
mount_quiet() { mount -t ext4 -o commit=10000,noatime "$1" /tmp/mnt; }

# place FILE : sector at which the file begins on its device
place() { filefrag -b512 -v "$1" | awk '$1 == "0:" {print int($4); exit}'; }

# wait_clean MD… : until these arrays are marked clean, which md does when nothing was written for a
# while
wait_clean() {
	local t states
	for ((t = 0; t < 300; t++)); do
		states=$(cd /sys/block && { cat "${@/%//md/array_state}" || echo unreadable; } | sort -u)
		[ "$states" = clean ] && sleep 0.3 && return 0
		sleep 0.1
	done
	fail "$* do not become clean"
}

# content FILE… : a line that is the same while every byte of these is
content() { python3 /tmp/lab/lib/content.py "$@"; }

# sums FOLDER [LEFT-OUT] : SHA-256 of every file in it
sums() { (cd "$1" && find . -path "./${2:-.}" -prune -o -type f -print0 | sort -z | xargs -0 sha256sum); }

# same_files TEXT FOLDER SUMS : the files in FOLDER are exactly those of SUMS
same_files() {
	local text=$1 folder=$2 expected=$3
	[ -s "$expected" ] || fail "$text: no sums"
	sums "$folder" | diff "$expected" - >&2 || fail "$text: files"
	ok "$text"
}

# copied TEXT SUMS PLACE DISK… : weft rescue --to copies one file system, named PLACE, with these
# files
copied() {
	local text=$1 expected=$2 place=$3
	shift 3
	rm -rf /tmp/out
	"$weft" rescue "$@" --to /tmp/out >/tmp/copied 2>/tmp/copied.err ||
		{ cat /tmp/copied /tmp/copied.err >&2; fail "$text: exit $?"; }
	cat /tmp/copied >&2
	equal "$text: one file system is copied" "$(cd /tmp/out && ls -d */)" "$place/"
	same_files "$text: every file is right" "/tmp/out/$place" "$expected"
}

# not_rescued FILE SIZE BYTE LENGTH : these bytes of the image are zeros, and its map says, as
# ddrescue's does, that they could not be read
not_rescued() {
	local file=$1 size=$2 start=$3 length=$4
	printf '# Mapfile. Created by GNU ddrescue version 1.27\n0x0 + 1\n0x0 0x%x +\n0x%x 0x%x -\n0x%x 0x%x +\n' \
		"$start" "$start" "$length" $((start + length)) $((size - start - length)) >"$file.map"
	dd if=/dev/zero of="$file" bs=4K seek=$((start / 4096)) count=$((length / 4096)) conv=notrunc 2>/dev/null ||
		fail "dd $file"
}
