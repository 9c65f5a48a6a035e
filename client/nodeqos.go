package client

import (
	"context"
	"iter"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// NodeQOS is the state of a node's QoS agent: its last sample and the plan for it. Processor time
// is in nanocores, memory in bytes, instants in Unix nanoseconds.
type NodeQOS struct {
	Node               string
	At                 int64 // of the sample; 0: there is none yet
	Sequence           uint64
	Lines              []QOSLine
	SchedulingDisabled bool
	SchedulingReason   string
	Extended           plimsoll.Resources // ext-cpu and ext-memory that the node offers
	Tasks              []QOSTask          // in the order in which actions would choose them
	Plan               []QOSStep          // the steps that the last sample led to
	Skipped            []QOSSkip
	// Values are measurements by metric, in the metric's finest unit. A metric without a value is
	// not in the map.
	Values     map[string]int64
	CPU        int64         // use of the machine
	Memory     int64         // use of the machine
	Waterlines QOSWaterlines // the lines that the last sample was planned by
	Waits      string        // why the last sample led to no plan; empty: it did
	Unable     string        // abilities that the node lacks; empty: none
}

// QOSLine is a rule on a node. Waterline, Release, Usage and Gap are in 1/Scale of Unit.
type QOSLine struct {
	Rule      string // in the form nodeqos/rule
	Metric    string
	Unit      string // percent, cores, bytes, or empty for a plain number
	Scale     int64
	Waterline int64
	Release   int64
	Usage     int64
	Gap       int64 // distance that the use must fall to reach the line; 0: none
	Triggered bool
	Since     int64 // when the rule was triggered; 0: it is not
	Action    string
	Preview   bool
	Missing   bool   // the metric has no usable sample
	Waits     string // reason for which the rule waits, for people; empty: it does not
}

// QOSWaterlines are the three sets of lines by which a sample was planned.
type QOSWaterlines struct {
	Throttle []QOSWaterline // of triggered rules whose action throttles
	Restore  []QOSWaterline // of rules below whose line resources are given back
	Evict    []QOSWaterline // of triggered rules whose action evicts
}

// QOSWaterline is a line of a set. Value and Gap are in 1/Scale of Unit.
type QOSWaterline struct {
	Metric   string
	Rule     string // in the form nodeqos/rule
	Unit     string
	Scale    int64
	Value    int64
	Smallest bool  // the lowest line of its metric in the set: this line decides
	Gap      int64 // distance between the metric and the line; 0 also while the metric is missing
}

// QOSTask is a task as the QoS agent of its node sees it.
type QOSTask struct {
	Task           string
	Attempt        int32
	Class          plimsoll.Class
	Priority       int32
	CPU            int64
	CPUKnown       bool
	Memory         int64
	MemoryKnown    bool
	ExtRatio       int64 // use of extended processor time, in thousandths of ExtCPU; 0: ExtCPU is 0
	Started        int64 // 0: it has not started
	Quota          int64 // 0: none
	OriginalQuota  int64 // before it was throttled; 0: none
	Shares         int64 // weight, in the units of cpu.shares
	OriginalShares int64 // before it was lowered; 0: it was not lowered
	Idle           bool  // it runs only while nothing else wants to run
	Frozen         bool
	Rung           string   // of the ladder of actions: weight, throttle, freeze or evict; empty: none
	Allowed        []string // names of Actions that may act on the task
	Exempt         string   // why no action may act on the task; empty: actions may
	Pending        bool     // the last action on the task is not over
	Stopping       bool

	Owner          string
	Queue          string
	Labels         map[string]string
	ExtCPU         int64 // extended resource that the task holds
	ExtMemory      int64 // extended resource that the task holds
	Limit          int64 // processor time that its specification allows; 0: no limit
	Request        int64 // processor time below which the task is never throttled
	CPUPressure    int64 // time in which a process of the task waits for a processor, in thousandths of a percent
	MemoryPressure int64
	PressureKnown  bool
	OwnQuota       bool             // its own quota held it up: its pressure says nothing about the node
	Values         map[string]int64 // of user-defined metrics
}

// QOSStep is one action of a QoS agent on a task, taken or planned. Amount, Before, After and
// Reason are for people.
type QOSStep struct {
	Task    string
	Verb    string // reweight, throttle, freeze, reclaim, evict; thaw, restore, unweight
	Metric  string
	Rule    string // in the form nodeqos/rule
	Amount  string
	Before  string
	After   string
	Reason  string
	Preview bool // the step is reported and not taken
}

// QOSSkip is a task that an action passed over although its turn had come.
type QOSSkip struct {
	Task   string
	Rule   string // empty: the verb is one of giving back
	Verb   string // the action that was not taken
	Reason string
}

// WatchNodeQOS sends the state of a node's QoS agent now, and again when interval has passed and
// there is a new sample. An interval of 0 sends each sample. The watch ends when the caller leaves
// the loop. It survives an absence of the gateway or the agent that is shorter than the retry
// budget.
func (c *Client) WatchNodeQOS(ctx context.Context, node string, interval time.Duration) iter.Seq2[NodeQOS, error] {
	return func(yield func(NodeQOS, error) bool) {
		for r := c.newRetry(); ; {
			done, err := c.watchNodeQOSOnce(
				ctx, &pb.WatchNodeQOSRequest{Node: node, IntervalNanos: int64(interval)}, r, yield,
			)
			if done {
				return
			}
			if err := r.wait(ctx, err); err != nil {
				yield(NodeQOS{}, err)
				return
			}
		}
	}
}

// watchNodeQOSOnce reads one stream. done reports that the watch is over.
func (c *Client) watchNodeQOSOnce(
	ctx context.Context, req *pb.WatchNodeQOSRequest, r *retry, yield func(NodeQOS, error) bool,
) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.nodes.WatchNodeQOS(ctx, connect.NewRequest(req))
	if err != nil {
		return false, r.readError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	for stream.Receive() {
		r.reset()
		if !yield(nodeQOS(stream.Msg().GetStatus()), nil) {
			return true, nil
		}
	}
	if err := stream.Err(); err != nil {
		return false, r.readError(ctx, err)
	}
	return false, plimsoll.Errorf(plimsoll.CodeUnavailable, "the server ended the watch of node %s", req.GetNode())
}

func nodeQOS(m *pb.NodeQOSStatus) NodeQOS {
	q := NodeQOS{
		Node: m.GetNode(), At: m.GetAt(), Sequence: m.GetSequence(), SchedulingDisabled: m.GetSchedulingDisabled(),
		SchedulingReason: m.GetSchedulingReason(), Extended: wire.ResourcesFromProto(m.GetExtended()),
		Values: m.GetValues(),
		CPU:    m.GetCpuNanocores(), Memory: m.GetMemoryBytes(), Waits: m.GetWaits(), Unable: m.GetUnable(),
	}
	for _, l := range m.GetLines() {
		q.Lines = append(q.Lines, QOSLine{
			Rule: l.GetRule(), Metric: l.GetMetric(), Unit: l.GetUnit(), Scale: max(l.GetScale(), 1),
			Waterline: l.GetWaterline(), Release: l.GetRelease(),
			Usage: l.GetUsage(), Gap: l.GetGap(), Triggered: l.GetTriggered(), Since: l.GetSince(),
			Action: l.GetAction(), Preview: l.GetPreview(),
			Missing: l.GetMissing(), Waits: l.GetWaits(),
		})
	}
	q.Waterlines = QOSWaterlines{
		Throttle: qosWaterlines(m.GetWaterlines().GetThrottle()),
		Restore:  qosWaterlines(m.GetWaterlines().GetRestore()),
		Evict:    qosWaterlines(m.GetWaterlines().GetEvict()),
	}
	for _, t := range m.GetTasks() {
		q.Tasks = append(q.Tasks, qosTask(t))
	}
	for _, s := range m.GetPlan() {
		q.Plan = append(q.Plan, QOSStep{
			Task: s.GetTask(), Verb: s.GetVerb(), Metric: s.GetMetric(), Rule: s.GetRule(), Amount: s.GetAmount(),
			Before: s.GetBefore(), After: s.GetAfter(),
			Reason: s.GetReason(), Preview: s.GetPreview(),
		})
	}
	for _, s := range m.GetSkipped() {
		q.Skipped = append(
			q.Skipped, QOSSkip{Task: s.GetTask(), Rule: s.GetRule(), Verb: s.GetVerb(), Reason: s.GetReason()},
		)
	}
	return q
}

func qosWaterlines(set []*pb.QOSWaterline) (lines []QOSWaterline) {
	for _, w := range set {
		lines = append(lines, QOSWaterline{
			Metric: w.GetMetric(), Rule: w.GetRule(), Unit: w.GetUnit(), Scale: max(w.GetScale(), 1),
			Value: w.GetValue(), Smallest: w.GetSmallest(), Gap: w.GetGap(),
		})
	}
	return lines
}

func qosTask(t *pb.QOSTask) QOSTask {
	return QOSTask{
		Task: t.GetTask(), Attempt: t.GetAttempt(), Class: wire.EnumFromProto[plimsoll.Class](t.GetClass()),
		Priority: t.GetPriority(), CPU: t.GetCpuNanocores(),
		CPUKnown: !t.GetCpuUnknown(), Memory: t.GetMemoryBytes(), MemoryKnown: !t.GetMemoryUnknown(),
		ExtRatio: t.GetExtRatioPermille(),
		Started:  t.GetStarted(), Quota: t.GetQuotaNanocores(), OriginalQuota: t.GetOriginalQuotaNanocores(),
		Shares:         t.GetShares(),
		OriginalShares: t.GetOriginalShares(), Idle: t.GetIdle(), Frozen: t.GetFrozen(), Rung: t.GetRung(),
		Allowed: t.GetAllowed(),
		Exempt:  t.GetExempt(), Pending: t.GetPending(), Stopping: t.GetStopping(), Owner: t.GetOwner(),
		Queue: t.GetQueue(), Labels: t.GetLabels(),
		ExtCPU: t.GetExtCpuNanocores(), ExtMemory: t.GetExtMemoryBytes(), Limit: t.GetLimitNanocores(),
		Request:     t.GetRequestNanocores(),
		CPUPressure: t.GetCpuPressure(), MemoryPressure: t.GetMemoryPressure(), PressureKnown: t.GetPressureKnown(),
		OwnQuota: t.GetOwnQuota(),
		Values:   t.GetValues(),
	}
}
