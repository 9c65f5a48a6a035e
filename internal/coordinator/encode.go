package coordinator

import (
	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// encoder encodes the batches of the engine. Each record is encoded here, once.
type encoder struct {
	epoch     uint64
	nextEvent uint64
	ids       wire.EventIDs // what the ids of the events count
	newIDs    bool          // the store does not have ids yet
	counts    counter
	events    ring.Encoder
	ends      []int // end of each mutation's value in the buffer; Invariant: one for each put
}

// averageRecord is the usual size of a record in bytes, for the first size of the buffer.
const averageRecord = 96

// encode makes the wire batch of a turn that changed something. It shares no memory with the turn.
func (e *encoder) encode(b *engine.Batch) *wire.Batch {
	c := &b.Changes
	n := len(c.JobSpecs) + len(c.JobStatuses) + len(c.Tasks) + len(c.Nodes) + len(c.NodeStatuses) +
		len(c.QueueStatuses) +
		len(c.DeletedTasks) + 2*len(c.DeletedJobs) + 2*len(c.DeletedNodes) + len(c.DeletedQueues) +
		len(c.Historians) + len(c.DeletedHistorians) +
		len(c.Policies) + len(c.DeletedPolicies) + len(c.Outcomes) + len(c.DeletedOutcomes) +
		len(c.QueuePasts) + len(c.DeletedQueuePasts) + 5
	out := &wire.Batch{Epoch: e.epoch, Revision: b.Revision, Time: b.Time, Mutations: make([]wire.Mutation, 0, n)}
	e.ends = e.ends[:0]
	buf := e.puts(out, make([]byte, 0, n*averageRecord), b)
	start := 0
	for i, end := range e.ends {
		out.Mutations[i].Value = buf[start:end:end]
		start = end
	}
	deletes(out, c)
	if len(c.Events) > 0 {
		for i := range c.Events {
			e.events.Append(&c.Events[i])
		}
		count := uint64(e.events.Len())
		out.Events = wire.EventChunk{FirstID: e.nextEvent, Count: count, Data: e.events.Finish(nil)}
		e.nextEvent += count
	}
	return out
}

func (e *encoder) puts(out *wire.Batch, buf []byte, b *engine.Batch) []byte {
	c := &b.Changes
	put := func(m wire.Mutation, grown []byte) {
		buf = grown
		out.Mutations = append(out.Mutations, m)
		e.ends = append(e.ends, len(buf))
	}
	for _, spec := range c.JobSpecs {
		put(wire.Mutation{Kind: wire.KindJobSpec, Key: spec.ID}, wire.AppendJobSpec(buf, spec))
	}
	for i := range c.JobStatuses {
		st := &c.JobStatuses[i]
		put(
			wire.Mutation{Kind: wire.KindJobStatus, Key: st.ID, Ephemeral: st.Ephemeral},
			wire.AppendJobStatus(buf, &st.JobStatus),
		)
	}
	for i := range c.Tasks {
		t := &c.Tasks[i]
		put(taskMutation(t), wire.AppendTask(buf, t))
	}
	for i := range c.Nodes {
		put(wire.Mutation{Kind: wire.KindNode, Key: c.Nodes[i].ID}, wire.AppendNode(buf, &c.Nodes[i]))
	}
	for i := range c.NodeStatuses {
		st := &c.NodeStatuses[i]
		put(wire.Mutation{Kind: wire.KindNodeStatus, Key: st.ID, Ephemeral: true}, wire.AppendNodeStatus(buf, st))
	}
	if c.QueueConfig != nil {
		put(wire.Mutation{Kind: wire.KindQueueConfig}, wire.AppendQueueConfig(buf, c.QueueConfig))
	}
	for i := range c.Policies {
		p := &c.Policies[i]
		put(wire.Mutation{Kind: wire.KindPolicy, Key: wire.PolicyKey(p.Ref())}, wire.AppendPolicy(buf, p))
	}
	if c.EventSettings != nil {
		put(wire.Mutation{Kind: wire.KindEventSettings}, wire.AppendEventSettings(buf, c.EventSettings))
	}
	for i := range c.Historians {
		h := &c.Historians[i]
		put(wire.Mutation{Kind: wire.KindHistorian, Key: h.Name}, wire.AppendHistorian(buf, h))
	}
	if c.Archive != nil {
		put(wire.Mutation{Kind: wire.KindArchive}, wire.AppendArchiveStatus(buf, c.Archive))
	}
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		put(wire.Mutation{Kind: wire.KindOutcome, Key: o.Token}, appendOutcome(buf, o))
	}
	for i := range c.QueueStatuses {
		st := &c.QueueStatuses[i]
		put(wire.Mutation{Kind: wire.KindQueueStatus, Key: st.Path, Ephemeral: true}, wire.AppendQueueStatus(buf, st))
	}
	for i := range c.QueuePasts {
		p := &c.QueuePasts[i]
		put(wire.Mutation{Kind: wire.KindQueuePast, Key: p.Path}, appendQueuePast(buf, p))
	}
	if c.EventsAnew {
		e.ids, e.newIDs = wire.EventIDs{Instance: uuid.NewString(), First: e.nextEvent}, true
	}
	if e.newIDs {
		put(wire.Mutation{Kind: wire.KindEventIDs}, wire.AppendEventIDs(buf, e.ids))
		e.newIDs = false
	}
	if e.counts.turn(&b.Totals, b.Time) {
		put(wire.Mutation{Kind: wire.KindCounts}, wire.AppendCounts(buf, e.counts.samples))
	}
	return buf
}

func taskMutation(t *plimsoll.Task) wire.Mutation {
	m := wire.Mutation{Kind: wire.KindTask, Key: wire.TaskKey(t.Job, t.Group, t.Index)}
	if t.State.OnNode() {
		m.Node = t.Node
	}
	return m
}

func deletes(out *wire.Batch, c *state.Changes) {
	drop := func(kind wire.Kind, key string, ephemeral bool) {
		out.Mutations = append(out.Mutations, wire.Mutation{Kind: kind, Key: key, Ephemeral: ephemeral})
	}
	for _, name := range c.DeletedTasks {
		drop(wire.KindTask, wire.TaskKey(name.Job, name.Group, name.Index), false)
	}
	for _, id := range c.DeletedJobs {
		drop(wire.KindJobSpec, id, false)
		drop(wire.KindJobStatus, id, false)
	}
	for _, id := range c.DeletedNodes {
		drop(wire.KindNode, id, false)
		drop(wire.KindNodeStatus, id, true)
	}
	for _, ref := range c.DeletedPolicies {
		drop(wire.KindPolicy, wire.PolicyKey(ref), false)
	}
	for _, name := range c.DeletedHistorians {
		drop(wire.KindHistorian, name, false)
	}
	for _, token := range c.DeletedOutcomes {
		drop(wire.KindOutcome, token, false)
	}
	for _, path := range c.DeletedQueuePasts {
		drop(wire.KindQueuePast, path, false)
	}
	for _, path := range c.DeletedQueues {
		drop(wire.KindQueueStatus, path, true)
	}
}
