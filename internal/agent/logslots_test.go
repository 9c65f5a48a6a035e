package agent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A follower of a log takes one of the node's slots, and one descriptor of each log.
func TestFollowersOfLogsAreBounded(t *testing.T) {
	w := newWorld(t)
	logs := runWithLogs(t, w)
	most := int(newLogSlots().most)
	if most < 1 || most > maxLogStreams {
		t.Fatalf("%d logs may be read", most)
	}
	before := openDescriptors(t)
	follow := func() (*connect.ServerStreamForClient[pb.ReadTaskLogResponse], context.CancelFunc) {
		ctx, cancel := context.WithCancel(w.ctx)
		stream, err := logs.ReadTaskLog(ctx, connect.NewRequest(&pb.ReadTaskLogRequest{Task: "j.g.0", Follow: true}))
		if err != nil {
			t.Fatal(err)
		}
		return stream, cancel
	}
	var ends []func()
	for range most {
		stream, cancel := follow()
		if !stream.Receive() {
			t.Fatalf("a follower that has a place: %v", stream.Err())
		}
		ends = append(ends, func() {
			cancel()
			_ = stream.Close() // the stream was given up
		})
	}
	if took := openDescriptors(t) - before; took > most*logStreamFiles {
		t.Errorf("%d followers took %d descriptors", most, took)
	}
	refused, cancel := follow()
	defer cancel()
	if refused.Receive() {
		t.Fatal("one more than may follow was served")
	}
	err := wire.FromConnectError(refused.Err())
	if want := fmt.Sprintf(
		"%d logs of node", most,
	); plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), want) {
		t.Errorf("one more: %v", err)
	}
	ends[0]()
	w.await("there is a place again", func() bool {
		stream, cancel := follow()
		defer cancel()
		return stream.Receive()
	})
	for _, end := range ends[1:] {
		end()
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
