package qos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Ledger is what a node's planning remembers from one sample to the next: how often each rule was
// crossed, what was taken from which task and what it had before, and which tasks are on their way
// out. The zero value is not usable; make it with NewLedger or DecodeLedger. It is bounded by the
// rules and by the tasks of the node.
//
// Whoever executes a plan calls Accept with it, Begin before each step, so that the ledger can be
// kept on disk before anything is done, and Done after it.
type Ledger struct {
	sequence  uint64
	at        int64 // of the last sample
	rules     map[string]*ruleState
	held      map[Key]*hold
	leaving   map[Key]*leaving
	failed    map[Key]*failure // a change of their groups failed
	unstopped map[Key]*failure // stopping them failed
	underway  map[Key]Step     // changes of metrics' own limits that were begun and are not done
	given     int64            // when a quota or a weight was given back last, to whomever
	recent    []change         // in the order of their times. Invariant: at most mostRecent
}

// change is what was released or given back so lately that it does not show in the figures yet.
type change struct {
	At    int64
	Gives bool `json:",omitempty"`
	Amount
}

// ruleState counts readings in a row.
type ruleState struct {
	Rule      string
	Metric    string `json:",omitempty"` // of which it speaks; a rule that is changed to another one begins anew
	Above     int32  `json:",omitempty"`
	Below     int32  `json:",omitempty"`
	Active    bool   `json:",omitempty"` // it was triggered and is not restored
	Since     int64  `json:",omitempty"` // when it was triggered
	Rising    int64  `json:",omitempty"` // when it was above its line first, in the row that triggered it or may do so
	LastAbove int64  `json:",omitempty"` // when it last fired; the cool-down counts from here
	Missing   int64  `json:"-"`          // since when its metric is missing; a restart begins anew
	Read      int64  `json:"-"`          // when its metric was measured that was counted last; as Missing
	Gave      int64  `json:"-"`          // when it was measured by which something was given back last
	Reclaimed int64  `json:",omitempty"` // when memory was reclaimed for it since it was triggered
	Weighed   int64  `json:",omitempty"` // when a weight was lowered for it first since it was triggered
}

// hold is what was taken from a task and not given back yet.
type hold struct {
	Task      string
	Attempt   int32
	Rule      string // for which it was taken last
	Groups    []original
	Limits    []limited     `json:",omitempty"` // sorted by metric
	Frozen    int64         `json:",omitempty"` // when it is thawed at the latest; 0: it is not frozen
	Thawed    int64         `json:",omitempty"` // when it was thawed last
	FrozenUse int64         `json:",omitempty"` // nanocores that it used before
	Taken     int64         // when something was taken last
	Given     int64         `json:",omitempty"` // when something was given back last
	Wait      time.Duration `json:",omitempty"` // how long after Taken nothing is given back
	Longest   time.Duration `json:",omitempty"` // what Wait is at the most, and how long after Given it is remembered
}

func (h *hold) key() Key { return Key{h.Task, h.Attempt} }

// original is what a group had before anything was taken from it.
type original struct {
	Group    string
	Throttle bool  `json:",omitempty"` // Quota is set
	Quota    int64 `json:",omitempty"`
	Reweight bool  `json:",omitempty"` // Shares and Idle are set
	Shares   int64 `json:",omitempty"`
	Idle     bool  `json:",omitempty"`
}

// leaving is a task that was told to stop.
type leaving struct {
	Task     string
	Attempt  int32
	Rule     string `json:",omitempty"` // empty: somebody else stops it
	Deadline int64  // until then what it uses counts as on its way
	Told     bool   `json:",omitempty"` // it is known that it was told
	Gone     int64  `json:",omitempty"` // when it had gone; what it used is in the node's figures for a while
	Used     used   // in its last sample
	doubted  bool   // nobody knows whether it was told; the next sample says so
}

// used is what a task used.
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

// task returns a task that uses as much.
func (e *leaving) task() Task {
	u := &e.Used
	return Task{
		ID: e.Task, Attempt: e.Attempt, CPU: u.CPU, CPUKnown: u.CPUKnown, Memory: u.Memory, MemoryKnown: u.MemoryKnown,
		ExtCPU: u.ExtCPU, ExtMemory: u.ExtMemory, Values: u.Values,
	}
}

