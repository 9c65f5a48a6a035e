package coordinator

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func stepDown(epoch uint64) *pb.Command {
	return &pb.Command{Kind: &pb.Command_StepDown{StepDown: &pb.StepDownRequest{Epoch: epoch}}}
}

func getLeader() *pb.Command {
	return &pb.Command{Kind: &pb.Command_GetLeader{GetLeader: &pb.GetLeaderRequest{}}}
}

// leaderAndStandby runs a leader, and a process that stands by and follows it.
func leaderAndStandby(t *testing.T) (leader, standby *process, epoch uint64) {
	t.Helper()
	s := newShared()
	leader = runMember(t, s)
	epoch = <-leader.led
	standby = runMember(t, s)
	<-standby.following
	return leader, standby, epoch
}

// A leader steps down three times while eight writers submit jobs as a gateway does: a command that
// was not sent waits for the next leader. None fails, and each job is there.
func TestNoWriteFailsWhenTheLeaderStepsDown(t *testing.T) {
	first, second, _ := leaderAndStandby(t)
	ends := make(chan error, 1000)
	f, unfollow := followAt(t, first.cfg.Listen+","+second.cfg.Listen, ends)
	defer func() {
		for len(ends) > 0 {
			t.Log(<-ends)
		}
	}()
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var writers sync.WaitGroup
	written := make([]int, 8)
	for w := range written {
		writers.Go(func() {
			for ; !stop.Load(); written[w]++ {
				cmd := submit(job(fmt.Sprintf("j%d-%d", w, written[w]), 1))
				_, err := f.Do(t.Context(), cmd)
				for errors.Is(err, replica.ErrHandover) && f.Ready(t.Context()) == nil {
					_, err = f.Do(t.Context(), cmd)
				}
				if err != nil {
					t.Errorf("a submit failed: %v", err)
					return
				}
			}
		})
	}
	for _, next := range []*process{second, first, second} {
		if _, err := f.Do(t.Context(), stepDown(0)); err != nil {
			t.Fatal(err)
		}
		<-next.led
		if err := f.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	writers.Wait()
	now, err := f.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for w, n := range written {
		for i := range n {
			if _, ok := now.Get(wire.KindJobSpec, fmt.Sprintf("j%d-%d", w, i)); !ok {
				t.Errorf("job j%d-%d was acknowledged and is gone", w, i)
			}
		}
	}
	unfollow()
	first.stop()
	second.stop()
	if len(first.failed)+len(second.failed)+len(first.deposed)+len(second.deposed) > 0 {
		t.Error("stepping down counts as a failure or a deposition")
	}
}

// The leader tells its epoch, its address, and the coordinators that stand by.
func TestLeaderTellsWhoStandsBy(t *testing.T) {
	first, second, epoch := leaderAndStandby(t)
	f, unfollow := first.follow(nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	reply, err := f.Do(t.Context(), getLeader())
	if err != nil {
		t.Fatal(err)
	}
	l := reply.GetGetLeader()
	if l.GetEpoch() != epoch || l.GetAddress() != first.cfg.Listen || l.GetSince() == 0 || len(l.GetStandbys()) != 1 ||
		l.GetStandbys()[0].GetAddress() != second.cfg.Listen {
		t.Errorf("the leader says %v", l)
	}
	if _, err := f.Do(t.Context(), stepDown(epoch+1)); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("a leader that has not begun was asked to step down: %v", err)
	}
	unfollow()
	first.stop()
	second.stop()
}

// A command to step down that comes twice moves leadership once: the next leader stays.
func TestSteppingDownTwiceMovesLeadershipOnce(t *testing.T) {
	first, second, epoch := leaderAndStandby(t)
	f, unfollow := followAt(t, first.cfg.Listen+","+second.cfg.Listen, nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Do(t.Context(), stepDown(epoch)); err != nil {
		t.Fatal(err)
	}
	next := <-second.led
	if next <= epoch {
		t.Errorf("the next leader has epoch %d, behind %d", next, epoch)
	}
	for range 3 {
		if err := f.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Do(t.Context(), stepDown(epoch)); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := f.Do(t.Context(), getLeader())
	if err != nil || reply.GetGetLeader().GetEpoch() != next || len(first.led) > 0 {
		t.Errorf("then %v leads, error %v; want epoch %d", reply.GetGetLeader(), err, next)
	}
	unfollow()
	first.stop()
	second.stop()
}
