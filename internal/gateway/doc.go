// Package gateway serves users and agents from a replica of the leader's state that is never stale.
//
// Gateway serves the Connect services for users and agents, YuniKorn's events batch (package rest),
// /healthz and /metrics on one address. A second address, if there is one, serves AgentService
// alone. The commands `dev` and `plimsoll gateway` run it:
//
//	g, err := gateway.New(gateway.Config{ID: "g1", Access: access}, follower)
//	...
//	err = g.Run(ctx) // serves until ctx ends
//
// While Run runs, a Gateway owns its listeners and a goroutine that reports silent nodes. It also
// owns the connections to agents whose logs or QoS readings it relays. Its own state may be lost at
// any time: a table of the nodes that it hears, caches and counters. It decides nothing about jobs,
// writes nothing to disk, and leaves it to its caller to run the follower.
//
// Guarantees:
//   - A strict read, the default, waits for a barrier that began after the read arrived. It is
//     answered from the snapshot of that barrier, which holds every change acknowledged before, at
//     whatever gateway. Without a leader it ends with CodeUnavailable within Config.BarrierTimeout.
//     It is never answered from an older snapshot, and no read is passed on to the leader. (explain
//     is a question to the leader, not a read.)
//   - An eventual read is answered at once from the newest snapshot, also without a leader. A read
//     of at least a version waits for it, at most Config.BarrierTimeout. Both answers carry their
//     age: they hold everything that was committed so long ago.
//   - An answer is put together from the bytes of the records as they are kept. In JSON a record is
//     rendered once a version, in a cache of Config.MaxJSONBytes, where the oldest records that
//     were not read lately give way.
//   - Readers who ask the same question at the same state share one answer, if it depends on
//     nothing else. It is kept in a cache of Config.MaxSharedBytes. Each reader has obtained that
//     state by its own consistency first, and is told its own age.
//   - A read over Connect's unary protocol without compression is served without connect's handler,
//     and answered exactly as that would answer it. Over HTTP/1 the bytes of the records go to the
//     kernel without a copy. Requests that repeat word for word are decoded once: each read keeps
//     at most 128 KiB of them, and drops all when there is no room.
//   - A job that has left the active store is answered from the archive, in the same calls. When
//     the archive cannot be read, or lacks what the copy says it has, the answer is
//     CodeUnavailable and never CodeNotFound. Reads of the archive are bounded in number and time,
//     and hold up no other.
//   - A list has each object that is there all the time once, also one that moves into the archive
//     between two pages, if its place in the order stays. With a pin it is one instant. Pages are
//     bounded in objects and bytes, and pins in number, time and bytes.
//   - A read with a field that this version does not know is refused.
//   - A write is checked, sent to the leader once, and answered from a snapshot that shows its
//     effect.
//   - WatchJob begins with a strict read and then sends the newest status after each change; it may
//     skip states in between. WatchAssignments sends every task of the node, a marker, and then
//     each change; the last state of each task always arrives. Both stay open without a leader, and
//     go on with the next one.
//   - A watch of WatchService begins with a strict read. It then sends each change that concerns
//     its criteria once, in the order of revisions, and resumes at the point of any message. All
//     watches share the follower's history, which is bounded; a watch that falls out of it is told
//     so with CodeStale. A watch holds a position and no queue.
//   - Heartbeats end at the gateway. A node that was not heard for Config.NodeTimeout is reported
//     to the leader once for each registration. A node does not count as silent for the time in
//     which the gateway itself stood still.
//   - A call for a node that has a key is answered only if it carries the session of the node's
//     agent. A call to an agent goes only to an address from which the agent calls, or to an
//     allowed network. It begins with the agent's proof that it has the node's key.
//   - Every table is bounded. When a table is full, the newcomer is refused with CodeExhausted and
//     no other entry is lost. Connections to agents are the exception: the one that was not used
//     for the longest time is closed.
//   - The bytes of requests under way are bounded: their bodies, inflated and decoded, and the
//     records of their answers. Users' requests take nothing from the agents' bound. A request
//     beyond its bound is answered with CodeExhausted, 429 and Retry-After.
//   - Every request is answered or refused, and a panic costs one request. A caller that does not
//     send its request, or does not read its answer, loses its slot. Only a stream may last, for as
//     long as its caller reads it.
//   - Users take nothing from agents. Requests (Config.MaxRequests), streams (MaxStreams) and
//     connections (MaxConnections) of users are counted apart from those of agents
//     (MaxAgentRequests, MaxAgentStreams, MaxAgentConnections). The credential or the listener
//     tells the two apart, never the path. A request whose body has not arrived gives its slot to a
//     new one.
//   - Streams of logs are bounded too (MaxLogs), and each agent bounds those of its node. So are
//     streams of events under /ws/v1: all of them (MaxEventStreams), and those of one address of
//     another machine (MaxPeerEventStreams).
//   - An answer about the state under /ws/v1 has at most MaxAnswerBytes. A larger one is refused
//     with 413.
//
// Cost: a single read is O(log records) beyond its barrier. A list is linear in the records that it
// looks at, and one answer holds at most Config.PageSize of them. It decodes no record: without a
// filter it costs the kernel's copy of the records' bytes, and a second one over HTTP/2 or if they
// are small. A change is decoded once for all watches of users, and then costs each of them a
// comparison and a copy. A change of a node's tasks costs its agent's stream the work on the
// changed tasks; only when the history has a gap does the stream compare all of them. A stream of
// a node, a job, an owner or a queue is woken by its own changes alone. A stream that waits keeps
// no snapshot: a watcher takes 36 KiB with its connection, and an agent 51 KiB, most of it buffers
// of net/http and stacks. An idle gateway walks over the heard nodes once in a heartbeat interval.
//
// The design is "Titus gateways": any gateway answers any call consistently, and all reads are
// refused while there is no leader. Heartbeats that end at the edge are an addition.
package gateway
