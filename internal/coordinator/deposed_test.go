package coordinator

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ready returns the status code of /readyz.
func (p *process) ready() int {
	p.t.Helper()
	client, url, err := transport.CallClient(p.cfg.Listen)
	if err != nil {
		p.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(url + "/readyz")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode
}

// isStandby checks what a process says of itself while the one at an address leads.
func (p *process) isStandby(leader string) {
	p.t.Helper()
	h, code := p.health()
	if code != http.StatusOK || h.Status != "standby" || h.Role != roleStandby || !strings.Contains(h.Reason, leader) {
		p.t.Errorf("/healthz answers %d with %+v; want a standby of %s", code, h, leader)
	}
	if code := p.ready(); code != http.StatusServiceUnavailable {
		p.t.Errorf("/readyz answers %d", code)
	}
}

// runMember runs a process on a shared store.
func runMember(t *testing.T, s *shared) *process {
	t.Helper()
	cfg := Config{Listen: "unix:" + filepath.Join(t.TempDir(), "s")}
	return run(t, cfg, s.open(cfg.Listen))
}

// A leader that is deposed under load acknowledges nothing more, and stands by in the same process.
// That is no failure. The other process leads with a higher epoch and every acknowledged change.
func TestDeposedLeaderStandsBy(t *testing.T) {
	s := newShared()
	first := runMember(t, s)
	epoch := <-first.led
	second := runMember(t, s)
	if err := <-second.standby; !strings.Contains(err.Error(), first.cfg.Listen) {
		t.Errorf("the standby said %v", err)
	}
	second.isStandby(first.cfg.Listen)

	f, unfollow := first.follow(nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Do(t.Context(), submit(job("kept", 1))); err != nil {
		t.Fatal(err)
	}
	s.depose()
	if err := <-first.deposed; err == nil {
		t.Error("no reason was given")
	}
	unfollow()
	if later := <-second.led; later <= epoch {
		t.Errorf("epoch %d follows %d", later, epoch)
	}
	if err := <-first.standby; err == nil {
		t.Error("the deposed leader stands by without a reason")
	}
	first.isStandby(second.cfg.Listen)
	if h, _ := first.health(); h.Depositions != 1 || h.Failures != 0 || len(first.failed) > 0 {
		t.Errorf("the deposition counts as a failure: %+v", h)
	}
	g, unfollow := second.follow(nil)
	if err := g.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, err := g.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := now.Get(wire.KindTask, wire.TaskKey("kept", "work", 0)); !ok {
		t.Error("the acknowledged job is gone")
	}
	unfollow()
	first.stop()
	second.stop()
}

// losesWhileLoading is a member that is deposed while it loads, as by a stop of its process.
type losesWhileLoading struct{ *member }

func (m losesWhileLoading) Load(
	ctx context.Context, record func(wire.Kind, string, []byte) error, events func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	revision, at, err := m.member.Load(ctx, record, events)
	m.depose()
	return revision, at, err
}

// A process whose leadership ends while it loads never says that it leads. It asks the store again
// at once, and that is no failure.
func TestDeposedWhileLoadingNeverLeads(t *testing.T) {
	s := newShared()
	openings := 0
	p := run(t, Config{}, func(context.Context) (store.Store, error) {
		if openings++; openings == 1 {
			return losesWhileLoading{s.member("first")}, nil
		}
		return s.member("second"), nil
	})
	if err := <-p.deposed; !errors.Is(err, errDeposed) {
		t.Errorf("it was deposed because of %v", err)
	}
	if epoch := <-p.led; epoch != 2 {
		t.Errorf("it leads with epoch %d", epoch)
	}
	if h, _ := p.health(); h.Terms != 1 || h.Depositions != 1 || h.Failures != 0 {
		t.Errorf("/healthz answers %+v", h)
	}
	p.stop()
}

// A process that was deposed while it loaded keeps the stored tree of queues if another process has
// led meanwhile. Otherwise it replaces the tree with its own file.
func TestDeposedWhileLoadingLeavesTheQueuesOfALaterLeader(t *testing.T) {
	for another, want := range map[bool]string{false: "root.mine", true: "root.theirs"} {
		s := newShared()
		before := run(t, Config{Queues: tree("theirs")}, s.open("before"))
		f, unfollow := before.follow(nil)
		if err := f.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Do(t.Context(), kill("nothing")); lost(err) { // its tree is stored then
			t.Fatal(err)
		}
		unfollow()
		before.stop()
		openings := 0
		p := run(t, Config{Queues: tree("mine"), ReplaceQueues: true}, func(context.Context) (store.Store, error) {
			switch openings++; {
			case openings == 1:
				return losesWhileLoading{s.member("first")}, nil
			case another:
				if _, err := s.member("another").Lead(t.Context(), nil); err != nil {
					return nil, err
				}
				s.depose()
			}
			return s.member("second"), nil
		})
		<-p.led
		f, unfollow = p.follow(nil)
		if err := f.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := f.Barrier(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := now.Get(wire.KindQueueStatus, want); !ok {
			t.Errorf("another process led: %v; there is no %s", another, want)
		}
		unfollow()
		p.stop()
	}
}

// readPaths are the ways on which a leader tells something that no durable batch of its own proves.
// Each waits for a proof of leadership that begins after the question came (DESIGN.md).
var readPaths = map[string]func(ctx context.Context, f *replica.Follower) error{
	"sync": func(ctx context.Context, f *replica.Follower) error {
		_, err := f.Barrier(ctx)
		return err
	},
	"refusal": func(ctx context.Context, f *replica.Follower) error {
		_, err := f.Do(ctx, kill("no-such-job"))
		return err
	},
	"question": func(ctx context.Context, f *replica.Follower) error {
		_, err := f.Do(ctx, explain("no.such.0"))
		return err
	},
	"poll": func(ctx context.Context, f *replica.Follower) error {
		_, err := f.Do(ctx, &pb.Command{Kind: &pb.Command_PollRequestEvents{
			PollRequestEvents: &pb.PollRequestEvents{Manager: "m", Stream: "s", Begin: true},
		}})
		return err
	},
	"acknowledgement of request events": func(ctx context.Context, f *replica.Follower) error {
		_, err := f.Do(ctx, &pb.Command{Kind: &pb.Command_AcknowledgeRequestEvents{
			AcknowledgeRequestEvents: &pb.AcknowledgeRequestEventsRequest{Manager: "m", Store: "s"},
		}})
		return err
	},
}

// While a leader cannot prove that it leads, it answers no read. When it is deposed then, the
// caller learns that there is no answer. When it can prove it again, the answers come.
func TestReadsWaitForAProofOfLeadership(t *testing.T) {
	for name, read := range readPaths {
		for _, deposed := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " proved late", true: " never proved"}[deposed], func(t *testing.T) {
				s := newShared()
				p := runMember(t, s)
				<-p.led
				f, unfollow := p.follow(nil)
				if err := f.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				hurry := s.slowDown()
				answered := make(chan error, 1)
				go func() { answered <- read(t.Context(), f) }()
				select {
				case err := <-answered:
					t.Fatalf("answered without a proof: %v", err)
				case <-time.After(20 * time.Millisecond): // too short only to find a fault, never to fail
				}
				if deposed {
					s.depose()
					if err := <-answered; !lost(err) {
						t.Errorf("a deposed leader answered: %v", err)
					}
				} else {
					hurry()
					if err := <-answered; lost(err) {
						t.Errorf("no answer came after the proof: %v", err)
					}
				}
				unfollow()
				p.stop()
			})
		}
	}
}

// An acknowledged change needs no proof: its batch is in the store, which takes none of a deposed
// leader.
func TestDurableRepliesNeedNoProof(t *testing.T) {
	s := newShared()
	p := runMember(t, s)
	<-p.led
	f, unfollow := p.follow(nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	hurry := s.slowDown()
	if _, err := f.Do(t.Context(), submit(job("a", 1))); err != nil {
		t.Errorf("the submit waited for a proof: %v", err)
	}
	hurry()
	unfollow()
	p.stop()
}

// Without any command a leader that is deposed ends its streams.
func TestDeposedLeaderCutsItsStreams(t *testing.T) {
	s := newShared()
	p := runMember(t, s)
	<-p.led
	ends := make(chan error, 1)
	f, unfollow := p.follow(ends)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.depose()
	if err := <-ends; plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("the stream ended with %v", err)
	}
	unfollow()
	p.stop()
}
