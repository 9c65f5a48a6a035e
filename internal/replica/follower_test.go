package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func mustBarrier(ctx context.Context, t testing.TB, f *Follower) *Snapshot {
	t.Helper()
	s, err := f.Barrier(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func networks(t *testing.T, test func(t *testing.T, network string)) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) { test(t, network) })
	}
}

// await takes a value that a test knows to be on its way.
func await[T any](ctx context.Context, t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-ctx.Done():
		t.Fatal("nothing came")
	}
	return v
}

func TestBarrierHoldsWhatWasPublished(t *testing.T) {
	networks(t, func(t *testing.T, network string) {
		leader := startLeader(t, network, "", SourceConfig{})
		leader.publish(put("before", "1"))
		f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
		ctx := testContext(t)
		mustReady(ctx, t, f)
		for i := range 200 {
			leader.publish(put("a", fmt.Sprint(i)), taskPut("t", fmt.Sprint(i), fmt.Sprint("n", i%3)))
			s := mustBarrier(ctx, t, f)
			if got := keysOf(s, wire.KindJobStatus, "", ""); got != fmt.Sprintf("a=%d before=1", i) {
				t.Fatalf("after write %d the barrier returned %q", i, got)
			}
		}
		if a, b := fingerprint(f.Latest()), fingerprint(leader.source.Snapshot()); a != b {
			t.Errorf("the copy holds\n%s\nthe leader\n%s", a, b)
		}
	})
}

// A caller sees its own write at its gateway as soon as it is answered, and at every other gateway
// through a barrier.
func TestReadYourWrites(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	ctx := testContext(t)
	var followers []*Follower
	for i := range 3 {
		f, _ := startFollower(t, FollowerConfig{Leader: leader.address, Gateway: fmt.Sprint("g", i)})
		mustReady(ctx, t, f)
		followers = append(followers, f)
	}
	var group sync.WaitGroup
	for i, f := range followers {
		group.Go(func() {
			for n := range 100 {
				job := fmt.Sprint("job-", i, "-", n)
				reply, err := f.Do(ctx, submit(job))
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok := f.Latest().Get(
					wire.KindJobStatus, job,
				); !ok || f.Latest().Revision() < reply.GetRevision() {
					t.Errorf("%s was answered but is not shown", job)
				}
				s, err := followers[(i+1)%3].Barrier(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok := s.Get(wire.KindJobStatus, job); !ok {
					t.Errorf("%s was answered but another gateway does not have it", job)
				}
			}
		})
	}
	group.Wait()
}

func TestRefusalsComeAsErrors(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	leader.exec = func(_ context.Context, _ string, _ *pb.Command, respond func(*pb.Reply)) {
		respond(&pb.Reply{Revision: 4, Error: wire.ErrorToProto(plimsoll.Invalid("groups[0].count", "is negative"))})
		respond(&pb.Reply{Revision: 5}) // a second answer is nothing
	}
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	reply, err := f.Do(ctx, submit("a"))
	var refusal *plimsoll.Error
	if !errors.As(
		err, &refusal,
	) || refusal.Code != plimsoll.CodeInvalid || refusal.Field != "groups[0].count" || reply.GetRevision() != 4 {
		t.Errorf("Do = %v, %v", reply, err)
	}
}

func TestWithoutALeaderEverythingFailsAtOnce(t *testing.T) {
	f, _ := startFollower(t, FollowerConfig{Leader: "unix:" + t.TempDir() + "/nobody.sock"})
	ctx := testContext(t)
	if _, err := f.Barrier(ctx); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("Barrier: %v", err)
	}
	if _, err := f.Do(ctx, submit("a")); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("Do: %v", err)
	}
	if f.Connected() || f.Latest() != nil {
		t.Error("the follower claims a leader")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Ready(ended); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("Ready: %v", err)
	}
}

