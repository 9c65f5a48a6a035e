package historytest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// mutant is a history in memory with a fault.
type mutant struct {
	*Memory
	write    func(m *Memory, b *history.Batch)
	retain   func(*history.Retention)
	query    func(*history.TimelineQuery)
	page     func(*history.Page[history.Record])
	usage    func(*history.UsageQuery)
	rows     func([]history.UsageRow) []history.UsageRow
	jobs     func(*history.JobQuery)
	at       func(t int64) int64
	status   func(*history.Status)
	position func(*history.Position)
	name     func() string
	crash    func(m *Memory)
}

func (m *mutant) Write(ctx context.Context, b *history.Batch) error {
	changed := *b
	if m.write != nil {
		m.write(m.Memory, &changed)
	}
	return m.Memory.Write(ctx, &changed)
}

func (m *mutant) Trim(ctx context.Context, keep history.Retention, now int64) (bool, error) {
	if m.retain != nil {
		m.retain(&keep)
	}
	return m.Memory.Trim(ctx, keep, now)
}

func (m *mutant) Timeline(ctx context.Context, q history.TimelineQuery) (history.Page[history.Record], error) {
	if m.query != nil {
		m.query(&q)
	}
	page, err := m.Memory.Timeline(ctx, q)
	if m.page != nil {
		m.page(&page)
	}
	return page, err
}

func (m *mutant) Usage(ctx context.Context, q history.UsageQuery) ([]history.UsageRow, bool, error) {
	if m.usage != nil {
		m.usage(&q)
	}
	rows, more, err := m.Memory.Usage(ctx, q)
	if m.rows != nil {
		rows = m.rows(rows)
	}
	return rows, more, err
}

func (m *mutant) Jobs(ctx context.Context, q history.JobQuery) (history.Page[history.Job], error) {
	if m.jobs != nil {
		m.jobs(&q)
	}
	return m.Memory.Jobs(ctx, q)
}

func (m *mutant) At(ctx context.Context, t int64) ([]byte, func(fn func(history.Events) error) error, error) {
	if m.at != nil {
		t = m.at(t)
	}
	return m.Memory.At(ctx, t)
}

func (m *mutant) Status(ctx context.Context) (history.Status, error) {
	status, err := m.Memory.Status(ctx)
	if m.status != nil {
		m.status(&status)
	}
	return status, err
}

func (m *mutant) Name(ctx context.Context) (string, error) {
	name, err := m.Memory.Name(ctx)
	if m.name != nil {
		name = m.name()
	}
	return name, err
}

func (m *mutant) Position(ctx context.Context) (history.Position, error) {
	at, err := m.Memory.Position(ctx)
	if m.position != nil {
		m.position(&at)
	}
	return at, err
}

