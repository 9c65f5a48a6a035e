package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// etcdLimits holds the default limits of etcd: --max-txn-ops and --max-request-bytes.
var etcdLimits = store.Limits{Ops: 128, Bytes: 3 << 19}

// largest draws commands with fields of the largest length and number, or a random part of it. So
// some commands are just below a bound and some above.
type largest struct {
	rng  *rand.Rand
	part float64 // of what is possible
}

// n returns a number near a part of most, at least 1.
func (d *largest) n(most int) int { return min(1+d.rng.IntN(1+int(d.part*float64(most))), most) }

// text returns a text of up to so many bytes that ends in i, so that each i has another text.
func (d *largest) text(most, i int) string {
	end := fmt.Sprintf("x%d", i)
	return strings.Repeat("x", max(d.n(most)-len(end), 0)) + end
}

func (d *largest) texts(count, most int) []string {
	out := make([]string, d.n(count))
	for i := range out {
		out[i] = d.text(most, i)
	}
	return out
}

func (d *largest) pairs(count, key, value int) map[string]string {
	out := map[string]string{}
	for i := range d.n(count) {
		out[d.text(key, i)] = d.text(value, i)
	}
	return out
}

func (d *largest) ratios(most float64) map[string]float64 {
	out := map[string]float64{}
	for i := range d.n(plimsoll.MaxRatios) {
		out[long(63, i)] = d.rng.Float64() * most
	}
	return out
}

// resources draws amounts of a few names, because a cluster has few slots for names.
func (d *largest) resources(most int64) plimsoll.Resources {
	out := plimsoll.Resources{}
	for i := range d.n(plimsoll.MaxResourceNames - 5) {
		out[long(63, i)] = d.rng.Int64N(most)
	}
	return out
}

func (d *largest) traits() map[string]plimsoll.Trait {
	out := map[string]plimsoll.Trait{}
	for i := range d.n(plimsoll.MaxTraits) {
		out[d.text(plimsoll.MaxPlacementName, i)] = plimsoll.Trait{
			Words: d.texts(plimsoll.MaxTraitWords, plimsoll.MaxPlacementName),
		}
	}
	return out
}

func (d *largest) selectors() []plimsoll.Selector {
	out := make([]plimsoll.Selector, d.n(plimsoll.MaxSelectors))
	for i := range out {
		switch i % 3 {
		case 0:
			out[i].Label = d.text(plimsoll.MaxLabelKey, i) + "=" + d.text(plimsoll.MaxLabelValue, i)
		case 1:
			out[i].Job = d.text(128, i)
		case 2:
			out[i].Task = d.text(128, i) + "." + d.text(63, i) + ".999999"
		}
	}
	return out
}

func (d *largest) spreads(skew int32) []plimsoll.Spread {
	out := make([]plimsoll.Spread, d.n(plimsoll.MaxSpreads))
	for i := range out {
		out[i] = plimsoll.Spread{By: d.text(plimsoll.MaxPlacementName, i), MaxSkew: skew}
	}
	return out
}

// spec draws a job. One in two can be placed.
func (d *largest) spec(id string) *plimsoll.JobSpec {
	spec := &plimsoll.JobSpec{
		ID: id, Owner: d.text(128, 1), Queue: "root.default", Token: d.text(plimsoll.MaxToken, d.rng.Int()),
		Labels: d.pairs(plimsoll.MaxLabels, plimsoll.MaxLabelKey, plimsoll.MaxLabelValue),
	}
	for i := range d.n(plimsoll.MaxGroups) {
		g := plimsoll.GroupSpec{
			Name: long(63, i), Count: int32(d.rng.IntN(4)), Command: append([]string{"x"}, d.texts(10, 1000)...),
			Env:     d.pairs(10, 100, 1000),
			WorkDir: d.text(plimsoll.MaxPath, i), User: d.text(plimsoll.MaxPath, i),
			UserGroup: d.text(plimsoll.MaxPath, i), Priority: -1,
			Retry: plimsoll.RetryPolicy{
				Kind: plimsoll.RetryBackoff, Limit: 1, InitialDelay: 1e9, MaxDelay: 1 << 60,
			},
			MaxRuntime: 1 << 60, KillGrace: 1 << 60, LogLimit: plimsoll.MaxAmount,
		}
		if d.rng.IntN(2) == 0 {
			g.Resources = d.resources(1 << 20)
		}
		if d.rng.IntN(4) == 0 {
			d.constrain(&g)
		}
		spec.Groups = append(spec.Groups, g)
	}
	return spec
}

