package qos

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Ledger is the memory of a node's planning between samples. It holds the counts of each rule, the
// resources taken from tasks with their original values, and the tasks that are being stopped.
// NewLedger and DecodeLedger make one; the zero value is not usable. Its size is bounded by the
// rules and the tasks of the node.
//
// The executor of a plan calls Accept with the plan. It calls Begin before each step, so that the
// ledger can be on disk before the step is done, and Done after each step.
type Ledger struct {
	sequence  uint64
	at        int64 // of the last sample
	rules     map[string]*ruleState
	held      map[Key]*hold
	leaving   map[Key]*leaving
	failed    map[Key]*failure // tasks on which a change of groups or limits failed lately
	unstopped map[Key]*failure // tasks that could not be stopped lately
	underway  map[Key]Step     // changes of metrics' own limits that were begun and are not done
	given     int64            // when a quota or a weight was given back to any task last
	recent    []change         // in the order of their times. Invariant: at most mostRecent
}

// change is a release, or its return to a task, so recent that the figures do not show it yet.
type change struct {
	At    int64
	Gives bool `json:",omitempty"`
	Amount
}

// ruleState is the state of one rule between samples. Times are Unix nanoseconds; 0 means never.
type ruleState struct {
	Rule   string
	Metric string `json:",omitempty"` // its metric; a rule that is changed to another metric begins anew
	Above  int32  `json:",omitempty"`
	Below  int32  `json:",omitempty"`
	Active bool   `json:",omitempty"` // triggered and not restored; Since is set then
	Since  int64  `json:",omitempty"` // when it was triggered
	// Rising is the time of crossing the line, in the row of readings that triggers the rule.
	Rising    int64 `json:",omitempty"`
	LastAbove int64 `json:",omitempty"` // when it last fired; the cool-down counts from here
	Missing   int64 `json:"-"`          // since when its metric is missing; not kept over a restart
	Read      int64 `json:"-"`          // time of the last counted reading; not kept over a restart
	Gave      int64 `json:"-"`          // time of the last reading by which something was given back
	Reclaimed int64 `json:",omitempty"` // when memory was reclaimed for the rule since it was triggered
	Weighed   int64 `json:",omitempty"` // when a weight was first lowered for the rule since it was triggered
}

// hold records the resources taken from one task and not given back yet.
type hold struct {
	Task      string
	Attempt   int32
	Rule      string // rule of the last change
	Groups    []original
	Limits    []recordedLimit `json:",omitempty"` // sorted by metric
	Frozen    int64           `json:",omitempty"` // the latest time at which the task is thawed; 0: not frozen
	Thawed    int64           `json:",omitempty"` // when the task was thawed last
	FrozenUse int64           `json:",omitempty"` // nanocores that the task used before it was frozen
	Taken     int64           // when something was taken last
	Given     int64           `json:",omitempty"` // when something was given back last
	Wait      time.Duration   `json:",omitempty"` // nothing is given back for so long after Taken. Invariant: <= Longest
	// Longest is the upper bound of Wait. The hold is remembered at least so long after Given.
	Longest time.Duration `json:",omitempty"`
}

func (h *hold) key() Key { return Key{h.Task, h.Attempt} }

// original records the settings of a group before the first change to it.
type original struct {
	Group    string
	Throttle bool  `json:",omitempty"` // Quota is set
	Quota    int64 `json:",omitempty"`
	Reweight bool  `json:",omitempty"` // Shares and Idle are set
	Shares   int64 `json:",omitempty"`
	Idle     bool  `json:",omitempty"`
}

// leaving is a task that is being stopped.
type leaving struct {
	Task        string
	Attempt     int32
	Rule        string `json:",omitempty"` // rule that stops it; empty: it is not stopped by a rule
	Deadline    int64  // until then its use counts as released
	Told        bool   `json:",omitempty"` // the stop was delivered
	Gone        int64  `json:",omitempty"` // when it had gone; its use stays in the node's figures for a while
	Used        used   // its use in its last sample
	unconfirmed bool   // it is unknown whether the stop was delivered; the next sample decides
}

