package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// Usage implements history.Reader.
func (r *Reader) Usage(ctx context.Context, q history.UsageQuery) (rows []history.UsageRow, more bool, err error) {
	if err := q.Check(); err != nil {
		return nil, false, err //nolint:wrapcheck // it names the field
	}
	err = r.view(ctx, func(ctx context.Context, c *conn) error {
		s := &summing{
			ctx: ctx, c: c, q: &q, groups: map[string]*group{}, names: map[string]string{}, left: r.sizes.usage,
		}
		if err := s.run(); err != nil {
			return err
		}
		rows, more = s.rows()
		return nil
	})
	return rows, more, err
}

// summing adds the rows of a table into groups.
type summing struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one call
	c      *conn
	q      *history.UsageQuery
	groups map[string]*group
	names  map[string]string // of resources
	left   int               // rows that may still be read
	bytes  int64             // of the groups

	labels  map[string]map[string]string // of texts of labels that were decoded
	jobs    map[int64]*history.Job       // that were read
	key     []byte                       // of a row's group
	parts   []string                     // of the key
	hour    int64                        // that hourKey and dayKey are of
	hourKey string
	dayKey  string
}

// group has the sums of one row of the answer.
type group struct {
	keys []string
	sums history.Sums
}

// facts has the group, the job and the hour of a row.
type facts struct {
	hour         int64
	job          *history.Job // nil: of the tables without lives
	owner, queue string
	labels       map[string]string
}

func (s *summing) run() error {
	from, until := s.q.From, s.q.Until
	if until == 0 {
		until = math.MaxInt64
	}
	switch {
	case s.q.Job != "":
		return s.ofJob(from, until)
	case slices.Contains(s.q.By, history.ByJob):
		return s.eachRow(func(row []driver.Value) error { return s.addJob(row[0], row[1], row[2]) },
			"SELECT hour, life, sums FROM usage_job WHERE hour >= ? AND hour < ? ORDER BY hour, life", from, until)
	case s.q.NeedsLabels():
		return s.eachHour(from, until, "SELECT min(hour) FROM usage_labels WHERE hour >= ? AND hour < ?",
			"SELECT hour, owner, queue, sums, labels FROM usage_labels WHERE hour = ? ORDER BY owner, queue, labels",
			"SELECT hour, owner, queue, sums, labels FROM usage_labels WHERE hour = ? AND owner = ? "+
				"ORDER BY queue, labels")
	}
	return s.eachHour(from, until, "SELECT min(hour) FROM usage_owner WHERE hour >= ? AND hour < ?",
		"SELECT hour, owner, queue, sums FROM usage_owner WHERE hour = ? ORDER BY owner, queue",
		"SELECT hour, owner, queue, sums FROM usage_owner WHERE hour = ? AND owner = ? ORDER BY queue")
}

// eachHour adds the rows of each hour that has some; of one owner only, if the query says so.
func (s *summing) eachHour(from, until int64, next, all, owned string) error {
	for {
		row, err := s.c.First(next, from, until)
		if row == nil || row[0] == nil || err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		hour, _ := row[0].(int64)
		if s.q.Owner != "" {
			err = s.eachRow(s.addGroup, owned, hour, s.q.Owner)
		} else {
			err = s.eachRow(s.addGroup, all, hour)
		}
		if err != nil {
			return err
		}
		if err := s.take(); err != nil {
			return err
		}
		from = hour + secondsPerHour
	}
}

