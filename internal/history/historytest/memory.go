package historytest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// Memory is a history in memory, a Writer and a Reader in one. It answers by looking at everything,
// and is the model of the suite. It keeps every fold.
type Memory struct {
	name    string // that it got when it was made
	mu      sync.Mutex
	at      history.Position
	batches []*batch // that are kept
	base    *batch   // the last one that was trimmed: its fold stays; nil: none was
	jobs    map[int64]history.Job
	sums    []*sums
	sumOf   map[sumKey]*sums
	gaps    []history.Gap
	known   map[history.Object]bool // objects without Life, but for those of jobs with one
	since   int64
	peak    int64
	partial bool // something was before the first event, or was trimmed
	chunks  int64
}

// batch is a batch that was written.
type batch struct {
	history.Events

	n         int64
	low, high int64
	peak      int64
	gapped    bool
	fold      []byte
	records   []record
}

// sums has the sums of a group in an hour.
type sums struct {
	sumKey
	history.Sums

	labels map[string]string
}

type sumKey struct {
	hour  int64
	group history.Group
}

// record is an event with the objects that it is about.
type record struct {
	history.Record

	objects []history.Object // with lives
}

var (
	_ history.Writer = (*Memory)(nil)
	_ history.Reader = (*Memory)(nil)
)

// NewMemory returns an empty history.
func NewMemory() *Memory {
	return &Memory{
		name: uuid.NewString(),
		jobs: map[int64]history.Job{}, known: map[history.Object]bool{}, sumOf: map[sumKey]*sums{},
	}
}

// Close implements both interfaces. The content stays.
func (m *Memory) Close() error { return nil }

// Name implements history.Writer.
func (m *Memory) Name(context.Context) (string, error) { return m.name, nil }

// Position implements history.Writer.
func (m *Memory) Position(context.Context) (history.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at, nil
}

// Write implements history.Writer.
func (m *Memory) Write(_ context.Context, b *history.Batch) error {
	low, high, err := b.Check()
	if err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if there, err := b.Follows(m.at); there || err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	if m.chunks == 0 {
		m.since, m.peak, m.partial = b.From, high, b.Gap != nil || b.First > 0
	}
	m.chunks++
	m.peak = max(m.peak, high)
	m.at = history.Position{Instance: b.Instance, Next: b.First + b.Count}
	stored := &batch{
		Events: history.Events{
			Instance: b.Instance, First: b.First, Count: b.Count, From: b.From, To: b.To, Data: slices.Clone(b.Data),
		},
		n: m.chunks, low: low, high: high, peak: m.peak, gapped: b.Gap != nil, fold: slices.Clone(b.Fold),
	}
	for ev, err := range ring.Decode(stored.Data) {
		if err != nil {
			return err //nolint:wrapcheck // Check has read it
		}
		r := record{Record: history.Record{Instance: b.Instance, ID: b.First + uint64(len(stored.records)), Event: ev}}
		history.Objects(&ev, func(o history.Object) { r.objects = append(r.objects, o) })
		stored.records = append(stored.records, r)
	}
	stored.giveLives(b.Objects)
	m.batches = append(m.batches, stored)
	for _, o := range b.Objects {
		if o.Life == 0 {
			m.known[o] = true
		}
	}
	for i := range b.Jobs {
		m.jobs[b.Jobs[i].Life] = b.Jobs[i]
	}
	for i := range b.Rollups {
		r := &b.Rollups[i]
		key := sumKey{r.Hour, r.Group}
		if m.sumOf[key] == nil {
			labels, _ := history.DecodeLabels(r.Group.Labels)
			m.sumOf[key] = &sums{sumKey: key, labels: labels}
			m.sums = append(m.sums, m.sumOf[key])
		}
		m.sumOf[key].Add(&r.Sums)
	}
	if b.Gap != nil {
		m.gaps = append(m.gaps, *b.Gap)
		if len(m.gaps) > history.MaxGaps {
			m.gaps[1] = m.gaps[0].Joined(m.gaps[1])
			m.gaps = m.gaps[1:]
		}
	}
	return nil
}

