package historian

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
)

const (
	// headsPatience bounds the time in which the facts of the jobs of a batch are asked for.
	// Missing ones are asked for again later, at most learnTries times, every learnEvery.
	headsPatience = time.Second
	learnEvery    = 5 * time.Second
	learnTries    = 24
	maxHeadless   = 10_000 // lives that are asked for again; others stay without facts
	// headsAtOnce is the number of jobs in one question.
	headsAtOnce = 500
	// maxSearches bounds the jobs of a batch that are looked for one by one: those that have left
	// the active store already.
	maxSearches = 100
	// submitLead is more than the time of a submit can be after that of its event: the submits of
	// one turn are a nanosecond apart, to have an order.
	submitLead = int64(time.Millisecond)
)

// known are the facts of lives by the id of the job, which may have had several.
type known map[string][]history.Job

// at returns the facts of the life that was taken in at an instant.
func (k known) at(id string, taken int64) (history.Job, bool) {
	for _, j := range k[id] {
		if j.Submitted >= taken && j.Submitted-taken < submitLead {
			return j, true
		}
	}
	return history.Job{}, false
}

func (k known) add(j *plimsoll.Job) {
	labels := j.Spec.Labels
	if labels == nil {
		labels = map[string]string{} // they are known
	}
	id := j.Status.ID
	k[id] = append(k[id], history.Job{
		ID: id, UID: j.Status.UID, Owner: j.Status.Owner, Queue: j.Status.Queue, Labels: labels,
		Submitted: j.Status.Submitted,
	})
}

// taken is a job that was taken in at an instant.
type taken struct {
	id string
	at int64 // Unix nanoseconds
}

// wondered is a life whose facts are not known yet.
type wondered struct {
	taken
	tries int
}

// learn asks for the facts of the jobs that a batch takes in.
func (h *Historian) learn(ctx context.Context, events []plimsoll.Event) known {
	var jobs []taken
	for i := range events {
		if e := &events[i]; history.Begins(e) {
			jobs = append(jobs, taken{e.Object, e.Time})
		}
	}
	return h.find(ctx, jobs)
}

// find asks for the facts of jobs: of those in the active store in a few questions, of the others
// one by one.
func (h *Historian) find(ctx context.Context, jobs []taken) known {
	if len(jobs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, headsPatience)
	defer cancel()
	found, ids := known{}, make([]string, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].id
	}
	slices.Sort(ids)
	for part := range slices.Chunk(slices.Compact(ids), headsAtOnce) {
		h.persist(ctx, func() error { return h.activeJobs(ctx, client.JobFilter{IDs: part}, found.add) })
	}
	searches := 0
	for i := range jobs {
		if _, ok := found.at(jobs[i].id, jobs[i].at); ok {
			continue
		}
		if searches++; searches > maxSearches {
			break
		}
		h.persist(ctx, func() error { return h.search(ctx, &jobs[i], found) })
	}
	return found
}

// wonder notes a life whose facts are to be asked for again.
func (s *session) wonder(life int64, id string, at int64) {
	if len(s.headless) >= maxHeadless {
		s.h.metrics.unknownJobs.Inc()
		return
	}
	s.headless[life] = wondered{taken: taken{id, at}}
}

// learnLate asks again for facts that could not be learned when a job was taken in.
func (s *session) learnLate(ctx context.Context) {
	if len(s.headless) == 0 {
		return
	}
	var jobs []taken
	for _, life := range slices.Sorted(maps.Keys(s.headless)) {
		jobs = append(jobs, s.headless[life].taken)
		if len(jobs) == headsAtOnce {
			break
		}
	}
	found := s.h.find(ctx, jobs)
	for _, life := range slices.Sorted(maps.Keys(s.headless))[:len(jobs)] {
		w := s.headless[life]
		j, ok := found.at(w.id, w.at)
		switch j.Life = life; {
		case ok:
			s.fold.Learn(&j)
			delete(s.headless, life)
		case w.tries >= learnTries:
			s.h.metrics.unknownJobs.Inc()
			delete(s.headless, life)
		default:
			w.tries++
			s.headless[life] = w
		}
	}
}

// persist makes a read until it succeeds, or fails for good, or ctx ends. A read that fails leaves
// facts unknown, and no more.
func (h *Historian) persist(ctx context.Context, read func() error) {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := read()
		switch plimsoll.CodeOf(err) {
		case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeStale:
			pause(ctx, redial.Jittered(failures, rand.Int64N))
		default:
			return
		}
	}
}

// activeJobs calls fn for the jobs of the active store that a filter chooses, with their
// specifications: the snapshot with which a watch begins.
func (h *Historian) activeJobs(ctx context.Context, filter client.JobFilter, fn func(*plimsoll.Job)) error {
	for change, err := range h.cfg.Source.WatchWholeJobs(ctx, filter, client.WatchPoint{}) {
		if err != nil {
			return err
		}
		switch change.Type {
		case client.ChangePresent:
			fn(&change.Object)
		case client.ChangeSynced:
			return nil
		}
	}
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the watch of jobs ended before its snapshot")
}

// search finds a life that has left the active store, or that another one replaced.
func (h *Historian) search(ctx context.Context, of *taken, found known) error {
	filter := client.JobFilter{IDs: []string{of.id}, Scope: client.ScopeAll, Fields: []string{"uid", "submitted"}}
	for next := ""; ; {
		page, err := h.cfg.Source.JobPage(ctx, filter, next)
		if err != nil {
			return err
		}
		for i := range page.Jobs {
			s := &page.Jobs[i]
			if s.Submitted < of.at || s.Submitted-of.at >= submitLead {
				continue
			}
			job, err := h.cfg.Source.FindJob(ctx, client.JobName{UID: s.UID.Text()})
			if err == nil {
				found.add(&job.Job)
			}
			return err
		}
		if next = page.Next; next == "" {
			return nil
		}
	}
}

// lives are the facts of lives that the history has already, for a fold that is made again.
type lives struct {
	reader history.Reader
	until  int64 // submitted before; Unix nanoseconds; 0: all
	jobs   map[int64]history.Job
	err    error
}

// heads returns the facts in the form of a fold.
func (l *lives) heads(ctx context.Context) fold.Heads {
	return func(life int64, _ *plimsoll.Event) (history.Job, bool) {
		if l.jobs == nil && l.err == nil {
			l.err = l.read(ctx, life)
		}
		j, ok := l.jobs[life]
		return j, ok && j.Labels != nil
	}
}

// read reads all lives from one on: the newest first, as the history lists them.
func (l *lives) read(ctx context.Context, from int64) error {
	l.jobs = map[int64]history.Job{}
	q := history.JobQuery{Until: l.until}
	for {
		page, err := l.reader.Jobs(ctx, q)
		if err != nil {
			return fmt.Errorf("read the jobs of the history: %w", err)
		}
		older := 0
		for i := range page.Rows {
			if j := &page.Rows[i]; j.Life >= from {
				l.jobs[j.Life] = *j
			} else {
				older++
			}
		}
		if q.After = page.Next; page.Next == (history.Cursor{}) || older > 0 && older == len(page.Rows) {
			return nil
		}
	}
}