// gateways.md 3.3.3 and 3.3.9: while a leader proves nothing, readers get no answer; their
// deadlines hold; a leader that finds it was deposed ends the stream and the readers fail.
func TestReadersGetNothingFromALeaderWithoutProof(t *testing.T) {
	verdict, asked := make(chan error), make(chan struct{}, 10)
	leader := startLeader(t, "unix", "", SourceConfig{Confirm: func(ctx context.Context) error {
		asked <- struct{}{}
		select {
		case err := <-verdict:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	disconnects := make(chan error, 10)
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address, Events: FollowerEvents{
		Disconnected: func(err error, _ time.Duration) { disconnects <- err },
	}})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	result := make(chan error, 1)
	go func() {
		_, err := f.Barrier(ctx)
		result <- err
	}()
	await(ctx, t, asked)
	// Another reader gives up while the proof runs: with its own deadline.
	bounded, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
	defer cancel()
	if _, err := f.Barrier(bounded); plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
		t.Errorf("a reader whose time has run out: %v", err)
	}
	verdict <- nil
	if err := await(ctx, t, result); err != nil {
		t.Errorf("after the proof: %v", err)
	}
	await(ctx, t, asked) // for the reader that gave up, whose round was joined
	verdict <- errors.New("the lease is lost")
	if err := await(ctx, t, disconnects); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestFollowerResumesOrTakesASnapshot(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{RetainBytes: 400})
	type life struct {
		revision uint64
		resumed  bool
	}
	lives := make(chan life, 10)
	config := FollowerConfig{Leader: leader.address, Events: FollowerEvents{
		Live: func(_, revision uint64, resumed bool) { lives <- life{revision, resumed} },
	}}
	leader.publish(put("a", "1"))
	f, _ := startFollower(t, config)
	ctx := testContext(t)
	if got := await(ctx, t, lives); got != (life{1, false}) {
		t.Errorf("first connection: %v", got)
	}
	mustBarrier(ctx, t, f)
	changed, cancel := f.Watch(wire.KindJobStatus, "unrelated")
	defer cancel()
	endStreams(leader.source)
	if got := await(ctx, t, lives); got != (life{1, true}) {
		t.Errorf("second connection: %v", got)
	}
	await(ctx, t, changed)
	// Now the leader goes on while the stream is away, beyond what it keeps.
	endStreams(leader.source)
	for range 20 {
		leader.publish(put("b", strings.Repeat("x", 100)))
	}
	await(ctx, t, lives)
	mustBarrier(ctx, t, f)
	if a, b := fingerprint(f.Latest()), fingerprint(leader.source.Snapshot()); a != b {
		t.Errorf("the copy holds\n%s\nthe leader\n%s", a, b)
	}
}

// gateways.md 3.3.4 and 3.3.8: after a failover the gateway serves the new leader's state, and
// nothing before it has it.
func TestFailover(t *testing.T) {
	address := "unix:" + t.TempDir() + "/leader.sock"
	first := startLeader(t, "unix", address, SourceConfig{Epoch: 1})
	lives := make(chan uint64, 10)
	f, _ := startFollower(
		t,
		FollowerConfig{Leader: address, Events: FollowerEvents{Live: func(epoch, _ uint64, _ bool) { lives <- epoch }}},
	)
	ctx := testContext(t)
	await(ctx, t, lives)
	first.publish(put("a", "1"))
	taken := make(chan struct{}, 1)
	first.exec = func(context.Context, string, *pb.Command, func(*pb.Reply)) { taken <- struct{}{} }
	result := make(chan error, 1)
	go func() {
		_, err := f.Do(ctx, submit("lost"))
		result <- err
	}()
	await(ctx, t, taken) // the leader has the command when it dies
	mustBarrier(ctx, t, f)
	n1 := f.ReadChanges(Part{wire.KindTask, ByNode, "n1"}, false)
	defer n1.Close()
	first.stop()
	err := await(ctx, t, result)
	if plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
		t.Errorf("the command of the dead leader ended with %v", err)
	}
	if _, err := f.Barrier(ctx); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a read between two leaders: %v", err)
	}
	if f.Latest().Revision() != 1 {
		t.Error("the last snapshot is gone")
	}
	second := startLeader(t, "unix", address, SourceConfig{Epoch: 2})
	second.revision = 10
	second.publish(put("b", "2"))
	if epoch := await(ctx, t, lives); epoch != 2 {
		t.Errorf("live with epoch %d", epoch)
	}
	await(ctx, t, n1.Changed())
	s := mustBarrier(ctx, t, f)
	if got := keysOf(
		s, wire.KindJobStatus, "", "",
	); got != "b=2" || s.Epoch() != 2 || s.InstanceUUID() != "instance-2" {
		t.Errorf("after the failover: %q of epoch %d", got, s.Epoch())
	}
}

