package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const mib = int64(1) << 20

// gauge is a simulated disk of 1,000 MiB, with its free space in MiB.
type gauge struct{ free atomic.Int64 }

func (g *gauge) measure() (disk.Space, error) {
	return disk.Space{Path: "/data", Free: g.free.Load() * mib, Size: 1000 * mib}, nil
}

// Below the least free space, commands that add records are refused with the path, the free space
// and the needed space. Other commands, reports, questions and repeated submits go on, and so do
// the known jobs.
func TestANearlyFullDiskRefusesWhatMakesTheStateLarger(t *testing.T) {
	g := &gauge{}
	g.free.Store(500)
	fs := vfs.NewMem()
	l := lead(t, Config{Disk: g.measure}, openStore(t, fs, store.Limits{}))
	for _, id := range []string{"a", "b"} {
		spec := job(id, 2)
		spec.Token = "token-" + id
		l.must(submit(spec))
	}
	l.must(register("n", 1))
	action := plimsoll.Policy{
		Action: &plimsoll.Action{Name: "shed", CoolDown: time.Minute, Weight: &plimsoll.WeightAction{Shares: 2}},
	}
	apply := func(dry bool) *pb.Command {
		return &pb.Command{Kind: &pb.Command_ApplyPolicies{ApplyPolicies: &pb.ApplyPoliciesRequest{
			Policies: []*pb.Policy{wire.PolicyToProto(&action)}, DryRun: dry,
		}}}
	}
	l.must(apply(false))
	l.stop()

	g.free.Store(49)
	l = lead(t, Config{Disk: g.measure}, openStore(t, fs, store.Limits{}))
	defer l.stop()
	tree := plimsoll.DefaultQueues()
	for what, cmd := range map[string]*pb.Command{
		"submit": submit(job("c", 1)), "scale up": scale("a", 3), "queues": setQueues(&tree), "policies": apply(false),
	} {
		_, err := l.Do(context.Background(), cmd)
		if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, word := range []string{
			"/data", "49Mi free", "needs 50Mi", "free some", "55Mi", "kills and reports go on",
		} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", what, err, word)
			}
		}
	}
	again := job("a", 2)
	again.Token = "token-a"
	l.must(submit(again))
	l.must(register("n", 1))
	l.must(register("m", 1))
	l.must(reportTasks("n", &pb.TaskReport{Task: "a.work.0", Attempt: 1, State: pb.TaskState(plimsoll.TaskRunning)}))
	l.must(scale("a", 1))
	l.must(kill("b"))
	l.must(apply(true))
	l.must(explain("a.work.0"))
	l.must(place(job("c", 1), "", 0))
	l.must(
		&pb.Command{
			Kind: &pb.Command_DeletePolicy{
				DeletePolicy: &pb.DeletePolicyRequest{Kind: pb.PolicyKind(plimsoll.PolicyAction), Name: "shed"},
			},
		},
	)
	l.must(
		&pb.Command{
			Kind: &pb.Command_SetNodeMode{
				SetNodeMode: &pb.SetNodeModeRequest{Id: "n", Mode: pb.NodeMode(plimsoll.NodeDraining)},
			},
		},
	)
}

// The disk is measured every second. The engine is told when the disk becomes too full, and when it
// has a tenth more than the least free space.
func TestTheDiskIsLookedAtEverySecond(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		g := &gauge{}
		g.free.Store(500)
		var told []string
		cfg := Config{Disk: g.measure, Events: Events{Disk: func(s string) { told = append(told, s) }}}
		w := newDiskWatch(&cfg, newInbox(1, 1<<20))
		w.inbox.push(request{command: &command{}}) // a full one keeps nothing back
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		looks := func(free int64) (shortage string, told bool) {
			g.free.Store(free)
			time.Sleep(diskInterval)
			synctest.Wait()
			for _, r := range w.inbox.drain(nil, 100) {
				if do, ok := r.do.(*engine.DiskShortage); ok {
					shortage, told = do.Why, true
				}
			}
			return shortage, told
		}
		for i, step := range []struct {
			free  int64
			says  string // what the engine is told
			tells bool
		}{
			{60, "", false},
			{40, "40Mi free", true},
			{40, "", false},
			{52, "52Mi free", true}, // still short
			{55, "", true},
			{55, "", false},
		} {
			if got, tells := looks(step.free); tells != step.tells || !strings.Contains(got, step.says) ||
				step.says == "" && got != "" {
				t.Errorf("step %d, %d MiB free: told %t %q", i, step.free, tells, got)
			}
		}
		if len(told) != 2 || !strings.Contains(told[0], "40Mi free") || told[1] != "" {
			t.Errorf("whoever runs the process was told %q", told)
		}
		cancel()
		synctest.Wait()
	})
}

