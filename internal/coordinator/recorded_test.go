package coordinator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A later version must read the directory of a store that an earlier one has written. Gateways and
// standbys of the next version follow its stream of replication during an upgrade. Both recordings
// were written by one leader of protocol 4, of the commit before the store on etcd, and hold the
// same. They are never written anew: a change of the protocol or of a record adds another one.
var recording = flag.Bool(
	"record", false, "write testdata/recorded anew; only right for a version of which there is no recording",
)

const (
	recordedDir      = "testdata/recorded"
	recordedStore    = recordedDir + "/store"
	recordedStream   = recordedDir + "/stream" // messages of type ReplicateResponse, each behind its length
	recordedProtocol = 4
	recordedEvents   = 72
)

// recordedJobs are the jobs at the end of the recording.
var recordedJobs = map[string]string{
	"before": "Starting of alice, killed false, 3 wanted, tasks map[Bound:3]",
	"behind": "Starting of alice, killed false, 6 wanted, tasks map[Bound:6]",
	"killed": "Failing of alice, killed true, 2 wanted, tasks map[Stopping:2]",
	"last":   "Starting of alice, killed false, 1 wanted, tasks map[Bound:1]",
}

// A directory that an earlier version has stored opens. The state is sound, and all records of
// before are there.
func TestARecordedStoreIsRead(t *testing.T) {
	record(t)
	fs := vfs.NewMem()
	if _, err := vfs.Clone(vfs.Default, fs, recordedStore, "store"); err != nil {
		t.Fatal(err)
	}
	checkRecorded(t, reload(t, fs, Config{}).source.Snapshot())
}

// A stream that an earlier version has sent is followed: its snapshot, then its batches.
func TestARecordedStreamIsFollowed(t *testing.T) {
	record(t)
	sent := readStream(t)
	batches := 0
	for _, m := range sent {
		if m.GetBatch() != nil {
			batches++
		}
	}
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // left-overs in the temporary directory do no harm
	address := "unix:" + filepath.Join(dir, "s")
	listener, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f, err := replica.NewFollower(replica.FollowerConfig{Gateway: "reader", Leader: address})
	if err != nil {
		t.Fatal(err)
	}
	served, followed := make(chan error, 1), make(chan error, 1)
	routes := http.NewServeMux()
	routes.Handle(plimsollv1connect.NewReplicationServiceHandler(playback{sent}))
	go func() { served <- transport.Serve(ctx, listener, routes, transport.ServeConfig{}) }()
	go func() { followed <- f.Run(ctx) }()
	if err := f.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	last := lastRevision(t, sent)
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for f.Latest().Revision() < last {
		select {
		case <-late.C:
			t.Fatalf("the follower is at revision %d of %d", f.Latest().Revision(), last)
		case <-time.After(time.Millisecond):
		}
	}
	if snapshot := f.Latest(); snapshot.Revision() != last || batches < 5 {
		t.Errorf("revision %d of %d behind %d batches", snapshot.Revision(), last, batches)
	}
	checkRecorded(t, f.Latest())
	cancel()
	if err := errors.Join(<-served, <-followed); err != nil {
		t.Error(err)
	}
}

// playback is a leader that sends what was recorded.
type playback struct{ sent []*pb.ReplicateResponse }

