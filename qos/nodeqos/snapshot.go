package nodeqos

import (
	"errors"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/sample"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// measure sweeps the machine and the groups, and makes the planner's snapshot.
func (s *loopState) measure(l *Loop, at int64) (*qos.Snapshot, error) {
	if err := s.sampler.Sweep(s.now, &s.sweep); err != nil {
		return nil, err
	}
	s.matchSamples()
	node := &s.sweep.Node
	if node.Cores > 0 {
		s.cores = node.Cores * qos.Core
	}
	if node.MemoryTotal > 0 {
		s.memory = node.MemoryTotal
	}
	snap := &qos.Snapshot{
		Sequence: s.sweep.Sequence, At: at, Cores: s.cores, Memory: s.memory, Values: nodeValues(node),
		Times: map[string]int64{}, Tasks: make([]qos.Task, len(s.tasks)),
	}
	groups := make([]qos.Group, len(s.tasks))
	for i := range s.tasks {
		t := &s.tasks[i]
		g := s.groups[t.Key()]
		s.describe(t, g, &snap.Tasks[i])
		if g.control != nil {
			groups[i] = g.describe(t)
			snap.Tasks[i].Groups = groups[i : i+1 : i+1]
		}
	}
	s.readLoad(snap)
	l.gauges.fill(snap, s.now, l.cfg.Metrics)
	s.lend(l, snap)
	s.occupied.observe(snap, s.now, l.cfg.Allocatable)
	return snap, nil
}

// matchSamples finds the sample of each group, and marks groups that are gone.
func (s *loopState) matchSamples() {
	byKey := make(map[string]*sample.Group, len(s.sweep.Groups))
	for i := range s.sweep.Groups {
		byKey[s.sweep.Groups[i].Key] = &s.sweep.Groups[i]
	}
	for _, g := range s.groups {
		if g.sampled = byKey[g.key]; g.sampled != nil && g.sampled.Gone {
			g.gone = true
			s.closing = errors.Join(s.closing, g.close(s.sampler))
		}
	}
}

// describe fills in all fields of a task but its groups.
func (s *loopState) describe(t *Task, g *group, out *qos.Task) {
	*out = qos.Task{
		ID: t.ID, Attempt: t.Attempt, Class: t.Class, Priority: t.Priority, Owner: t.Owner, Queue: t.Queue,
		Labels: t.Labels, Started: t.Started,
		ExtCPU: nanocores(t.Resources[plimsoll.ExtCPU]), ExtMemory: t.Resources[plimsoll.ExtMemory],
		Stopping: t.Stopping,
		Gone:     g.gone || g.missing && t.Started != 0,
	}
	m := g.sampled
	if m == nil {
		return
	}
	out.CPU, out.CPUKnown, out.Memory, out.MemoryKnown = m.CPU, m.CPUKnown, m.Memory, m.MemoryKnown
	out.OwnQuota = m.ThrottledKnown && m.Throttled > 0
	if g.pressure && m.CPUPressureKnown && m.MemoryPressureKnown {
		out.CPUPressure, out.MemoryPressure = m.CPUPressure*perHundredth, m.MemoryPressure*perHundredth
		out.PressureKnown = true
	}
}

// perHundredth converts hundredths of a percent to thousandths.
const perHundredth = plimsoll.LineScale / 100

// nodeValues returns the built-in metrics of the machine, as far as they were measured.
func nodeValues(n *sample.Node) map[string]int64 {
	values := make(map[string]int64, 8)
	if n.CPUKnown {
		values[qos.CPUTotalUsage] = n.CPU
		if n.Cores > 0 {
			values[qos.CPUTotalUtilization] = percent(n.CPU, n.Cores*qos.Core)
		}
	}
	if n.MemoryKnown && n.MemoryTotal > 0 {
		used := n.MemoryTotal - n.MemoryAvailable
		values[qos.MemoryTotalUsage], values[qos.MemoryTotalUtilization] = used, percent(used, n.MemoryTotal)
	}
	if n.LoadKnown {
		values[qos.Load] = n.Load1
	}
	return values
}

// loadEvery is the interval at which the kernel computes the load.
const loadEvery = 5 * time.Second

// readLoad sets the time at which the load was computed. The load is new when it has changed, and
// at the latest after loadEvery.
func (s *loopState) readLoad(snap *qos.Snapshot) {
	load, known := snap.Values[qos.Load]
	if !known {
		return
	}
	if load != s.load || snap.At-s.loadAt >= int64(loadEvery) || snap.At < s.loadAt {
		s.load, s.loadAt = load, snap.At
	}
	snap.Times[qos.Load] = s.loadAt
}

// percent returns thousandths of a percent.
func percent(part, all int64) int64 {
	return min(scale(part, 100*plimsoll.LineScale, all), math.MaxInt32)
}