func TestOlderLeaderIsRefused(t *testing.T) {
	address := "unix:" + t.TempDir() + "/leader.sock"
	newer := startLeader(t, "unix", address, SourceConfig{Epoch: 2})
	disconnects := make(chan error, 100)
	f, stop := startFollower(t, FollowerConfig{Leader: address, Events: FollowerEvents{
		Disconnected: func(err error, _ time.Duration) {
			select {
			case disconnects <- err:
			default: // the test has seen enough
			}
		},
	}})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	newer.stop()
	startLeader(t, "unix", address, SourceConfig{Epoch: 1})
	for plimsoll.CodeOf(await(ctx, t, disconnects)) != plimsoll.CodeStale {
		continue
	}
	if f.Connected() {
		t.Error("the follower follows an older leader")
	}
	stop() // before the leader, which would wait for it
}

// A gateway that does not read holds up neither Publish nor the others, and is told to start again.
func TestSlowFollowerSlowsNobodyDown(t *testing.T) {
	for _, readers := range []int{0, 100} {
		t.Run(fmt.Sprint(readers, " readers wait"), func(t *testing.T) { slowFollower(t, readers) })
	}
}

func slowFollower(t *testing.T, readers int) {
	leader := startLeader(t, "unix", "", SourceConfig{RetainBytes: 1 << 20})
	ctx := testContext(t)
	block, blocked := make(chan struct{}), make(chan struct{}, 1)
	var once sync.Once
	disconnects := make(chan error, 10)
	slow, _ := startFollower(t, FollowerConfig{Leader: leader.address, Gateway: "slow", Events: FollowerEvents{
		Live: func(uint64, uint64, bool) {
			once.Do(func() {
				blocked <- struct{}{}
				<-block
			})
		},
		Disconnected: func(err error, _ time.Duration) { disconnects <- err },
	}})
	await(ctx, t, blocked)
	quick, _ := startFollower(t, FollowerConfig{Leader: leader.address, Gateway: "quick"})
	mustReady(ctx, t, quick)
	value := strings.Repeat("x", 256<<10)
	for range 100 { // 25 MiB: more than the log and the windows of HTTP/2 take
		leader.publish(put("a", value))
		mustBarrier(ctx, t, quick)
	}
	// Readers that wait meanwhile get all that was published before, or are told to come again.
	var waiting sync.WaitGroup
	for range readers {
		waiting.Go(func() {
			read, err := slow.Barrier(ctx)
			switch {
			case err != nil && plimsoll.CodeOf(err) != plimsoll.CodeUnavailable:
				t.Errorf("a reader that waits is told %v", err)
			case err == nil && read.Revision() != 100:
				t.Errorf("a reader that waits is answered from revision %d, and 100 was published", read.Revision())
			}
		})
	}
	close(block)
	// With readers that wait it leaves a stream that acknowledges nothing by itself.
	if err := await(ctx, t, disconnects); readers == 0 && plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("the slow stream ended with %v", err)
	}
	waiting.Wait()
	mustReady(ctx, t, slow)
	if got, want := mustBarrier(ctx, t, slow).Revision(), uint64(100); got != want {
		t.Errorf("the slow follower came back to revision %d, want %d", got, want)
	}
}

