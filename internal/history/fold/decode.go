package fold

import (
	"encoding/binary"
	"hash/crc32"
	"iter"
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// Decode returns the fold of an encoded one. It fails with CodeCorrupt for bytes that AppendState
// does not make. It takes memory in proportion to the bytes.
func Decode(data []byte) (*Fold, error) {
	if len(data) < 5 || data[0] != version {
		return nil, corrupt("it is not of version %d", version)
	}
	end := len(data) - 4
	if crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]) {
		return nil, corrupt("its checksum is wrong")
	}
	d := decoder{data: data[1:end], fold: New(), known: map[string]bool{}}
	if d.all(); d.err == nil && len(d.data) > 0 {
		d.fail("%d bytes follow its end", len(d.data))
	}
	if d.err != nil {
		return nil, d.err
	}
	return d.fold, nil
}

func corrupt(format string, args ...any) error {
	e := plimsoll.Errorf(plimsoll.CodeCorrupt, format, args...)
	e.Op = "read the state of the history"
	return e
}

// decoder is the counterpart of encoder. After the first error everything that it reads is zero.
type decoder struct {
	data   []byte
	fold   *Fold
	texts  []string
	known  map[string]bool // the same texts
	nodes  []*node
	jobs   []*job
	groups []*group
	amount []amount // the list that was read last
	err    error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = corrupt(format, args...)
	}
	d.data = nil
}

func (d *decoder) all() {
	f := d.fold
	f.clock, f.since, f.lives, f.aheadUntil = d.number(), d.number(), d.number(), d.number()
	if f.clock < 0 || f.lives < 0 {
		d.fail("its time is %d, and its last life %d", f.clock, f.lives)
	}
	for range d.each() {
		d.node()
	}
	last := ""
	for range d.each() {
		last = d.queue(last)
	}
	for range d.each() {
		d.job()
	}
	d.open()
	d.ahead()
	for range d.each() {
		j := d.someJob()
		if !j.owed {
			d.fail("job %q is owed, and says that it is not", j.ID)
		}
		f.owedJobs = append(f.owedJobs, j)
	}
	for range d.each() {
		s := span{job: d.someJob(), amounts: d.amounts(), tasks: d.number(), from: d.number(), until: d.number()}
		if s.tasks < 1 || s.tasks > plimsoll.MaxTasksPerJob || s.from < 0 || s.from >= s.until {
			d.fail("%d tasks are owed their use from %d to %d", s.tasks, s.from, s.until)
		}
		f.owedUse = append(f.owedUse, s)
	}
	d.checkOwed()
}

// checkOwed checks that the jobs which are gone are owed something, and each once.
func (d *decoder) checkOwed() {
	inUse, listed := map[*job]bool{}, map[*job]bool{}
	for i := range d.fold.owedUse {
		inUse[d.fold.owedUse[i].job] = true
	}
	for _, j := range d.fold.owedJobs {
		if listed[j] {
			d.fail("job %q is owed twice", j.ID)
		}
		listed[j] = true
	}
	for _, j := range d.jobs {
		if j.owed != listed[j] || j.gone && !listed[j] && !inUse[j] {
			d.fail("nothing is owed about job %q", j.ID)
		}
	}
}

// open reads the list of groups with open allocations.
func (d *decoder) open() {
	last, n := int64(math.MinInt64), 0
	for range d.each() {
		g := d.group()
		if g.running == 0 || g.counted < last || d.fold.open.has(g) {
			d.fail("group %q has no open allocations, or is at a wrong place", g.name)
			return
		}
		last = g.counted
		n++
		d.fold.open.add(g)
	}
	for _, g := range d.groups {
		if g.running > 0 {
			n--
		}
	}
	if n != 0 {
		d.fail("not all groups with open allocations are listed")
	}
}

func (l *openList) has(g *group) bool { return g.before != nil || l.first == g }

// ahead reads the allocations that were not told.
func (d *decoder) ahead() {
	seen := map[place]bool{}
	for range d.each() {
		p := place{d.group(), int32(d.atMost(math.MaxInt32))}
		if t := p.group.tasks[p.index]; !t.is(ahead) || seen[p] {
			d.fail("task %d of group %q is not ahead", p.index, p.group.name)
			return
		}
		seen[p] = true
		d.fold.ahead = append(d.fold.ahead, p)
	}
	for _, g := range d.groups {
		for _, index := range sortedKeys(g.tasks) {
			if t := g.tasks[index]; t.is(ahead) && !seen[place{g, index}] {
				d.fail("task %d of group %q is ahead, and is not listed", index, g.name)
			}
		}
	}
}