// giveLives sets the lives of jobs. From the last event back, the highest life of an id goes as far
// as the event that began it, then the next lower one.
func (b *batch) giveLives(objects []history.Object) {
	left := map[string][]int64{}
	for _, o := range objects {
		if o.Life > 0 {
			left[o.ID] = append(left[o.ID], o.Life)
		}
	}
	for _, lives := range left {
		slices.Sort(lives)
	}
	for _, r := range slices.Backward(b.records) {
		for i := range r.objects {
			o := &r.objects[i]
			lives := left[o.ID]
			if o.Kind != history.KindJob || len(lives) == 0 {
				continue
			}
			o.Life = lives[len(lives)-1]
			if history.Begins(&r.Event) {
				left[o.ID] = lives[:len(lives)-1]
			}
		}
	}
}

// Resume implements history.Writer.
func (m *Memory) Resume(context.Context) (
	[]byte, history.Position, func(fn func(history.Events) error) error, error,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var fold []byte
	var behind history.Position
	left := m.batches
	for i, b := range m.batches {
		if b.fold != nil {
			fold, left = b.fold, m.batches[i+1:]
			behind = history.Position{Instance: b.Instance, Next: b.First + b.Count}
		}
	}
	return fold, behind, replayOf(left), nil
}

func replayOf(batches []*batch) func(fn func(history.Events) error) error {
	return func(fn func(history.Events) error) error {
		for _, b := range batches {
			if err := fn(b.Events); err != nil {
				return err
			}
		}
		return nil
	}
}

// Trim implements history.Writer. Bytes counts the packed events only.
func (m *Memory) Trim(_ context.Context, keep history.Retention, now int64) (more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	needed := 0 // batches that may go
	for i, b := range m.batches {
		if b.fold != nil {
			needed = i
		}
	}
	bytes := int64(0)
	for _, b := range m.batches {
		bytes += int64(len(b.Data))
	}
	gone := 0
	for ; gone < needed; gone++ {
		b := m.batches[gone]
		if !(keep.Age > 0 && b.high < now-int64(keep.Age)) && !(keep.Bytes > 0 && bytes > keep.Bytes) {
			break
		}
		bytes -= int64(len(b.Data))
		m.partial = true
	}
	if gone > 0 {
		m.base = m.batches[gone-1]
	}
	m.batches = m.batches[gone:]
	if keep.Usage == 0 {
		return false, nil
	}
	cutoff := (now - int64(keep.Usage)) / 3600e9 * 3600
	m.sums = slices.DeleteFunc(m.sums, func(r *sums) bool { return r.hour < cutoff })
	maps.DeleteFunc(m.sumOf, func(key sumKey, _ *sums) bool { return key.hour < cutoff })
	before := cutoff * 1e9
	if len(m.batches) > 0 {
		before = min(before, m.batches[0].From)
	}
	maps.DeleteFunc(m.jobs, func(_ int64, j history.Job) bool { return j.Ended > 0 && j.Ended < before })
	return false, nil
}

// Status implements history.Reader.
func (m *Memory) Status(context.Context) (history.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := history.Status{Position: m.at, Since: m.since, Jobs: uint64(len(m.jobs)), Gaps: slices.Clone(m.gaps)}
	for _, b := range m.batches {
		s.Newest = b.To
		s.Events += b.Count
		s.Bytes += int64(len(b.Data))
	}
	if len(m.batches) > 0 {
		s.Oldest = m.batches[0].From
	}
	return s, nil
}

// At implements history.Reader.
func (m *Memory) At(_ context.Context, t int64) ([]byte, func(fn func(history.Events) error) error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.chunks == 0 || t < m.since {
		return nil, nil, plimsoll.Errorf(plimsoll.CodeNotFound, "the history begins later")
	}
	fold, from := m.foldAt(t, func([]byte) bool { return true })
	if fold == nil && m.partial {
		return nil, nil, plimsoll.Errorf(plimsoll.CodeNotFound, "it is trimmed")
	}
	end, err := m.endOf(from, t)
	if err != nil {
		return nil, nil, err
	}
	return fold, replayOf(m.batches[from:end]), nil
}