func (d *largest) constrain(g *plimsoll.GroupSpec) {
	c, p := &g.Constraints, &g.Preferences
	c.Traits, c.Near, c.Far, c.Spread = d.traits(), d.selectors(), d.selectors(), d.spreads(1)
	for range d.n(plimsoll.MaxNetworks) {
		c.Networks = append(c.Networks, d.texts(plimsoll.MaxNetworkChoices, plimsoll.MaxPlacementName))
	}
	c.Platform.Min, c.Platform.Max = map[string]string{}, map[string]string{}
	for i := range d.n(plimsoll.MaxReleases) {
		release := fmt.Sprintf("%0*d.%d", d.n(100), 1, i)
		c.Platform.Min[release], c.Platform.Max[release] = "20260114T101500Z", "20260114T101500Z"
	}
	for i := range d.n(plimsoll.MaxVolumesFrom) {
		c.VolumesFrom = append(c.VolumesFrom, d.text(100, i)+".g.0")
	}
	c.Nodes, c.Class = d.texts(plimsoll.MaxNodePatterns, plimsoll.MaxPlacementName), d.ratios(plimsoll.MaxRatio)
	c.Where = `node.labels["` + d.text(plimsoll.MaxWhere-40, 1) + `"] == "a"`
	p.Near, p.Far, p.Spread, p.Strategy = d.selectors(), d.selectors(), d.spreads(0), plimsoll.StrategyRandom
}

func (d *largest) node(id string) *engine.RegisterNode {
	n := plimsoll.Node{
		ID: id, Address: d.text(256, 1), Incarnation: 1<<26 + uint64(d.rng.IntN(2)),
		Capacity:   d.resources(plimsoll.MaxNodeCPU),
		Attributes: d.pairs(256, 128, 1024), Key: long(plimsoll.MaxNodeKey, 1), Session: long(plimsoll.MaxNodeKey, 1),
		Peer: d.text(plimsoll.MaxNodeKey, 1),
	}
	if d.rng.IntN(2) == 0 {
		n.Facts = plimsoll.NodeFacts{
			Traits: d.traits(), Networks: map[string]bool{}, Release: "7.0", Platform: "20260114T101500Z",
			Reservoir: true, Reserve: d.ratios(0.9), Overprovision: d.ratios(plimsoll.MaxRatio),
			LastBoot: 1 << 40, NextReboot: 1 << 40,
		}
		for i := range d.n(plimsoll.MaxNodeNetworks) {
			n.Facts.Networks[d.text(plimsoll.MaxPlacementName, i)] = i%2 == 0
		}
		for i := range d.n(plimsoll.MaxMetrics) {
			n.Facts.Metrics = append(n.Facts.Metrics, fmt.Sprintf("m%03d%s", i, d.text(120, i)))
		}
	}
	return &engine.RegisterNode{Node: n, Gateway: "gw"}
}

func (d *largest) policies() *engine.ApplyPolicies {
	cmd := &engine.ApplyPolicies{DryRun: d.rng.IntN(8) == 0}
	action := long(60, 0)
	cmd.Policies = append(cmd.Policies, plimsoll.Policy{Action: &plimsoll.Action{
		Name: action, CoolDown: 1 + plimsoll.MaxCoolDown>>d.rng.IntN(8), DisableScheduling: true,
		Weight:   &plimsoll.WeightAction{Shares: plimsoll.MaxShares},
		Throttle: &plimsoll.ThrottleAction{MinRatio: 100, Step: 100},
		Freeze:   &plimsoll.FreezeAction{For: plimsoll.MaxFreeze},
		Evict:    &plimsoll.EvictAction{Grace: plimsoll.MaxEvictGrace, Reclaim: true},
	}})
	for i := range d.n(100) {
		if d.rng.IntN(2) == 0 {
			t := &plimsoll.TaskQOS{
				Name: long(60, i), Labels: d.pairs(8, 128, 1024), Allowed: []string{action}, Prefer: true,
			}
			for range d.n(10) {
				t.Match = append(
					t.Match, plimsoll.Requirement{Scope: plimsoll.ScopeOwner, Not: true, Values: d.texts(200, 128)},
				)
			}
			cmd.Policies = append(cmd.Policies, plimsoll.Policy{TaskQOS: t})
			continue
		}
		n := &plimsoll.NodeQOS{Name: long(60, i), Selector: d.pairs(8, 128, 1024)}
		for k := range d.n(30) {
			n.Rules = append(n.Rules, plimsoll.Rule{
				Name: long(63, k), Metric: "memory_total_utilization", Waterline: strings.Repeat("0", 60) + "90",
				Action: action, Preview: true, Hold: true,
			})
		}
		cmd.Policies = append(cmd.Policies, plimsoll.Policy{NodeQOS: n})
	}
	return cmd
}