func (d *decoder) node() {
	f, n := d.fold, &node{id: d.string()}
	if len(d.nodes) > 0 && d.nodes[len(d.nodes)-1].id >= n.id {
		d.fail("node %q is not in its place", n.id)
	}
	flags := d.atMost(allNodeFlags)
	n.ready, n.cordoned, n.closed = flags&ready != 0, flags&cordoned != 0, flags&closed != 0
	n.capacity, n.occupied = d.amounts(), d.amounts()
	d.nodes = append(d.nodes, n)
	f.nodes[n.id] = n
	f.bytes += nodeBytes + len(n.id)
}

func (d *decoder) queue(last string) (path string) {
	f, q := d.fold, &queue{path: d.string()}
	if len(f.queues) > 0 && last >= q.path {
		d.fail("queue %q is not in its place", q.path)
	}
	flags := d.atMost(allQueueFlags)
	q.parent, q.draining = flags&parent != 0, flags&draining != 0
	q.max, q.guaranteed = d.amounts(), d.amounts()
	f.queues[q.path] = q
	f.bytes += queueBytes + len(q.path)
	return q.path
}

func (d *decoder) job() {
	f, before := d.fold, int64(0)
	if len(d.jobs) > 0 {
		before = d.jobs[len(d.jobs)-1].Life
	}
	j := &job{}
	if j.Life = before + d.number(); j.Life <= before || j.Life > f.lives {
		d.fail("life %d follows %d", j.Life, before)
	}
	j.ID = d.string()
	flags := d.atMost(allJobFlags)
	j.headed, j.early, j.queued = flags&headed != 0, flags&early != 0, flags&queued != 0
	j.gone, j.owed = flags&gone != 0, flags&owed != 0
	copy(j.UID[:], d.take(len(j.UID)))
	j.Owner, j.Queue, j.labels = d.text(), d.text(), d.text()
	j.State = plimsoll.ChangeDetail(d.atMost(math.MaxUint16))
	j.Submitted, j.Ended = d.number(), d.number()
	d.labels(j)
	if !j.gone {
		if f.jobs[j.ID] != nil {
			d.fail("job %q is there twice", j.ID)
		}
		f.jobs[j.ID] = j
		f.bytes += jobBytes + j.textBytes()
	}
	d.jobs = append(d.jobs, j)
	names := map[string]bool{}
	for range d.each() {
		g := d.newGroup(j)
		if names[g.name] || j.gone {
			d.fail("group %q of job %q is there twice", g.name, j.ID)
		}
		names[g.name] = true
	}
}

func (d *decoder) labels(j *job) {
	labels, ok := history.DecodeLabels(j.labels)
	if !ok || history.EncodeLabels(labels) != j.labels || !j.headed && j.labels != "" {
		d.fail("job %q has the labels %.100q", j.ID, j.labels)
	}
	if j.headed {
		j.Labels = labels
	}
}

func (d *decoder) newGroup(j *job) *group {
	g := &group{job: j, name: d.text(), amounts: d.amounts(), tasks: map[int32]task{}}
	g.counted = d.number() + j.Submitted
	next := 0
	for range d.each() {
		next += d.atMost(plimsoll.MaxTasksPerJob)
		t := d.task(j)
		if next >= plimsoll.MaxTasksPerJob {
			d.fail("group %q of job %q has a task %d", g.name, j.ID, next)
			break
		}
		if g.tasks[int32(next)] = t; t.is(allocated) && !t.is(ahead) {
			g.running++
		}
		next++
	}
	if g.running > 0 && (g.counted < 0 || g.counted > d.fold.clock) {
		d.fail("group %q of job %q was counted at %d", g.name, j.ID, g.counted)
	}
	j.groups = append(j.groups, g)
	j.tasks += int32(len(g.tasks))
	d.groups = append(d.groups, g)
	d.fold.bytes += groupBytes + taskBytes*len(g.tasks)
	return g
}