// fullDisk is a file system in memory that refuses all writes while it is full.
type fullDisk struct {
	vfs.FS
	full atomic.Bool
}

func newFullDisk() *fullDisk {
	d := &fullDisk{}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if d.full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			switch op.Kind {
			case errorfs.OpRemove, errorfs.OpFileClose, errorfs.OpLock:
				return nil
			}
			return syscall.ENOSPC
		}
		return nil
	}))
	return d
}

// jobSeen returns the status of a job as a gateway reads it.
func jobSeen(t *testing.T, f *replica.Follower, id string) (plimsoll.JobStatus, bool) {
	t.Helper()
	s, err := f.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, ok := s.Get(wire.KindJobStatus, id)
	if !ok {
		return plimsoll.JobStatus{}, false
	}
	st, err := wire.DecodeJobStatus(data)
	if err != nil {
		t.Fatal(err)
	}
	return st, true
}

// until calls do until it returns true.
func until(t *testing.T, what string, do func() bool) {
	t.Helper()
	for range 5000 {
		if do() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// A disk that becomes full under load loses no acknowledged command. The same process goes on with
// reads and questions, and refuses commands with the reason. When there is space it leads again by
// itself.
func TestADiskThatBecomesFullLosesNothing(t *testing.T) {
	d, g := newFullDisk(), &gauge{}
	g.free.Store(500)
	cfg := Config{Disk: g.measure}
	reading := make(chan error, 10)
	cfg.Events.Reading = func(err error) { reading <- err }
	cfg.OpenReadOnly = func(context.Context) (store.Store, error) {
		return pebble.OpenReadOnly(pebble.Config{Dir: "store", FS: d})
	}
	p := run(
		t, cfg, func(context.Context) (store.Store, error) { return pebble.Open(pebble.Config{Dir: "store", FS: d}) },
	)
	defer p.stop()
	f, stop := p.follow(make(chan error))
	defer stop()
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.led
	for i := range 20 {
		if _, err := f.Do(t.Context(), submit(job(fmt.Sprintf("j%d", i), 3))); err != nil {
			t.Fatal(err)
		}
	}
	g.free.Store(0)
	d.full.Store(true)
	if _, err := f.Do(t.Context(), kill("j0")); err == nil {
		t.Fatal("a command was acknowledged although nothing can be written")
	}
	if err := <-reading; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("it only reads because of %v", err)
	}
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if st, ok := jobSeen(t, f, fmt.Sprintf("j%d", i)); !ok || st.Killed {
			t.Errorf("j%d: %v %+v", i, ok, st)
		}
	}
	_, err := f.Do(t.Context(), kill("j1"))
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable ||
		!strings.Contains(err.Error(), "the disk of /data is full") ||
		!strings.Contains(err.Error(), "free some space") {
		t.Errorf("a kill is refused with %v", err)
	}
	x, err := f.Do(t.Context(), explain("j3.work.1"))
	if err != nil || x.GetExplainTask().GetTask().GetJob() != "j3" {
		t.Errorf("a question: %v, %v", x, err)
	}
	if report, code := p.health(); code != 200 || report.Status != "read-only" ||
		!strings.Contains(report.Reason, "no space left") {
		t.Errorf("/healthz says %d %+v", code, report)
	}
	before := p.status.get().epoch
	d.full.Store(false)
	g.free.Store(500)
	if epoch := <-p.led; epoch <= before {
		t.Errorf("it leads again with epoch %d, and %d read", epoch, before)
	}
	// The kill may go out on the connection to the earlier term, which breaks then.
	for tried := false; !tried || lost(err); tried = true {
		if err := f.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = f.Do(t.Context(), kill("j1"))
	}
	if err != nil {
		t.Error(err)
	}
	if st, _ := jobSeen(t, f, "j1"); !st.Killed {
		t.Error("the kill was acknowledged and is not there")
	}
}

