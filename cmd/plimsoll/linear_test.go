package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const linearClients = 8

// linearRun is the history of one run.
type linearRun struct {
	calltest.History

	seed uint64
}

// TestGatewaysAreLinearizableUnderFaults runs every role as a process: a coordinator, three
// gateways, a relay, a gateway behind it, and an agent. Eight clients read, list, create, scale,
// kill and watch jobs at all gateways. Jobs that have ended leave for the archive two seconds
// later, and are read and listed from there. Meanwhile processes are killed and stopped, links are
// cut, lose one direction or both, and clocks step. Two gateways keep less history than a snapshot
// has.
//
// The history must be linearizable, job by job (porcupine). Each answer that shows a version must
// be the state of all jobs at that version, and not be older than any before it. Each watch must be
// ordered, unique, reliable, bookmarkable and resumable in the same history.
func TestGatewaysAreLinearizableUnderFaults(t *testing.T) {
	first := testrun.Seed(t)
	for i := range uint64(testrun.Count(1, 1, 4)) {
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) {
			run := runLinear(t, first+i, plimsoll.Consistency{}, testrun.Count(6, 14, 40), markTold)
			run.check(t)
		})
	}
}

// runLinear makes one run with a number of faults of processes. Links have theirs at the same time.
func runLinear(t *testing.T, seed uint64, level plimsoll.Consistency, faults int, mark string) *linearRun {
	t.Helper()
	c := newFaultyCluster(t, mark)
	w := &calltest.Workload{
		T: t, Level: level, Pause: 8 * time.Millisecond, Archive: true, Over: make(chan struct{}),
	}
	c.fill()
	run := &linearRun{seed: seed}
	users := make([]*calltest.Client, linearClients)
	watches := make([]plimsollv1connect.WatchServiceClient, len(gatewayNames))
	for i, name := range gatewayNames {
		watches[i] = c.watchClient(name)
	}
	var clients, watching, links sync.WaitGroup
	for i := range users {
		u := &calltest.Client{Workload: w, ID: i, Rand: rand.New(rand.NewPCG(seed, uint64(i))), Watches: watches}
		for _, name := range gatewayNames {
			u.Gateways = append(u.Gateways, c.user(name, []time.Duration{-1, time.Second}[i%2]))
		}
		users[i] = u
		clients.Go(u.Run)
		of := calltest.NewWatcher(w, rand.New(rand.NewPCG(seed, uint64(100+i))), []string{"", "", "ann", "bob"}[i%4])
		of.Gateways = watches
		run.Watchers = append(run.Watchers, of)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	errs := make([]error, len(run.Watchers))
	for i, of := range run.Watchers {
		watching.Go(func() { errs[i] = of.Run(ctx) })
	}
	made := make([][]string, 2)
	most := time.Duration(testrun.Count(500, 600, 3000)) * time.Millisecond
	for i := range made {
		ofLinks := c.linkFaults()
		from := i * len(ofLinks) / len(made) // each begins with a fault of another link
		ofLinks = slices.Concat(ofLinks[from:], ofLinks[:from])
		links.Go(func() {
			made[i] = plague(rand.New(rand.NewPCG(seed, 201+uint64(i))), ofLinks, math.MaxInt, most, w.Over)
		})
	}
	ofProcesses := c.processFaults()
	struck := plague(rand.New(rand.NewPCG(seed, 200)), ofProcesses, faults, most, nil)
	close(w.Over)
	links.Wait()
	clients.Wait()
	for _, l := range c.links {
		l.Heal()
		l.CutLost()
	}
	for _, name := range gatewayNames {
		c.answers(name)
	}
	last := c.lastChanges(w)
	for _, of := range run.Watchers {
		of.Until.Store(last[of.Owner])
	}
	late := time.AfterFunc(patience, cancel)
	watching.Wait()
	late.Stop()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	for _, u := range users {
		run.Answers, run.Unknown = append(run.Answers, u.Answers...), run.Unknown+u.Unknown
	}
	for _, f := range ofProcesses {
		if faults >= len(ofProcesses) && !slices.Contains(struck, f.name) {
			t.Errorf("%q was not made, and %d faults have room for all %d", f.name, faults, len(ofProcesses))
		}
	}
	if made[0][0] == made[1][0] {
		t.Errorf("both sequences of faults of links begin with %q", made[0][0])
	}
	t.Logf("%d faults of processes: %q", len(struck), struck)
	t.Logf("%d faults of links: %q", len(slices.Concat(made...)), slices.Concat(made...))
	return run
}

// fill submits a job of many tasks. Its snapshot is larger than what small gateways keep.
func (c *faultyCluster) fill() {
	c.t.Helper()
	if _, err := c.user("g1", patience).SubmitJob(c.t.Context(), calltest.Spec("many", "filler", 2000)); err != nil {
		c.t.Fatal(err)
	}
}

// lastChanges makes a change for each owner. It returns the revision up to which a watch of the
// owner's jobs has to come; that of no owner is for watches of all jobs.
func (c *faultyCluster) lastChanges(w *calltest.Workload) map[string]uint64 {
	c.t.Helper()
	writer, last := c.user("g1", patience), map[string]uint64{}
	for _, owner := range []string{"ann", "bob"} {
		job, err := writer.SubmitJob(c.t.Context(), calltest.Spec("last-"+owner, owner, 1))
		if err != nil {
			c.t.Fatal(err)
		}
		last[owner], last[""] = job.Status.Revision, job.Status.Revision
		w.NoteChanged(job.Status.Revision)
	}
	return last
}

// check checks the history in all ways. After a failure it is written to a directory that is kept.
func (r *linearRun) check(t *testing.T) {
	t.Helper()
	done, problems := r.Problems(patience, true)
	r.Log(t, &done)
	if done.Watches[""] == 0 || done.Watches["ann"]+done.Watches["bob"] == 0 {
		problems = append(problems, fmt.Errorf(
			"of the watches of all jobs and of those of one owner, none could be checked of one kind: %v", done.Watches,
		))
	}
	if done.Changes == 0 || done.Reads == 0 || done.Archived == 0 {
		problems = append(problems, errors.New("too little could be compared with watches: the run proves too little"))
	}
	resumes := 0
	for _, w := range r.Watchers {
		resumes += w.Resumes
	}
	if len(r.Answers) < 200 || resumes < 5 {
		t.Error("the run did too little")
	}
	if len(problems) == 0 {
		return
	}
	dir := r.save(t)
	for _, problem := range problems {
		t.Error(problem)
	}
	t.Errorf("the history is in %s; repeat with: %s", dir, replay(r.seed))
}

// save writes the history, and a picture of it, to a new directory.
func (r *linearRun) save(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "linear")
	if err != nil {
		t.Fatal(err)
	}
	_, info := porcupine.CheckOperationsVerbose(calltest.Model, calltest.Operations(r.Answers), patience)
	text, err := os.Create(filepath.Join(dir, "answers.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Answers {
		_, failed := fmt.Fprintf(text, "%d to %d: client %d: %+v %+v revision %d of %s\n",
			a.Began, a.Ended, a.Client, a.Calls, a.Version, a.Revision, a.Changed)
		err = errors.Join(err, failed)
	}
	page := filepath.Join(dir, "history.html")
	err = errors.Join(err, text.Close(), porcupine.VisualizePath(calltest.Model, info, page))
	if err != nil {
		t.Error(err)
	}
	return dir
}

// TestEventualReadsAreFoundNotToBeLinearizable: the same clients, reading without a sync, see
// states that are too old. So the checks find a gateway that answers without one.
func TestEventualReadsAreFoundNotToBeLinearizable(t *testing.T) {
	found(t, func(seed uint64) bool {
		run := runLinear(t, seed, plimsoll.Consistency{Level: plimsoll.FreshnessEventual}, 3, markTold)
		strict := calltest.StrictByVersion(run.Answers)
		t.Logf("by version: %v", strict)
		return run.isIllegal(t) && strict != nil
	})
}

// TestReadsOfAnOldArchiveAreFound: a gateway that reads the archive before the snapshot, or does
// not compare their marks, misses jobs that have left the store since. The checks find it. One that
// compares them does not answer: the relay of TestGatewaysAreLinearizableUnderFaults.
func TestReadsOfAnOldArchiveAreFound(t *testing.T) {
	found(t, func(seed uint64) bool {
		run := runLinear(t, seed, plimsoll.Consistency{}, testrun.Count(6, 8, 20), markHidden)
		return run.isIllegal(t)
	})
}

// found tries a run with several seeds until one has the reads that the checks are to find: a short
// run may have none.
func found(t *testing.T, try func(seed uint64) bool) {
	t.Helper()
	const tries = 5
	for i := range uint64(tries) {
		if try(testrun.Seed(t) + i) {
			return
		}
	}
	t.Errorf("such reads were not found in %d runs", tries)
}

// isIllegal reports whether the history is certainly not linearizable.
func (r *linearRun) isIllegal(t *testing.T) bool {
	t.Helper()
	linearizable := r.Linearizable(patience)
	t.Logf("porcupine: %s", linearizable)
	return linearizable == porcupine.Illegal
}

// replay is the command that repeats a run.
func replay(seed uint64) string {
	soak := ""
	if testrun.Soak() {
		soak = "PLIMSOLL_SOAK=1 "
	}
	return fmt.Sprintf(
		"%sPLIMSOLL_SEED=%d go test ./cmd/plimsoll -run TestGatewaysAreLinearizableUnderFaults", soak, seed,
	)
}
