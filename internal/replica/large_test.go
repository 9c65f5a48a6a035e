package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

func envelope(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// emptyGroups is a command that submits a job of so many empty groups.
func emptyGroups(n int) []byte {
	field := func(number protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	spec := bytes.Repeat(field(5, nil), n)
	return field(3, field(2, field(1, spec))) // ReplicateRequest.command.submit_job.spec
}

// One message of 8 MB took the coordinator. Its refusal takes less than 64 MiB, ends that stream
// and nothing else.
func TestOneMessageOf8MBOnTheReplicationPortIsRefused(t *testing.T) {
	var refused atomic.Int32
	leader := startLeader(t, "unix", "", SourceConfig{Events: SourceEvents{Refused: func(error) { refused.Add(1) }}})
	honest, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	if err := honest.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	hello, err := proto.Marshal(
		&pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Hello{Hello: &pb.ReplicateHello{Gateway: "evil"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"after the hello": append(envelope(hello), envelope(emptyGroups(4_000_000))...),
		"instead of it":   envelope(emptyGroups(4_000_000)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		answer := post(t, leader.address, body)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took >= 64<<20 {
			t.Errorf("%s: the refusal allocates %d bytes", name, took)
		}
		if !strings.Contains(answer, "so many elements") {
			t.Errorf("%s: answered %q", name, answer)
		}
		if _, err := honest.Do(testContext(t), submit(name)); err != nil {
			t.Errorf("%s: then another gateway was told %v", name, err)
		}
	}
	if n := refused.Load(); n != 2 {
		t.Errorf("%d refusals were told of, want 2", n)
	}
}

// post opens a stream, sends a body and returns what came.
func post(t *testing.T, address string, body []byte) string {
	t.Helper()
	client, url, err := transport.Client(address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(
		testContext(t), http.MethodPost, url+plimsollv1connect.ReplicationServiceReplicateProcedure,
		bytes.NewReader(body),
	)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/connect+proto")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	said, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// The command that Exec is given comes with its footprint.
func TestExecIsToldTheFootprint(t *testing.T) {
	footprint := make(chan int, 1)
	leader := startLeader(t, "unix", "", SourceConfig{})
	leader.exec = func(ctx context.Context, _ string, _ *pb.Command, respond func(*pb.Reply)) {
		footprint <- FootprintOf(ctx)
		respond(&pb.Reply{})
	}
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	if err := f.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	cmd := submit("a")
	cmd.GetSubmitJob().Spec.Labels = map[string]string{"a": strings.Repeat("x", 10_000)}
	if _, err := f.Do(testContext(t), cmd); err != nil {
		t.Fatal(err)
	}
	if n := <-footprint; n < 10_000 || n > 15_000 {
		t.Errorf("the footprint is %d", n)
	}
}
