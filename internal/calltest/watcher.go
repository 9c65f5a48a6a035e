package calltest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/watchtest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Watcher is a watch through any number of cuts, at any gateway.
type Watcher struct {
	*Workload
	Gateways []plimsollv1connect.WatchServiceClient
	Owner    string // criteria; empty: all jobs
	Record   *watchtest.Record
	Resumes  int           // openings from a point
	Until    atomic.Uint64 // revision behind which the watch ends; 0: not known yet

	rng *rand.Rand
}

// NewWatcher makes a watcher of the jobs of an owner; empty: of all jobs.
func NewWatcher(w *Workload, rng *rand.Rand, owner string) *Watcher {
	var criteria func(string) bool
	if owner != "" {
		criteria = func(value string) bool { return strings.HasPrefix(value, owner+"|") }
	}
	return &Watcher{Workload: w, rng: rng, Owner: owner, Record: watchtest.NewRecord(criteria)}
}

// Digest returns a status as text, with its owner in front for the criteria.
func Digest(s *plimsoll.JobStatus) string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return s.Owner + "|" + string(text)
}

// Run watches until it has been sent everything, or its context ends.
func (w *Watcher) Run(ctx context.Context) error {
	for {
		var err error
		until := w.Until.Load()
		complete := until > 0 && w.Record.Point().Revision >= until
		if !complete {
			complete, err = w.watch(ctx)
		}
		switch {
		case complete:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("a watch of %q is at %+v of revision %d", w.Owner, w.Record.Point(), until)
		case plimsoll.CodeOf(err) == plimsoll.CodeStale:
			w.Record.Open(w.changed.Load())
		}
		pause(ctx, time.Duration(w.rng.IntN(100))*time.Millisecond)
	}
}

// watch reads one stream, some of the time only a part of it.
func (w *Watcher) watch(ctx context.Context) (complete bool, err error) {
	lasts := time.Duration(200+w.rng.IntN(4000)) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	req := &pb.WatchJobsRequest{Owner: w.Owner}
	if p := w.Record.Point(); p != (watchtest.Point{}) {
		req.From = &pb.WatchPoint{Epoch: p.Epoch, Revision: p.Revision, Part: p.Part}
		w.Resumes++
	} else {
		w.Record.Open(w.changed.Load())
	}
	stream, err := w.Gateways[w.rng.IntN(len(w.Gateways))].WatchJobs(ctx, connect.NewRequest(req))
	if err != nil {
		return false, wire.FromReadError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written
	for stream.Receive() {
		m := stream.Msg()
		p := m.GetPoint()
		sent := watchtest.Message{
			Point:       watchtest.Point{Epoch: p.GetEpoch(), Revision: p.GetRevision(), Part: p.GetPart()},
			SnapshotEnd: m.GetSnapshotEnd(),
		}
		for _, job := range m.GetJobs() {
			status := wire.JobStatusFromProto(job.GetJob().GetStatus())
			sent.Changes = append(sent.Changes, watchtest.Change{
				Type: watchtest.Type(job.GetChange()), Key: status.ID, Value: Digest(&status),
				Revision: job.GetRevision(),
			})
		}
		w.Record.Receive(sent)
		if until := w.Until.Load(); until > 0 && p.GetRevision() >= until {
			return true, nil
		}
	}
	return false, wire.FromReadError(ctx, stream.Err())
}
