# What the demos share; they source it. It starts every role in one process in a temporary directory, and leaves nothing behind. Needs bin/plimsoll.
plimsoll=$PWD/bin/plimsoll
dir=$(mktemp -d)
chmod 755 "$dir" # tasks run as users of their own, and pass through it
dev=

# processes prints the pids of processes that were started for this demo's directory, such as the node's supervisor.
processes() {
	local proc words
	for proc in /proc/[0-9]*; do
		{ words=$(tr '\0' ' ' <"$proc/cmdline"); } 2>/dev/null || continue
		case $words in "$plimsoll "*"$dir"*) echo "${proc#/proc/}" ;; esac
	done
}

# orphans prints the pids of tasks that were left behind: they began in a directory below this demo's.
orphans() {
	local proc
	for proc in /proc/[0-9]*; do
		case $(readlink "$proc/cwd" 2>/dev/null) in "$dir"/*) echo "${proc#/proc/}" ;; esac
	done
}

# alive says whether a process runs; one that has ended and waits for its parent does not.
alive() { { grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status"; } 2>/dev/null; }

# stop ends processes: first asks, then insists.
stop() {
	local signal pid tries
	for signal in TERM KILL; do
		for pid in "$@"; do kill "-$signal" "$pid" 2>/dev/null || true; done
		for ((tries = 0; tries < 50; tries++)); do
			for pid in "$@"; do alive "$pid" && break; done || return 0
			sleep 0.1
		done
	done
}

# groups prints the control groups that a process put itself in.
groups() {
	local path
	while IFS=: read -r _ _ path; do
		case $path in */plimsoll/*) dirname "$path" ;; esac
	done <"/proc/$1/cgroup" | sort -u
}

clean() {
	local status=$?
	trap - EXIT
	trap '' PIPE # whoever reads the output may have gone
	set +e
	if [ -n "$dev" ]; then
		kill -TERM "$dev" 2>/dev/null && wait "$dev" || status=$((status ? status : $?))
	fi
	local left path
	mapfile -t left < <(processes)
	if [ ${#left[@]} -gt 0 ]; then
		path=$(groups "${left[0]}")
		stop "${left[@]}"
		mapfile -t left < <(orphans)
		stop "${left[@]}"
		[ -z "$path" ] || find /sys/fs/cgroup -depth -type d -path "*$path*" -exec rmdir {} + || true
	fi
	[ $status -eq 0 ] || { echo "what dev said:"; cat "$dir/dev.log"; } >&2
	rm -rf "$dir"
	[ $status -ne 0 ] || echo 'Everything is stopped, and the directory is removed.'
	exit $status
}
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
	printf '$ plimsoll %s\n' "$*"
	"$plimsoll" "$@"
}

answers() { "$plimsoll" --retry-for 0s --server "$1" node list -o json 2>/dev/null; }

# start begins dev on a port that nobody answers on, with the flags that it is given, and waits until its node is there.
start() {
	local port tries
	while port=$((20000 + RANDOM % 12000)); (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
	export PLIMSOLL_SERVER=http://127.0.0.1:$port
	"$plimsoll" dev --data "$dir/data" --listen "127.0.0.1:$port" "$@" </dev/null >"$dir/dev.log" 2>&1 &
	dev=$!
	for ((tries = 0; tries < 100; tries++)); do
		alive "$dev" || break
		case $(answers "$PLIMSOLL_SERVER") in *'"id"'*) return 0 ;; esac
		sleep 0.1
	done
	echo 'dev did not come up' >&2
	return 1
}