// tree draws siblings of root.default with queues below them, down to a depth.
func (d *largest) tree() *engine.SetQueueConfig {
	root := plimsoll.QueueConfig{
		Name: plimsoll.RootQueue, Parent: true,
		Queues: []plimsoll.QueueConfig{{Name: "default", MaxJobs: d.rng.Int32N(4)}},
	}
	for i := range d.n(300) {
		q := plimsoll.QueueConfig{Name: d.text(64, i), MaxJobs: 1 << 30}
		if d.rng.IntN(3) == 0 {
			q.Max, q.Guaranteed = d.resources(1<<40), d.resources(2)
			for name := range q.Guaranteed {
				q.Guaranteed[name] = min(q.Guaranteed[name], q.Max[name])
			}
		}
		for depth := d.n(12); depth > 0; depth-- {
			q = plimsoll.QueueConfig{Name: q.Name, Queues: []plimsoll.QueueConfig{q}}
		}
		root.Queues = append(root.Queues, q)
	}
	return &engine.SetQueueConfig{Config: root}
}

func (d *largest) report(n *state.Node) *engine.ReportNode {
	r := &engine.ReportNode{Node: n.ID, Incarnation: n.Incarnation, Sequence: n.Gate.Sequence + 1}
	if r.Report.SchedulingDisabled = d.rng.IntN(2) == 0; r.Report.SchedulingDisabled {
		r.Report.SchedulingReason = d.text(plimsoll.MaxQOSMessage, 1)
	}
	r.Report.Extended = plimsoll.Resources{
		plimsoll.ExtCPU: d.rng.Int64N(plimsoll.MaxNodeCPU), plimsoll.ExtMemory: d.rng.Int64N(1 << 40),
	}
	r.Report.Occupied = &plimsoll.NodeUse{
		CPU: d.rng.Int64N(plimsoll.MaxNodeCPU), Memory: d.rng.Int64N(plimsoll.MaxNodeMemory),
	}
	for k := range d.n(plimsoll.MaxQOSEvents) {
		e := plimsoll.QOSEvent{
			At: 1, Kind: plimsoll.QOSSchedulingDisabled, Attempt: 1 << 30, Rule: d.text(plimsoll.MaxQOSText, k),
			Metric: d.text(plimsoll.MaxQOSText, k),
			Before: d.text(plimsoll.MaxQOSText, k), After: d.text(plimsoll.MaxQOSText, k),
			Message: d.text(plimsoll.MaxQOSMessage, k),
		}
		if k%2 == 0 {
			e.Task = d.text(200, k)
		}
		r.Report.Events = append(r.Report.Events, e)
	}
	return r
}

// ends reports the ends of tasks of a job on one of its nodes.
func (d *largest) ends(s *state.State, j *state.Job) engine.Operation {
	cmd := &engine.ReportTasks{}
	for g := range j.Groups {
		for index := range j.Groups[g].Tasks {
			t := &j.Groups[g].Tasks[index]
			if !t.State.OnNode() || cmd.Node != "" && cmd.Node != t.Node {
				continue
			}
			cmd.Node, cmd.Incarnation = t.Node, s.Node(t.Node).Incarnation
			r := engine.Report{Job: j.Spec.ID, Group: j.Groups[g].Spec.Name, Index: int32(index)}
			r.Attempt, r.State, r.ExitCode, r.Message = t.Attempt, plimsoll.TaskFinished, -1, d.text(4096, index)
			r.Result = plimsoll.TaskResult(1 + d.rng.IntN(int(plimsoll.ResultOutOfDisk)))
			if d.rng.IntN(2) == 0 {
				r.Result = plimsoll.ResultEvicted
			}
			cmd.Reports = append(cmd.Reports, r)
		}
	}
	return cmd
}

