package main

import (
	"context"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// lifetimeEvents reads the events of one lifetime of a job's id, or of a task of it: the last count
// of them, or the first ones from the start of the filter; 0: all. Events name jobs by their ids,
// and the one of a submit tells the lifetimes apart. So all events of the id are read.
func lifetimeEvents(
	ctx context.Context, c *client.Client, filter client.EventFilter, l lifetime, count uint64,
) ([]client.EventRecord, error) {
	whole := filter
	whole.Types, whole.Object = nil, l.id
	if job, _, _, ok := wire.SplitTaskID(l.id); ok {
		whole.Object = job
	}
	all, err := readEvents(ctx, c, whole, 0)
	if err != nil {
		return nil, err
	}
	records := slices.DeleteFunc(ofLifetime(all, whole.Object, l.uid), func(r client.EventRecord) bool {
		e := &r.Event
		return whole.Object != l.id && e.Object != l.id && e.Reference != l.id ||
			len(filter.Types) > 0 && !slices.Contains(filter.Types, e.Subject())
	})
	if n := uint64(len(records)); count > 0 && count < n {
		if filter.Start != nil {
			return records[:count], nil
		}
		return records[n-count:], nil
	}
	return records, nil
}

// ofLifetime returns the events of the job with a uid, out of those of all jobs that had its id.
// The oldest events may be missing.
func ofLifetime(all []client.EventRecord, job string, uid plimsoll.UID) []client.EventRecord {
	begin := 0
	for i := range all {
		e := &all[i].Event
		switch {
		case e.Object != job || e.Subject() != plimsoll.SubjectJob || e.Change != plimsoll.ChangeAdd:
		case e.Time > uid.Submitted(): // the next job's submit
			return all[begin:i]
		default:
			begin = i
		}
	}
	return all[begin:]
}
