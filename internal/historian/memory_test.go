package historian_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// memory is a history in memory: a Writer and a Reader. It checks what it is given as a file does.
type memory struct {
	sync.Mutex
	batches []history.Batch
	jobs    map[int64]history.Job
	at      history.Position
	fail    error // of the next writes

	failOnce  error // of the next write alone
	meanwhile func()
}

// breaks lets the next writes fail; nil: no more.
func (m *memory) breaks(err error) {
	m.Lock()
	defer m.Unlock()
	m.fail = err
}

// breaksOnce lets the next write fail, and calls a function meanwhile.
func (m *memory) breaksOnce(err error, meanwhile func()) {
	m.Lock()
	defer m.Unlock()
	m.failOnce, m.meanwhile = err, meanwhile
}

func (m *memory) Name(context.Context) (string, error) { return "own", nil }

func (m *memory) Position(context.Context) (history.Position, error) {
	m.Lock()
	defer m.Unlock()
	return m.at, nil
}

func (m *memory) Resume(
	context.Context,
) ([]byte, history.Position, func(func(history.Events) error) error, error) {
	m.Lock()
	defer m.Unlock()
	from, state, behind := m.checkpoint(len(m.batches))
	return state, behind, m.replay(from, len(m.batches)), nil
}

// checkpoint returns the newest state of a fold in the first n batches, and the number of the batch
// behind it.
func (m *memory) checkpoint(n int) (from int, state []byte, behind history.Position) {
	for i := n - 1; i >= 0; i-- {
		if b := &m.batches[i]; b.Fold != nil {
			return i + 1, b.Fold, history.Position{Instance: b.Instance, Next: b.First + b.Count}
		}
	}
	if len(m.batches) > 0 {
		behind = history.Position{Instance: m.batches[0].Instance}
	}
	return 0, nil, behind
}

func (m *memory) replay(from, until int) func(func(history.Events) error) error {
	batches := slices.Clone(m.batches[from:until])
	return func(fn func(history.Events) error) error {
		for i := range batches {
			b := &batches[i]
			if err := fn(history.Events{
				Instance: b.Instance, First: b.First, Count: b.Count, From: b.From, To: b.To, Data: b.Data,
			}); err != nil {
				return err
			}
		}
		return nil
	}
}

func (m *memory) Write(_ context.Context, b *history.Batch) error {
	m.Lock()
	defer m.Unlock()
	if err := m.failOnce; err != nil {
		m.failOnce = nil
		m.meanwhile()
		return err
	}
	if m.fail != nil {
		return m.fail
	}
	if _, _, err := b.Check(); err != nil {
		return err
	}
	if there, err := b.Follows(m.at); there || err != nil {
		return err
	}
	m.batches = append(m.batches, *b)
	for _, j := range b.Jobs {
		m.jobs[j.Life] = j
	}
	m.at = history.Position{Instance: b.Instance, Next: b.First + b.Count}
	return nil
}

func (m *memory) Trim(context.Context, history.Retention, int64) (bool, error) { return false, nil }

func (m *memory) Close() error { return nil }

func (m *memory) Status(context.Context) (history.Status, error) {
	m.Lock()
	defer m.Unlock()
	s := history.Status{Position: m.at, Jobs: uint64(len(m.jobs))}
	for i := range m.batches {
		b := &m.batches[i]
		if s.Events += b.Count; s.Since == 0 {
			s.Since, s.Oldest = b.From, b.From
		}
		if s.Newest = b.To; b.Gap != nil {
			s.Gaps = append(s.Gaps, *b.Gap)
		}
	}
	return s, nil
}

func (m *memory) Timeline(_ context.Context, q history.TimelineQuery) (page history.Page[history.Record], err error) {
	m.Lock()
	defer m.Unlock()
	for i := range m.batches {
		b := &m.batches[i]
		id := b.First
		for e, err := range ring.Decode(b.Data) {
			if err != nil {
				return page, err
			}
			about := q.Object == history.Object{}
			history.Objects(&e, func(o history.Object) {
				about = about || o.Kind == q.Object.Kind && o.ID == q.Object.ID
			})
			if about && (q.Task == "" || history.Concerns(&e, q.Task)) {
				page.Rows = append(page.Rows, history.Record{Instance: b.Instance, ID: id, Event: e})
			}
			id++
		}
	}
	return page, nil
}

func (m *memory) Usage(_ context.Context, q history.UsageQuery) ([]history.UsageRow, bool, error) {
	m.Lock()
	defer m.Unlock()
	rows := map[string]*history.UsageRow{}
	for i := range m.batches {
		for _, r := range m.batches[i].Rollups {
			var keys []string
			for _, by := range q.By {
				switch by {
				case history.ByOwner:
					keys = append(keys, r.Group.Owner)
				case history.ByHour:
					keys = append(keys, fmt.Sprint(r.Hour))
				}
			}
			key := fmt.Sprintf("%q", keys)
			if rows[key] == nil {
				rows[key] = &history.UsageRow{Keys: keys}
			}
			rows[key].Add(&r.Sums)
		}
	}
	var list []history.UsageRow
	for _, row := range rows {
		list = append(list, *row)
	}
	return list, false, nil
}

func (m *memory) Jobs(_ context.Context, q history.JobQuery) (page history.Page[history.Job], err error) {
	m.Lock()
	defer m.Unlock()
	for _, j := range m.jobs {
		if q.ID == "" || j.ID == q.ID {
			page.Rows = append(page.Rows, j)
		}
	}
	slices.SortFunc(page.Rows, func(a, b history.Job) int { return int(b.Life - a.Life) })
	return page, nil
}

func (m *memory) At(_ context.Context, t int64) ([]byte, func(func(history.Events) error) error, error) {
	m.Lock()
	defer m.Unlock()
	n := 0
	for n < len(m.batches) && m.batches[n].To <= t {
		n++
	}
	if n == 0 && (len(m.batches) == 0 || m.batches[0].From > t) {
		return nil, nil, plimsoll.Errorf(plimsoll.CodeNotFound, "the history does not know that time")
	}
	from, state, _ := m.checkpoint(n)
	return state, m.replay(from, min(n+1, len(m.batches))), nil
}
