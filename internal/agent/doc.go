// Package agent keeps the tasks of one node as the coordinator wants them: it registers the machine, follows the tasks bound to
// it, has the node's supervisor start and stop them, and reports what became of each.
//
// It owns the node's directory: a lock (one agent a directory), node.json (id and incarnation), reports/ (what the coordinator
// has not acknowledged), tasks/<task>/<attempt>/ (logs and records of attempts; the supervisor makes them, the agent removes
// them) and tasks/<task>/work. While Run is under way it owns a few goroutines: one that follows the supervisor, one that holds
// a session with a gateway (heartbeats, assignments, reports), one that acts, one that removes old directories, and the server
// of the log service.
//
// It does NOT run processes: they are children of the supervisor and live on when the agent or the network dies. It decides
// nothing about placement, and it never talks to the coordinator itself.
//
// Guarantees:
//   - An attempt is started only while a gateway confirms that it is assigned here, only once (its directory is the token), and
//     never while an older attempt of the same task runs on this node.
//   - Nothing is stopped because the network is away. An attempt is stopped when a complete list of assignments says so; a
//     gateway must therefore put a barrier before the list it sends.
//   - The end of an attempt is on disk before it is sent, and it is sent until it is acknowledged. Per attempt at most two
//     reports wait: that it began and that it ended.
//   - Every decision is taken from what is wanted and what is held (reconcile), not from what changed, so whatever is missed is
//     made up for at the next list of assignments or of attempts.
//   - When another agent has taken over the node's id, Run ends with a CodeStale error, and tasks are left alone.
//
// Cost: a change costs one look at its task; a reconnect costs the tasks assigned; the directories that are kept are bounded by
// Config.KeepAttempts and Config.KeepBytes.
//
// The division into wanted and held is that of Kubernetes' kubelet; the outbox with an incarnation and a sequence is from
// Titus' agent and Nomad's client. Packages dev and cmd/plimsoll call it.
package agent
