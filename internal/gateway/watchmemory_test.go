package gateway

import (
	"runtime"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// maxIdleWatch bounds the memory of an idle watch, of the gateway and of the client in this process
// together.
const maxIdleWatch = 64 << 10

// Idle watches share one connection here. Each holds a stream and a goroutine at both ends.
func TestAnIdleWatchTakesAtMost64KiB(t *testing.T) {
	f := newFake()
	watch := watchClient(t, serve(t, Config{}, f))
	receive(t, open(t, watch.WatchTasks, &pb.WatchTasksRequest{})) // makes the connection
	const watches = 300
	before := memoryInUse()
	streams := make([]*connect.ServerStreamForClient[pb.WatchTasksResponse], watches)
	for i := range streams {
		streams[i] = open(t, watch.WatchTasks, &pb.WatchTasksRequest{})
		receive(t, streams[i])
	}
	each := (memoryInUse() - before) / watches
	t.Logf("an idle watch takes %d bytes, both ends together", each)
	if each > maxIdleWatch {
		t.Errorf("an idle watch takes %d bytes, more than %d", each, maxIdleWatch)
	}
	runtime.KeepAlive(streams)
}

// memoryInUse returns the bytes of live objects and of stacks.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves the objects of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
