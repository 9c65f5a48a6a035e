package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/archivetest"
)

// The marks of an oldArchive.
const (
	markTold   = "told"   // that of its copy: a gateway notices that the copy is too old
	markHidden = "hidden" // that of the archive itself, as if a gateway did not compare marks
)

// oldArchive answers from a copy of an archive that is up to copyAge old.
type oldArchive struct {
	archive.Reader

	hides bool
	mu    struct {
		sync.Mutex
		copy *archivetest.Memory
		mark archive.Mark // of the archive, before the copy was made
		at   time.Time
	}
}

const copyAge = 3 * time.Second

// copied returns the copy, which it makes if there is none that is young enough.
func (o *oldArchive) copied(ctx context.Context) (*archivetest.Memory, archive.Mark, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.copy != nil && time.Since(o.mu.at) < copyAge {
		return o.mu.copy, o.mu.mark, nil
	}
	mark, err := o.Reader.Mark(ctx)
	if err != nil {
		return nil, mark, fmt.Errorf("copy the archive: %w", err)
	}
	to := archivetest.NewMemory()
	q := archive.JobQuery{Ascending: true, Limit: archive.MaxWriteJobs / 2}
	for more := true; more; {
		page, err := o.Reader.Jobs(ctx, q)
		if err != nil {
			return nil, mark, fmt.Errorf("copy the archive: %w", err)
		}
		for i := range page.Items {
			job := archive.Job{
				Head: page.Items[i].Head, Spec: page.Items[i].Spec, Status: page.Items[i].Status,
				Records: func(func(archive.TaskRecord) bool) {},
			}
			job.Tasks, job.Failed = 0, 0 // nobody asks for them
			if _, err := to.Write(ctx, 0, []archive.Job{job}, nil); err != nil {
				return nil, mark, fmt.Errorf("copy job %s: %w", job.ID, err)
			}
		}
		q.After, more = page.Next, page.More
	}
	o.mu.copy, o.mu.mark, o.mu.at = to, mark, time.Now()
	return to, mark, nil
}

// Mark returns the mark of the copy, or hides it behind that of the archive.
func (o *oldArchive) Mark(ctx context.Context) (archive.Mark, error) {
	if o.hides {
		return o.Reader.Mark(ctx)
	}
	_, mark, err := o.copied(ctx)
	return mark, err
}

// Job reads the copy.
func (o *oldArchive) Job(ctx context.Context, id string, uid plimsoll.UID) (archive.Stored, error) {
	from, _, err := o.copied(ctx)
	if err != nil {
		return archive.Stored{}, err
	}
	return from.Job(ctx, id, uid)
}

// Jobs reads the copy.
func (o *oldArchive) Jobs(
	ctx context.Context, q archive.JobQuery,
) (archive.Page[archive.Stored, archive.Position], error) {
	from, _, err := o.copied(ctx)
	if err != nil {
		return archive.Page[archive.Stored, archive.Position]{}, err
	}
	return from.Jobs(ctx, q)
}