// ofJob adds the use of all lives of one id. The hours of a life are those from its submit to its
// end.
func (s *summing) ofJob(from, until int64) error {
	lives := []int64{}
	err := s.eachRow(func(row []driver.Value) error {
		life, _ := row[0].(int64)
		lives = append(lives, life)
		return nil
	}, "SELECT life FROM job WHERE id = ? ORDER BY life", s.q.Job)
	if err != nil {
		return err
	}
	if len(lives) == 0 {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the history has no job %q", s.q.Job)
	}
	lowest, highest, err := s.hours(from, until)
	if err != nil {
		return err
	}
	for _, life := range lives {
		j, err := s.job(life)
		if err != nil {
			return err
		}
		first, last := max(lowest, hourOf(j.Submitted)), highest
		if j.Ended > 0 {
			last = min(last, hourOf(j.Ended)+secondsPerHour) // one more: clocks are not exact
		}
		for hour := first; hour <= last; hour += secondsPerHour {
			row, err := s.c.First("SELECT sums FROM usage_job WHERE hour = ? AND life = ?", hour, life)
			if err != nil {
				return err //nolint:wrapcheck // it says what was done
			}
			if err := s.take(); err != nil {
				return err
			}
			if row == nil {
				continue
			}
			if err := s.addJob(hour, life, row[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// hours returns the first and the last hour from one on and before another with use by a job. If
// there is none, the last is the lower one.
func (s *summing) hours(from, until int64) (lowest, highest int64, err error) {
	lowest, highest = 0, -1
	for _, bound := range []struct {
		query string
		hour  *int64
	}{
		{"SELECT min(hour) FROM usage_job WHERE hour >= ? AND hour < ?", &lowest},
		{"SELECT max(hour) FROM usage_job WHERE hour >= ? AND hour < ?", &highest},
	} {
		row, err := s.c.First(bound.query, from, until)
		if err != nil {
			return 0, 0, err //nolint:wrapcheck // it says what was done
		}
		if hour, ok := row[0].(int64); ok {
			*bound.hour = hour
		}
	}
	return lowest, highest, nil
}

func hourOf(nanos int64) int64 {
	seconds := nanos / int64(time.Second)
	return seconds - seconds%secondsPerHour
}

func (s *summing) eachRow(add func(row []driver.Value) error, query string, values ...driver.Value) error {
	//nolint:wrapcheck // it says what was done
	return s.c.Rows(func(row []driver.Value) error {
		if err := s.take(); err != nil {
			return err
		}
		return add(row)
	}, query, values...)
}

// take counts a row that is read.
func (s *summing) take() error {
	if s.left--; s.left < 0 {
		return s.exhausted("reads more rows than it may")
	}
	if s.left%256 == 0 {
		return kind.Ended(s.ctx) //nolint:wrapcheck // it says what was done
	}
	return nil
}

func (s *summing) exhausted(why string) error {
	return plimsoll.Errorf(plimsoll.CodeExhausted,
		"the question about usage %s; ask for a shorter time, one owner, or by fewer and coarser facts", why)
}

// addJob adds a row of the table of lives.
func (s *summing) addJob(hour, life, sums driver.Value) error {
	f := facts{}
	f.hour, _ = hour.(int64)
	n, _ := life.(int64)
	var err error
	if f.job, err = s.job(n); err != nil {
		return err
	}
	f.owner, f.queue, f.labels = f.job.Owner, f.job.Queue, f.job.Labels
	return s.add(&f, sums)
}

// maxJobsKept bounds the jobs that one answer remembers; a page has no more.
const maxJobsKept = history.MaxPage

// job returns a life. Of one that is not there nothing is known but its number.
func (s *summing) job(life int64) (*history.Job, error) {
	if j := s.jobs[life]; j != nil {
		return j, nil
	}
	j, err := s.c.job(life)
	if err != nil {
		return nil, err
	}
	if j == nil {
		j = &history.Job{Life: life}
	}
	if s.jobs == nil || len(s.jobs) >= maxJobsKept {
		s.jobs = map[int64]*history.Job{}
	}
	s.jobs[life] = j
	return j, nil
}

// addGroup adds a row of a table without lives.
func (s *summing) addGroup(row []driver.Value) error {
	f := facts{}
	f.hour, _ = row[0].(int64)
	f.owner, _ = row[1].(string)
	f.queue, _ = row[2].(string)
	if len(row) > 4 {
		text, _ := row[4].(string)
		labels, known := s.labels[text]
		if !known {
			var ok bool
			if labels, ok = history.DecodeLabels(text); !ok {
				return s.c.Damaged("the labels of sums of hour %d", f.hour)
			}
			if s.labels == nil || len(s.labels) >= maxJobsKept {
				s.labels = map[string]map[string]string{}
			}
			s.labels[text] = labels
		}
		f.labels = labels
	}
	return s.add(&f, row[3])
}

// add adds sums to their group, if the query wants them.
func (s *summing) add(f *facts, value driver.Value) error {
	if !s.q.Meets(f.owner, f.queue, f.labels) {
		return nil
	}
	sums, ok := decodeSums(value, s.names)
	if !ok {
		return s.c.Damaged("the sums of hour %d", f.hour)
	}
	s.makeKey(f)
	g := s.groups[string(s.key)]
	if g == nil {
		if len(s.groups) >= history.MaxPage {
			return s.exhausted("has more groups than an answer")
		}
		g = &group{keys: slices.Clone(s.parts)}
		s.groups[string(s.key)] = g
		s.bytes += int64(2*len(s.key)) + groupBytes
	}
	before := g.sums.Bytes()
	g.sums.Add(&sums)
	if s.bytes += int64(g.sums.Bytes() - before); s.bytes > s.c.sizes.groups {
		return s.exhausted("has larger groups than an answer")
	}
	return nil
}

// groupBytes is about what a group takes beside its keys and sums.
const groupBytes = 200

// makeKey makes the keys of a row, and one that tells its group from others.
func (s *summing) makeKey(f *facts) {
	if f.hour != s.hour || s.hourKey == "" {
		s.hour, s.hourKey, s.dayKey = f.hour, history.HourKey(f.hour), history.DayKey(f.hour, s.q.Zone)
	}
	s.key, s.parts = s.key[:0], s.parts[:0]
	for _, by := range s.q.By {
		var part string
		switch by {
		case history.ByOwner:
			part = f.owner
		case history.ByQueue:
			part = f.queue
		case history.ByHour:
			part = s.hourKey
		case history.ByDay:
			part = s.dayKey
		case history.ByJob:
			part = plimsoll.LifetimeName(f.job.ID, f.job.UID)
			s.key = binary.BigEndian.AppendUint64(s.key, uint64(f.job.Life))
		default:
			part = f.labels[strings.TrimPrefix(string(by), history.LabelPrefix)]
		}
		s.key = appendText(s.key, part)
		s.parts = append(s.parts, part)
	}
}

// rows returns the groups in their order.
func (s *summing) rows() (rows []history.UsageRow, more bool) {
	keys := slices.SortedFunc(maps.Keys(s.groups), func(a, b string) int {
		x, y := s.groups[a].sums.Used[plimsoll.CPU], s.groups[b].sums.Used[plimsoll.CPU]
		return cmp.Or(cmp.Compare(y.High, x.High), cmp.Compare(y.Low, x.Low),
			slices.Compare(s.groups[a].keys, s.groups[b].keys), strings.Compare(a, b))
	})
	for _, key := range keys {
		rows = append(rows, history.UsageRow{Keys: s.groups[key].keys, Sums: s.groups[key].sums})
	}
	if len(rows) > s.q.Limit {
		return rows[:s.q.Limit], true
	}
	return rows, false
}