// used records the resource use of a task.
type used struct {
	CPU         int64            `json:",omitempty"`
	CPUKnown    bool             `json:",omitempty"`
	Memory      int64            `json:",omitempty"`
	MemoryKnown bool             `json:",omitempty"`
	ExtCPU      int64            `json:",omitempty"`
	ExtMemory   int64            `json:",omitempty"`
	Values      map[string]int64 `json:",omitempty"`
}

func (u *used) note(t *Task) {
	if t.CPUKnown {
		u.CPU, u.CPUKnown = t.CPU, true
	}
	if t.MemoryKnown {
		u.Memory, u.MemoryKnown = t.Memory, true
	}
	u.ExtCPU, u.ExtMemory = t.ExtCPU, t.ExtMemory
	if len(t.Values) > 0 {
		u.Values = maps.Clone(t.Values)
	}
}

// task returns a task with the recorded use.
func (e *leaving) task() Task {
	u := &e.Used
	return Task{
		ID: e.Task, Attempt: e.Attempt, CPU: u.CPU, CPUKnown: u.CPUKnown, Memory: u.Memory, MemoryKnown: u.MemoryKnown,
		ExtCPU: u.ExtCPU, ExtMemory: u.ExtMemory, Values: u.Values,
	}
}

// failure records failed actions on a task. Throttling and stopping fail independently: each may
// still be tried when the other has failed.
type failure struct {
	Task    string
	Attempt int32
	Count   int32
	Until   int64 // until then the task is left alone
	Reason  string
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		rules: map[string]*ruleState{}, held: map[Key]*hold{}, leaving: map[Key]*leaving{}, failed: map[Key]*failure{},
		unstopped: map[Key]*failure{},
		underway:  map[Key]Step{},
	}
}

func (l *Ledger) holds(k Key) bool { return l.held[k].takes() }

// Held returns the keys of the tasks from which something is taken, in order.
func (l *Ledger) Held() []Key {
	keys := slices.SortedFunc(maps.Keys(l.held), compareKeys)
	return slices.DeleteFunc(keys, func(k Key) bool { return !l.holds(k) })
}

func compareKeys(a, b Key) int {
	if c := strings.Compare(a.Task, b.Task); c != 0 {
		return c
	}
	return cmp.Compare(a.Attempt, b.Attempt)
}

// Original returns the quota that a group had before it was throttled; ok is false if it is not
// throttled.
func (l *Ledger) Original(k Key, group string) (quota int64, ok bool) {
	if o := l.held[k].group(group); o != nil && o.Throttle {
		return o.Quota, true
	}
	return 0, false
}

// Weight returns the weight that a group had before it was lowered; ok is false if it is not
// lowered.
func (l *Ledger) Weight(k Key, group string) (shares int64, idle, ok bool) {
	if o := l.held[k].group(group); o != nil && o.Reweight {
		return o.Shares, o.Idle, true
	}
	return 0, false, false
}

// FrozenUntil returns the latest time at which a frozen task is thawed; 0 if the ledger has not
// frozen it.
func (l *Ledger) FrozenUntil(k Key) int64 {
	if h := l.held[k]; h != nil {
		return h.Frozen
	}
	return 0
}

// takes reports whether something is taken from the task now.
func (h *hold) takes() bool {
	return h != nil && (len(h.Groups) > 0 || len(h.Limits) > 0 || h.Frozen != 0)
}

func (h *hold) group(name string) *original {
	if h == nil {
		return nil
	}
	for i := range h.Groups {
		if h.Groups[i].Group == name {
			return &h.Groups[i]
		}
	}
	return nil
}

