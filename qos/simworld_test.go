package qos

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// simTask is a task in the kernel: its demand, its bounds, and its use.
type simTask struct {
	Task
	protected bool
	wants     int64 // nanocores
	wild      int64 // what it wants at the most while the load varies
	cpu       int64 // nanocores that it gets
	grows     int64 // bytes a second
	mostMem   int64

	quota  int64
	shares int64
	idle   bool
	frozen bool
	quotas []int64 // of the last samples, the newest first: a lower quota takes effect late

	origQuota  int64
	origShares int64

	stubborn  bool  // it outlives its grace
	dies      int64 // when it is gone; 0: it was not told to stop
	gone      int64 // when it went
	frozenFor int64 // how long it stands still
	excused   int64 // how much of that nobody could have ended
	born      int64

	taken bool // the last that was done was to take
	flips int  // how often something was taken after something was given back
}

// measure is the truth at one instant.
type measure struct {
	cpu, memory int64
	tasks       map[string][2]int64
}

// world is a node with its agent.
type world struct {
	r        *rand.Rand
	plan     simPlan
	policies *Policies
	ledger   *Ledger
	disk     []byte // the ledger as it was written last; nil: never
	now      int64
	tick     int
	sequence uint64
	took     int   // tick at which something was taken last
	forgot   int64 // when the ledger was lost last
	down     int   // ticks until the agent is back
	calm     bool
	quiet    bool
	silence  int              // ticks without a sample of the node
	silent   int              // tick of the last silence
	reading  map[string]int64 // of the node, which was taken last
	readAt   int64

	tasks    []*simTask
	buried   []*simTask // gone lately
	names    int
	history  []measure // the newest first
	last     *Result
	predict  *Predictor
	offer    Offer
	fault    string
	evicted  int
	returned int // samples until everything was given back
	log      []string
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf("tick %d: ", w.tick) + fmt.Sprintf(format, args...)
	}
}

func (w *world) note(format string, args ...any) {
	if w.log != nil {
		w.log = append(w.log, fmt.Sprintf("%d ", w.tick)+fmt.Sprintf(format, args...))
	}
}

func (w *world) add(protected bool) *simTask {
	w.names++
	t := &simTask{protected: protected, born: w.now, quota: Unlimited, shares: 1024}
	t.ID, t.Attempt, t.Started = fmt.Sprintf("t%03d", w.names), 1, w.now
	t.Class, t.Priority = plimsoll.ClassBestEffort, int32(w.r.IntN(3))
	t.wild = w.plan.cores * int64(5+w.r.IntN(45)) / 100
	t.Memory = w.plan.memory / 100 * int64(1+w.r.IntN(6))
	t.mostMem = t.Memory + w.plan.memory/100*int64(w.r.IntN(12))
	t.stubborn = w.r.IntN(6) == 0
	switch {
	case protected:
		t.Class, t.shares = plimsoll.ClassGuaranteed, 8192
		t.wild = w.plan.protected / int64(w.plan.guards)
	case w.plan.ext && w.r.IntN(4) > 0:
		t.ExtCPU = t.wild
		t.quota = t.wild
	case w.r.IntN(3) == 0:
		t.quota = t.wild * 2
	}
	if !protected && w.r.IntN(8) == 0 {
		t.Labels = map[string]string{"critical": "yes"}
		t.wild /= 8
	}
	t.wants = t.wild
	t.origQuota, t.origShares = t.quota, t.shares
	w.tasks = append(w.tasks, t)
	return t
}

// load changes the demand of tasks: at random, to a steady value, or to next to nothing.
func (w *world) load() {
	for _, t := range w.tasks {
		switch {
		case w.quiet:
			t.wants, t.grows, t.Memory = min(t.wild, w.plan.cores/400), 0, w.plan.memory/200
		case w.calm:
			t.wants, t.grows = t.wild, 0
		case w.r.IntN(20) == 0:
			t.wants = t.wild * int64(w.r.IntN(101)) / 100
			t.grows = int64(w.r.IntN(3)) / 2 * t.mostMem / 50
		}
	}
	if !w.calm && !w.quiet && w.r.IntN(15) == 0 && len(w.tasks) < w.plan.guards+w.plan.burners &&
		(w.last == nil || !w.last.Closed) {
		w.add(false)
	}
}

