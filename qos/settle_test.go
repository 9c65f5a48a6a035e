package qos

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// steadily makes a plan of a node with a constant demand and exact figures. The figures may be
// late, and the node may be measured seldom.
func steadily(r *rand.Rand, p *simPlan) {
	p.noise, p.gaps, p.faults, p.ext = 0, false, false, false
	p.throttle, p.freeze, p.evictCPU, p.memLine = true, 0, false, p.memory
	if r.IntN(2) == 0 {
		p.every = 2 + r.IntN(19)
	}
}

// TestAConstantDemandSettlesAtItsLine: on a node with a constant demand, giving back never crosses
// the line. A cut does not bring the node below the target of the rule. In the end the node is at
// its target, or every task has everything back. Between two readings nothing is done.
func TestAConstantDemandSettlesAtItsLine(t *testing.T) {
	first := testrun.Seed(t)
	for i := range testrun.Count(3, 12, 2_000) {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := newWorld(seed, t, steadily)
			w.calm = true
			if os.Getenv("PLIMSOLL_SIM_LOG") != "" {
				w.log = []string{}
			}
			for range 2 {
				w.demand()
				w.settle()
			}
			for _, line := range w.log {
				t.Log(line)
			}
			if w.fault != "" {
				t.Errorf("%s\nreplay with PLIMSOLL_SEED=%d go test ./qos -run '%s$' -v\n%+v",
					w.fault, seed, t.Name(), w.plan)
			}
		})
	}
}

// demand draws the demand of tasks from now on.
func (w *world) demand() {
	for _, t := range w.tasks {
		if t.grows, t.mostMem = 0, t.Memory; t.protected || t.Labels["critical"] != "" {
			t.wild = w.plan.protected / int64(w.plan.guards) * int64(20+w.r.IntN(81)) / 100
		} else {
			t.wild = w.plan.cores * int64(5+w.r.IntN(45)) / 100
		}
	}
}

// settle lets a demand last for an hour.
func (w *world) settle() {
	p := &w.plan
	coarse := p.cores/100_000 + 1 // figures in percent are that coarse
	step, shown := 0, int(p.lag())+1
	exact := p.lag() == 0 || w.wanted() <= p.cores // else others use what is released until that shows
	below, cut, read := false, 0, int64(0)
	w.run(3600, func(i int) {
		now, before := w.history[0].cpu, w.history[min(1, len(w.history)-1)].cpu
		for j := range w.last.Steps {
			if w.readAt == read {
				w.fail("%v of %s without a new reading", w.last.Steps[j].Verb, w.last.Steps[j].Task)
			}
			step = i
		}
		read = w.readAt
		w.note("uses %d", now)
		if w.took == w.tick {
			cut = i
		}
		switch {
		case i <= shown: // the demand has changed
		case below && now > p.line+coarse:
			w.fail("sample %d: the node crosses its line %d: it uses %d", i, p.line, now)
		case exact && now < before && now < p.release-coarse-grainOf(w.tasks) && i-cut <= shown:
			w.fail("sample %d: it is cut to %d, below %d", i, now, p.release)
		}
		below = below || i > shown && now <= p.line+coarse
	})
	w.settled(step)
}

func (w *world) wanted() (sum int64) {
	for _, t := range w.tasks {
		sum += t.wild
	}
	return sum
}

func grainOf(tasks []*simTask) int64 {
	return int64(len(tasks)) * (&Group{}).grain()
}

// settled: the node uses all that it may, except for an amount that is not worth a step.
func (w *world) settled(last int) {
	use, worth := w.history[0].cpu, int64(0)
	held := slices.ContainsFunc(w.tasks, func(t *simTask) bool {
		if t.quota > 0 && t.cpu >= t.quota {
			worth = max(worth, t.quota/100, (&Group{}).grain())
		}
		return t.quota != t.origQuota
	})
	if held && worth > 0 && use < w.plan.release-worth-w.plan.cores/100_000-1 {
		w.fail("after an hour %d of %d are in use, and quotas hold tasks back; the last step was at %d",
			use, w.plan.release, last)
	}
}

// checkRoom: the quotas given back to tasks have room below the line of every rule that takes
// processors from them. Nothing is taken or given back for a rule whose reading was used before.
func (w *drawn) checkRoom(t *rapid.T, res *Result) {
	for i := range res.Rules {
		rep := &res.Rules[i]
		a, m := w.actions[rep.Action], w.registry.Find(rep.Metric)
		if a == nil || !isReversible(a) || m == nil || !m.ThrottleQuantified || !rep.Known || rep.Preview {
			continue
		}
		gave := w.ledger.rules[rep.Rule]
		old := rep.Held && gave != nil && gave.Gave >= w.snapshot.Times[rep.Metric]
		sum := int64(0)
		for j := range res.Steps {
			s := &res.Steps[j]
			if rep.Held && s.Rule == rep.Rule && !s.Verb.Gives() {
				t.Fatalf("%+v is for a reading that was counted before: %+v", s, rep)
			}
			if allowed, _ := w.policies.Allowed(w.task(s)); s.Verb != Restore || !slices.Contains(allowed, rep.Action) {
				continue
			}
			if old {
				t.Fatalf("%+v is by a reading by which something was given back before: %+v", s, rep)
			}
			for _, given := range s.Release {
				if given.Dimension == m.dimension() {
					sum = plus(sum, given.Value)
				}
			}
		}
		if sum > 0 && (rep.Active || sum > rep.Gap) {
			t.Fatalf("%d are given back, and there is room for %d below the line of %+v", sum, rep.Gap, rep)
		}
	}
}