// failure is a task on which an action failed. Whoever cannot be throttled may still be stopped,
// and the other way round.
type failure struct {
	Task    string
	Attempt int32
	Count   int32
	Until   int64 // until then it is left alone
	Reason  string
}

// NewLedger returns one that remembers nothing.
func NewLedger() *Ledger {
	return &Ledger{
		rules: map[string]*ruleState{}, held: map[Key]*hold{}, leaving: map[Key]*leaving{}, failed: map[Key]*failure{},
		unstopped: map[Key]*failure{},
		underway:  map[Key]Step{},
	}
}

func (l *Ledger) holds(k Key) bool { return l.held[k].takes() }

// Held returns the keys of the tasks from which something was taken, in order.
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

// Original returns the quota that a group had before anything was taken from it; ok is false if
// none was.
func (l *Ledger) Original(k Key, group string) (quota int64, ok bool) {
	if o := l.held[k].group(group); o != nil && o.Throttle {
		return o.Quota, true
	}
	return 0, false
}

// Weight returns the weight that a group had before it was lowered; ok is false if it was not.
func (l *Ledger) Weight(k Key, group string) (shares int64, idle, ok bool) {
	if o := l.held[k].group(group); o != nil && o.Reweight {
		return o.Shares, o.Idle, true
	}
	return 0, false, false
}

// FrozenUntil returns when a frozen task is thawed at the latest; 0 if it is not frozen by us.
func (l *Ledger) FrozenUntil(k Key) int64 {
	if h := l.held[k]; h != nil {
		return h.Frozen
	}
	return 0
}

// takes reports whether something is taken now.
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

// Adopt notes that something was taken from a group by somebody who kept no record of it: an agent
// that was killed, or an earlier version. It is given back like anything else. A group of which
// something is noted already is left as it is.
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
		h.Frozen = 1 // long ago: it is thawed at once
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

// Accept makes what a plan found out about the rules the ledger's own, and forgets tasks that are
// no longer there. A plan is accepted once, before its steps are begun.
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
		l.setBack(r.At, l.at-r.At)
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
		case !t.Stopping && (e.doubted || e.Deadline <= r.At): // it was never told, or that was forgotten
			delete(l.leaving, t.Key())
		default:
			e.doubted = false
			e.Used.note(t)
		}
	}
	forget(l.held, present)
	forget(l.failed, present)
	forget(l.unstopped, present)
	l.bury(r, present)
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

