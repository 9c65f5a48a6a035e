package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ledger holds the jobs that were acknowledged, by uid.
type ledger struct {
	sync.Mutex
	jobs map[plimsoll.UID]*entry
}

// entry is a job that was acknowledged.
type entry struct {
	spec     plimsoll.JobSpec
	runs     bool // a node runs its tasks; otherwise it is killed
	deleting bool // its deletion was sent
	deleted  bool // its deletion was acknowledged
	record   string
}

func (l *ledger) add(job *plimsoll.Job, runs bool) plimsoll.UID {
	l.Lock()
	defer l.Unlock()
	l.jobs[job.Status.UID] = &entry{spec: job.Spec, runs: runs}
	return job.Status.UID
}

// note changes an entry.
func (l *ledger) note(uid plimsoll.UID, change func(*entry)) {
	l.Lock()
	defer l.Unlock()
	change(l.jobs[uid])
}

// uids returns the jobs for which choose is true.
func (l *ledger) uids(choose func(*entry) bool) map[plimsoll.UID]bool {
	l.Lock()
	defer l.Unlock()
	chosen := map[plimsoll.UID]bool{}
	for uid, e := range l.jobs {
		if choose(e) {
			chosen[uid] = true
		}
	}
	return chosen
}

func stays(e *entry) bool       { return !e.deleting }
func wasDeleted(e *entry) bool  { return e.deleted }
func isDeleting(e *entry) bool  { return e.deleting }
func everyEntry(e *entry) bool  { return true }
func isNotRead(e *entry) bool   { return stays(e) && e.record == "" }
func hasBeenRead(e *entry) bool { return stays(e) && e.record != "" }

// listAll reads a list of all jobs. It returns an error if one comes twice.
func listAll(
	ctx context.Context, reader *client.Client, filter client.JobFilter,
) (map[plimsoll.UID]plimsoll.JobStatus, error) {
	all := map[plimsoll.UID]plimsoll.JobStatus{}
	for status, err := range reader.Jobs(ctx, filter) {
		if err != nil {
			return nil, err
		}
		if _, twice := all[status.UID]; twice {
			return nil, fmt.Errorf("%w: job %s with the uid %s is listed twice", errWrongList, status.ID, status.UID)
		}
		all[status.UID] = status
	}
	return all, nil
}

var errWrongList = errors.New("wrong list")

// anyOrder returns a filter for all jobs, in an order in which a job does not move when it ends.
func anyOrder(rng *rand.Rand) client.JobFilter {
	return client.JobFilter{
		Scope: client.ScopeAll, Sort: []client.JobSort{0, client.SortSubmitted, client.SortID}[rng.IntN(3)],
		PageSize: int32(20 + rng.IntN(300)), Pin: rng.IntN(4) == 0,
	}
}

// checkList makes a list of all jobs while jobs move, and looks for each that was acknowledged
// before.
func (l *ledger) checkList(ctx context.Context, reader *client.Client, rng *rand.Rand) error {
	before, gone := l.uids(stays), l.uids(wasDeleted)
	filter := anyOrder(rng)
	all, err := listAll(ctx, reader, filter)
	if err != nil {
		return err
	}
	for uid := range l.uids(isDeleting) {
		delete(before, uid)
	}
	for uid := range before {
		if _, there := all[uid]; !there {
			return fmt.Errorf("%w %+v: the job %s is missing among %d", errWrongList, filter, uid, len(all))
		}
	}
	for uid := range gone {
		if _, there := all[uid]; there {
			return fmt.Errorf("%w %+v: the job %s was deleted", errWrongList, filter, uid)
		}
	}
	return nil
}

