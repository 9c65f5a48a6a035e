// Package gateway serves users and agents from a replica of the leader's state that is never stale.
//
// It gives Gateway: the Connect services JobService, NodeService, QueueService, EventService and
// AgentService, YuniKorn's events batch (package rest), /healthz and /metrics, all on one address;
// and on another, if there is one, AgentService alone. It owns, while Run runs: the listener, the
// janitor that looks for nodes that fell silent, and the connections to agents whose logs are read.
// It keeps nothing that it could not lose: a table of the nodes that it hears, and counters. It
// does not decide anything about jobs, does not write to disk, and does not run the follower that
// it is given.
//
// Guarantees:
//   - A read waits for a barrier that began after the read arrived, and is answered from that
//     snapshot: it holds every change that was acknowledged before, at whatever gateway. Without a
//     leader it ends with CodeUnavailable within Config.BarrierTimeout. There is no older answer
//     and no way around to the leader. (explain is a question to the leader.)
//   - A write is checked, sent to the leader once, and answered from a snapshot that shows its
//     effect.
//   - WatchJob begins with a strict read and then sends the newest status after each change; states
//     in between may be left out. WatchAssignments sends every task of the node, a marker, and then
//     what changed; the last state of each task always arrives. Both stay open while the leader is
//     away and go on from the next one.
//   - A heartbeat ends here. A node that was not heard for Config.NodeTimeout is told to the leader
//     once for each registration; while the gateway itself stood still, nobody counts as silent.
//   - A call for a node that has a key is answered only if it comes with the session of the node's
//     agent. A call to an agent goes only where the agent calls from or is allowed to be, and
//     begins with a proof that it has the node's key.
//   - Every table is bounded. When one is full the newcomer is refused with CodeExhausted and
//     nobody else notices; only the connections to agents make room by closing the one that was not
//     used for the longest time.
//   - What requests under way take is bounded in bytes: of their bodies, inflated and decoded, and
//     of the records of their answers. What users send takes no room of agents. Beyond it the
//     answer is CodeExhausted, 429, with Retry-After.
//   - Whatever comes in is answered or refused: a panic costs one request. A caller that does not
//     send its request, or does not read its answer, gives its place back; only a stream may last,
//     as long as its caller reads it.
//   - What users do takes nothing from agents. Requests (Config.MaxRequests), streams (MaxStreams)
//     and connections (MaxConnections) of users are counted apart from those of agents
//     (MaxAgentRequests, MaxAgentStreams, MaxAgentConnections), by the caller that a credential or
//     the listener tells, never by the path. A request whose body has not come gives its slot to
//     one that comes.
//   - Logs that are read are bounded too (MaxLogs), and by each agent for its node.
//
// Cost: a single read is O(log records) beyond its barrier; lists are linear in the records looked
// at, of which one answer holds at most Config.PageSize. A change of a node's tasks costs its
// watcher a walk over the node's tasks, and decodes only those that changed. A silent system costs
// a walk over the nodes heard per heartbeat interval.
//
// It comes from the design "Titus gateways" (any gateway answers any call consistently; all reads
// are refused while there is no leader), with heartbeats ended at the edge. `dev` and `plimsoll
// gateway` run it.
package gateway