// Adopt records changes to a group of which there is no record: they are by an agent that was
// killed, or by an earlier version. They are given back like any others. A group with a record is
// left as it is.
func (l *Ledger) Adopt(k Key, g *Group, quota, shares int64) {
	h := l.hold(k, "")
	if h.group(g.Name) != nil {
		return
	}
	o := original{Group: g.Name}
	if g.Quota > 0 && (quota <= 0 || g.Quota < quota) {
		o.Throttle, o.Quota = true, quota
	}
	if g.Idle || g.Shares < shares {
		o.Reweight, o.Shares = true, shares
	}
	if o.Throttle || o.Reweight {
		h.Groups = append(h.Groups, o)
	}
	if g.Frozen && h.Frozen == 0 {
		h.Frozen = 1 // a time in the past, so the task is thawed at once
	}
	if !h.takes() {
		delete(l.held, k)
	}
}

func (l *Ledger) hold(k Key, rule string) *hold {
	h := l.held[k]
	if h == nil {
		h = &hold{Task: k.Task, Attempt: k.Attempt, Rule: rule}
		l.held[k] = h
	}
	return h
}

// Accept takes over the rule states of a plan, and forgets tasks that are no longer there. A plan
// is accepted once, before its steps are begun.
func (l *Ledger) Accept(r *Result, s *Snapshot) {
	if r.Waits != "" {
		return
	}
	l.sequence = r.Sequence
	next := make(map[string]*ruleState, len(r.next))
	for i := range r.next {
		next[r.next[i].Rule] = &r.next[i]
	}
	l.rules = next
	if r.At < l.at {
		l.moveBack(r.At, l.at-r.At)
	}
	l.at = r.At
	present := make(map[Key]bool, len(s.Tasks))
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if t.Gone {
			continue
		}
		present[t.Key()] = true
		e := l.leaving[t.Key()]
		if t.Stopping && e == nil {
			e = &leaving{Task: t.ID, Attempt: t.Attempt, Deadline: r.At + int64(r.overdue), Told: true}
			l.leaving[t.Key()] = e
		}
		switch {
		case e == nil:
		// the stop was never delivered, or the task has forgotten it
		case !t.Stopping && (e.unconfirmed || e.Deadline <= r.At):
			delete(l.leaving, t.Key())
		default:
			e.unconfirmed = false
			e.Used.note(t)
		}
	}
	forget(l.held, present)
	forget(l.failed, present)
	forget(l.unstopped, present)
	l.forgetGone(r, present)
	l.recent = slices.DeleteFunc(l.recent, func(c change) bool { return shows(c.At, r.oldest, r.lag) })
	maps.DeleteFunc(l.held, func(_ Key, h *hold) bool { return !h.kept(r.At, r.settle) })
	longest := int64(maxBackoff * r.backoff)
	for _, failed := range []map[Key]*failure{l.failed, l.unstopped} {
		maps.DeleteFunc(failed, func(_ Key, f *failure) bool {
			f.Until = min(f.Until, r.At+longest)
			return f.Until+longest < r.At
		})
	}
}

