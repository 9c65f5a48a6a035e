// Package agent keeps the tasks of one node as the coordinator wants them: it registers the
// machine, follows the tasks bound to it, has the node's supervisor start and stop them, and
// reports what became of each. It runs the node's QoS loop (qos/nodeqos) and is its hands and
// its mouth: it tells the loop which attempts live and which policies hold, evicts for it, and
// reports what it says.
//
// It owns the node's directory: a lock (one agent a directory), node.json (id and incarnation),
// node.key (the key of the node), reports/ (what the coordinator has not acknowledged), policies.pb
// (the policies that concern the node), qos/ (the loop's own), tasks/<task>/<attempt>/ (logs and
// records of attempts; the supervisor makes them, the agent notes in worth.json what policies go
// by, and removes them) and tasks/<task>/work. While Run is under way it owns a few goroutines: one
// that follows the supervisor, one that holds a session with a gateway (heartbeats, assignments,
// policies, reports), one that acts, the QoS loop's, one that removes old directories, and the
// server of logs, of what the loop sees, and of /metrics.
//
// It does NOT run processes: they are children of the supervisor and live on when the agent or the
// network dies. It decides nothing about placement, nor whom to act on when the node is over a
// line, and it never talks to the coordinator itself.
//
// Guarantees:
//   - An attempt is started only while a gateway confirms that it is assigned here, only once (its
//     directory is the token), and never while an older attempt of the same task runs on this node.
//   - Nothing is stopped because the network is away. An attempt is stopped when a complete list of
//     assignments says so; a gateway must therefore put a barrier before the list it sends.
//   - The end of an attempt is on disk before it is sent, and it is sent until it is acknowledged.
//     Per attempt at most two reports wait: that it began and that it ended.
//   - An eviction needs no gateway. Its end is reported like any other, with the reason; the
//     attempt stays assigned until the coordinator has heard, and is not started again meanwhile.
//   - The policies, and what each attempt is worth, are known after a restart without a network. An
//     attempt of which nothing is known (an earlier version has started it, or the agent died in
//     the instant between its start and the note) is spared: it counts as the worthiest there can
//     be, no policy can act on it, and its control group is left alone until an assignment tells.
//   - What the QoS loop says waits in memory: the newest condition, and a bounded number of events.
//     Each report is repeated as it was until it is taken, so that none is taken twice; a new agent
//     tells its condition anew, and events of the one before it that nobody took are lost.
//   - Every decision is taken from what is wanted and what is held (reconcile), not from what
//     changed, so whatever is missed is made up for at the next list of assignments or of attempts.
//   - When a later start with the node's key has taken over, Run ends with a CodeStale error, and
//     tasks are left alone. An agent with another key ends nothing: this one tries to register
//     until it can.
//
// Cost: a change costs one look at its task; a reconnect costs the tasks assigned; a start costs
// one small file that is not synced; the QoS loop costs 0.2 % of a core for 200 idle tasks at a
// sample a second (measured on 2 shared vCPUs, cgroup v1). The directories that are kept are
// bounded by Config.KeepAttempts and Config.KeepBytes. At most 64 logs are read at a time, fewer
// with few descriptors; a follower costs two descriptors, and a look each half second while nothing
// is written.
//
// The division into wanted and held is that of Kubernetes' kubelet; the outbox with an incarnation
// and a sequence is from Titus' agent and Nomad's client. Packages dev and cmd/plimsoll call it.
package agent
