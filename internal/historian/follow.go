package historian

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// Source is a gateway as a historian uses it. *client.Client implements it.
//
//nolint:interfacebloat // one method for each list of the cluster
type Source interface {
	// FollowEventPages reads events from an id on.
	FollowEventPages(ctx context.Context, instance string, start uint64) iter.Seq2[client.EventPage, error]
	// Events reads a page of events.
	Events(ctx context.Context, filter client.EventFilter) (client.EventPage, error)
	// WatchWholeJobs is read for the snapshot with which it begins.
	WatchWholeJobs(
		ctx context.Context, filter client.JobFilter, from client.WatchPoint,
	) iter.Seq2[client.Change[plimsoll.Job], error]
	Tasks(ctx context.Context, filter client.TaskFilter) iter.Seq2[plimsoll.Task, error]
	Nodes(ctx context.Context) ([]client.NodeInfo, error)
	Queues(ctx context.Context) ([]plimsoll.QueueStatus, error)
	// ReportHistorian registers the historian, and says how far it has come.
	ReportHistorian(ctx context.Context, h plimsoll.Historian) error
	// Historians lists the registered ones.
	Historians(ctx context.Context) (client.RegisteredHistorians, error)
}

var _ Source = (*client.Client)(nil)

// The waits before the gateway, or the file, is tried again.
var (
	redial = plimsoll.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
	reopen = plimsoll.Backoff{First: time.Second, Longest: 30 * time.Second}
)

// maxWaitingBytes bounds the events that have arrived and are not written. When it is reached, no
// more are read, and the gateway ends the stream after a while.
const maxWaitingBytes = 32 << 20

// follow keeps the history up to date until ctx ends. A failure to write ends a session: the next
// one goes on from the position in the file.
func (h *Historian) follow(ctx context.Context) error {
	for failures := 0; ; {
		began := h.cfg.Now()
		err := h.session(ctx)
		if ctx.Err() != nil {
			if isTrouble(err) {
				return err
			}
			return nil
		}
		h.setTrouble(err)
		h.metrics.writeErrors.Inc()
		if h.cfg.Now().Sub(began) > reopen.Longest {
			failures = 0
		}
		failures++
		if !pause(ctx, reopen.Jittered(failures, rand.Int64N)) {
			return nil
		}
	}
}

// isTrouble reports whether an error is another one than the end of a context.
func isTrouble(err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) && plimsoll.CodeOf(err) != plimsoll.CodeCanceled
}

// pause waits, and reports false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// session opens the history and follows from its position, until writing fails or ctx ends.
func (h *Historian) session(ctx context.Context) (err error) {
	w, err := h.cfg.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	s := &session{h: h, w: w}
	if err := s.resume(ctx); err != nil {
		return err
	}
	if err := h.setName(ctx, w); err != nil {
		return err
	}
	h.setPosition(s.at)
	pages, room := make(chan client.EventPage, 1024), newRoom(maxWaitingBytes)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pages)
		h.read(ctx, s.at, func(p client.EventPage) bool {
			if !room.take(ctx, pageBytes(&p)) {
				return false
			}
			select {
			case pages <- p:
				return true
			case <-ctx.Done():
				return false
			}
		})
		return nil
	})
	group.Go(func() error { return h.measure(ctx) })
	group.Go(func() error { return h.register(ctx) })
	group.Go(func() error { return s.run(ctx, pages, room) })
	return group.Wait()
}

// read passes on pages of events from a position on, through all absences of the gateway, until
// take reports false.
func (h *Historian) read(ctx context.Context, at history.Position, take func(client.EventPage) bool) {
	for failures := 0; ctx.Err() == nil; {
		for page, err := range h.cfg.Source.FollowEventPages(ctx, at.Instance, at.Next) {
			if err != nil {
				if ctx.Err() == nil {
					h.setWaiting(err)
				}
				break
			}
			if failures = 0; h.heard() && h.cfg.Events.Following != nil {
				h.cfg.Events.Following(page.InstanceUUID, page.Next)
			}
			if len(page.Records) > 0 && !take(page) {
				return
			}
			at = history.Position{Instance: page.InstanceUUID, Next: page.Next}
		}
		failures++
		if !pause(ctx, redial.Jittered(failures, rand.Int64N)) {
			return
		}
	}
}

// heard notes that the gateway is followed, and reports whether it was not before.
func (h *Historian) heard() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.mu.waiting
	h.mu.waiting = nil
	return was != nil || !h.metrics.following()
}

// setPosition notes how far the history has come.
func (h *Historian) setPosition(at history.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.next = at
}

func (h *Historian) position() history.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.next
}

// measureEvery is the interval at which the distance to the newest event is measured.
const measureEvery = 10 * time.Second

// measure keeps the metrics of the distance until ctx ends.
func (h *Historian) measure(ctx context.Context) error {
	for {
		at := h.position()
		asked := client.WithConsistency(ctx, plimsoll.Consistency{Level: plimsoll.FreshnessEventual})
		page, err := h.cfg.Source.Events(asked, client.EventFilter{Start: &at.Next, Count: 1})
		if err == nil && page.InstanceUUID == at.Instance {
			h.metrics.measured(h.cfg.Now(), at, &page)
		}
		if status, err := h.cfg.Reader.Status(ctx); err == nil {
			h.metrics.bytes.Set(float64(status.Bytes))
		}
		if !pause(ctx, measureEvery) {
			return nil
		}
	}
}

// pageBytes is about the memory that a page of events takes.
func pageBytes(p *client.EventPage) (n int64) {
	for i := range p.Records {
		n += eventBytes(&p.Records[i].Event)
	}
	return n
}

// eventBytes is about the memory of an event, and more than its bytes in a batch.
func eventBytes(e *plimsoll.Event) int64 {
	return int64(128 + len(e.Object) + len(e.Reference) + len(e.Message) + e.Head.Size() + 32*len(e.Resources))
}