// moveBack moves recorded times when the clock was set back. Otherwise a frozen task would stand
// still, and others would wait, until the clock has caught up.
func (l *Ledger) moveBack(now, by int64) {
	past := func(times ...*int64) {
		for _, t := range times {
			if *t > now {
				*t -= by
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.rules)) {
		r := l.rules[name]
		past(&r.Since, &r.Rising, &r.LastAbove, &r.Missing, &r.Reclaimed, &r.Read, &r.Gave)
	}
	past(&l.given)
	for _, h := range inOrder(l.held) {
		past(&h.Frozen, &h.Thawed, &h.Taken, &h.Given)
	}
	for _, e := range inOrder(l.leaving) {
		past(&e.Deadline, &e.Gone)
	}
	for _, f := range slices.Concat(inOrder(l.failed), inOrder(l.unstopped)) {
		past(&f.Until)
	}
	l.recent = nil
}

// forgetGone forgets stopped tasks once they are gone and the node's figures do not include their
// use any more.
func (l *Ledger) forgetGone(r *Result, present map[Key]bool) {
	for _, k := range slices.SortedFunc(maps.Keys(l.leaving), compareKeys) {
		e := l.leaving[k]
		if !present[k] && e.Gone == 0 {
			e.Gone = r.At
		}
		if e.Gone != 0 && shows(e.Gone, r.oldest, r.lag) {
			delete(l.leaving, k)
		}
	}
}

// shows reports whether a reading is late enough to include a change.
func shows(change, reading int64, lag time.Duration) bool { return reading-change >= int64(lag) }

func forget[V any](m map[Key]V, present map[Key]bool) {
	maps.DeleteFunc(m, func(k Key, _ V) bool { return !present[k] })
}

// maxBackoff is the largest multiple of Options.Backoff that a failure waits.
const maxBackoff = 32

// Begin records a step that is about to be done. The caller can then write the ledger to disk. If
// the process ends while the step is done, the next one can give the change back.
func (l *Ledger) Begin(s *Step, now int64) {
	if s.Preview {
		return
	}
	if s.OwnLimit {
		l.beginLimit(s)
		if s.Before == s.After {
			return // the same limit is set once more
		}
	}
	switch s.Verb {
	case Throttle, Reweight, Freeze:
		l.take(s, now)
		if r := l.rules[s.Rule]; r != nil && s.Verb == Reweight && r.Weighed == 0 {
			r.Weighed = now
		}
	case Evict:
		l.leaving[s.Key()] = &leaving{
			Task: s.Task, Attempt: s.Attempt, Rule: s.Rule, Deadline: now + int64(s.Grace) + int64(s.overdue),
			Used: s.used,
		}
	case Reclaim:
		if r := l.rules[s.Rule]; r != nil {
			r.Reclaimed = now
		}
	}
}

func (l *Ledger) take(s *Step, now int64) {
	h := l.hold(s.Key(), s.Rule)
	if l.flaps(h, s, now) {
		h.Wait = max(h.Wait, min(max(2*h.Wait, s.settle), s.longest))
	}
	h.Rule, h.Taken, h.Longest = s.Rule, now, max(h.Longest, s.longest)
	if s.Verb == Freeze {
		h.Frozen, h.FrozenUse = s.Until, s.Use
		return
	}
	if s.OwnLimit {
		return // beginLimit has recorded it
	}
	o := h.group(s.Group)
	if o == nil {
		h.Groups = append(h.Groups, original{Group: s.Group})
		o = &h.Groups[len(h.Groups)-1]
	}
	switch {
	case s.Verb == Throttle && !o.Throttle:
		o.Throttle, o.Quota = true, s.Before
	case s.Verb == Reweight && !o.Reweight:
		o.Reweight, o.Shares, o.Idle = true, s.Weight.Shares, s.Weight.Idle
	}
}

// flaps reports whether a task loses something again soon after it got something back. A task also
// flaps if it loses something soon after another task got something back, and so pays for it. The
// time that counts is that of crossing the line, however many samples it took to trigger the rule.
// Giving back after that time has not caused the crossing.
func (l *Ledger) flaps(h *hold, s *Step, now int64) bool {
	crossed := now
	if r := l.rules[s.Rule]; r != nil && r.Rising > 0 {
		crossed = r.Rising
	}
	return h.Given > h.Taken && crossed-h.Given < 3*int64(max(h.Wait, s.settle)) ||
		l.given > h.Taken && l.given < crossed && crossed-l.given < int64(s.settle)
}

// Done records the outcome of a step. A failed step counts for nothing, and its task is left alone
// for a while. Failing to reclaim memory is an exception: it is asked for once and, if that was in
// vain, the task is the first to be stopped.
func (l *Ledger) Done(s *Step, err error, now int64) {
	if s.Preview {
		return
	}
	if s.OwnLimit {
		l.doneLimit(s, err)
	}
	if err != nil {
		switch s.Verb {
		case Reclaim:
			return
		case Evict:
			delete(l.leaving, s.Key())
		case Freeze:
			if h := l.held[s.Key()]; h != nil { // a group that failed to freeze runs again
				h.Frozen, h.FrozenUse = 0, 0
			}
		}
		l.fail(s, err, now)
		return
	}
	if s.Verb != Reclaim {
		delete(l.failures(s.Verb), s.Key())
	}
	if e := l.leaving[s.Key()]; e != nil && s.Verb == Evict {
		e.Told = true
	}
	for _, a := range s.Release {
		if s.Verb == Throttle || s.Verb == Freeze || s.Verb.Gives() {
			l.note(change{At: now, Gives: s.Verb.Gives(), Amount: a})
		}
	}
	h := l.held[s.Key()]
	if h == nil {
		return
	}
	if s.Verb.Gives() {
		h.Given = now
		// tasks thaw at their time, and not because there is room
		if s.Verb == Unweight || s.Verb == Restore && s.Before != s.After {
			l.given = now
		}
	}
	switch s.Verb {
	case Restore:
		if o := h.group(s.Group); o != nil && s.Whole {
			o.Throttle = false
		}
	case Unweight:
		if o := h.group(s.Group); o != nil {
			o.Reweight = false
		}
	case Thaw:
		h.Frozen, h.Thawed = 0, now
	default:
		return
	}
	h.Groups = slices.DeleteFunc(h.Groups, func(o original) bool { return !o.Throttle && !o.Reweight })
}

// note records a change. Changes of one kind after one sample are merged. If a metric that is
// measured seldom makes the list too long, the oldest change is merged with the next of its kind.
// Its amount is then counted for too long rather than forgotten.
func (l *Ledger) note(c change) {
	like := func(o change) bool { return o.Gives == c.Gives && o.Dimension == c.Dimension }
	for i := len(l.recent) - 1; i >= 0 && l.recent[i].At >= l.at; i-- {
		if o := &l.recent[i]; like(*o) {
			o.At, o.Value = max(o.At, c.At), plus(o.Value, c.Value)
			return
		}
	}
	l.recent = append(l.recent, c)
	if len(l.recent) <= mostRecent {
		return
	}
	c = l.recent[0]
	if i := slices.IndexFunc(l.recent[1:], like) + 1; i > 0 {
		l.recent[i].Value = plus(l.recent[i].Value, c.Value)
	}
	l.recent = slices.Delete(l.recent, 0, 1)
}

// mostRecent is how many changes are remembered until the readings show them.
const mostRecent = 512

// failures returns the record of failures that keeps a verb from being tried.
func (l *Ledger) failures(v Verb) map[Key]*failure {
	if v == Evict {
		return l.unstopped
	}
	return l.failed
}

func (l *Ledger) fail(s *Step, err error, now int64) {
	failed := l.failures(s.Verb)
	f := failed[s.Key()]
	if f == nil {
		f = &failure{Task: s.Task, Attempt: s.Attempt}
		failed[s.Key()] = f
	}
	f.Count = min(f.Count+1, maxFailureCount)
	f.Until = now + int64(plimsoll.Backoff{First: s.backoff, Longest: maxBackoff * s.backoff}.Delay(int(f.Count)))
	f.Reason = err.Error()
	if len(f.Reason) > 512 {
		f.Reason = strings.ToValidUTF8(f.Reason[:512], "")
	}
}

// maxFailureCount is the highest count of failures that is kept.
const maxFailureCount = 32

// kept reports whether a hold is still needed: something is taken, or was given back so recently
// that taking it again would be flapping.
func (h *hold) kept(now int64, settle time.Duration) bool {
	return h.takes() || now-h.Given < max(3*int64(max(h.Wait, settle)), int64(h.Longest))
}