// command draws a command about few jobs and nodes.
func (d *largest) command(s *state.State) engine.Operation {
	d.part = []float64{0.02, 0.1, 0.3, 1}[d.rng.IntN(4)]
	job, node := long(128, d.rng.IntN(12)), long(128, d.rng.IntN(5))
	n, j := s.Node(node), s.Job(job)
	switch d.rng.IntN(14) {
	case 0, 1, 2:
		return &engine.SubmitJob{Spec: d.spec(job)}
	case 3:
		return &engine.KillJob{ID: job, Reason: d.text(4096, 1)}
	case 4:
		return &engine.ScaleJob{ID: job, Group: long(63, 0), Count: int32(d.rng.IntN(60))}
	case 5:
		return d.tree()
	case 6:
		return d.policies()
	case 7, 8:
		return d.node(node)
	case 9:
		if n != nil {
			return d.report(n)
		}
	case 10:
		if n != nil && d.rng.IntN(4) == 0 {
			return &engine.NodeSilent{ID: node, Registration: n.Registration}
		}
		return &engine.SetNodeMode{ID: node, Mode: plimsoll.NodeMode(1 + d.rng.IntN(3))}
	case 11:
		return &engine.ReportHistorian{
			Name: long(128, d.rng.IntN(20)), Instance: long(64, d.rng.IntN(5)), Next: d.rng.Uint64(),
		}
	default:
		if j != nil {
			return d.ends(s, j)
		}
	}
	return &engine.RemoveNode{ID: node}
}

// No batch is larger than the limits of the store or the count of the state, even for the largest
// commands. The test runs with the limits of Plimsoll's own store and with those of etcd.
func TestRandomLargestCommandsStayWithinTheLimitsOfTheStore(t *testing.T) {
	seed := testrun.Seed(t)
	for name, limits := range map[string]store.Limits{
		"pebble": {Ops: pebble.DefaultOps, Bytes: pebble.DefaultBytes}, "etcd": etcdLimits,
	} {
		t.Run(name, func(t *testing.T) {
			d := &largest{rng: rand.New(rand.NewPCG(seed, 1))}
			s := state.New(
				state.Config{MaxEnded: 3, LostAfter: 20e9, EvictedFor: 60e9, Limits: state.Limits(limits)},
				plimsoll.DefaultQueues(),
			)
			e, enc, now := engine.New(engine.Config{Seed: seed}, s, 0, 1e18), encoder{epoch: 1}, int64(1e18)
			taken, refused, peak := map[string]int{}, map[string]int{}, 0
			var out engine.Batch
			// It goes on until each of these was taken, which a few steps seldom reach.
			wanted := []string{
				"SubmitJob", "SetQueueConfig", "RegisterNode", "ReportNode", "ApplyPolicies", "ReportTasks",
				"ReportHistorian",
			}
			lacks := func(name string) bool { return taken["*engine."+name] == 0 }
			least := testrun.Count(10, 25, 5000)
			for step := 0; step < least || step < least+1000 && slices.ContainsFunc(wanted, lacks); step++ {
				now += d.rng.Int64N(10e9)
				names, commands := map[uint64]string{}, []engine.Command(nil)
				for range 1 + d.rng.IntN(12) {
					c := engine.Command{ID: uint64(len(commands) + 1), Do: d.command(s)}
					c.Token, c.Digest = long(plimsoll.MaxToken, step*100+len(commands)), uint64(step)
					names[c.ID] = fmt.Sprintf("%T", c.Do)
					commands = append(commands, c)
				}
				for more := true; more; {
					var done int
					done, _, more = e.Turn(now, commands, &out)
					commands = commands[done:]
					for _, r := range out.Replies {
						if r.Err == nil {
							taken[names[r.ID]]++
						} else if strings.Contains(r.Err.Error(), "at most") {
							refused[names[r.ID]]++
						}
					}
					if out.Revision == 0 {
						continue // nothing is stored
					}
					batch := enc.encode(&out)
					if err := limits.Check(batch); err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
					_, bytes := store.Measure(batch)
					if peak = max(peak, bytes); bytes > out.Changes.Bytes {
						t.Fatalf("step %d: a batch of %d bytes was counted as %d", step, bytes, out.Changes.Bytes)
					}
				}
				if err := s.Check(); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
			t.Logf("the largest batch has %d bytes; taken %v, refused by a bound %v", peak, taken, refused)
			if i := slices.IndexFunc(wanted, lacks); i >= 0 {
				t.Errorf("no %s was taken: the test tests little", wanted[i])
			}
		})
	}
}
