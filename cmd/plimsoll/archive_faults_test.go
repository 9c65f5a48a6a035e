package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// archivingCell is a coordinator whose archive is on a disk of its own, and a gateway.
type archivingCell struct {
	*site
	coordinator, gateway *daemon
	user                 *client.Client
	ids                  []string // of the jobs that were acknowledged to have ended
}

// newArchivingCell mounts a disk of a few MiB for the archive and starts the processes.
func newArchivingCell(t *testing.T) *archivingCell {
	t.Helper()
	c := &archivingCell{site: newSite(t)}
	if err := os.Mkdir(c.path("disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", c.path("disk"), "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("a disk of its own needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(c.path("disk"), syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c.begin()
	user, err := client.New(client.Config{Server: c.address, RetryBudget: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	c.user = user
	c.answers()
	return c
}

func (c *archivingCell) file() string { return c.path("disk", "jobs.db") }

// begin starts the processes. Ten jobs have half of the tasks that the state may have.
func (c *archivingCell) begin() {
	c.coordinator = start(c.t, "coordinator", "--data", c.path("store"), "--listen", "unix:"+c.path("leader"),
		"--archive", c.file(), "--archive-bytes", "1Gi", "--keep-ended", "1ms", "--state-tasks", "200")
	c.gateway = start(c.t, "gateway", "--id", "g1", "--data", c.path("gateway"), "--leader", "unix:"+c.path("leader"),
		"--listen", c.address, "--archive", c.file())
}

// answers waits until the gateway answers.
func (c *archivingCell) answers() {
	c.t.Helper()
	eventually(c.t, "read", func() error {
		_, err := c.user.Queues(c.t.Context())
		return err
	})
}

// end submits a job of 10 tasks and some 60 KB, and kills it. It returns the refusal of the submit.
func (c *archivingCell) end() error {
	c.t.Helper()
	s := calltest.Spec(fmt.Sprintf("j%03d", len(c.ids)), "ann", 10)
	s.Groups[0].Env = map[string]string{"TEXT": strings.Repeat("x", 60_000)}
	if _, err := c.user.SubmitJob(c.t.Context(), s); err != nil {
		return err
	}
	if _, err := c.user.KillJob(c.t.Context(), s.ID, ""); err != nil {
		c.t.Fatal(err)
	}
	c.ids = append(c.ids, s.ID)
	return nil
}

// ends is end for a number of jobs.
func (c *archivingCell) ends(count int) {
	c.t.Helper()
	for range count {
		if err := c.end(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// there reads all jobs with their tasks. It returns how many of them have left the store, and the
// errors.
func (c *archivingCell) there() (archived int, errs []error) {
	for _, id := range c.ids {
		job, err := c.user.FindJob(c.t.Context(), client.JobName{ID: id})
		tasks := 0
		for _, failed := range c.user.Tasks(c.t.Context(), client.TaskFilter{Job: id, Scope: client.ScopeAll}) {
			err = errors.Join(err, failed)
			tasks++
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			continue
		case tasks != 10, len(job.Spec.Groups[0].Env["TEXT"]) != 60_000, job.Status.Result() != plimsoll.ResultKilled:
			errs = append(errs, fmt.Errorf("%s has %d tasks and is %+v", id, tasks, job.Status))
		}
		if job.Archived {
			archived++
		}
	}
	return archived, errs
}

// allArchived waits until all jobs have left the store for the archive, and nothing is wrong.
func (c *archivingCell) allArchived() {
	c.t.Helper()
	eventually(c.t, "all jobs go to the archive", func() error {
		archived, errs := c.there()
		if archived == len(c.ids) {
			return nil
		}
		return fmt.Errorf("%d of %d are there: %w", archived, len(c.ids), errors.Join(errs...))
	})
	if trouble := c.health("unix:" + c.path("leader")).Archive; trouble != "" {
		c.t.Errorf("/healthz tells of %q", trouble)
	}
	if up := c.metric("plimsoll_archive_up"); up != "1" {
		c.t.Errorf("plimsoll_archive_up is %s", up)
	}
}

// told waits until the trouble is reported: in the coordinator's log and metrics, and at /healthz
// of both roles.
func (c *archivingCell) told(words ...string) {
	c.t.Helper()
	c.coordinator.says("level=ERROR msg=\"the archive takes no jobs.*" + strings.Join(words, ".*"))
	for _, at := range []string{"unix:" + c.path("leader"), c.address} {
		eventually(c.t, "/healthz tells it", func() error {
			if h := c.health(at); h.Status != "ok" || !containsAll(h.Archive, words) {
				return fmt.Errorf("%s: %+v", at, h)
			}
			return nil
		})
	}
	up, failed := c.metric("plimsoll_archive_up"), c.metric("plimsoll_archive_errors_total")
	if up != "0" || failed == "0" {
		c.t.Errorf("plimsoll_archive_up is %s with %s errors", up, failed)
	}
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// metric reads a metric of the coordinator.
func (c *archivingCell) metric(name string) string {
	c.t.Helper()
	return c.metricOf("unix:"+c.path("leader"), name)
}

// metricOf reads a metric of a process; empty: it has none of that name.
func (s *site) metricOf(address, name string) string {
	s.t.Helper()
	caller, url, err := transport.CallClient(address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer caller.CloseIdleConnections()
	res, err := caller.Get(url + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	data, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// When the disk of the archive is full, jobs that have ended stay in the store and can be read.
// Submits are refused with the reason once half of the state waits. All goes on by itself when
// there is room.
func TestArchiveOnAFullDisk(t *testing.T) {
	t.Parallel()
	c := newArchivingCell(t)
	c.ends(3)
	c.allArchived()
	ballast, err := os.Create(c.path("disk", "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = ballast.Write(block)
	}
	if err := ballast.Close(); err != nil {
		t.Fatal(err)
	}
	var refusal error
	for range 200 {
		if refusal = c.end(); refusal != nil {
			break
		}
	}
	if plimsoll.CodeOf(refusal) != plimsoll.CodeExhausted ||
		!containsAll(fmt.Sprint(refusal), []string{"archive: ", "ended jobs wait for it", c.file(), "disk is full"}) {
		t.Errorf("the submit is answered with: %v", refusal)
	}
	c.told("disk is full")
	if _, errs := c.there(); len(errs) > 0 {
		t.Fatal(errs)
	}
	c.coordinator.kill() // what waits is on the disk of the store
	c.gateway.kill()
	c.begin()
	c.answers()
	if _, errs := c.there(); len(errs) > 0 {
		t.Fatal(errs)
	}
	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	c.allArchived()
	c.ends(1)
	c.allArchived()
}

// Jobs that end while the disk of the archive is read-only stay in the store. They go to the
// archive when it can be written again. For jobs of the archive the gateway says that the answer is
// not known, if SQLite cannot make the files that it needs for reading.
func TestArchiveOnAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			t.Parallel()
			c := newArchivingCell(t)
			c.ends(3)
			c.allArchived()
			for _, d := range []*daemon{c.gateway, c.coordinator} {
				if killed {
					d.kill()
				} else {
					d.stop()
				}
			}
			if err := syscall.Mount("", c.path("disk"), "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			c.begin()
			c.answers()
			c.told("jobs.db", "the mode of the file")
			c.ends(2)
			archived, errs := c.there()
			for _, err := range errs {
				if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable ||
					!strings.Contains(err.Error(), "the mode of the file") {
					t.Error(err)
				}
			}
			if archived+len(errs) != 3 {
				t.Errorf("%d jobs are in the archive, with %v", archived, errs)
			}
			if err := syscall.Mount("", c.path("disk"), "", syscall.MS_REMOUNT, ""); err != nil {
				t.Fatal(err)
			}
			c.allArchived()
		})
	}
}

// A damaged page is found at the start. Nothing leaves the store then. A job that cannot be read is
// said to be damaged. With the good file in its place all goes on by itself.
func TestDamagedArchive(t *testing.T) {
	t.Parallel()
	c := newArchivingCell(t)
	c.ends(20)
	c.allArchived()
	c.gateway.stop()
	c.coordinator.stop()
	good, err := os.ReadFile(c.file())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.file(), damaged(t, good), 0o640); err != nil {
		t.Fatal(err)
	}
	c.begin()
	c.answers()
	c.told("jobs.db", "damaged")
	c.ends(2)
	archived, errs := c.there()
	for _, err := range errs {
		if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
			t.Error(err)
		}
	}
	if archived+len(errs) != 20 || len(errs) == 0 {
		t.Errorf("%d jobs are in the archive, with %v", archived, errs)
	}
	next := c.path("disk", "good.db")
	if err := errors.Join(os.WriteFile(next, good, 0o640), os.Rename(next, c.file())); err != nil {
		t.Fatal(err)
	}
	c.allArchived()
}

// damaged returns the file of an archive with a damage within a job.
func damaged(t *testing.T, good []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	for part := range 16 {
		data := slices.Clone(good)
		at := len(data) / 16 * part
		for i := range 64 {
			data[at+2000+i] ^= 4
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := sqlite.OpenWriter(t.Context(), path)
		if err != nil {
			continue // it is noticed without a check
		}
		err = w.Check(t.Context())
		if closed := w.Close(); closed == nil && plimsoll.CodeOf(err) == plimsoll.CodeCorrupt {
			return data
		}
	}
	t.Fatal("no damage is found")
	return nil
}
