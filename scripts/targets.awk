# Prints the figures that are wanted beside those that the output of go test -bench holds. A figure that is missing is said to be.
function want(benchmark, unit, relation, value, words) {
	n++
	names[n] = benchmark; units[n] = unit; relations[n] = relation; wanted[n] = value; text[n] = words
}
BEGIN {
	want("Cycle/nodes=10000/tasks=100000", "placements/s", ">=", 50000, "engine alone, 10,000 nodes 80 % full, on one core")
	want("SubmitToBound/jobs-of-100", "tasks/s", ">=", 20000, "submit to binding seen at a gateway, 64 submitters, jobs of 100 tasks")
	want("SubmitToBound/jobs-of-1", "tasks/s", ">=", 4000, "the same, jobs of one task")
	want("BarrierIdle/tcp", "p50-ms", "<=", 0.2, "what a strict read waits, idle, over loopback, median")
	want("Program/ready", "s", "<=", 1, "dev is ready")
	want("Program/size", "MB", "<=", 60, "size of the binary")
	want("Program/idle-memory", "MB", "<=", 100, "memory of an idle dev")
	want("Program/idle-cpu", "%core", "<=", 1, "processor of an idle dev, in % of a core")
}
/^Benchmark/ {
	name = $1
	sub(/^Benchmark/, "", name)
	sub(/-[0-9]+$/, "", name)
	for (i = 3; i < NF; i += 2) measured[name, $(i + 1)] = $i
}
END {
	printf "%-72s %24s %12s  %s\n", "figure", "wanted", "measured", ""
	for (i = 1; i <= n; i++) {
		key = names[i] SUBSEP units[i]
		verdict = "not measured"
		if (key in measured) {
			reached = relations[i] == ">=" ? measured[key] + 0 >= wanted[i] : measured[key] + 0 <= wanted[i]
			verdict = reached ? "reached" : "MISSED"
		}
		printf "%-72s %24s %12s  %s\n", text[i], relations[i] " " wanted[i] " " units[i], measured[key], verdict
	}
}
