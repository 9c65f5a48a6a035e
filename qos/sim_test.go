package qos

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// simPlan holds the random parameters of a run.
type simPlan struct {
	cores, memory     int64
	guards, burners   int
	protected         int64 // nanocores that protected tasks want when the load is steady
	noise             int   // thousandths to either side
	delay, delayTasks int   // by how many samples the node's figures, and the tasks', are late
	late              int   // samples until a quota shows its effect
	every             int   // samples between two readings of the node; 0: each has one
	gaps, faults, ext bool

	line, release     int64 // nanocores
	memLine           int64 // bytes
	step, minRatio    int32
	trigger, restore  int32
	cool              time.Duration
	weight            *plimsoll.WeightAction
	throttle          bool
	freeze            time.Duration
	evictCPU, reclaim bool
	percent           bool
}

func drawPlan(r *rand.Rand) simPlan {
	p := simPlan{
		cores: Core * int64(2+r.IntN(30)), memory: 1 << 30 * int64(4+r.IntN(100)), guards: 1 + r.IntN(3),
		burners: 2 + r.IntN(12),
		noise:   r.IntN(3) * 25, delay: r.IntN(3), late: r.IntN(3), gaps: r.IntN(2) == 0, faults: r.IntN(3) > 0,
		ext:  r.IntN(4) == 0,
		step: int32(5 + r.IntN(46)), minRatio: int32(r.IntN(20)), trigger: int32(r.IntN(4)), restore: int32(r.IntN(4)),
		cool: time.Duration(20+r.IntN(280)) * time.Second, throttle: true, reclaim: r.IntN(2) == 0,
		percent: r.IntN(2) == 0,
	}
	p.delayTasks = r.IntN(p.delay + 1)
	p.protected = p.cores * int64(10+r.IntN(30)) / 100
	p.line = p.cores * int64(60+r.IntN(30)) / 100
	p.memLine = p.memory * int64(50+r.IntN(40)) / 100
	p.release = p.line
	if r.IntN(2) == 0 {
		p.release = p.line * int64(60+r.IntN(36)) / 100
		p.step = int32(4 + r.IntN(7))
	}
	switch r.IntN(6) {
	case 0:
		p.weight = &plimsoll.WeightAction{Idle: true}
	case 1:
		p.weight = &plimsoll.WeightAction{Shares: 64}
	case 2:
		p.freeze = time.Duration(5+r.IntN(40)) * time.Second
	case 3:
		p.freeze, p.throttle = time.Duration(5+r.IntN(40))*time.Second, false
	case 4:
		p.evictCPU = true
	}
	return p
}

func (p *simPlan) lag() int64 { return int64(max(p.delay, p.delayTasks) + p.late) }

func (p *simPlan) policies() []plimsoll.Policy {
	shed := &plimsoll.Action{Name: "shed", CoolDown: p.cool, Weight: p.weight, DisableScheduling: true}
	if p.throttle {
		shed.Throttle = &plimsoll.ThrottleAction{Step: p.step, MinRatio: p.minRatio}
	}
	if p.freeze > 0 {
		shed.Freeze = &plimsoll.FreezeAction{For: p.freeze}
	}
	if p.evictCPU {
		shed.Evict = &plimsoll.EvictAction{Grace: simGrace}
	}
	metric, line, release := CPUTotalUsage, milli(p.line, Core), milli(p.release, Core)
	if p.percent {
		metric, line, release = CPUTotalUtilization, milli(100*p.line, p.cores), milli(100*p.release, p.cores)
	}
	be := []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}}
	all := []plimsoll.Policy{
		{Action: shed},
		{
			Action: &plimsoll.Action{
				Name: "kill", CoolDown: p.cool, DisableScheduling: true,
				Evict: &plimsoll.EvictAction{Grace: simGrace, Reclaim: p.reclaim},
			},
		},
		{TaskQOS: &plimsoll.TaskQOS{Name: "batch", Match: be, Allowed: []string{"shed", "kill"}}},
		{TaskQOS: &plimsoll.TaskQOS{Name: "critical", Labels: map[string]string{"critical": "yes"}, Critical: true}},
		{NodeQOS: &plimsoll.NodeQOS{Name: "node", Rules: []plimsoll.Rule{
			{
				Name: "cpu", Metric: metric, Waterline: line, Release: release, TriggerAfter: p.trigger,
				RestoreAfter: p.restore, Action: "shed",
			},
			{
				Name: "mem", Metric: MemoryTotalUsage, Waterline: strconv.FormatInt(p.memLine, 10),
				TriggerAfter: p.trigger, Action: "kill",
			},
		}}},
	}
	if p.ext {
		all = append(all, ExtendedPolicies()...)
	}
	return all
}