func (d *decoder) task(j *job) task {
	has := uint64(d.atMost(int(allTaskFlags)))
	t, base := task{flags: flags(has) & allFlags}, j.Submitted
	if has&hasRequested != 0 {
		t.requested = base + d.number()
		base = t.requested
	}
	if has&hasSince != 0 {
		t.since = base + d.number()
	}
	if has&hasNode != 0 {
		i := d.count()
		if i >= len(d.nodes) {
			d.fail("a task is on node %d of %d", i, len(d.nodes))
			return t
		}
		t.node = d.nodes[i]
		t.node.tasks++
	}
	if has&hasResult != 0 {
		t.result = plimsoll.TaskResult(d.atMost(math.MaxUint8))
	}
	switch {
	case has&hasRequested != 0 && t.requested == 0, has&hasSince != 0 && (t.since == 0 || !t.is(allocated)),
		has&hasResult != 0 && (t.result == plimsoll.ResultNone || !t.result.Known()), t.is(ahead) && !t.is(allocated):
		d.fail("a task of job %q has the flags %d, which do not fit", j.ID, has)
	}
	return t
}

// amounts reads a list of amounts. Equal lists that follow each other become one.
func (d *decoder) amounts() []amount {
	n := d.count()
	if n == 0 {
		return nil
	}
	if n--; n > len(d.data) {
		d.fail("it announces %d amounts in %d bytes", n, len(d.data))
		return nil
	}
	list := make([]amount, 0, min(n, len(d.data)/2))
	for range n {
		a := amount{d.text(), d.number()}
		if a.value < 0 || len(list) > 0 && list[len(list)-1].name >= a.name {
			d.fail("%d of resource %q is not in its place", a.value, a.name)
			return nil
		}
		list = append(list, a)
	}
	if d.amount != nil && slices.Equal(list, d.amount) {
		return d.amount
	}
	d.amount = list
	return list
}

// someJob returns the job that the next number names. After an error it is one of no fold.
func (d *decoder) someJob() *job {
	i := d.count()
	if i >= len(d.jobs) {
		d.fail("there is no job %d", i)
		return &job{}
	}
	return d.jobs[i]
}

// group returns the group that the next number names. After an error it is one of no fold.
func (d *decoder) group() *group {
	i := d.count()
	if i >= len(d.groups) {
		d.fail("there is no group %d", i)
		return &group{}
	}
	return d.groups[i]
}

func (d *decoder) text() string {
	i := d.count()
	if i > len(d.texts) {
		d.fail("there is no text %d", i)
		return ""
	}
	if i > 0 {
		return d.texts[i-1]
	}
	s := d.string()
	if d.known[s] {
		d.fail("the text %.100q is there twice", s)
	}
	d.known[s] = true
	d.texts = append(d.texts, s)
	return s
}

func (d *decoder) string() string { return string(d.take(d.count())) }

func (d *decoder) take(n int) []byte {
	if n > len(d.data) {
		d.fail("it ends within a text of %d bytes", n)
		return nil
	}
	part := d.data[:n]
	d.data = d.data[n:]
	return part
}

func (d *decoder) number() int64 {
	n, size := binary.Varint(d.data)
	d.skip(size)
	if d.err != nil {
		return 0
	}
	return n
}

// each reads a number of things, and yields for each. A thing takes at least a byte.
func (d *decoder) each() iter.Seq[int] {
	n := d.count()
	if n > len(d.data) {
		d.fail("it announces %d things in %d bytes", n, len(d.data))
	}
	return func(yield func(int) bool) {
		for i := 0; i < n && d.err == nil && yield(i); i++ {
		}
	}
}

// count reads the number of a thing.
func (d *decoder) count() int {
	n, size := binary.Uvarint(d.data)
	d.skip(size)
	if d.err != nil {
		return 0
	}
	if n > math.MaxInt32 {
		d.fail("a count is %d", n)
		return 0
	}
	return int(n)
}

func (d *decoder) atMost(most int) int {
	n := d.count()
	if n > most {
		d.fail("a number is %d; %d is the largest", n, most)
		return 0
	}
	return n
}

// skip drops a number that was read. Its last byte is 0 only if it has no other.
func (d *decoder) skip(size int) {
	if size <= 0 || size > 1 && d.data[size-1] == 0 {
		d.fail("a number is cut off, or longer than needed")
		return
	}
	d.data = d.data[size:]
}