// kernel lets a second pass: processors are shared by weight up to the quotas, memory grows, and
// stopped tasks go.
func (w *world) kernel() {
	w.tick++
	w.now += second
	w.tasks = slices.DeleteFunc(w.tasks, func(t *simTask) bool {
		if t.dies != 0 && t.dies <= w.now {
			t.gone = w.now
			w.buried = append(w.buried, t)
			return true
		}
		return false
	})
	w.buried = slices.DeleteFunc(w.buried, func(t *simTask) bool { return t.gone+20*second < w.now })
	for _, t := range w.tasks {
		t.Memory = min(t.Memory+t.grows, max(t.mostMem, t.Memory))
		t.quotas = append([]int64{t.quota}, t.quotas[:min(len(t.quotas), w.plan.late)]...)
		if t.frozen {
			t.frozenFor += second
		} else {
			t.frozenFor, t.excused = 0, 0
		}
	}
	w.share()
	m := measure{tasks: map[string][2]int64{}}
	for _, t := range w.tasks {
		m.cpu += t.cpu
		m.memory += t.Memory
		m.tasks[t.ID] = [2]int64{t.cpu, t.Memory}
	}
	w.history = append([]measure{m}, w.history[:min(len(w.history), 8)]...)
}

func (t *simTask) want() int64 {
	most := t.wants
	if q := t.quotas[len(t.quotas)-1]; q > 0 {
		most = min(most, q)
	}
	if t.frozen {
		most = 0
	}
	return most
}

// share fills the node: those with a weight first, in proportion to it, then the idle ones.
func (w *world) share() {
	left := w.plan.cores
	for _, idle := range []bool{false, true} {
		var open []*simTask
		for _, t := range w.tasks {
			if t.idle == idle {
				t.cpu = 0
				open = append(open, t)
			}
		}
		for len(open) > 0 && left > 0 {
			weights, pool, more := int64(0), left, open[:0]
			for _, t := range open {
				weights += t.shares
			}
			for _, t := range open {
				part := min(mulDiv(pool, t.shares, weights), t.want()-t.cpu)
				t.cpu += part
				left -= part
				if t.cpu < t.want() {
					more = append(more, t)
				}
			}
			if len(more) == len(open) {
				break
			}
			open = more
		}
	}
}

func (w *world) noisy(v int64) int64 {
	if w.plan.noise == 0 {
		return v
	}
	return v + mulDiv(v, int64(w.r.IntN(2*w.plan.noise+1)), 1000) - mulDiv(v, int64(w.plan.noise), 1000)
}

// sample is the agent's view: the state some samples ago, with noise and gaps. Quotas and the list
// of tasks are of now.
func (w *world) sample() *Snapshot {
	w.sequence++
	s := &Snapshot{
		Sequence: w.sequence, At: w.now, Cores: w.plan.cores, Memory: w.plan.memory, Values: map[string]int64{},
	}
	m := w.history[min(w.plan.delay, len(w.history)-1)]
	steady := w.calm || w.quiet // then a metric is never away for so long that it counts as missing
	if w.silence > 0 {
		w.silence, w.silent = w.silence-1, w.tick
	} else if w.plan.gaps && w.r.IntN(50) == 0 && !(steady && w.silent == w.tick-1) {
		w.silence, w.silent = w.r.IntN(12), w.tick
		if steady {
			w.silence = w.r.IntN(3)
		}
	} else {
		w.read(s, m)
	}
	others := int64(0)
	for _, t := range w.tasks {
		x := t.Task
		use, known := w.history[min(w.plan.delayTasks, len(w.history)-1)].tasks[t.ID]
		x.CPU, x.Memory, x.CPUKnown, x.MemoryKnown = w.noisy(use[0]), w.noisy(use[1]), known, known
		x.Stopping = t.dies != 0
		x.Groups = []Group{
			{
				Name: "/" + t.ID, CPU: x.CPU, Quota: t.quota, Ext: t.ExtCPU, Shares: t.shares, Idle: t.idle,
				Frozen: t.frozen,
			},
		}
		if t.ExtCPU == 0 && known {
			others += x.CPU
		}
		s.Tasks = append(s.Tasks, x)
	}
	w.lend(s, others)
	return s
}

// read measures the node, or repeats the reading that was taken last.
func (w *world) read(s *Snapshot, m measure) {
	if w.plan.every == 0 || w.now-w.readAt >= int64(w.plan.every)*second {
		cpu, memory := w.noisy(m.cpu), w.noisy(m.memory)
		w.readAt, w.reading = w.now, map[string]int64{
			CPUTotalUsage: cpu, CPUTotalUtilization: mulDiv(cpu, 100*plimsoll.LineScale, w.plan.cores),
			MemoryTotalUsage: memory, MemoryTotalUtilization: mulDiv(memory, 100*plimsoll.LineScale, w.plan.memory),
		}
	}
	s.Values = maps.Clone(w.reading)
	if w.plan.every > 0 {
		s.Times = map[string]int64{CPUTotalUsage: w.readAt, CPUTotalUtilization: w.readAt}
	}
}