// foldAt returns the newest of some folds that is not behind a time, and the first batch behind it.
func (m *Memory) foldAt(t int64, among func(fold []byte) bool) (fold []byte, from int) {
	if m.base != nil && m.base.peak <= t && m.base.fold != nil && among(m.base.fold) {
		fold = m.base.fold
	}
	for i, b := range m.batches {
		if b.fold != nil && b.peak <= t && among(b.fold) {
			fold, from = b.fold, i+1
		}
	}
	return fold, from
}

// replayFrom returns the replay up to a time behind a fold that is not the newest. It is nil if
// there is no such fold.
func (m *Memory) replayFrom(fold []byte, t int64) func(fn func(history.Events) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, from := m.foldAt(t, func(f []byte) bool { return bytes.Equal(f, fold) })
	if (found == nil) != (fold == nil) || fold == nil && m.partial {
		return nil
	}
	end, err := m.endOf(from, t)
	if err != nil {
		return nil
	}
	return replayOf(m.batches[from:end])
}

// endOf returns the batch before which a replay up to a time ends.
func (m *Memory) endOf(from int, t int64) (int, error) {
	end := from
	for ; end < len(m.batches); end++ {
		b := m.batches[end]
		if b.peak <= t {
			continue
		}
		if b.gapped && (end == 0 || m.batches[end-1].peak < t) {
			return 0, plimsoll.Errorf(plimsoll.CodeNotFound, "events of this time were lost")
		}
		if !b.gapped && b.From <= t {
			end++
		}
		break
	}
	return end, nil
}

