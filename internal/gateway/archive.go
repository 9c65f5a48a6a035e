package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The bounds of reads of the archive. A read that waits for longer than archiveTimeout, or that
// comes while so many wait, is refused; reads of the copy go on.
const (
	archiveTimeout  = 5 * time.Second
	maxArchiveReads = 8
	maxArchiveWaits = 64
)

// archived is the gateway's access to the archive.
type archived struct {
	reader  archive.Reader // nil: this gateway has none
	slots   chan struct{}  // one for each read under way
	waiting atomic.Int64
	failing atomic.Bool // the last read had no answer
	seconds prometheus.Histogram

	mu struct {
		sync.Mutex
		mark  archive.Mark // last mark of the reader; zero: it is being asked, or it was of another archive
		asked uint64       // number of questions for the mark
	}
}

func newArchived(r archive.Reader) *archived {
	return &archived{reader: r, slots: make(chan struct{}, maxArchiveReads), seconds: archiveSeconds()}
}

// archiveView is the archive beside a snapshot. Together they have every job of the cell. A
// question goes to the snapshot first, and then to the archive. A job that the snapshot lacks was
// durable in the archive before it left the store, so the later read of the archive finds it.
type archiveView struct {
	g        *Gateway
	snapshot *replica.Snapshot
	status   plimsoll.ArchiveStatus
}

// archiveOf returns the archive that belongs to a snapshot.
func (g *Gateway) archiveOf(s *replica.Snapshot) (archiveView, error) {
	v := archiveView{g: g, snapshot: s}
	var err error
	if v.status, err = s.Archive(); err != nil {
		return v, undecodable(wire.KindArchive, "", err)
	}
	return v, nil
}

// kept reports whether the cell keeps its jobs in an archive. If not, what the snapshot does not
// have does not exist.
func (v *archiveView) kept() bool { return v.status.Mode == plimsoll.ArchiveKept }

// read runs a read of the archive, once it is certain that the archive has all jobs that have left
// the snapshot. Without an answer it fails with CodeUnavailable: the caller must not take that for
// the answer that there is no such job.
func (v *archiveView) read(ctx context.Context, read func(context.Context, archive.Reader) error) error {
	a := v.g.archived
	bounded, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	began := time.Now()
	err := a.enter(bounded)
	crowded := err != nil && a.reader != nil // the archive was not asked
	if err == nil {
		defer func() { <-a.slots }()
		err = v.ask(bounded, read)
	}
	a.seconds.Observe(time.Since(began).Seconds())
	code := plimsoll.CodeOf(err)
	if err == nil || code == plimsoll.CodeNotFound || code == plimsoll.CodeCorrupt || code == plimsoll.CodeInvalid {
		a.failing.Store(false)
		return err
	}
	if ended := callerGone(ctx); ended != nil {
		return ended
	}
	if !crowded {
		a.failing.Store(true)
	}
	if bounded.Err() != nil {
		err = plimsoll.Errorf(plimsoll.CodeDeadline, "it did not answer within %s", archiveTimeout)
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Err: err,
		Msg: "this gateway cannot read the archive, so the answer is not known; " +
			"try again, or ask a gateway beside the coordinator",
	}
}

// ask reads between two looks at the mark. The reader answers from the archive of the last mark
// that it told, and the mark is forgotten before it is asked for another one. So if the first look
// finds the mark of another archive than the one that answers, the second one does not find it.
func (v *archiveView) ask(ctx context.Context, read func(context.Context, archive.Reader) error) error {
	a := v.g.archived
	if err := v.check(ctx); err != nil {
		return err
	}
	err := read(ctx, a.reader)
	if plimsoll.CodeOf(err) == plimsoll.CodeStale {
		a.forget()
		return err
	}
	if other := v.check(ctx); other != nil {
		return other
	}
	return err
}

// forget forgets the mark, and returns a number by which remember knows whether it was forgotten
// again since.
func (a *archived) forget() (asked uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.mark = archive.Mark{}
	a.mu.asked++
	return a.mu.asked
}

// remember keeps a mark, unless a later call has asked for another one.
func (a *archived) remember(mark *archive.Mark, asked uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.asked == asked {
		a.mu.mark = *mark
	}
}

// enter takes a slot, or fails.
func (a *archived) enter(ctx context.Context) error {
	if a.reader == nil {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "it was started without --archive")
	}
	select {
	case a.slots <- struct{}{}:
		return nil
	default:
	}
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > maxArchiveWaits {
		return plimsoll.Errorf(plimsoll.CodeExhausted, "%d reads of it wait already", maxArchiveWaits)
	}
	select {
	case a.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return plimsoll.Errorf(plimsoll.CodeDeadline, "other reads of it are under way")
	}
}

// check fails unless the archive is the one of the snapshot and has come as far.
func (v *archiveView) check(ctx context.Context) error {
	a := v.g.archived
	a.mu.Lock()
	mark := a.mu.mark
	a.mu.Unlock()
	if mark.ID == v.status.ID && mark.Sequence >= v.status.Sequence {
		return nil
	}
	asked := a.forget()
	mark, err := a.reader.Mark(ctx)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // read says what failed
	case mark.ID != v.status.ID:
		return plimsoll.Errorf(plimsoll.CodeUnavailable,
			"its archive is %.64q, and the leader writes to %.64q", mark.ID, v.status.ID)
	case mark.Sequence < v.status.Sequence:
		return plimsoll.Errorf(plimsoll.CodeUnavailable,
			"its archive is an older copy: it ends at %d, and jobs up to %d have left the active store",
			mark.Sequence, v.status.Sequence)
	}
	a.remember(&mark, asked)
	return nil
}

