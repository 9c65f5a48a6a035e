package fold

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// version is the first byte of an encoded fold. Behind the fields of the fold, in the order of
// AppendState, there is a checksum of four bytes. Numbers are varints in their shortest form. Jobs,
// nodes, groups and short texts are named by their number.
const version = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Which fields of a task follow its flags.
const (
	hasRequested = uint64(allFlags+1) << iota
	hasSince
	hasNode
	hasResult
	allTaskFlags = hasResult<<1 - 1
)

// Flags of jobs, nodes and queues.
const (
	headed = 1 << iota
	early
	queued
	gone
	owed
	allJobFlags = 1<<iota - 1
)

const (
	ready = 1 << iota
	cordoned
	closed
	allNodeFlags = 1<<iota - 1
)

const (
	parent = 1 << iota
	draining
	allQueueFlags = 1<<iota - 1
)

// AppendState appends the encoded fold to dst. Equal folds have equal bytes.
func (f *Fold) AppendState(dst []byte) []byte {
	start := len(dst)
	e := encoder{data: append(dst, version), texts: map[string]int{}}
	e.numbers(f.clock, f.since, f.lives, f.aheadUntil)
	e.count(len(f.nodes))
	for i, id := range sortedKeys(f.nodes) {
		e.node(f.nodes[id])
		f.nodes[id].number = i
	}
	e.count(len(f.queues))
	for _, path := range sortedKeys(f.queues) {
		e.queue(f.queues[path])
	}
	e.lives(f)
	return binary.LittleEndian.AppendUint32(e.data, crc32.Checksum(e.data[start:], castagnoli))
}

// encoder gives nodes, jobs and groups their numbers as it meets them.
type encoder struct {
	data   []byte
	texts  map[string]int
	newest [16]known // texts that came last, by their length
	groups int
}

// known is a text and its number; 0: there is none.
type known struct {
	text   string
	number int
}

// lives appends the jobs, and the lists that refer to them.
func (e *encoder) lives(f *Fold) {
	jobs := f.allJobs()
	e.count(len(jobs))
	life := int64(0)
	for i, j := range jobs {
		e.job(j, life)
		j.number, life = i, j.Life
	}
	open := 0
	for g := f.open.first; g != nil; g = g.next {
		open++
	}
	e.count(open)
	for g := f.open.first; g != nil; g = g.next {
		e.count(g.number)
	}
	waiting := slices.DeleteFunc(slices.Clone(f.ahead), func(p place) bool {
		t := p.group.tasks[p.index]
		return !t.is(ahead)
	})
	e.count(len(waiting))
	for _, p := range waiting {
		e.count(p.group.number)
		e.count(int(p.index))
	}
	due := slices.DeleteFunc(slices.Clone(f.owedJobs), func(j *job) bool { return !j.owed })
	e.count(len(due))
	for _, j := range due {
		e.count(j.number)
	}
	e.count(len(f.owedUse))
	for i := range f.owedUse {
		s := &f.owedUse[i]
		e.count(s.job.number)
		e.amounts(s.amounts)
		e.numbers(s.tasks, s.from, s.until)
	}
}

// allJobs returns all jobs by their lives, also those that are gone and about which something is
// owed.
func (f *Fold) allJobs() []*job {
	jobs := slices.SortedFunc(maps.Values(f.jobs), byLife)
	for _, j := range f.owedJobs {
		if j.gone && j.owed {
			jobs = append(jobs, j)
		}
	}
	for i := range f.owedUse {
		if j := f.owedUse[i].job; j.gone {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) > len(f.jobs) {
		slices.SortFunc(jobs, byLife)
	}
	return slices.Compact(jobs)
}

func byLife(a, b *job) int { return cmp.Compare(a.Life, b.Life) }

func (e *encoder) node(n *node) {
	e.string(n.id)
	e.count(bit(n.ready, ready) | bit(n.cordoned, cordoned) | bit(n.closed, closed))
	e.amounts(n.capacity)
	e.amounts(n.occupied)
}

func (e *encoder) queue(q *queue) {
	e.string(q.path)
	e.count(bit(q.parent, parent) | bit(q.draining, draining))
	e.amounts(q.max)
	e.amounts(q.guaranteed)
}

func (e *encoder) job(j *job, before int64) {
	e.number(j.Life - before)
	e.string(j.ID)
	e.count(bit(j.headed, headed) | bit(j.early, early) | bit(j.queued, queued) | bit(j.gone, gone) | bit(j.owed, owed))
	e.data = append(e.data, j.UID[:]...)
	e.text(j.Owner)
	e.text(j.Queue)
	e.text(j.labels)
	e.count(int(j.State))
	e.numbers(j.Submitted, j.Ended)
	e.count(len(j.groups))
	for _, g := range j.groups {
		g.number = e.groups
		e.groups++
		e.text(g.name)
		e.amounts(g.amounts)
		e.number(g.counted - j.Submitted)
		e.count(len(g.tasks))
		next := int32(0)
		for _, index := range sortedKeys(g.tasks) {
			t := g.tasks[index]
			e.count(int(index - next))
			e.task(&t, j.Submitted)
			next = index + 1
		}
	}
}

func (e *encoder) task(t *task, submitted int64) {
	flags, since := uint64(t.flags), int64(0)
	if t.is(allocated) {
		since = t.since
	}
	flags |= has(t.requested != 0, hasRequested) | has(since != 0, hasSince) | has(t.node != nil, hasNode) |
		has(t.result != plimsoll.ResultNone, hasResult)
	e.data = binary.AppendUvarint(e.data, flags)
	base := submitted
	if t.requested != 0 {
		e.number(t.requested - base)
		base = t.requested
	}
	if since != 0 {
		e.number(since - base)
	}
	if t.node != nil {
		e.count(t.node.number)
	}
	if t.result != plimsoll.ResultNone {
		e.count(int(t.result))
	}
}

func bit(is bool, flag int) int {
	if is {
		return flag
	}
	return 0
}

func has(is bool, flag uint64) uint64 {
	if is {
		return flag
	}
	return 0
}

// amounts appends a list; nil is another one than an empty one.
func (e *encoder) amounts(list []amount) {
	if list == nil {
		e.count(0)
		return
	}
	e.count(len(list) + 1)
	for _, a := range list {
		e.text(a.name)
		e.number(a.value)
	}
}

// text appends a text that is likely to come again.
func (e *encoder) text(s string) {
	last := &e.newest[len(s)%len(e.newest)]
	if last.number > 0 && last.text == s {
		e.count(last.number)
		return
	}
	number := e.texts[s]
	if e.count(number); number == 0 {
		number = len(e.texts) + 1
		e.texts[s] = number
		e.string(s)
	}
	*last = known{s, number}
}

func (e *encoder) string(s string) {
	e.count(len(s))
	e.data = append(e.data, s...)
}

func (e *encoder) numbers(list ...int64) {
	for _, n := range list {
		e.number(n)
	}
}

func (e *encoder) number(n int64) { e.data = binary.AppendVarint(e.data, n) }
func (e *encoder) count(n int)    { e.data = binary.AppendUvarint(e.data, uint64(n)) }