// A coordinator that starts on a full disk answers reads.
func TestAStartOnAFullDiskWorksForReading(t *testing.T) {
	d, g := newFullDisk(), &gauge{}
	l := lead(t, Config{}, func() store.Store {
		s, err := pebble.Open(pebble.Config{Dir: "store", FS: d})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}())
	l.must(submit(job("a", 1)))
	l.stop()
	d.full.Store(true)
	reading := make(chan error, 10)
	cfg := Config{Disk: g.measure, Events: Events{Reading: func(err error) { reading <- err }}}
	cfg.OpenReadOnly = func(context.Context) (store.Store, error) {
		return pebble.OpenReadOnly(pebble.Config{Dir: "store", FS: d})
	}
	p := run(
		t, cfg, func(context.Context) (store.Store, error) { return pebble.Open(pebble.Config{Dir: "store", FS: d}) },
	)
	defer p.stop()
	if err := <-reading; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("it only reads because of %v", err)
	}
	f, stop := p.follow(make(chan error))
	defer stop()
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := jobSeen(t, f, "a"); !ok {
		t.Error("the job is not there")
	}
	if _, err := f.Do(t.Context(), submit(job("b", 1))); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a submit: %v", err)
	}
}

// On a real file system of a few MiB that fills up, submits are refused before it is full, and
// kills go on. When another program fills it to the last byte, reads are answered and nothing is
// lost. Once there is room all commands are accepted again.
func TestASmallFileSystemThatFillsUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("a file system of its own needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	stored := pebble.Config{Dir: filepath.Join(dir, "store"), MemTableBytes: 256 << 10}
	reading := make(chan error, 10)
	cfg := Config{
		Listen:       "unix:" + filepath.Join(t.TempDir(), "s"),
		Disk:         func() (disk.Space, error) { return disk.Measure(dir) },
		Events:       Events{Reading: func(err error) { reading <- err }},
		OpenReadOnly: func(context.Context) (store.Store, error) { return pebble.OpenReadOnly(stored) },
	}
	p := run(t, cfg, func(context.Context) (store.Store, error) { return pebble.Open(stored) })
	defer p.stop()
	f, stop := p.follow(make(chan error))
	defer stop()
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Do(t.Context(), submit(job("a", 3))); err != nil {
		t.Fatal(err)
	}
	space, err := disk.Measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, space.Free-space.Least()+64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	until(t, "a submit is refused", func() bool {
		n++
		_, err := f.Do(t.Context(), submit(job(fmt.Sprintf("more%d", n), 1)))
		if err != nil && (plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), dir)) {
			t.Fatalf("a submit is refused with %v", err)
		}
		return err != nil
	})
	if _, err := f.Do(t.Context(), kill("more1")); err != nil {
		t.Errorf("a kill on a disk that is nearly full: %v", err)
	}
	file, err := os.Create(filepath.Join(dir, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = file.Write(block)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the store has no space", func() bool {
		n++
		_, err := f.Do(t.Context(), scale("a", int32(1+n%2)))
		return lost(err)
	})
	if err := <-reading; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("it only reads because of %v", err)
	}
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, ok := jobSeen(t, f, "more1"); !ok || !st.Killed {
		t.Errorf("the kill that was acknowledged is not there: %v %+v", ok, st)
	}
	for _, path := range []string{ballast, file.Name()} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	<-p.led
	<-p.led
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Do(t.Context(), submit(job("last", 1))); err != nil {
		t.Errorf("a submit when there is room again: %v", err)
	}
}