// checkPlaces checks the whole of store and archive while no call is under way and no job waits for
// the archive: each job is in one of them, once, and nothing else is there.
func (l *ledger) checkPlaces(ctx context.Context, reader *client.Client, archived *sqlite.Reader) error {
	active, err := listAll(ctx, reader, client.JobFilter{})
	if err != nil {
		return err
	}
	all, err := listAll(ctx, reader, client.JobFilter{Scope: client.ScopeAll})
	if err != nil {
		return err
	}
	there := map[plimsoll.UID]bool{}
	q := archive.JobQuery{}
	for more := true; more; {
		page, err := archived.Jobs(ctx, q)
		if err != nil || len(page.Damaged) > 0 {
			return fmt.Errorf("read the archive: %v are damaged, %w", page.Damaged, err)
		}
		for i := range page.Items {
			uid := page.Items[i].UID
			if _, also := active[uid]; also || there[uid] {
				return fmt.Errorf("the job %s is in the archive, and twice or in the store too", uid)
			}
			there[uid] = true
		}
		q.After, more = page.Next, page.More
	}
	for uid := range active {
		there[uid] = true
	}
	wanted := l.uids(stays)
	for uid := range l.uids(wasDeleted) {
		if there[uid] {
			return fmt.Errorf("the job %s was deleted, and is there", uid)
		}
	}
	for uid := range wanted {
		if _, listed := all[uid]; !there[uid] || !listed {
			return fmt.Errorf("the job %s was acknowledged: it is there: %v, and listed: %v", uid, there[uid], listed)
		}
	}
	known := l.uids(everyEntry)
	for uid := range there {
		if !known[uid] {
			return fmt.Errorf("the job %s was never acknowledged", uid)
		}
	}
	if len(all) != len(there) {
		return fmt.Errorf("a list of all has %d jobs, and store and archive have %d", len(all), len(there))
	}
	return nil
}

// checkRecords reads jobs that have left the store as a whole. Those that were read before must be
// the same.
func (l *ledger) checkRecords(ctx context.Context, reader *client.Client, uids []plimsoll.UID) error {
	for _, uid := range uids {
		l.Lock()
		e := *l.jobs[uid]
		l.Unlock()
		job, err := reader.FindJob(ctx, client.JobName{UID: uid.String()})
		if err != nil {
			return fmt.Errorf("read the job %s: %w", uid, err)
		}
		if !job.Archived { // it runs
			continue
		}
		var tasks []plimsoll.Task
		for task, err := range reader.Tasks(ctx, client.TaskFilter{
			Job: job.Spec.ID, JobUID: uid.String(), Scope: client.ScopeAll,
		}) {
			if err != nil {
				return fmt.Errorf("read the tasks of the job %s: %w", uid, err)
			}
			tasks = append(tasks, task)
		}
		if why := e.differs(&job.Job, uid, tasks); why != "" {
			return fmt.Errorf("the job %s: %s", uid, why)
		}
		record, err := json.Marshal([]any{job, tasks})
		if err != nil {
			return err
		}
		if e.record != "" && e.record != string(record) {
			return fmt.Errorf("the job %s was read as %s, and is %s now", uid, e.record, record)
		}
		l.note(uid, func(e *entry) { e.record = string(record) })
	}
	return nil
}

// differs compares a job that has ended with the acknowledged one. It returns a difference as text;
// empty: there is none.
func (e *entry) differs(job *plimsoll.Job, uid plimsoll.UID, tasks []plimsoll.Task) string {
	st, count := &job.Status, e.spec.Groups[0].Count
	wanted, _ := json.Marshal(wire.JobSpecToProto(&e.spec)) // messages have no values that JSON lacks
	spec, _ := json.Marshal(wire.JobSpecToProto(&job.Spec)) // as above
	result := plimsoll.ResultKilled
	if e.runs {
		result = plimsoll.ResultSucceeded
	}
	switch {
	case string(spec) != string(wanted):
		return fmt.Sprintf("its specification is %s, not %s", spec, wanted)
	case st.UID != uid || st.ID != e.spec.ID || st.Result() != result || st.Finished == 0 || st.Deleted:
		return fmt.Sprintf("its status is %+v", st)
	case len(st.History) < 2 || !st.History[len(st.History)-1].State.Ended():
		return fmt.Sprintf("its history is %+v", st.History)
	case len(tasks) != int(count):
		return fmt.Sprintf("it has %d tasks, not %d", len(tasks), count)
	case len(st.Groups) != 1 || st.Groups[0].Counts.Total() != count:
		return fmt.Sprintf("its status counts %+v", st.Groups)
	}
	slices.SortFunc(tasks, func(a, b plimsoll.Task) int { return cmp.Compare(a.Index, b.Index) })
	for i := range tasks {
		task := &tasks[i]
		attempt, tried := task.Present()
		switch {
		case task.Index != int32(i), task.Job != e.spec.ID, task.State != plimsoll.TaskFinished, task.Result != result:
			return fmt.Sprintf("task %d is %+v", i, task)
		case e.runs && (!tried || attempt.Node != "n1" || attempt.Bound == 0 || attempt.Finished == 0):
			return fmt.Sprintf("the attempt of task %d is %+v", i, attempt)
		}
	}
	return ""
}

