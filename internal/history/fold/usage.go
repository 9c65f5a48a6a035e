package fold

import (
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

const (
	nanosPerHour   = int64(3_600_000_000_000)
	secondsPerHour = int64(3600)
)

// amount is an amount of a resource. Lists of them are in the order of the names and are shared:
// they are never changed.
type amount struct {
	name  string
	value int64
}

// amountsOf returns resources as a list. A negative amount, which no cluster has, is none.
func (f *Fold) amountsOf(r plimsoll.Resources) []amount {
	if sameAmounts(f.recent, r) {
		return f.recent
	}
	list := make([]amount, 0, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		list = append(list, amount{f.text(name), max(r[name], 0)})
	}
	f.recent = list
	return list
}

func sameAmounts(list []amount, r plimsoll.Resources) bool {
	if len(list) != len(r) || list == nil {
		return false
	}
	for i := range list {
		if value, ok := r[list[i].name]; !ok || max(value, 0) != list[i].value {
			return false
		}
	}
	return true
}

func resourcesOf(list []amount) plimsoll.Resources {
	r := make(plimsoll.Resources, len(list))
	for _, a := range list {
		r[a.name] = a.value
	}
	return r
}

// span is usage that a call of Apply had no room for.
type span struct {
	job         *job
	amounts     []amount
	tasks       int64 // that have these amounts
	from, until int64
}

// count counts the tasks of a group that are open, up to now.
func (f *Fold) count(g *group) {
	from := g.counted
	g.counted = max(g.counted, f.clock)
	if g.running > 0 && from < f.clock {
		f.use(span{g.job, g.amounts, int64(g.running), from, f.clock})
	}
}

// use adds usage to the rollups of its hours. Usage that the call has no room for is owed.
func (f *Fold) use(s span) {
	for s.from < s.until {
		if f.batch.spent >= MaxResultBytes && !f.hasRow(s.job, s.from) {
			f.owedUse = append(f.owedUse, s)
			return
		}
		s.from = f.useHour(&s)
	}
}

// useHour adds usage to the rollup of its first hour, and returns the end of that.
func (f *Fold) useHour(s *span) int64 {
	end := min(s.until, (s.from/nanosPerHour+1)*nanosPerHour)
	r := f.row(s.job, s.from)
	for _, a := range s.amounts {
		f.batch.spent += r.add(a.name, history.AmountOf(a.value, s.tasks*(end-s.from)))
	}
	return end
}

// payUse adds usage that earlier calls had no room for. Half of the room is left for events.
func (f *Fold) payUse() {
	n := 0
	for ; n < len(f.owedUse); n++ {
		s := &f.owedUse[n]
		for s.from < s.until && (f.batch.spent < MaxResultBytes/2 || f.hasRow(s.job, s.from)) {
			s.from = f.useHour(s)
		}
		if s.from < s.until {
			break
		}
	}
	if f.owedUse = f.owedUse[n:]; len(f.owedUse) == 0 {
		f.owedUse = nil
	}
}

// run adds tasks to those of a group that are open, or takes them away.
func (f *Fold) run(g *group, tasks int32) {
	f.count(g)
	f.open.remove(g)
	if g.running += tasks; g.running > 0 {
		f.open.add(g)
	}
}

// countOpen counts open allocations at the end of a call.
func (f *Fold) countOpen() {
	for n := 0; f.batch.spent < MaxResultBytes; n++ {
		g := f.open.first
		if g == nil || g.counted == f.clock || n >= OpenEach && f.clock-g.counted < OpenEvery {
			return
		}
		f.count(g)
		f.open.remove(g)
		f.open.add(g)
	}
}

// openList is a list of groups with open allocations, the one that was counted longest ago first.
type openList struct{ first, last *group }

func (l *openList) add(g *group) {
	g.before, l.last = l.last, g
	if g.before == nil {
		l.first = g
	} else {
		g.before.next = g
	}
}

// remove does nothing if the group is not in the list.
func (l *openList) remove(g *group) {
	if g.before == nil && l.first != g {
		return
	}
	if g.before == nil {
		l.first = g.next
	} else {
		g.before.next = g.next
	}
	if g.next == nil {
		l.last = g.before
	} else {
		g.next.before = g.before
	}
	g.before, g.next = nil, nil
}