func milli(v, unit int64) string { return strconv.FormatInt(mulDiv(v, 1000, unit), 10) + "m" }

func newWorld(seed uint64, t *testing.T, changes ...func(r *rand.Rand, p *simPlan)) *world {
	r := rand.New(rand.NewPCG(seed, seed))
	w := &world{r: r, plan: drawPlan(r), ledger: NewLedger(), now: 1_700_000_000 * second}
	for _, change := range changes {
		change(r, &w.plan)
	}
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	policies := w.plan.policies()
	for i := range policies {
		if err := policies[i].Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	w.policies = Compile(
		policies, registry, nil, Options{Lag: time.Duration(w.plan.lag())*time.Second + 500*time.Millisecond},
	)
	w.predict = NewPredictor(PredictorConfig{HalfLife: time.Minute, Percentile: 950, WarmUp: 20 * time.Second})
	for range w.plan.guards {
		w.add(true)
	}
	for range w.plan.burners {
		w.add(false)
	}
	return w
}

// run lets ticks pass, and calls each after every one.
func (w *world) run(ticks int, each func(i int)) {
	for i := range ticks {
		w.load()
		w.kernel()
		w.agent()
		w.standStill()
		if each != nil {
			each(i)
		}
		if w.fault != "" {
			return
		}
	}
}

// standStill: no task is frozen for longer than the action says. Times when the agent was away or
// the kernel refused to thaw do not count.
func (w *world) standStill() {
	for _, t := range w.tasks {
		if t.frozenFor-t.excused > int64(w.plan.freeze)+second {
			w.fail("%s stands still for %v", t.ID, time.Duration(t.frozenFor))
		}
	}
}

// check compares a plan with the true state of the node.
func (w *world) check(res *Result, s *Snapshot) {
	gap, sum, last, precise := map[string]int64{}, map[string]int64{}, map[string]int64{}, true
	for i := range res.Rules {
		u := &res.Rules[i]
		if u.Fires {
			gap[u.Dimension] = max(gap[u.Dimension], u.Gap)
		}
		precise = precise && u.Known
	}
	dying := map[string]bool{}
	for i := range res.Steps {
		st := &res.Steps[i]
		for j := range s.Tasks {
			t := &s.Tasks[j]
			if t.ID == st.Task && (t.Class == plimsoll.ClassGuaranteed || t.Labels["critical"] != "") {
				w.fail("%v of %s, which no policy allows", st.Verb, st.Task)
			}
		}
		if st.Verb.Gives() || st.Verb == Reclaim {
			continue
		}
		for _, a := range st.Release {
			sum[a.Dimension] += a.Value
			last[a.Dimension] = a.Value
		}
		if st.Verb == Evict {
			w.justified(st, dying, precise)
			dying[st.Task] = true
		}
	}
	if cpu := DimensionCPU; precise && !w.plan.ext && gap[DimensionMemory] == 0 && sum[cpu] > 0 &&
		sum[cpu]-last[cpu] >= gap[cpu] {
		w.fail("%d nanocores are released for a gap of %d, %d of them by the last step", sum[cpu], gap[cpu], last[cpu])
	}
}

// justified: the node was above its line at some instant of which the figures may be, without the
// tasks that were told to stop. Noise may add to the figures.
func (w *world) justified(st *Step, dying map[string]bool, precise bool) {
	p := &w.plan
	line, dim := p.memLine, 1
	if st.Rule == "node/cpu" {
		line, dim = p.release, 0
	}
	if !precise {
		return
	}
	up := func(v int64) int64 { return v + mulDiv(v, int64(p.noise), 1000) }
	down := func(v int64) int64 { return v - mulDiv(v, int64(p.noise), 1000) }
	seen := w.history[:min(p.delay+1, len(w.history))]
	worst := int64(0)
	for _, m := range seen {
		use := up([2]int64{m.cpu, m.memory}[dim])
		for _, t := range slices.Concat(w.buried, w.tasks) {
			e := w.ledger.leaving[t.Key()]
			if (t.dies != 0 && (t.gone != 0 || e != nil && e.Deadline > w.now)) || dying[t.ID] {
				use -= down(leastOf(w.history, m, t.ID, dim))
			}
		}
		worst = max(worst, use)
	}
	if worst+1000 <= line && w.now-w.forgot > (p.lag()+1)*second {
		w.fail(
			"%s is stopped by %s, and the use was at most %d of %d without those that go", st.Task, st.Rule, worst,
			line,
		)
	}
}

// leastOf is the least that a task used at any of these instants, if it was there at one of them.
func leastOf(seen []measure, at measure, task string, dim int) int64 {
	if _, there := at.tasks[task]; !there {
		return 0
	}
	least := int64(math.MaxInt64)
	for _, m := range seen {
		if use, there := m.tasks[task]; there {
			least = min(least, use[dim])
		}
	}
	return least
}

func simulate(t *testing.T, seed uint64) (fault string) {
	w := newWorld(seed, t)
	if os.Getenv("PLIMSOLL_SIM_LOG") != "" {
		w.log = []string{}
		defer func() {
			for _, line := range w.log[0:] {
				t.Log(line)
			}
			t.Logf("%+v", w.plan)
		}()
	}
	for range 3 {
		w.calm = false
		w.write()
		w.run(300+w.r.IntN(300), nil)
		for w.down > 0 && w.fault == "" {
			w.run(1, nil)
		}
		w.calm = true
		w.steady()
	}
	w.quiet = true
	w.gone()
	return w.fault
}

// fixed is the use that no step may lower: that of tasks which no policy allows to be acted on, and
// the floors of the others.
func (w *world) fixed() (cpu int64) {
	for _, t := range w.tasks {
		if t.protected || t.Labels["critical"] != "" {
			cpu += t.wild
		} else {
			cpu += Core / 100
		}
	}
	return cpu
}

// settling bounds the number of samples until the node is below its line under a steady load. It
// adds the samples to trigger, and for each step down the samples until it shows. The steps lead
// from all processors down to the target; at first quotas are at least twice the use. It also adds
// the time until tasks with failed actions may be tried again, and until frozen tasks run again.
func (w *world) settling() int {
	p, fixed, quotas := &w.plan, w.fixed(), int64(0)
	for _, t := range w.tasks {
		if !t.protected {
			quotas += max(t.quota, 0)
		}
	}
	share := float64(p.release*95/100-fixed) / float64(max(2*(p.cores-fixed), quotas))
	steps := int(math.Ceil(math.Log(max(share, 0.01)) / math.Log(1-float64(p.step)/100)))
	return w.waiting() + int(p.freeze/time.Second) + int(p.trigger) + (int(p.lag())+1)*(steps+3)
}

// waiting is how long tasks are left alone because acting on them failed.
func (w *world) waiting() (ticks int) {
	for _, f := range slices.Concat(inOrder(w.ledger.failed), inOrder(w.ledger.unstopped)) {
		ticks = max(ticks, int((f.Until-w.now)/second)+1)
	}
	return ticks
}

// steady keeps the load as it is, and compares the result with the bounds.
func (w *world) steady() {
	p := &w.plan
	settle := w.settling()
	w.run(settle, w.undershot)
	if w.fault != "" {
		return
	}
	for _, t := range w.tasks {
		t.flips = 0
	}
	noise := 2 * mulDiv(p.line, int64(p.noise), 1000)
	most := 3*(int(p.trigger)+int(p.lag())+1) + 3
	limit := p.line + noise/2 + p.cores/10_000 // figures in percent are that coarse
	over, run, longest, lent, tooMuch := 0, 0, 0, 0, 0
	below := false // it was below its line once: what is above it before is left from the load that varied
	w.run(watched, func(i int) {
		w.undershot(settle + i)
		if lent++; !w.lentTooMuch() {
			lent = 0
		}
		tooMuch = max(tooMuch, lent)
		if w.history[0].cpu <= limit || w.awaited() {
			run, below = 0, below || w.history[0].cpu <= p.release+noise
			return
		}
		if run++; below {
			over++
		}
		if longest = max(longest, run); longest == most+1 {
			w.note("the node was above its line for %d samples in a row", longest)
		}
	})
	w.spared()
	if w.fault != "" || !p.throttle || w.fixed() > p.release*9/10 {
		return
	}
	flips := 0
	for _, t := range w.tasks {
		flips = max(flips, t.flips)
	}
	switch {
	case longest > most:
		w.fail("the node was above its line for %d samples in a row; at most %d are right", longest, most)
	case tooMuch > 2*most+10: // what is to be lent moves with what is predicted
		w.fail(
			"the holders of extended cores used more than there was to lend for %d samples in a row; at most %d are right",
			tooMuch, 2*most+10,
		)
	case flips > p.mostFlips():
		w.fail(
			"from one task something was taken %d times in %d samples, after something was given back; at most %d are right",
			flips, watched, p.mostFlips(),
		)
	case p.line-p.release > noise+2*w.oneStep() && !p.ext && (over > 0 || flips > 1): // one may be left from before
		w.fail(
			"with a release line the node was above its line %d times, and something was taken again %d times", over,
			flips,
		)
	}
}

// lentTooMuch: the holders of extended cores use more than there is to lend, although they could be
// throttled.
func (w *world) lentTooMuch() bool {
	used, floor := int64(0), int64(0)
	for _, t := range w.tasks {
		if t.ExtCPU == 0 {
			continue
		}
		used += t.cpu
		if floor += Core / 100; t.Labels["critical"] != "" {
			floor += t.wants
		}
	}
	most := w.offer.Target + mulDiv(w.offer.Target, int64(w.plan.noise), 1000)
	return w.plan.ext && used > most && floor < w.offer.Target*9/10
}

// awaited: a task was told to stop, and its use counts as on its way until it is overdue.
func (w *world) awaited() bool {
	return slices.ContainsFunc(slices.Concat(w.tasks, w.buried), func(t *simTask) bool {
		return t.dies != 0 && t.gone+(w.plan.lag()+1)*second > w.now || t.dies != 0 && t.gone == 0
	})
}

// oneStep is the most that one step of one task releases or costs.
func (w *world) oneStep() (most int64) {
	for _, t := range w.tasks {
		if !t.protected {
			most = max(most, t.wants*int64(w.plan.step)/100)
		}
	}
	return most
}

// undershot: throttling ends at the line. The excess is at most one step of one task, and the
// effect of noise. Noise is in the figures of the node, before and after, and in those of the
// tasks. A task that was told to stop and is overdue goes in addition, when it goes.
func (w *world) undershot(since int) {
	p := &w.plan
	if since < 20 || w.tick-w.took > int(p.lag())+1 || w.awaited() || !p.throttle || p.freeze > 0 || p.evictCPU ||
		p.ext {
		return
	}
	low := p.release - 3*mulDiv(p.line, int64(p.noise), 1000) - w.oneStep() - Core/1000
	if now, before := w.history[0], w.history[1]; now.cpu < low && before.cpu >= low &&
		len(now.tasks) == len(before.tasks) {
		w.fail("throttling went on down to %d, and the target is %d; one step is %d", now.cpu, p.release, w.oneStep())
	}
}

// spared: the memory is below its line in the end, or no task is left that may be stopped.
func (w *world) spared() {
	left := 0
	for _, t := range w.tasks {
		if !t.protected && t.Labels["critical"] == "" && t.dies == 0 {
			left++
		}
	}
	if m := w.history[0].memory; left > 0 && m > w.plan.memLine+mulDiv(w.plan.memLine, int64(w.plan.noise), 1000)+1 {
		w.fail("%d bytes are in use in the end, the line is %d, and %d tasks may be stopped", m, w.plan.memLine, left)
	}
}

const watched = 400

// mostFlips bounds how often something is taken from a task that had got something back while it is
// watched. The wait doubles each time, up to the cool-down, and then it happens once in each. With
// noisy figures, or a changing amount to lend, a line is crossed now and then although the amounts
// given back were right. After three times the shortest wait such a crossing does not count.
func (p *simPlan) mostFlips() int {
	const settle = 10 * time.Second
	longest, chance := max(p.cool, settle), 0
	if p.noise > 0 || p.ext {
		chance = int(watched * time.Second / (3 * settle))
	}
	return 1 + chance + int(math.Ceil(math.Log2(float64(longest)/float64(settle)))) + int(watched*time.Second/longest)
}

// gone ends the load: all tasks get everything back, and the node is open again.
func (w *world) gone() {
	bound := w.giving()
	for i := range bound {
		if w.run(1, nil); w.fault != "" {
			return
		}
		if len(w.ledger.Held()) == 0 && !w.last.Closed && i > 5 {
			w.returned = i
			break
		}
	}
	if held := w.ledger.Held(); len(held) > 0 {
		w.fail("still held after %d samples: %+v, passed over: %+v", bound, *w.ledger.held[held[0]], w.last.Skipped)
	}
	for _, t := range w.tasks {
		if t.quota != t.origQuota || t.shares != t.origShares || t.idle || t.frozen {
			w.fail(
				"%s has quota %d, weight %d, idle %v, frozen %v; it had %d and %d", t.ID, t.quota, t.shares, t.idle,
				t.frozen, t.origQuota, t.origShares,
			)
		}
	}
	if w.last.Closed {
		w.fail("the node is still closed: %s", w.last.ClosedBy)
	}
}

// giving bounds the number of samples until everything is given back. It adds the longest wait, the
// cool-down and the fading of the prediction. For each task in turn it adds the steps from the
// least quota to all processors, each with the samples until it shows.
func (w *world) giving() int {
	step, fade := float64(w.plan.step), 0
	if w.plan.ext {
		step, fade = min(step, 20), 5*60 // half-lives until what is predicted is the quiet
	}
	steps := math.Log(float64(w.plan.cores)/float64(Core/100)) / math.Log(1+step/100)
	return fade + w.waiting() + 2*int(w.plan.cool/time.Second) + 60 + len(w.tasks)*int(steps+2)*int(w.plan.lag()+1)
}

// A node is driven over its lines by changing loads, seen late, with noise and gaps. Its agent is
// killed now and then, and actions fail. The rules in the comments of check, justified, standStill,
// steady and gone hold.
//
// The test takes nearly all of the time of this package's tests, a minute with the race detector.
// No other test has an agent over hours, where lines that pull against each other make tasks flap,
// starve, or never get back their resources.
func TestSimulation(t *testing.T) {
	first := testrun.Seed(t)
	for i := range testrun.Count(20, 100, 20_000) {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			if fault := simulate(t, seed); fault != "" {
				t.Errorf(
					"%s\nreplay with PLIMSOLL_SEED=%d go test ./qos -run 'TestSimulation/^%d$' -v", fault, seed, seed,
				)
			}
		})
	}
}