// setBack moves what is remembered with a clock that was set back. Else a frozen task would stand
// still, and others would wait, until the clock is where it was.
func (l *Ledger) setBack(now, by int64) {
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

// bury forgets tasks that were told to stop, once they are gone and their use is not in the node's
// figures any more.
func (l *Ledger) bury(r *Result, present map[Key]bool) {
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

// shows reports whether a change is in a reading that was taken then.
func shows(change, reading int64, lag time.Duration) bool { return reading-change >= int64(lag) }

func forget[V any](m map[Key]V, present map[Key]bool) {
	maps.DeleteFunc(m, func(k Key, _ V) bool { return !present[k] })
}

// maxBackoff is how often Options.Backoff doubles, as a factor.
const maxBackoff = 32

// Begin notes a step that is about to be done. After it the ledger can be written down, and
// whatever happens then, what is taken can be given back.
func (l *Ledger) Begin(s *Step, now int64) {
	if s.Preview {
		return
	}
	if s.OwnLimit {
		l.beginLimit(s)
		if s.Before == s.After {
			return // it is set once more
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
		return // beginLimit has noted it
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

// flaps reports whether something is taken again soon after it was given back, or so soon after
// another one got something that this one pays for that. What counts is when the line was crossed,
// however many samples it took to trigger the rule; and what was given since then has not led to
// it.
func (l *Ledger) flaps(h *hold, s *Step, now int64) bool {
	crossed := now
	if r := l.rules[s.Rule]; r != nil && r.Rising > 0 {
		crossed = r.Rising
	}
	return h.Given > h.Taken && crossed-h.Given < 3*int64(max(h.Wait, s.settle)) ||
		l.given > h.Taken && l.given < crossed && crossed-l.given < int64(s.settle)
}

// Done notes how a step ended. What failed counts for nothing, and the task is left alone for a
// while; but not if only no memory could be reclaimed from it: that is asked for once, and when it
// was in vain the task is the first to be stopped.
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
			if h := l.held[s.Key()]; h != nil { // whoever cannot freeze a group lets it run again
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
		// a task thaws at its time, and not because there is room
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

// note remembers a change. Those of one kind that were made after one sample are one. If there are
// too many because a metric is measured seldom, the oldest counts as made with the next of its
// kind: it is counted on for too long rather than forgotten.
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

// failures are those that keep a verb from being tried.
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
	f.Count = min(f.Count+1, mostFailures)
	f.Until = now + int64(plimsoll.Backoff{First: s.backoff, Longest: maxBackoff * s.backoff}.Delay(int(f.Count)))
	f.Reason = err.Error()
	if len(f.Reason) > 512 {
		f.Reason = strings.ToValidUTF8(f.Reason[:512], "")
	}
}

// mostFailures is up to where failures are counted.
const mostFailures = 32

// kept reports whether a hold still says something: something is taken, or was given back so lately
// that taking it again would be flapping.
func (h *hold) kept(now int64, settle time.Duration) bool {
	return h.takes() || now-h.Given < max(3*int64(max(h.Wait, settle)), int64(h.Longest))
}

// ledgerFile is the ledger as it is written down.
type ledgerFile struct {
	Version  int
	Sequence uint64
	At       int64
	Given    int64 `json:",omitempty"`
	Rules    []*ruleState
	Held     []*hold
	Leaving  []*leaving
	Failed   []*failure

	Unstopped []*failure `json:",omitempty"`
	Recent    []change   `json:",omitempty"`
}

const ledgerVersion = 1

// Encode writes the ledger down; the same ledger is always the same bytes.
func (l *Ledger) Encode() ([]byte, error) {
	f := ledgerFile{Version: ledgerVersion, Sequence: l.sequence, At: l.at, Given: l.given, Recent: l.recent}
	for _, name := range slices.Sorted(maps.Keys(l.rules)) {
		f.Rules = append(f.Rules, l.rules[name])
	}
	f.Held, f.Leaving, f.Failed, f.Unstopped = inOrder(l.held), inOrder(l.leaving), inOrder(l.failed), inOrder(
		l.unstopped,
	)
	data, err := json.Marshal(&f)
	if err != nil {
		return nil, fmt.Errorf("encode the ledger: %w", err)
	}
	return data, nil
}

func inOrder[V any](m map[Key]V) []V {
	var all []V
	for _, k := range slices.SortedFunc(maps.Keys(m), compareKeys) {
		all = append(all, m[k])
	}
	return all
}

// DecodeLedger reads what Encode wrote. Samples are numbered anew, and how long a metric is missing
// is counted anew, since whoever takes them has started anew too; and of an eviction that was
// begun, the next sample says whether it was done: else the task would be taken as leaving for
// ever.
func DecodeLedger(data []byte) (*Ledger, error) {
	var f ledgerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("decode the ledger: %w", err)
	}
	if f.Version != ledgerVersion {
		return nil, plimsoll.Errorf(
			plimsoll.CodeInternal, "the ledger was written by another version (%d, this one reads %d)", f.Version,
			ledgerVersion,
		)
	}
	l := NewLedger()
	l.at, l.given, l.recent = f.At, f.Given, f.Recent
	for _, r := range f.Rules {
		if r != nil {
			r.Above, r.Below = min(
				max(r.Above, 0), plimsoll.MaxRuleSamples,
			), min(max(r.Below, 0), plimsoll.MaxRuleSamples)
			l.rules[r.Rule] = r
		}
	}
	for _, h := range f.Held {
		if h != nil {
			h.Wait = min(max(h.Wait, 0), max(h.Longest, 0))
			l.held[h.key()] = h
		}
	}
	for _, e := range f.Leaving {
		if e != nil {
			e.doubted = !e.Told
			l.leaving[Key{e.Task, e.Attempt}] = e
		}
	}
	recall(l.failed, f.Failed)
	recall(l.unstopped, f.Unstopped)
	return l, nil
}

func recall(into map[Key]*failure, all []*failure) {
	for _, e := range all {
		if e != nil {
			e.Count = min(max(e.Count, 0), mostFailures)
			into[Key{e.Task, e.Attempt}] = e
		}
	}
}
