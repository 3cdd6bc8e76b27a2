# Schedulers side by side: the kernel's on a null_blk device, weft's on the member of a bare volume, which is
# such a device without a scheduler. What each sends is traced at the device: a script of requests
# goes out in the same order.
. /lab/tap.sh
. /lab/turns.sh
tracing=/sys/kernel/tracing
mount -t configfs none /sys/kernel/config 2>/dev/null
mount -t tracefs none $tracing 2>/dev/null
check "the kernel has the schedulers" grep -q 'mq-deadline' /sys/block/loop0/queue/scheduler
atonce="python3 -S /tmp/lab/lib/atonce.py"

# null NUMBER DEPTH NANOSECONDS : a device that takes DEPTH requests at once, each for so long
null() {
	local at=/sys/kernel/config/nullb/nullb$1
	mkdir "$at" || fail "nullb$1"
	local pair
	for pair in size=4096 queue_mode=2 irqmode=2 blocksize=512 poll_queues=0 submit_queues=1 \
		hw_queue_depth="$2" completion_nsec="$3" power=1; do
		echo "${pair#*=}" >"$at/${pair%%=*}" || fail "nullb$1: $pair"
	done
	echo 0 >"/sys/block/nullb$1/queue/rotational"
}

# traced DEVICE COMMAND… : the command; sets `order` to what was issued to the device meanwhile, each
# request as its direction and first sector
traced() {
	local device=$1
	shift
	echo 0 >$tracing/tracing_on
	echo >$tracing/trace
	echo 1 >$tracing/events/block/block_rq_issue/enable
	echo 1 >$tracing/tracing_on
	"$@" >/tmp/sent || fail "$*"
	echo 0 >$tracing/tracing_on
	order=$(awk -v device="$(tr : , <"/sys/block/$device/dev")" '
		{ for (i = 1; i < NF; i++) if ($i == "block_rq_issue:" && $(i + 1) == device)
			for (j = i + 2; j < NF; j++) if ($j == "+") print substr($(i + 2), 1, 1) $(j - 1) "+" $(j + 1) }
		' $tracing/trace | xargs)
}

# kernel_knobs DEVICE SCHEDULER KNOB=VALUE…
kernel_knobs() {
	local queue=/sys/block/$1/queue pair
	echo none >"$queue/scheduler"
	echo "$2" >"$queue/scheduler" || fail "$1: scheduler $2"
	echo 1024 >"$queue/nr_requests"
	shift 2
	for pair in "$@"; do echo "${pair#*=}" >"$queue/iosched/${pair%%=*}" || fail "$pair"; done
}

# same_order TEXT SCHEDULER REQUESTS KNOB=VALUE… : /tmp/script, which begins with a write to sector 0,
# sent to both. What weft reads before, looking for metadata, is left out
same_order() {
	local text=$1 scheduler=$2 requests=$3 by_kernel
	shift 3
	kernel_knobs nullb0 "$scheduler" async_depth=1024 "$@"
	traced nullb0 $atonce /tmp/script /dev/nullb0
	by_kernel=$order
	at_least "$text: requests that the kernel sent" "$(echo "$by_kernel" | wc -w)" "$requests"
	cat >/tmp/serving <<W
$weft set bare scheduler=$scheduler $*
$atonce /tmp/script "\$uri"
W
	echo none >/sys/block/nullb1/queue/scheduler
	traced nullb1 "$weft" serve --bare /dev/nullb1 --name bare --set queue_depth=1 --exec "sh -e /tmp/serving"
	order=W0+8${order#*W0+8}
	equal "$text: weft sends them in the kernel's order" "$order" "$by_kernel"
}

null 0 1 25000000
null 1 1 25000000
# lines DIRECTION FIRST COUNT : requests of 4 KiB, 8 KiB apart
lines() { for ((i = 0; i < $3; i++)); do echo "$1 $(($2 + 16 * i)) 8"; done; }
{ printf 'W 0 8\nW 32 8\nwait 8\n'; lines R 1000 40; lines W 5000 40; } >/tmp/script
same_order "mq-deadline, reads and writes" mq-deadline 82
same_order "mq-deadline, batches of 4" mq-deadline 82 fifo_batch=4
same_order "mq-deadline, reads starve no write" mq-deadline 82 fifo_batch=4 writes_starved=0
plan 7