// Replicate sends everything, and then nothing more.
func (p playback) Replicate(
	_ context.Context, stream *connect.BidiStream[pb.ReplicateRequest, pb.ReplicateResponse],
) error {
	if _, err := stream.Receive(); err != nil {
		return err
	}
	for _, m := range p.sent {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	for {
		if _, err := stream.Receive(); err != nil {
			return nil //nolint:nilerr // the follower has gone
		}
	}
}

func readStream(t *testing.T) (sent []*pb.ReplicateResponse) {
	t.Helper()
	data, err := os.ReadFile(recordedStream)
	if err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(bytes.NewReader(data)); ; {
		m := &pb.ReplicateResponse{}
		switch err := protodelim.UnmarshalFrom(r, m); {
		case errors.Is(err, io.EOF):
			return sent
		case err != nil:
			t.Fatal(err)
		}
		sent = append(sent, m)
	}
}

// lastRevision returns the revision behind the last message.
func lastRevision(t *testing.T, sent []*pb.ReplicateResponse) (last uint64) {
	t.Helper()
	for _, m := range sent {
		if data := m.GetBatch(); data != nil {
			b, err := wire.DecodeBatch(data)
			if err != nil {
				t.Fatal(err)
			}
			last = b.Revision
		}
	}
	return last
}

// checkRecorded compares a copy with the commands of the recorded leader. Each record must be the
// same when it is read and written again: nothing of it is dropped.
func checkRecorded(t *testing.T, s *replica.Snapshot) {
	t.Helper()
	again := map[wire.Kind]func(data []byte) ([]byte, error){
		wire.KindJobSpec:       rewritten(wire.DecodeJobSpec, wire.AppendJobSpec),
		wire.KindJobStatus:     rewritten(wire.DecodeJobStatus, wire.AppendJobStatus),
		wire.KindTask:          rewritten(wire.DecodeTask, wire.AppendTask),
		wire.KindNode:          rewritten(wire.DecodeNode, wire.AppendNode),
		wire.KindNodeStatus:    rewritten(wire.DecodeNodeStatus, wire.AppendNodeStatus),
		wire.KindQueueConfig:   rewritten(wire.DecodeQueueConfig, wire.AppendQueueConfig),
		wire.KindQueueStatus:   rewritten(wire.DecodeQueueStatus, wire.AppendQueueStatus),
		wire.KindPolicy:        rewritten(wire.DecodePolicy, wire.AppendPolicy),
		wire.KindEventSettings: rewritten(wire.DecodeEventSettings, wire.AppendEventSettings),
		wire.KindHistorian:     rewritten(wire.DecodeHistorian, wire.AppendHistorian),
	}
	counts := map[wire.Kind]int{}
	for kind, write := range again {
		for key, data := range s.Scan(kind, "", "") {
			counts[kind]++
			if got, err := write(data); err != nil || !bytes.Equal(got, data) {
				t.Errorf("record %d %q is written as %q, %v; it was %q", kind, key, got, err, data)
			}
		}
	}
	for kind, want := range map[wire.Kind]int{
		wire.KindJobSpec: 4, wire.KindJobStatus: 4, wire.KindTask: 3 + 6 + 2 + 1, wire.KindNode: 2,
		wire.KindNodeStatus: 2, wire.KindQueueConfig: 1, wire.KindQueueStatus: 3,
		wire.KindPolicy: 1, wire.KindHistorian: 1, wire.KindEventSettings: 1,
	} {
		if counts[kind] != want {
			t.Errorf("%d records of kind %d, want %d", counts[kind], kind, want)
		}
	}
	tasks := map[string]map[string]int{}
	for key, data := range s.Scan(wire.KindTask, "", "") {
		task, err := wire.DecodeTask(data)
		if err != nil || task.Attempt > 1 {
			t.Errorf("task %s: %+v, %v", key, task, err)
		}
		if tasks[task.Job] == nil {
			tasks[task.Job] = map[string]int{}
		}
		tasks[task.Job][task.State.String()]++
	}
	got := map[string]string{}
	for id, data := range s.Scan(wire.KindJobStatus, "", "") {
		status, err := wire.DecodeJobStatus(data)
		if err != nil || len(status.Groups) != 1 {
			t.Fatalf("job %s: %+v, %v", id, status, err)
		}
		got[id] = fmt.Sprintf("%v of %s, killed %v, %d wanted, tasks %v",
			status.State, status.Owner, status.Killed, status.Groups[0].Count, tasks[id])
	}
	if diff := cmp.Diff(recordedJobs, got); diff != "" {
		t.Errorf("the jobs: -want +got:\n%s", diff)
	}
	settings, err := s.EventSettings()
	if err != nil || settings.RingBufferCapacity != 5000 {
		t.Errorf("the settings of events: %+v, %v", settings, err)
	}
	low, all := events(t, s)
	if low != 0 || len(all) != recordedEvents {
		t.Errorf("%d events from %d on, want %d from 0 on", len(all), low, recordedEvents)
	}
}

// rewritten returns a function that reads and writes a record.
func rewritten[T any](decode func([]byte) (T, error), write func([]byte, *T) []byte) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		value, err := decode(data)
		return write(nil, &value), err
	}
}

// record writes the recordings if it is asked to.
func record(t *testing.T) {
	t.Helper()
	if !*recording {
		return
	}
	fs := vfs.NewMem()
	l := lead(t, Config{}, openStore(t, fs, store.Limits{}))
	l.must(setQueues(&plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "batch", Max: plimsoll.Resources{"cpu": 64_000}}, {Name: "spare", MaxJobs: 3},
	}}))
	l.must(setEvents("ringBufferCapacity", "5000"))
	l.must(register("n1", 1))
	l.must(submit(job("before", 3)))
	l.must(submit(job("killed", 2)))
	l.settle()
	caller, base, err := transport.Client(l.address)
	if err != nil {
		t.Fatal(err)
	}
	defer caller.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := plimsollv1connect.NewReplicationServiceClient(caller, base).Replicate(ctx)
	hello := &pb.ReplicateHello{Gateway: "recorder", Protocol: recordedProtocol}
	if err := stream.Send(&pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	receive := func() *pb.ReplicateResponse {
		m, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := protodelim.MarshalTo(&out, m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for receive().GetSnapshotEnd() == nil {
	}
	l.must(register("n2", 1))
	l.must(submit(job("behind", 4)))
	l.must(scale("behind", 6))
	l.must(submit(job("last", 1)))
	l.must(kill("killed"))
	l.must(reportHistorian("h1", l.Latest().InstanceUUID(), 1))
	l.must(&pb.Command{Kind: &pb.Command_ApplyPolicies{ApplyPolicies: &pb.ApplyPoliciesRequest{
		Policies: []*pb.Policy{wire.PolicyToProto(&plimsoll.Policy{
			Action: &plimsoll.Action{Name: "shed", CoolDown: time.Minute, Weight: &plimsoll.WeightAction{Shares: 2}},
		})},
	}}})
	l.settle()
	for revision := uint64(0); revision < l.Latest().Revision(); {
		if data := receive().GetBatch(); data != nil {
			b, err := wire.DecodeBatch(data)
			if err != nil {
				t.Fatal(err)
			}
			revision = b.Revision
		}
	}
	cancel()
	l.stop()
	err = errors.Join(os.RemoveAll(recordedDir), os.MkdirAll(recordedDir, 0o755),
		os.WriteFile(recordedStream, out.Bytes(), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.Clone(fs, vfs.Default, "store", recordedStore); err != nil {
		t.Fatal(err)
	}
}