// lend sets the offer of processors.
func (w *world) lend(s *Snapshot, others int64) {
	if !w.plan.ext {
		return
	}
	w.predict.Observe(w.now, others)
	in := ExtendedInput{Allocatable: w.plan.cores, Reserve: w.plan.cores / 10, Previous: w.offer}
	in.Predicted, in.PredictedKnown = w.predict.Peak(w.now)
	for _, t := range w.tasks {
		in.Held += t.ExtCPU
		if t.ExtCPU > 0 {
			in.Used += t.cpu
		}
	}
	w.offer = Extended(in)
	if w.offer.Published < in.Held {
		w.fail("%d is offered, and %d is held", w.offer.Published, in.Held)
	}
	s.ExtCPU = w.offer.Target
}

var errSim = errors.New("write: device or resource busy")

// agent makes one turn: plan, accept, do. It may be killed anywhere in between.
func (w *world) agent() {
	if w.down > 0 {
		if w.down--; w.down == 0 {
			w.restart()
		}
		w.excuse()
		return
	}
	faults := w.plan.faults && !w.calm && !w.quiet
	s := w.sample()
	res := Plan(s, w.policies, w.ledger, w.now)
	w.check(res, s)
	if faults && w.r.IntN(300) == 0 { // killed before the plan was accepted
		w.down = 1 + w.r.IntN(5)
		w.excuse()
		return
	}
	w.ledger.Accept(res, s)
	w.last = res
	for i := range res.Steps {
		st := &res.Steps[i]
		if st.Preview {
			continue
		}
		w.ledger.Begin(st, w.now)
		if faults {
			w.write()
			if w.r.IntN(100) == 0 { // killed before it was done, or before it was noted as done
				if w.r.IntN(2) == 0 {
					w.do(st)
				}
				w.down = 1 + w.r.IntN(5)
				w.excuse()
				return
			}
		}
		if faults && w.r.IntN(20) == 0 {
			w.ledger.Done(st, errSim, w.now)
			w.excuse()
			continue
		}
		w.do(st)
		w.ledger.Done(st, nil, w.now)
	}
}

func (w *world) excuse() {
	for _, t := range w.tasks {
		if t.frozen {
			t.excused += second
		}
	}
}

func (w *world) write() {
	data, err := w.ledger.Encode()
	if err != nil {
		w.fail("encode: %v", err)
	}
	w.disk = data
}

// restart begins anew from the written ledger or, if that is lost, from the groups.
func (w *world) restart() {
	w.note("the agent is back; the ledger is lost: %v", w.disk == nil)
	if w.sequence = 0; w.disk != nil && w.r.IntN(5) > 0 {
		l, err := DecodeLedger(w.disk)
		if err != nil {
			w.fail("decode: %v", err)
			return
		}
		w.ledger = l
		return
	}
	w.note("the ledger is lost")
	w.ledger, w.disk, w.forgot = NewLedger(), nil, w.now
	for _, t := range w.tasks {
		w.ledger.Adopt(
			t.Key(), &Group{Name: "/" + t.ID, Quota: t.quota, Shares: t.shares, Idle: t.idle, Frozen: t.frozen},
			t.origQuota, t.origShares,
		)
	}
}

// do applies a step as the kernel does.
func (w *world) do(s *Step) {
	i := slices.IndexFunc(w.tasks, func(t *simTask) bool { return t.ID == s.Task })
	if i < 0 {
		w.fail("%v of %s, which is not there", s.Verb, s.Task)
		return
	}
	t := w.tasks[i]
	if w.log != nil {
		before, after := s.Change()
		o, known := w.ledger.Original(s.Key(), s.Group)
		w.note("%v %s %s → %s (%s); it had %d, %v", s.Verb, s.Task, before, after, s.Reason, o, known)
	}
	switch s.Verb {
	case Throttle, Restore:
		t.quota = s.After
	case Reweight, Unweight:
		t.shares, t.idle = s.NewWeight.Shares, s.NewWeight.Idle
		if t.idle {
			t.shares = s.Weight.Shares
		}
	case Freeze:
		t.frozen = true
	case Thaw:
		t.frozen = false
	case Reclaim:
		t.Memory -= min(s.Bytes, t.Memory) * int64(w.r.IntN(3)) / 4
	case Evict:
		w.evicted++
		t.dies = w.now + int64(s.Grace)*int64(w.r.IntN(100))/100 + 1
		if t.stubborn {
			t.dies = w.now + int64(s.Grace) + int64(w.r.IntN(60))*second
		}
	}
	switch {
	case s.Verb == Throttle || s.Verb == Freeze || s.Verb == Reweight:
		if !t.taken {
			t.flips++
		}
		t.taken, w.took = true, w.tick
	case s.Verb.Gives():
		t.taken = false
	}
}

// grace of an eviction in the simulation.
const simGrace = 5 * time.Second