// job returns a job of the archive: the one with a uid, or the newest of an id. It fails with
// CodeNotFound, also if the job is about to be deleted.
func (v *archiveView) job(ctx context.Context, id string, uid plimsoll.UID) (job archive.Stored, err error) {
	err = v.read(ctx, func(ctx context.Context, r archive.Reader) (err error) {
		job, err = r.Job(ctx, id, uid)
		return err
	})
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		return job, noJobAt(id, uid)
	}
	if err == nil {
		err = holding(ctx, len(job.Spec)+len(job.Status))
	}
	return job, err
}

// skips reports whether a list of the archive leaves out a job, because the snapshot has it.
func (v *archiveView) skips(uid plimsoll.UID) bool {
	id, has := v.snapshot.JobOf(uid.String())
	if !has {
		return false
	}
	data, _ := v.snapshot.Get(wire.KindJobStatus, id)
	facts, err := wire.LookAtJob(data)
	return err != nil || facts.Deleted || plimsoll.JobState(facts.State) != plimsoll.JobExpired
}

// lifetime is a job that a request names, by its id or one lifetime of it.
type lifetime struct {
	id  string // may be empty beside a uid
	uid plimsoll.UID
}

// parseLifetime checks the id and the uid of a request. The id may be missing beside a uid.
func parseLifetime(idField, id, uidField, uid string) (l lifetime, err error) {
	l.id = id
	if uid != "" {
		if l.uid, err = plimsoll.ParseUID(uid); err != nil {
			return l, plimsoll.Invalid(uidField, "%.64q is not a uid; one has %d digits and letters from a to v", uid,
				plimsoll.UIDText)
		}
	}
	if id != "" || uid == "" {
		err = plimsoll.ValidateID(idField, id)
	}
	return l, err
}

// sought is the place of a job: the snapshot, or the archive.
type sought struct {
	id     string
	status []byte          // of the snapshot; nil: the job is not there
	stored *archive.Stored // of the archive; nil: it was not asked

	certain bool // the snapshot alone has the answer, whatever the archive holds
}

// find finds a job: in the snapshot, and if it has left that, in the archive. A job that is about
// to be deleted is hidden. One that has begun to leave the snapshot is in the archive already.
func (g *Gateway) find(ctx context.Context, s *replica.Snapshot, l lifetime) (sought, error) {
	id := l.id
	if id == "" {
		id, _ = s.JobOf(l.uid.String())
	}
	data, has := s.Get(wire.KindJobStatus, id)
	if has && l.uid.IsZero() && s.JobsLeaving() == 0 {
		return sought{id: id, status: data, certain: true}, nil
	}
	v, err := g.archiveOf(s)
	if err != nil {
		return sought{}, err
	}
	if has {
		facts, err := wire.LookAtJob(data)
		if err != nil {
			return sought{}, undecodable(wire.KindJobStatus, id, err)
		}
		uid, err := facts.Lifetime()
		if err != nil {
			return sought{}, undecodable(wire.KindJobStatus, id, err)
		}
		switch mine := l.uid.IsZero() || uid == l.uid; {
		case mine && facts.Deleted && !l.uid.IsZero():
			return sought{}, noJobAt(l.id, l.uid)
		case mine && !facts.Deleted && (plimsoll.JobState(facts.State) != plimsoll.JobExpired || !v.kept()):
			return sought{id: id, status: data}, nil
		}
	}
	if !v.kept() {
		return sought{}, noJobAt(l.id, l.uid)
	}
	stored, err := v.job(ctx, l.id, l.uid)
	if err != nil {
		return sought{}, err
	}
	if v.hides(stored.UID) {
		return sought{}, noJobAt(l.id, l.uid)
	}
	return sought{id: stored.ID, stored: &stored}, nil
}

// hides reports whether the snapshot says that a job of the archive is about to be deleted.
func (v *archiveView) hides(uid plimsoll.UID) bool {
	id, has := v.snapshot.JobOf(uid.String())
	if !has {
		return false
	}
	data, _ := v.snapshot.Get(wire.KindJobStatus, id)
	facts, err := wire.LookAtJob(data)
	return err == nil && facts.Deleted
}

func noJobAt(id string, uid plimsoll.UID) error {
	switch {
	case uid.IsZero():
		return noJob(id)
	case id == "":
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job with the uid %s", uid)
	}
	return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job %q with the uid %s", id, uid)
}

// archivedTask returns the record of a task of a job of the archive.
func (v *archiveView) archivedTask(ctx context.Context, uid plimsoll.UID, key, id string) ([]byte, error) {
	var found []byte
	err := v.read(ctx, func(ctx context.Context, r archive.Reader) error {
		page, err := r.Tasks(ctx, archive.TaskQuery{UID: uid, Keys: []string{key}, Limit: 1})
		for page.Partial && err == nil && len(page.Items) == 0 {
			page, err = r.Tasks(ctx, archive.TaskQuery{UID: uid, Keys: []string{key}, Limit: 1, After: page.Next})
		}
		if err == nil && len(page.Items) > 0 {
			found = page.Items[0].Value
		}
		return err
	})
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound || err == nil && found == nil {
		return nil, noTask(id)
	}
	if err == nil {
		err = holding(ctx, len(found))
	}
	return found, err
}

// decodedStatus decodes the status of a job of the archive.
func decodedStatus(job *archive.Stored) (*pb.JobStatus, error) {
	status := &pb.JobStatus{}
	return status, decode(wire.KindJobStatus, job.ID, job.Status, status)
}