// A Send that hangs on a gateway that reads nothing does not keep the leader from ending its
// streams.
func TestBlockedSendIsCutOff(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	ctx := testContext(t)
	block, blocked := make(chan struct{}), make(chan struct{}, 10)
	f, stop := startFollower(t, FollowerConfig{Leader: leader.address, Gateway: "slow", Events: FollowerEvents{
		Live: func(uint64, uint64, bool) {
			blocked <- struct{}{}
			<-block
		},
	}})
	await(ctx, t, blocked)
	for range 60 { // 15 MiB: more than the windows of HTTP/2 take
		leader.publish(put("a", strings.Repeat("x", 256<<10)))
	}
	leader.source.Close(nil)
	if got := await(ctx, t, leader.lost); got != "slow" {
		t.Errorf("lost %q", got)
	}
	close(block)
	stop()
	if f.Connected() {
		t.Error("the follower has not noticed")
	}
}

func TestManyReadersShareOneSync(t *testing.T) {
	proofs, goOn := make(chan struct{}, 100), make(chan struct{})
	leader := startLeader(t, "unix", "", SourceConfig{Confirm: func(ctx context.Context) error {
		proofs <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return ctx.Err()
	}})
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	const readers = 10_000
	var group sync.WaitGroup
	read := func() {
		if _, err := f.Barrier(ctx); err != nil {
			t.Error(err)
		}
	}
	group.Go(read)
	await(ctx, t, proofs) // the first sync is under way: everybody else waits for the next
	next, err := f.join()
	if err != nil {
		t.Fatal(err)
	}
	for range readers {
		r, err := f.join()
		if err != nil || r != next {
			t.Fatalf("a reader joined another round: %v", err)
		}
	}
	close(goOn)
	<-next.done
	group.Wait()
	if n := len(proofs); n != 1 || next.err != nil {
		t.Errorf("%d readers took %d syncs: %v", readers, n, next.err)
	}
}

// Readers that give up, before the sync is sent or while it is under way, take nothing from those
// that share it.
func TestReadersThatGiveUpLeaveTheSyncToOthers(t *testing.T) {
	proofs, goOn := make(chan struct{}, 100), make(chan struct{})
	leader := startLeader(t, "unix", "", SourceConfig{Confirm: func(ctx context.Context) error {
		proofs <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return ctx.Err()
	}})
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	patient, impatient := sync.WaitGroup{}, sync.WaitGroup{}
	read := func(number int) {
		if number%2 == 0 {
			patient.Go(func() {
				if _, err := f.Barrier(ctx); err != nil {
					t.Error(err)
				}
			})
			return
		}
		impatient.Go(func() {
			short, cancel := context.WithTimeout(ctx, time.Duration(number%7)*time.Millisecond)
			defer cancel()
			if _, err := f.Barrier(short); err == nil || ctx.Err() != nil {
				t.Errorf("a reader that gives up gets %v", err)
			}
		})
	}
	read(0)
	await(ctx, t, proofs) // the first sync is under way: the others wait for the next
	for number := range 1000 {
		read(1 + number)
	}
	impatient.Wait()
	close(goOn)
	patient.Wait()
}