// mirror is the state of all active jobs by the messages of a watch, through kills of gateways and
// leader.
type mirror struct {
	ledger *ledger
	reader *client.Client
	fail   func(error)
	mu     struct {
		sync.Mutex
		jobs   map[plimsoll.UID]string
		left   int // jobs that went to the archive
		resets int
	}
}

// run watches until ctx ends.
func (m *mirror) run(ctx context.Context) {
	for change, err := range m.reader.WatchJobs(ctx, client.JobFilter{}, client.WatchPoint{}) {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.fail(fmt.Errorf("watch: %w", err))
			return
		}
		m.take(&change)
		if change.Type == client.ChangeDeleted {
			m.checkLeft(ctx, &change)
		}
	}
}

func (m *mirror) take(change *client.Change[plimsoll.JobStatus]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch change.Type {
	case client.ChangeReset:
		m.mu.jobs = map[plimsoll.UID]string{}
		m.mu.resets++
	case client.ChangePresent, client.ChangeAdded, client.ChangeUpdated:
		m.mu.jobs[change.Object.UID] = calltest.Digest(&change.Object)
	case client.ChangeDeleted:
		delete(m.mu.jobs, change.Object.UID)
	}
}

// checkLeft fails unless a job that left the store is in the archive, or somebody has deleted it.
func (m *mirror) checkLeft(ctx context.Context, change *client.Change[plimsoll.JobStatus]) {
	uid := change.Object.UID
	found, err := m.reader.FindJob(ctx, client.JobName{UID: uid.String()})
	deleting := m.ledger.uids(isDeleting)[uid]
	switch {
	case ctx.Err() != nil:
	case err == nil && !found.Archived:
		m.fail(fmt.Errorf("a watch tells that the job %s left, and a read that it did not", uid))
	case err == nil && !change.Archived:
		m.fail(fmt.Errorf("a watch tells that the job %s was deleted, and the archive has it", uid))
	case err != nil && (plimsoll.CodeOf(err) != plimsoll.CodeNotFound || !deleting):
		m.fail(fmt.Errorf("a watch tells that the job %s went to the archive: %w", uid, err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if change.Archived {
		m.mu.left++
	}
}

// agrees compares the watch with a list of the active jobs.
func (m *mirror) agrees(ctx context.Context, reader *client.Client) error {
	active, err := listAll(ctx, reader, client.JobFilter{})
	if err != nil {
		return err
	}
	listed := map[plimsoll.UID]string{}
	for uid, status := range active {
		listed[uid] = calltest.Digest(&status)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !maps.Equal(listed, m.mu.jobs) {
		return fmt.Errorf("a watch tells of %d active jobs, and a list has %d: %s", len(m.mu.jobs), len(listed),
			calltest.FirstDifference(textByUID(m.mu.jobs), textByUID(listed), true))
	}
	return nil
}

func textByUID(jobs map[plimsoll.UID]string) map[string]string {
	texts := map[string]string{}
	for uid, text := range jobs {
		texts[uid.String()] = text
	}
	return texts
}