// mutants has a fault of each kind that the suite must find.
var mutants = map[string]mutant{
	"gets another name each time":       {name: uuid.NewString},
	"writes a batch twice":              {write: again},
	"takes a batch at any place":        {write: anyPlace},
	"loses jobs":                        {write: func(_ *Memory, b *history.Batch) { b.Jobs = nil }},
	"loses one of several rollups":      {write: oneRollup},
	"loses objects":                     {write: func(_ *Memory, b *history.Batch) { b.Objects = nil }},
	"loses folds":                       {write: dropFold},
	"forgets a gap":                     {write: forgetGap},
	"forgets the last batch in a crash": {crash: forgetLast},
	"forgets usage in a crash":          {crash: func(m *Memory) { m.sums = nil }},
	"ignores the age":                   {retain: func(keep *history.Retention) { keep.Age = 0 }},
	"keeps usage too long":              {retain: func(keep *history.Retention) { keep.Usage = 0 }},
	"trims too much":                    {retain: func(keep *history.Retention) { keep.Age /= 2 }},
	"ignores bytes, and trims by age":   {retain: func(keep *history.Retention) { keep.Bytes, keep.Age = 0, 1 }},
	"ignores the beginning of a time":   {query: func(q *history.TimelineQuery) { q.From = 0 }},
	"ignores the end of a time":         {query: func(q *history.TimelineQuery) { q.Until = 0 }},
	"ends before the end of a time":     {query: func(q *history.TimelineQuery) { q.Until -= min(q.Until, 5e9) }},
	"mixes lives":                       {query: func(q *history.TimelineQuery) { q.Object.Life = 0 }},
	"ignores the task":                  {query: func(q *history.TimelineQuery) { q.Task = "" }},
	"ignores the limit":                 {query: func(q *history.TimelineQuery) { q.Limit = 0 }},
	"repeats an event on the next page": {query: func(q *history.TimelineQuery) { q.After.ID -= min(q.After.ID, 1) }},
	"ends after a page":                 {page: func(p *history.Page[history.Record]) { p.Next = history.Cursor{} }},
	"reverses events":                   {page: func(p *history.Page[history.Record]) { slices.Reverse(p.Rows) }},
	"ignores the owner of usage":        {usage: func(q *history.UsageQuery) { q.Owner = "" }},
	"takes a queue for its children":    {usage: func(q *history.UsageQuery) { q.Queue = upper(q.Queue) }},
	"ignores labels of usage":           {usage: func(q *history.UsageQuery) { q.Labels = nil }},
	"ignores the zone":                  {usage: func(q *history.UsageQuery) { q.Zone = nil }},
	"ignores the hours":                 {usage: func(q *history.UsageQuery) { q.From, q.Until = 0, 0 }},
	"cuts sums to 64 bits":              {rows: cutSums},
	"reverses usage":                    {rows: reverse},
	"ignores the end of jobs":           {jobs: func(q *history.JobQuery) { q.From = 0 }},
	"ignores the submit of jobs":        {jobs: func(q *history.JobQuery) { q.Until = 0 }},
	"ignores the id of jobs":            {jobs: func(q *history.JobQuery) { q.ID = "" }},
	"answers for another time":          {at: func(t int64) int64 { return t - 60e9 }},
	"tells another position":            {position: func(p *history.Position) { p.Next++ }},
	"tells no gaps":                     {status: func(s *history.Status) { s.Gaps = nil }},
	"tells a wrong beginning":           {status: func(s *history.Status) { s.Since = s.Oldest }},
}

func dropFold(_ *Memory, b *history.Batch) {
	if b.Gap == nil {
		b.Fold = nil
	}
}

func forgetGap(m *Memory, b *history.Batch) {
	if b.Gap != nil && b.First > 0 {
		m.at, b.Gap = history.Position{Instance: b.Instance, Next: b.First}, nil
	}
}

func forgetLast(m *Memory) { m.batches = m.batches[:max(len(m.batches)-1, 0)] }

func again(m *Memory, b *history.Batch) { m.at.Next = min(m.at.Next, b.First) }

func anyPlace(m *Memory, b *history.Batch) {
	m.at = history.Position{Instance: b.Instance, Next: b.First}
}

func oneRollup(_ *Memory, b *history.Batch) { b.Rollups = b.Rollups[:min(len(b.Rollups), 1)] }

func reverse(rows []history.UsageRow) []history.UsageRow {
	slices.Reverse(rows)
	return rows
}

func upper(queue string) string {
	if len(queue) > 4 {
		return queue[:4]
	}
	return queue
}

func cutSums(rows []history.UsageRow) []history.UsageRow {
	for i := range rows {
		for name, amount := range rows[i].Used {
			rows[i].Used[name] = history.Amount{Low: amount.Low}
		}
	}
	return rows
}

// recorder is a tester that notes whether a case failed.
type recorder struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one case
	failed string
}

func (*recorder) Helper() {}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Fatalf(format string, values ...any) {
	r.failed = fmt.Sprintf(format, values...)
	runtime.Goexit()
}

// Each fault makes some case of the suite fail.
func TestTheSuiteFindsFaults(t *testing.T) {
	seed := testrun.Seed(t)
	for name, faulty := range mutants {
		t.Run(name, func(t *testing.T) {
			for _, c := range cases {
				m := faulty
				m.Memory = NewMemory()
				r := &recorder{ctx: t.Context()}
				done := make(chan struct{})
				go func() {
					defer close(done)
					c.run(r, Harness{
						Writer: func() (history.Writer, error) { return &m, nil },
						Reader: func() (history.Reader, error) { return &m, nil },
						Crash: func() error {
							if m.crash != nil {
								m.crash(m.Memory)
							}
							return nil
						},
					}, seed)
				}()
				<-done
				if r.failed != "" {
					return
				}
			}
			t.Error("no case fails")
		})
	}
}