// Timeline implements history.Reader.
func (m *Memory) Timeline(_ context.Context, q history.TimelineQuery) (page history.Page[history.Record], err error) {
	if err := q.Check(); err != nil {
		return page, err //nolint:wrapcheck // it names the field
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.knows(q.Object) {
		return page, plimsoll.Errorf(plimsoll.CodeNotFound, "the history knows nothing of %q", q.Object.ID)
	}
	bytes := 0
	for _, b := range m.batches {
		if b.n < q.After.Chunk {
			continue
		}
		for i := range b.records {
			r := &b.records[i]
			if b.n == q.After.Chunk && r.ID < q.After.ID || !r.meets(&q) {
				continue
			}
			bytes += r.Bytes()
			if len(page.Rows) == q.Limit || len(page.Rows) > 0 && bytes > history.MaxPageBytes {
				page.Next = history.Cursor{Chunk: b.n, ID: r.ID}
				return page, nil
			}
			page.Rows = append(page.Rows, r.Record)
		}
	}
	return page, nil
}

func (r *record) meets(q *history.TimelineQuery) bool {
	ev := &r.Event
	if q.From > 0 && ev.Time < q.From || q.Until > 0 && ev.Time >= q.Until {
		return false
	}
	if q.Object.Kind != 0 && !slices.ContainsFunc(r.objects, func(o history.Object) bool {
		return o.Kind == q.Object.Kind && o.ID == q.Object.ID && (q.Object.Life == 0 || o.Life == q.Object.Life)
	}) {
		return false
	}
	inTask := ev.Type == plimsoll.EventRequest && ev.Object == q.Task ||
		(ev.Type == plimsoll.EventApp || ev.Type == plimsoll.EventNode) && ev.Reference == q.Task
	return q.Task == "" || inTask
}

func (m *Memory) knows(o history.Object) bool {
	if o.Kind == 0 || m.known[history.Object{Kind: o.Kind, ID: o.ID}] && o.Life == 0 {
		return true
	}
	for _, j := range m.jobs {
		if o.Kind == history.KindJob && j.ID == o.ID && (o.Life == 0 || j.Life == o.Life) {
			return true
		}
	}
	return false
}

// Jobs implements history.Reader.
func (m *Memory) Jobs(_ context.Context, q history.JobQuery) (page history.Page[history.Job], err error) {
	if err := q.Check(); err != nil {
		return page, err //nolint:wrapcheck // it names the field
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes := 0
	for _, life := range slices.Backward(slices.Sorted(maps.Keys(m.jobs))) {
		j := m.jobs[life]
		if q.After.Chunk > 0 && life >= q.After.Chunk || !jobMeets(&j, &q) {
			continue
		}
		bytes += j.Bytes()
		if len(page.Rows) == q.Limit || len(page.Rows) > 0 && bytes > history.MaxPageBytes {
			page.Next = history.Cursor{Chunk: life + 1}
			return page, nil
		}
		page.Rows = append(page.Rows, j)
	}
	return page, nil
}

func jobMeets(j *history.Job, q *history.JobQuery) bool {
	if q.ID != "" && q.ID != j.ID || q.Until > 0 && j.Submitted >= q.Until || j.Ended > 0 && j.Ended < q.From {
		return false
	}
	return groupMeets(j.Owner, j.Queue, j.Labels, q.Owner, q.Queue, q.Labels)
}

func groupMeets(owner, queue string, labels map[string]string, byOwner, byQueue string, by map[string]string) bool {
	for key, value := range by {
		if got, has := labels[key]; !has || got != value {
			return false
		}
	}
	return (byOwner == "" || owner == byOwner) && (byQueue == "" || strings.HasPrefix(queue+".", byQueue+"."))
}

// Usage implements history.Reader.
func (m *Memory) Usage(_ context.Context, q history.UsageQuery) (rows []history.UsageRow, more bool, err error) {
	if err := q.Check(); err != nil {
		return nil, false, err //nolint:wrapcheck // it names the field
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	type group struct {
		history.UsageRow

		life int64
	}
	groups := []*group{}
	byJob := slices.Contains(q.By, history.ByJob)
	if q.Job != "" && !slices.ContainsFunc(slices.Collect(maps.Values(m.jobs)), func(j history.Job) bool {
		return j.ID == q.Job
	}) {
		return nil, false, plimsoll.Errorf(plimsoll.CodeNotFound, "the history has no job %q", q.Job)
	}
	for _, r := range m.sums {
		job := m.jobs[r.group.Life]
		owner, queue, labels := r.group.Owner, r.group.Queue, r.labels
		if byJob || q.Job != "" {
			owner, queue, labels = job.Owner, job.Queue, job.Labels
		}
		if r.hour < q.From || q.Until > 0 && r.hour >= q.Until || q.Job != "" && job.ID != q.Job ||
			!groupMeets(owner, queue, labels, q.Owner, q.Queue, q.Labels) {
			continue
		}
		g := &group{}
		for _, by := range q.By {
			g.Keys = append(g.Keys, keyOf(by, q.Zone, r.hour, &job, owner, queue, labels))
		}
		if byJob {
			g.life = r.group.Life
		}
		at := slices.IndexFunc(groups, func(o *group) bool { return o.life == g.life && slices.Equal(o.Keys, g.Keys) })
		if at < 0 {
			at = len(groups)
			groups = append(groups, g)
		}
		groups[at].Add(&r.Sums)
	}
	if len(groups) > history.MaxPage {
		return nil, false, plimsoll.Errorf(plimsoll.CodeExhausted, "there are %d groups", len(groups))
	}
	slices.SortFunc(groups, func(a, b *group) int {
		x, y := a.Used[plimsoll.CPU], b.Used[plimsoll.CPU]
		return cmp.Or(cmp.Compare(y.High, x.High), cmp.Compare(y.Low, x.Low), slices.Compare(a.Keys, b.Keys),
			cmp.Compare(a.life, b.life))
	})
	for _, g := range groups {
		if len(rows) == q.Limit {
			return rows, true, nil
		}
		rows = append(rows, g.UsageRow)
	}
	return rows, false, nil
}

func keyOf(
	by history.Dimension, zone *time.Location, hour int64, job *history.Job, owner, queue string,
	labels map[string]string,
) string {
	switch by {
	case history.ByOwner:
		return owner
	case history.ByQueue:
		return queue
	case history.ByHour:
		return time.Unix(hour, 0).UTC().Format("2006-01-02T15:04Z")
	case history.ByDay:
		if zone == nil {
			zone = time.UTC
		}
		return time.Unix(hour, 0).In(zone).Format("2006-01-02")
	case history.ByJob:
		return plimsoll.LifetimeName(job.ID, job.UID)
	}
	return labels[strings.TrimPrefix(string(by), history.LabelPrefix)]
}