func TestWatch(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	job, cancelJob := f.Watch(wire.KindJobStatus, "a")
	n1 := f.ReadChanges(Part{wire.KindTask, ByNode, "n1"}, false)
	n2 := f.ReadChanges(Part{wire.KindTask, ByNode, "n2"}, false)
	defer n2.Close()
	tasks := f.ReadChanges(Part{Kind: wire.KindTask}, false)
	for i, step := range []struct {
		mutations          []wire.Mutation
		job, n1, n2, tasks int
	}{
		{[]wire.Mutation{put("a", "1"), put("a", "2"), put("b", "1")}, 1, 0, 0, 0},
		{[]wire.Mutation{taskPut("t", "1", "")}, 0, 0, 0, 1},
		{[]wire.Mutation{taskPut("t", "2", "n1"), taskPut("u", "2", "n1")}, 0, 1, 0, 1},
		{[]wire.Mutation{taskPut("t", "3", "n2")}, 0, 1, 1, 1},
		{[]wire.Mutation{taskPut("t", "4", "")}, 0, 0, 1, 1},
		{[]wire.Mutation{remove(wire.KindTask, "u"), remove(wire.KindJobStatus, "a")}, 1, 1, 0, 1},
	} {
		before := f.Changes().End(wire.KindTask)
		leader.publish(step.mutations...)
		mustBarrier(ctx, t, f)
		if len(tasks.Changed()) != step.tasks {
			t.Errorf("step %d: %d signals for all tasks, want %d", i, len(tasks.Changed()), step.tasks)
		}
		if len(job) != step.job || len(n1.Changed()) != step.n1 || len(n2.Changed()) != step.n2 {
			t.Errorf(
				"step %d: signals %d, %d, %d; want %d, %d, %d", i, len(job), len(n1.Changed()), len(n2.Changed()),
				step.job, step.n1, step.n2,
			)
		}
		for _, r := range []*ChangeReader{n1, n2, tasks} {
			if len(r.Changed()) == 0 {
				continue
			}
			<-r.Changed()
			view, looked := r.View(), 0
			whole, err := r.Each(view, func(c *Change) (bool, error) {
				if first, _ := view.At(wire.KindTask, before); looked == 0 && c != first {
					t.Errorf("step %d: the changes lie behind %d, and the reader begins elsewhere", i, before)
				}
				looked++
				return true, nil
			})
			if !whole || err != nil || looked == 0 {
				t.Errorf("step %d: %d changes, whole: %t, %v", i, looked, whole, err)
			}
		}
		if len(job) > 0 {
			<-job
		}
	}
	cancelJob()
	n1.Close()
	tasks.Close()
	leader.publish(put("a", "3"), taskPut("t", "3", "n1"))
	mustBarrier(ctx, t, f)
	if len(job)+len(n1.Changed())+len(tasks.Changed()) != 0 || len(f.watches.mu.byKey) != 0 || f.readers.Len() != 1 {
		t.Error("a watch that was canceled goes on")
	}
}

func TestGatewayIsLostWithItsLastStream(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	ctx := testContext(t)
	first, stopFirst := startFollower(t, FollowerConfig{Leader: leader.address, Gateway: "g"})
	second, stopSecond := startFollower(t, FollowerConfig{Leader: leader.address, Gateway: "g"})
	mustReady(ctx, t, first)
	mustReady(ctx, t, second)
	stopFirst()
	mustBarrier(ctx, t, second)
	if len(leader.lost) != 0 {
		t.Error("a gateway that has a stream is lost")
	}
	stopSecond()
	if got := await(ctx, t, leader.lost); got != "g" {
		t.Errorf("lost %q", got)
	}
}

func TestHandlerRefusesJunk(t *testing.T) {
	leader := startLeader(t, "tcp", "", SourceConfig{})
	for _, body := range [][]byte{nil, bytes.Repeat([]byte("junk"), 256<<10)} {
		response, err := http.Post(
			"http://"+leader.address+"/plimsoll.v1.ReplicationService/Replicate", "application/proto",
			bytes.NewReader(body),
		)
		if err != nil {
			continue // cut off in the middle of the junk is as good
		}
		if response.StatusCode == http.StatusOK {
			t.Errorf("junk was answered with %s", response.Status)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	conn, err := net.Dial("tcp", leader.address)
	if err != nil {
		t.Fatal(err)
	}
	// The server may close while it is written to; the test needs only its service.
	_, _ = conn.Write(bytes.Repeat([]byte{0xff}, 1<<20))
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	mustBarrier(ctx, t, f)
}

func TestConfigIsChecked(t *testing.T) {
	for _, config := range []FollowerConfig{
		{Leader: "127.0.0.1:1"},
		{Gateway: "g", Leader: "nowhere"},
		{Gateway: "g", Leader: "127.0.0.1:1", MaxCommands: -1},
	} {
		if _, err := NewFollower(config); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", config, err)
		}
	}
	for _, config := range []SourceConfig{
		{Leader: "i"}, {Epoch: 1}, {Epoch: 1, Leader: "i", RetainBytes: -1},
	} {
		if _, err := NewSource(config, nil); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", config, err)
		}
	}
}
