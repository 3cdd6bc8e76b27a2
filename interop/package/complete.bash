# Completions of bash for lines as readline would split them: at spaces, and at '='.
# shellcheck shell=bash disable=SC1090
. "$1" || exit 1
failed=0

# offers LINE CANDIDATE… : the candidates of the last word, all or a subset of them
offers() {
	local line=$1 word
	shift
	COMP_WORDS=()
	for word in $line; do
		while [[ $word == *=* ]]; do
			COMP_WORDS+=("${word%%=*}" =)
			word=${word#*=}
		done
		[[ $word ]] && COMP_WORDS+=("$word")
	done
	[[ $line == *' ' ]] && COMP_WORDS+=('')
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
	_weft weft "${COMP_WORDS[COMP_CWORD]}" ''
	for word in "$@"; do
		if [[ " ${COMPREPLY[*]} " != *" $word "* ]]; then
			echo "[$line]: found ${COMPREPLY[*]}, expected $word"
			failed=1
		fi
	done
}

dir=$(mktemp -d)
export XDG_RUNTIME_DIR=$dir
weft serve --bare ram:8M --name ramdisk >"$dir/ready" 2>"$dir/log" &
server=$!
for ((t = 0; t < 500; t++)); do grep -qs '^ready ' "$dir/ready" && break; sleep 0.02; done
touch "$dir/member"
offers "weft ser" serve
offers "weft create --raid" --raid-devices
offers "weft stop " ramdisk
offers "weft fail ramdisk " ram:8M
offers "weft set ramdisk sched" scheduler=
offers "weft set ramdisk scheduler=" none mq-deadline kyber bfq
offers "weft set ramdisk scheduler=b" bfq
offers "weft serve --backend=th" threads
offers "weft examine $dir/mem" "$dir/member"
weft stop ramdisk || failed=1
wait "$server" || failed=1
rm -rf "$dir"
exit "$failed"
