# Prints the figures that are wanted beside those that the output of go test -bench holds, and beside what peers reach. The peers' figures are
# recorded (they were measured on the same kind of machine, 2 shared cores, with other load beside it) and not measured in this run, except those
# that say so: of placement quality, and what the module in bench/ measures. A figure that is missing is said to be.
function want(benchmark, unit, relation, value, words, peers) {
	n++
	names[n] = benchmark; units[n] = unit; relations[n] = relation; wanted[n] = value; text[n] = words; others[n] = peers
}
# reserve keeps a row for a figure that is wanted below another one of the same run, and returns its number.
function reserve(words) {
	want("", "", "", 0, words)
	return n
}
# below fills a reserved row.
function below(row, benchmark, unit, other, whose) {
	names[row] = benchmark; units[row] = unit; relations[row] = "<="
	if ((other SUBSEP unit) in measured) {
		wanted[row] = measured[other, unit]
		others[row] = whose " " measured[other, unit] " (this run)"
	}
}
function ratio(name, benchmark, over, unit) {
	if ((benchmark SUBSEP unit) in measured && (over SUBSEP unit) in measured && measured[over, unit] > 0) measured[name, "x"] = sprintf("%.2f", measured[benchmark, unit] / measured[over, unit])
}
# best puts the best of the other policies beside ours, from the same run.
function best(list, unit, words,   k, name, high, told) {
	high = -1; told = ""
	for (k = 1; k <= 3; k++) {
		name = "Quality/openb/" list "/" policies[k]
		if (!((name SUBSEP unit) in measured)) return
		told = told (k > 1 ? ", " : "") sprintf("%s %.1f", policies[k], measured[name, unit])
		if (measured[name, unit] > high) high = measured[name, unit]
	}
	want("Quality/openb/" list "/plimsoll", unit, ">=", high, words, told " (this run)")
}
# beside puts what peers reached in the same run beside ours.
function beside(benchmark, unit, list, relation, value, words,   k, count, theirs, key, told) {
	count = split(list, theirs, " ")
	told = ""
	for (k = 1; k <= count; k++) {
		key = benchmark "/" theirs[k] SUBSEP unit
		if (key in measured) told = told (told == "" ? "" : ", ") theirs[k] " " measured[key]
	}
	want(benchmark "/plimsoll", unit, relation, value, words, told == "" ? "" : told " (this run)")
}
# over says how many times as much as ours each peer took in the same run.
function over(benchmark, unit, list,   k, count, theirs) {
	count = split(list, theirs, " ")
	for (k = 1; k <= count; k++) {
		ratio(benchmark "/" theirs[k] "/plimsoll", benchmark "/" theirs[k], benchmark "/plimsoll", unit)
		want(benchmark "/" theirs[k] "/plimsoll", "x", ">=", 1, "  processor time of " theirs[k] " over ours")
	}
}
BEGIN {
	want("Cycle/nodes=10000/tasks=100000", "placements/s", ">=", 50000, "engine alone, 10,000 nodes 80 % full, on one core", "YuniKorn 3,100-5,900")
	# Queues: 10,000 nodes and 100,000 waiting tasks in trees of different breadth. Before the queues had heaps: 64,600, 46,400, 18,900, 38,500.
	before["1x1"] = "64,600"; before["1x100"] = "46,400"; before["1x992"] = "18,900"; before["31x32"] = "38,500"
	trees = split("1x1 1x100 1x992 31x32", shapes, " ")
	for (k = 1; k <= trees; k++)
		want("Trees/leaves=" shapes[k], "placements/s", ">=", 50000, "engine, 100,000 tasks in a tree of " shapes[k] " leaves", "before " before[shapes[k]])
	want("Trees/leaves=1x992/limits", "placements/s", ">=", 50000, "  992 leaves with fair jobs and limits of users")
	want("Trees/leaves=1x992/limits/plain", "x", ">=", 0.85, "  the same over the run without them")
	want("Backlog/waiting=1000000/100000", "x", "<=", 1.5, "a turn in which 100 tasks end, 1,000,000 tasks wait, over 100,000")
	want("CrowdMore", "percent", "<=", 2, "1,000 tasks a second that end and start: more of a core beside 10,000 requests that fit nowhere")
	for (k = 1; k <= 100; k += 99) {
		crowd = "Crowd/constraints=" k "/"
		want(crowd "one-more", "ns/op", "<=", k == 1 ? 50000 : 400000, "one more of 10,000 requests that fit nowhere, " k " set(s) of constraints", "before 5,000,000")
		want(crowd "turn", "ns/op", "<=", 100000, "  a turn beside them", "before 2,400,000-3,700,000")
		want(crowd "placeable", "ns/op", "<=", 10000000, "  one behind them that fits is placed")
	}
	want("FullQueue/leaves=1/lanes=200/beside=false", "ns/op", "<=", 80000, "a task ends below a full queue and the next is bound, 200 lanes wait: a whole turn")
	want("FullQueue/leaves=1/lanes=10000/beside=false", "ns/op", "<=", 100000, "  the same with 10,000 lanes in one leaf: at most 20,000 more")
	want("FullQueue/leaves=992/lanes=10000/beside=false", "ns/op", "<=", 100000, "  the same with 10,000 lanes in 992 leaves: at most 20,000 more")
	want("FullQueue/leaves=992/lanes=10000/beside=true", "ns/op", "<=", 100000, "  the same beside a small request in a leaf that is full by itself: at most 20,000 more")
	want("SubmitToBound/jobs-of-100", "tasks/s", ">=", 20000, "submit to binding seen at a gateway, 64 submitters, jobs of 100 tasks")
	want("SubmitToBound/jobs-of-1", "tasks/s", ">=", 4000, "the same, jobs of one task")
	# The history: events in batches of 10,000, each on the disk when it is acknowledged; and questions to 5,000,000 events of one day.
	for (k = 1; k <= split("100 30 1", shapes, " "); k++)
		want("Ingest/tasks=" shapes[k], "events/s", ">=", 50000, "events taken into a history, jobs of " shapes[k] " tasks")
	for (k = 1; k <= split("100 1", shapes, " "); k++) {
		asked = "History/tasks=" shapes[k] "/"
		want(asked "timeline-of-a-job", "ns/op", "<=", 20000000, "timeline of a job of " shapes[k] " tasks, in a history of 5,000,000 events")
		want(asked "timeline-of-a-job", "p99-ms", "", 0, "  its p99")
		want(asked "usage/by=owner", "ns/op", "<=", 200000000, "  the day's usage by owner")
		want(asked "usage/by=owner", "p99-ms", "", 0, "  its p99")
		want(asked "at", "ns/op", "<=", 500000000, "  the state at a time: reading it, with the events to replay")
		want("At/tasks=" shapes[k], "ns/op", "<=", 500000000, "    putting it together, 100,000 tasks and 200,000 events to replay")
		want(asked "build", "s", "", 0, "  building it, in seconds")
	}
	# The archive: a leader that lets jobs live, with it and without it by turns, and a gateway beside 1,000,000 jobs that have ended.
	want("Archiving/jobs-of-1/full", "archived-jobs/s", ">=", 5000, "jobs of one task, from submit to archive, over 200,000 of them")
	want("Archiving/jobs-of-1/rate=5000", "x-jobs/s", ">=", 0.95, "  jobs/s over those of a leader without an archive, at 5,000/s")
	want("Archiving/jobs-of-1/full", "x-jobs/s", "", 0, "  the same at full speed, all cores in use")
	want("Archiving/jobs-of-1/full", "cpu-us/job-more", "", 0, "  processor time that the archive takes, a job")
	want("Archiving/jobs-of-1/full", "cpu-us/job", "", 0, "  processor time of a whole life with it, and with the load itself")
	want("Archiving/jobs-of-100/rate=200", "x-jobs/s", ">=", 0.95, "the same with jobs of 100 tasks, at 20,000 tasks/s")
	want("Archiving/jobs-of-100/full", "x-jobs/s", ">=", 0.95, "  at full speed, all cores in use")
	want("Archiving/jobs-of-100/full", "archived-tasks/s", "", 0, "  tasks, from submit to archive")
	want("Write/tasks=1/round=512/unique=false", "jobs/s", ">=", 5000, "writes to the archive alone, jobs of one task")
	want("Write/tasks=100/round=100/unique=false", "tasks/s", ">=", 50000, "  jobs of 100 tasks")
	want("MillionEnded/get/checked", "p50-ms", "<=", 5, "job get of one among 1,000,000 that have ended, at a gateway, median")
	want("MillionEnded/get/checked", "p99-ms", "<=", 5, "  p99")
	want("MillionEnded/get/beside-check", "p99-ms", "", 0, "  p99 while a new leader checks the archive")
	chosen = split("owner-since rare-owner queue-failed labels-queue-failed label-by-end", criteria, " ")
	for (k = 1; k <= chosen; k++) {
		want("MillionEnded/page/" criteria[k], "p50-ms", "<=", 20, "a page of 100 of a list of them, by " criteria[k] ", median")
		want("MillionEnded/page/" criteria[k], "p99-ms", "<=", 20, "  p99")
	}
	want("MillionEnded/check", "s", "", 0, "the check of such an archive, beside the work of a new leader, in seconds")
	want("MillionEnded/start", "x", "<=", 1.1, "a start with them, over one without an archive")
	want("MillionEnded/start", "archived-ms", "", 0, "  until one of them is answered, in ms")
	want("EndedMemory", "x", "<=", 1.1, "heap of a leader and gateway after 300,000 ended jobs, over that after 100,000")
	want("EndedMemory", "rss-MB-of-300000", "", 0, "  resident memory")
	want("BarrierIdle/tcp/relays=0", "p50-ms", "<=", 0.2, "what a strict read waits, idle, over loopback, median")
	# Lists of 100 records in 256 KiB: a gateway beside a bare net/http handler, and beside a leader that encodes each record at each request.
	split("tasks/proto jobs/proto tasks/json", kinds, " ")
	for (k = 1; k <= 3; k++)
		for (c = 16; c <= 64; c += 48) {
			want("ServedList/" kinds[k] "/eventual/connections=" c, "x-bare", "<=", 1.25, "CPU of a list over bare net/http, " kinds[k] ", eventual, " c " connections", "1.7-2.4 with connect's handler")
			want("ServedList/" kinds[k] "/strict/connections=" c, "x-bare", "<=", 1.45, "  strict", "2.0-2.7 with connect's handler")
		}
	for (c = 16; c <= 64; c += 48) {
		want("Gateway/bare/gateway-eventual/connections=" c, "x-bare", "<=", 1.25, "  the same by plimsoll bench gateway, eventual, " c " connections")
		want("Gateway/bare/gateway-strict/connections=" c, "x-bare", "<=", 1.45, "  strict")
	}
	want("Load", "s", "<=", 2.5, "a snapshot of 1,000,000 tasks with indexes, in seconds")
	want("Load", "peak/final", "<=", 1.6, "  its peak of memory over the final size")
	want("Load", "over-B/record", "<=", 200, "  memory over 1.3 times the encoded bytes, a record")
	want("Gateway/barrier", "over-ms", "<=", 0.2, "a strict read over an eventual one, idle, two processes, median", "design 4")
	split("25 90 115 200", loads, " ")
	split("p50-ms p80-ms p99-ms", shares, " ")
	for (k = 1; k <= 4; k++)
		for (s = 1; s <= 3; s++)
			latencies[k, s] = reserve("a list at " loads[k] " % of the leader's rate, strict, " shares[s])
	want("Program/ready", "s", "<=", 1, "dev is ready")
	want("Program/size", "MB", "<=", 60, "size of the binary")
	want("Program/idle-memory", "MB", "<=", 100, "memory of an idle dev")
	want("Program/idle-cpu", "%core", "<=", 1, "processor of an idle dev, in % of a core")

	# Placement: the full default chain in batches of fifty, fifty instances a server.
	peers["1000"] = "original 200-430, kube 956-1,101, Nomad 8,500-9,100"
	peers["10000"] = "original 125-150, kube 1,024-1,123, Nomad 1,030-1,470"
	split("1000 10000 100000", sizes, " ")
	split("30 90 99", fulls, " ")
	for (f = 1; f <= 3; f++)
		for (s = 1; s <= 3; s++) {
			place = "Place/nodes=" sizes[s] "/full=" fulls[f] "/traits=false"
			want(place, "placements/s", ">=", fulls[f] == 99 ? 5000 : 50000, "placement, " sizes[s] " servers " fulls[f] " % full", peers[sizes[s]])
			if (fulls[f] != 99) want(place, "p99-us", "<=", 100, "  p99", sizes[s] == 10000 ? "kube 2,700-3,100" : sizes[s] == 1000 ? "kube 5,800-6,600, original 7,200-10,800 (p95)" : "")
			want(place, "allocs/op", "<=", 0, "  allocations")
		}
	for (s = 1; s <= 3; s++)
		want("Place/nodes=" sizes[s] "/full=30/traits=true", "placements/s", ">=", 5000, "placement, " sizes[s] " servers 30 % full, 5 % eligible by traits")
	for (f = 1; f <= 2; f++)
		want("Place/flat/full=" fulls[f], "x", ">=", 0.8, "placements/s with 100,000 servers over those with 1,000, " fulls[f] " % full", "kube, all scored, 10,000 over 1,000: 0.05-0.06")
	want("PlaceAll/nodes=10000", "placements/s", ">=", 2000, "placement, every one of 10,000 servers scored", "kube 29-42")
	want("PlaceSpread/nodes=10000", "placements/s", ">=", 20000, "placement, 10,000 servers, spread by rack", "kube (zones) 220, Nomad 146-177")
	want("Memory/nodes=100000/booked", "B/server", "<=", 1024, "memory of a server, 100,000 of them", "original about 41,000-71,000 with 50 instances")
	want("Memory/nodes=100000/booked", "B/instance", "<=", 64, "memory of an instance, 50 on each of them, booked by kind")
	want("Memory/nodes=10000/brought", "B/instance", "", 0, "memory of an instance with an id that comes with its server's record")
	want("Place/in-process/heed-query=false", "loads/op", "<=", 20, "loads of a remote source of 120 servers, easy case", "original 20")
	split("least-allocated most-allocated random-fit", policies, " ")

	# Events: the ring beside the design's table and YuniKorn, each task's end in a turn of its own.
	most["100"] = 160; most["30"] = 180; most["1"] = 225; pauses["100"] = 3; pauses["30"] = 3; pauses["1"] = 5
	design["1"] = "YuniKorn 563"; design["3"] = "design 211, YuniKorn 1,683"; design["6"] = "design 404"; design["9"] = "design 593, YuniKorn 5,044"
	collected["3"] = "design 5-16, YuniKorn 343-715"; collected["6"] = "design 10-30"; collected["9"] = "design 16-33, YuniKorn 1,730"
	split("9 6 3 1", millions, " ")
	split("100 30 1", perjob, " ")
	for (k = 1; k <= 4; k++)
		for (c = 1; c <= 3; c++) {
			held = "Held/events=" millions[k] "M/tasks=" perjob[c]
			want(held, "MiB", "<=", most[perjob[c]] * millions[k] / 9, millions[k] " million events held, " perjob[c] " task(s) a job, in MiB", c == 1 ? design[millions[k]] : "")
			want(held, "ms/GC", "<=", pauses[perjob[c]], "  a garbage collection beside them, in ms", c == 1 ? collected[millions[k]] : "")
		}
	want("Held/pointers/events=3M/tasks=100", "MiB", "", 0, "3 million events as a slice of pointers, in MiB", "design 805")
	want("Held/pointers/events=3M/tasks=100", "ms/GC", "", 0, "  a garbage collection beside them, in ms", "design 85-105")
	want("Publish", "ns/op", "<=", 150, "publish an event: pack, append, view, in ns", "YuniKorn 830-2,600")
	want("Publish", "allocs/op", "<=", 0, "  allocations")
	want("RESTBatch/first", "ms/answer", "<=", 3, "a batch of 10,000 events over REST, in ms", "YuniKorn 9.1")
	want("RESTBatch/again", "ms/answer", "<=", 3, "  when they were rendered before")
	want("StreamHistory/first", "events/s", ">=", 1000000, "history of 100,000 events to one stream", "YuniKorn 273,000")
	want("StreamHistory/again", "events/s", ">=", 1000000, "  when they were rendered before")
	want("StreamLive", "deliveries/s", ">=", 1000000, "new events to 100 streams, in all", "YuniKorn drops one reader at 200,000")
	want("LeaderBesideEventStreams", "x", "<=", 1.1, "leader's processor time with 1,000 streams of events on gateways, over none")
	# Coordinators on etcd.
	want("OpenB", "s-of-scheduling", "<=", 1, "the openb trace, 8,152 pods on 1,523 nodes, in s")
	want("Takeover/store=pebble/tasks=1000000/copy=false", "ns/op", "<=", 5000000000, "a state of 1,000,000 tasks loaded from Pebble")
	want("Takeover/store=etcd/tasks=1000000/copy=false", "ns/op", "<=", 15000000000, "  from etcd")
	for (k = 1; k <= 2; k++) {
		does = k == 1 ? "waiting" : "running"
		want("Failover/tasks=" does, "p50-s", "<=", 3, "leader killed 30 times, 100,000 " does " tasks: until reads and writes work, median, in s")
		want("Failover/tasks=" does, "longest-s", "<=", 5, "  the longest")
	}
	want("FleetFailover", "registered-s", "<=", 10, "leader killed, 10,000 nodes: until all are registered again, in s")
	want("FleetFailover", "turns/s", "<=", 0, "  turns of the leader for their heartbeats before, a second")
	want("WatchersFailover", "live-s", "<=", 10, "leader killed, 10,000 watches at 50 gateways: until all are told of a new job, in s")
	want("WatchersFailover", "%watches-resumed", ">=", 99, "  of them went on without a snapshot, in %")
	want("WatchersFailover", "memory-x", "<=", 1.5, "  memory of the next leader over that of the one before")
	for (k = 1; k <= 3; k += 2) {
		want("SubmitToBoundOnEtcd/members=" k "/jobs-of-100", "tasks/s", k == 1 ? ">=" : "", 5000, "tasks bound in a second, " k " member(s) of etcd, jobs of 100")
		want("SubmitToBoundOnEtcd/members=" k "/jobs-of-1", "tasks/s", "", 0, "  jobs of one")
	}
	# Streams of a gateway, and strict reads of several.
	for (k = 0; k <= 2; k++) {
		barrier = "BarrierIdle/tcp/relays=" k
		if (k > 0) want(barrier, "p50-ms", "", 0, "what a strict read waits, idle, behind " k " relay(s), median")
		want(barrier, "p99-ms", "", 0, "  p99")
	}
	readers = split("1 100 10000", crowds, " ")
	for (k = 1; k <= readers; k++) {
		want("Syncs/readers=" crowds[k], "syncs/s", "", 0, "syncs that the leader answers for " crowds[k] " reader(s) of a gateway")
		want("Syncs/readers=" crowds[k], "reads/s", "", 0, "  strict reads")
	}
	split("leader relay", parents, " ")
	for (k = 1; k <= 2; k++) {
		held = "HeldGateways/behind=" parents[k]
		want(held, "times", ">=", 2.7, "strict reads of 3 gateways over those of 1, 0.25 core each, behind the " parents[k])
		want(held, "reads/s-of-3", "", 0, "  reads of 3")
		want(held, "leader-%core-of-1", "", 0, "  processor of the leader with 1, in % of a core")
		want(held, "leader-%core-more", "<=", 10, "  more of it with 3, in % of a core")
	}
	want("Watchers/stuck=0", "p99-ms", "<=", 200, "commit to receipt, 1,000 watchers at 1,000 changes/s, p99", "before 446, in one process")
	want("Watchers/stuck=0", "p50-ms", "", 0, "  median", "before 64")
	want("Watchers/stuck=0", "%core", "", 0, "  processor of the gateway, in % of a core")
	want("Watchers/stuck=100", "p99-ms", "<=", 200, "  p99 beside 100 more that read nothing")
	want("IdleStreams/watchers", "KiB/watcher", "<=", 64, "memory of a gateway for an idle watcher")
	want("IdleStreams/agents", "KiB/agent", "<=", 64, "memory of a gateway for an idle agent")
	want("IdleStreams/agents", "rss-KiB", "<=", 64, "  resident")
	want("Fleet", "rss-MB", "", 0, "resident memory of a gateway with 2,000 agents and 100,000 tasks", "before 771")
	want("Commit/idle=0/wide=0", "cpu-us/op", "", 0, "a batch of 100 tasks at a gateway, without streams")
	want("Commit/idle=2000/wide=0", "x", "<=", 1.1, "  beside 2,000 idle streams of other nodes, times as much")
	want("Commit/idle=0/wide=1000", "x", "", 0, "  beside 1,000 watchers of all tasks, times as much")
	want("BroadPart/part=root/readers=8000", "x", "<=", 2, "a batch of 500 jobs to 8,000 watches of one queue, over 8,000 watches of all jobs")
	want("Placements", "looks/placement", "<=", 2, "changes that the streams of 2,000 nodes look at for a placement")

	# The node's QoS agent.
	want("Plan/tasks=1000/rules=10/firing", "ns/op", "<=", 1000000, "QoS plan, 1,000 tasks, 10 rules that all fire")
	want("Loop/tasks=200", "cpu-ms/op", "<=", 10, "processor time of a second of a QoS agent with 200 idle tasks", "crane-agent, 119-217 pods: 900-2,000")
	want("Loop/tasks=200", "rss-MB", "<=", 40, "  memory of the process")
	want("Crossing", "late-ms", "<=", 10, "from a line crossed to the quota written, beyond one loop, slowest")
}
/^Benchmark/ {
	name = $1
	sub(/^Benchmark/, "", name)
	sub(/-[0-9]+$/, "", name)
	for (i = 3; i < NF; i += 2) measured[name, $(i + 1)] = $i
}
END {
	for (k = 1; k <= 4; k++)
		for (s = 1; s <= 3; s++)
			below(latencies[k, s], "Gateway/load=" loads[k] "/gateway-strict", shares[s], "Gateway/load=" loads[k] "/leader-encodes", "leader")
	for (f = 1; f <= 2; f++)
		ratio("Place/flat/full=" fulls[f], "Place/nodes=100000/full=" fulls[f] "/traits=false", "Place/nodes=1000/full=" fulls[f] "/traits=false", "placements/s")
	ratio("Trees/leaves=1x992/limits/plain", "Trees/leaves=1x992/limits", "Trees/leaves=1x992", "placements/s")
	ratio("Backlog/waiting=1000000/100000", "Backlog/waiting=1000000", "Backlog/waiting=100000", "ns/op")
	beside100 = "Crowd/constraints=1/ends=100"; alone100 = "Crowd/constraints=0/ends=100"
	if ((beside100 SUBSEP "ns/op") in measured && (alone100 SUBSEP "ns/op") in measured) measured["CrowdMore", "percent"] = sprintf("%.1f", (measured[beside100, "ns/op"] - measured[alone100, "ns/op"]) / 1e6)
	ratio("Commit/idle=2000/wide=0", "Commit/idle=2000/wide=0", "Commit/idle=0/wide=0", "cpu-us/op")
	ratio("Commit/idle=0/wide=1000", "Commit/idle=0/wide=1000", "Commit/idle=0/wide=0", "cpu-us/op")
	ratio("BroadPart/part=root/readers=8000", "BroadPart/part=root/readers=8000", "BroadPart/part=every/readers=8000", "cpu-us/op")
	split("default gpuspec33", lists, " ")
	for (l = 1; l <= 2; l++) {
		best(lists[l], "%first-failure", "GPUs allocated at the first failure, openb, " lists[l])
		best(lists[l], "%end", "GPUs allocated at the end, openb, " lists[l])
	}
	readers = "os.ReadFile containerd opencontainers"
	split("100 1000", sizes, " ")
	for (g = 1; g <= 2; g++) {
		sweep = "QoSSweep/groups=" sizes[g]
		beside(sweep, "cpu-ms/op", readers, g == 2 ? "<=" : "", 4, "processor time of a sweep of " sizes[g] " control groups")
		beside(sweep, "allocs/op", readers, "<=", 0, "  allocations")
		over(sweep, "cpu-ms/op", readers)
	}
	beside("QoSQuota", "cpu-us/op", "containerd", "", 0, "processor time of changing a quota")
	over("QoSQuota", "cpu-us/op", "containerd")
	split("1 1000 100000", keys, " ")
	split("pop drain", ways, " ")
	for (k = 1; k <= 3; k++)
		for (w = 1; w <= 2; w++) {
			queue = "FIFOAddPop/keys=" keys[k] "/"
			ratio(queue ways[w] "/client-go", queue "client-go", queue ways[w], "cpu-ns/op")
			want(queue ways[w] "/client-go", "x", ">=", 2, "processor time of client-go over ours, add and " ways[w] ", " keys[k] " keys")
			want(queue ways[w], "allocs/op", "<=", 0, "  allocations")
		}
	split("1000 100000", keys, " ")
	split("1 4", producers, " ")
	for (k = 1; k <= 2; k++)
		for (f = 1; f <= 2; f++)
			for (w = 1; w <= 2; w++) {
				queue = "FIFODelivered/keys=" keys[k] "/producers=" producers[f] "/"
				ratio(queue ways[w] "/client-go", queue "client-go", queue ways[w], "cpu-ns/op")
				want(queue ways[w] "/client-go", "x", ">=", 2, "the same beside " producers[f] " producer(s), " ways[w] ", " keys[k] " keys")
			}
	ratio("FIFOReplace/client-go", "FIFOReplace/client-go", "FIFOReplace/plimsoll", "cpu-ns/op")
	want("FIFOReplace/client-go", "x", ">=", 2, "processor time of client-go over ours, two lists of 100,000 objects")
	split("first again", lists, " ")
	for (k = 1; k <= 2; k++) {
		whole = "InformerList/" lists[k] "/"
		ratio(whole "client-go", whole "client-go", whole "plimsoll", "cpu-ms/op")
		want(whole "client-go", "x", ">=", 2, "  from such a list to index and handler, " lists[k])
	}
	calls = split("Add Get ByIndex Replace", call, " ")
	for (k = 1; k <= calls; k++) {
		ratio("Store" call[k] "/client-go", "Store" call[k] "/client-go", "Store" call[k] "/plimsoll", "cpu-ns/op")
		want("Store" call[k] "/client-go", "x", ">=", 1, "  store of 100,000 objects with two indexes: " call[k])
	}
	quiet = "StoreUpdate/readers=0/reads=none/moves=false/"
	ratio(quiet "over", quiet "plimsoll", quiet "client-go", "cpu-ns/op")
	want(quiet "over", "x", "<=", 2, "  an update without readers, ours over client-go's")
	split("4 80", producers, " ")
	split("node all", ways, " ")
	for (f = 1; f <= 2; f++)
		for (w = 1; w <= 2; w++) {
			busy = "StoreUpdate/readers=" producers[f] "/reads=" ways[w] "/moves=false/"
			ratio(busy "over", busy "plimsoll", quiet "plimsoll", "cpu-ns/op")
			ratio(busy "peer", busy "client-go", quiet "client-go", "ns/op")
			want(busy "over", "x", "<=", 3, "  an update beside " producers[f] " readers (" ways[w] ") over one without", "client-go " measured[busy "peer", "x"] " by the clock (this run)")
		}
	want("StoreMemory/plimsoll", "B/object", "<=", 150, "  memory of an object beside the object", "client-go " measured["StoreMemory/client-go", "B/object"] " (this run)")
	for (k = 1; k <= 10; k += 9) {
		handlers = "Informer/handlers=" k "/"
		ratio(handlers "x", handlers "plimsoll", handlers "client-go", "events/s")
		want(handlers "x", "x", ">=", 2, "updates/s of an informer over client-go's, 100,000 objects, " k " handler(s)")
		want(handlers "plimsoll", "B/event", "<=", 100, "  allocated for an update", "client-go " measured[handlers "client-go", "B/event"] " (this run)")
		ratio(handlers "peak", handlers "plimsoll", handlers "client-go", "peak-MiB")
		want(handlers "peak", "x", "<=", 1, "  peak of the heap over client-go's")
	}
	ratio("InformerSlowHandler/peak", "InformerSlowHandler/plimsoll", "InformerSlowHandler/client-go", "peak-MiB")
	want("InformerSlowHandler/peak", "x", "<=", 1, "peak with a handler that takes 10 us a call, over client-go's")
	printf "%-72s %24s %12s  %-12s  %s\n", "figure", "wanted", "measured", "", "peers (recorded, unless of this run)"
	for (i = 1; i <= n; i++) {
		key = names[i] SUBSEP units[i]
		goal = relations[i] " " wanted[i] " " units[i]
		verdict = "not measured"
		if (relations[i] == "") {
			goal = "- " units[i]
			if (key in measured) verdict = "no target"
		} else if (key in measured) {
			reached = relations[i] == ">=" ? measured[key] + 0 >= wanted[i] : measured[key] + 0 <= wanted[i]
			verdict = reached ? "reached" : "MISSED"
		}
		printf "%-72s %24s %12s  %-12s  %s\n", text[i], goal, measured[key], verdict, others[i]
	}
}
