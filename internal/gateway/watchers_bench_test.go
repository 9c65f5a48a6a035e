package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// lightWatcher is a watch of all tasks over a connection of its own, as the SDK opens it. It
// decodes no more than it measures. So a thousand of them leave most of a machine to the gateway.
type lightWatcher struct {
	conn     net.Conn
	body     *bufio.Reader
	buffer   []byte
	received *receipts
}

// receipts counts what all watchers of a process receive.
type receipts struct {
	messages, changes, bytes atomic.Int64
	// waits counts changes by the time from commit to receipt, in steps of waitStep.
	waits [20_000]atomic.Int64
}

const waitStep = 100 * time.Microsecond

func (r *receipts) add(wait time.Duration) {
	r.changes.Add(1)
	r.waits[min(max(int(wait/waitStep), 0), len(r.waits)-1)].Add(1)
}

// take returns the numbers since the last call: changes, messages, bytes, and the waits' median,
// 99th percentile and maximum in milliseconds.
func (r *receipts) take() []any {
	var counts [len(r.waits)]int64
	all := int64(0)
	for i := range counts {
		counts[i] = r.waits[i].Swap(0)
		all += counts[i]
	}
	at := func(share float64) float64 {
		rest := int64(share * float64(all))
		for i, n := range counts {
			if rest -= n; rest < 0 {
				return float64(i+1) * waitStep.Seconds() * 1e3
			}
		}
		return 0
	}
	return []any{r.changes.Swap(0), r.messages.Swap(0), r.bytes.Swap(0), at(0.5), at(0.99), at(1 - 1e-6)}
}

// openLight opens a watch, and reads its snapshot.
func openLight(address string, received *receipts) (*lightWatcher, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	const request = "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/connect+proto\r\n" +
		"Connect-Protocol-Version: 1\r\nContent-Length: 5\r\n\r\n\x00\x00\x00\x00\x00"
	if _, err := fmt.Fprintf(conn, request, plimsollv1connect.WatchServiceWatchTasksProcedure, address); err != nil {
		return nil, err
	}
	raw := bufio.NewReaderSize(conn, 2048)
	response, err := http.ReadResponse(raw, nil) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	w := &lightWatcher{conn: conn, body: bufio.NewReaderSize(response.Body, 16), received: received}
	for end := false; !end; {
		message, err := w.message()
		if err != nil {
			return nil, err
		}
		end = message[len(message)-2] == fieldSnapshotEnd<<3
	}
	return w, nil
}

// message reads the next message, which is valid until the next call.
func (w *lightWatcher) message() ([]byte, error) {
	var prefix [5]byte
	if _, err := io.ReadFull(w.body, prefix[:]); err != nil {
		return nil, err
	}
	if prefix[0] != 0 {
		return nil, errors.New("the watch has ended")
	}
	n := int(binary.BigEndian.Uint32(prefix[1:]))
	w.buffer = slices.Grow(w.buffer[:0], n)[:n]
	_, err := io.ReadFull(w.body, w.buffer)
	return w.buffer, err
}

// read reads changes until the stream ends, and notes the wait of each.
func (w *lightWatcher) read() {
	for {
		message, err := w.message()
		if err != nil {
			return // the benchmark is over
		}
		w.received.messages.Add(1)
		w.received.bytes.Add(int64(len(message)))
		now := time.Now().UnixNano()
		for len(message) > 0 {
			field, kind, n := protowire.ConsumeTag(message)
			if field != fieldChanges || kind != protowire.BytesType {
				break
			}
			change, m := protowire.ConsumeBytes(message[n:])
			if at := committed(change); at > 0 {
				w.received.add(time.Duration(now - at))
			}
			message = message[n+m:]
		}
	}
}

// committed returns the instant of a change, which its task carries as that of its start.
func committed(change []byte) int64 {
	for len(change) > 0 {
		field, kind, n := protowire.ConsumeTag(change)
		if field == fieldObject && kind == protowire.BytesType {
			task, _ := protowire.ConsumeBytes(change[n:])
			return startedOf(task)
		}
		n += protowire.ConsumeFieldValue(field, kind, change[n:])
		change = change[n:]
	}
	return 0
}

// startedField is the number of the field Task.started.
var startedField = (&pb.Task{}).ProtoReflect().Descriptor().Fields().ByName("started").Number()

func startedOf(task []byte) int64 {
	for len(task) > 0 {
		field, kind, n := protowire.ConsumeTag(task)
		if field == startedField {
			at, _ := protowire.ConsumeVarint(task[n:])
			return int64(at)
		}
		n += protowire.ConsumeFieldValue(field, kind, task[n:])
		task = task[n:]
	}
	return 0
}

// watchersRole holds watches of all tasks. Its arguments are the gateway's address, their number,
// and "stuck" for watchers that read no change. It answers "count" with the number of changes
// received, and "take" with receipts.take.
func watchersRole(t *testing.T, arguments []string) {
	number, err := strconv.Atoi(arguments[1])
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	received := &receipts{}
	watchers := make([]*lightWatcher, number)
	for i := range watchers {
		if watchers[i], err = openLight(arguments[0], received); err != nil {
			t.Fatal(err)
		}
		if len(arguments) == 2 || arguments[2] != "stuck" {
			group.Go(watchers[i].read)
		}
	}
	say(number)
	obey(func(line string) []any {
		if line == "count" {
			return []any{received.changes.Load()}
		}
		return received.take()
	})
	for _, w := range watchers {
		_ = w.conn.Close() // it ends the read
	}
	group.Wait()
}

// agentsRole holds all that agents keep open: each has a connection over which it has registered,
// sends heartbeats and follows its assignments. Its arguments are the gateway's address and the
// number of agents.
func agentsRole(t *testing.T, arguments []string) {
	number, err := strconv.Atoi(arguments[1])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for i := range number {
		conn, err := net.Dial("tcp", arguments[0])
		if err != nil {
			t.Fatal(err)
		}
		client := transport.NewConnClient(conn, arguments[0])
		agent := plimsollv1connect.NewAgentServiceClient(client.HTTP, client.URL, connect.WithGRPC())
		id := nodeID(i)
		node := plimsoll.Node{ID: id, Incarnation: 1, Address: "127.0.0.1:1"}
		register := &pb.RegisterNodeRequest{Node: wire.NodeToProto(&node)}
		if _, err := agent.RegisterNode(ctx, connect.NewRequest(register)); err != nil {
			t.Fatal(err)
		}
		heartbeat := &pb.HeartbeatRequest{Node: id, Incarnation: 1}
		if _, err := agent.Heartbeat(ctx, connect.NewRequest(heartbeat)); err != nil {
			t.Fatal(err)
		}
		watch := &pb.WatchAssignmentsRequest{Node: id, Incarnation: 1}
		stream, err := agent.WatchAssignments(ctx, connect.NewRequest(watch))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() && !stream.Msg().GetSnapshotEnd() {
			continue // its tasks
		}
		group.Go(func() {
			for stream.Receive() {
				continue
			}
			_ = stream.Close() // it has ended
			client.Cut()
		})
	}
	say(number)
	obey(func(string) []any { return []any{residentBytes()} })
	cancel()
	group.Wait()
}

func nodeID(i int) string { return fmt.Sprintf("node-%04d", i) }

// BenchmarkWatchers measures 1,000 watchers of all tasks at 1,000 changes a second, for the time
// from the commit to the receipt of each change. The leader, the gateway and the watchers are
// processes of their own. Beside them, some more watchers read nothing. Target: the 99th percentile
// is at most 200 ms.
func BenchmarkWatchers(b *testing.B) {
	for _, stuck := range []int{0, 100} {
		b.Run(fmt.Sprintf("stuck=%d", stuck), func(b *testing.B) { benchWatchers(b, stuck) })
	}
}

func benchWatchers(b *testing.B, stuck int) {
	b.Helper()
	const watchers, rate, seconds = 1000, 1000, 5
	ld := startLeader(b)
	gateway := startRole(b, "gateway", "g", ld.address)
	clients := startRole(b, "watchers", gateway.first, strconv.Itoa(watchers))
	startRole(b, "watchers", gateway.first, strconv.Itoa(stuck), "stuck")
	revision := uint64(0)
	// commit commits changes at the rate, and waits until all watchers have received them.
	commit := func(changes int) {
		ticker := time.NewTicker(time.Second / rate)
		defer ticker.Stop()
		began := time.Now()
		for i := range changes {
			for time.Since(began) < time.Duration(i)*time.Second/rate {
				<-ticker.C // a tick that came late is made up for
			}
			revision++
			task := plimsoll.Task{
				Job: fmt.Sprint("job", i%100), Group: "map", Index: int32(i % 1000), Attempt: 1, Revision: revision,
				State: plimsoll.TaskRunning, Node: nodeID(i % 100),
				Created: 1795188772531784241, Bound: 1795188772531784241, Started: time.Now().UnixNano(),
			}
			ld.source.Publish(&wire.Batch{Epoch: 1, Revision: revision, Mutations: []wire.Mutation{putTask(task)}})
		}
		for clients.ask("count")[0] < float64(watchers*changes) {
			<-ticker.C
		}
	}
	commit(rate) // warm
	clients.ask("take")
	for b.Loop() {
		began, by := processTime(b, gateway.pid), processTime(b, clients.pid)
		commit(seconds * rate)
		server, client := processTime(b, gateway.pid)-began, processTime(b, clients.pid)-by
		got := clients.ask("take")
		if got[0] != watchers*seconds*rate {
			b.Errorf("%v changes were received, want %d", got[0], watchers*seconds*rate)
		}
		b.ReportMetric(got[3], "p50-ms")
		b.ReportMetric(got[4], "p99-ms")
		b.ReportMetric(got[5], "max-ms")
		b.ReportMetric(got[1]/seconds, "messages/s")
		b.ReportMetric(100*server.Seconds()/seconds, "%core")
		b.ReportMetric(100*client.Seconds()/seconds, "clients-%core")
	}
}

// BenchmarkIdleStreams measures the memory that a gateway, alone in its process, has for each idle
// watcher and each idle agent. Both have a connection of their own. Target: 64 KiB.
func BenchmarkIdleStreams(b *testing.B) {
	const streams = 1000
	for _, role := range []string{"watchers", "agents"} {
		b.Run(role, func(b *testing.B) {
			ld := startLeader(b)
			gateway := startRole(b, "gateway", "g", ld.address)
			few := startRole(b, role, gateway.first, "10") // what the first ones cost is no stream's
			few.end()
			for b.Loop() {
				before := gateway.ask("memory")
				clients := startRole(b, role, gateway.first, strconv.Itoa(streams))
				after := gateway.ask("memory")
				each := func(i int) float64 { return (after[i] - before[i]) / streams }
				b.ReportMetric((each(0)+each(1))/1024, "KiB/"+role[:len(role)-1])
				b.ReportMetric(each(1)/1024, "stack-KiB")
				b.ReportMetric(each(2)/1024, "rss-KiB")
				b.ReportMetric(each(3), "goroutines")
				clients.end()
			}
		})
	}
}

// BenchmarkFleet measures the memory of a gateway with 2,000 agents and 100,000 tasks.
func BenchmarkFleet(b *testing.B) {
	const agents, tasks = 2000, 100_000
	ld := startLeader(b)
	batch := &wire.Batch{Epoch: 1, Revision: 1}
	for i := range tasks {
		batch.Mutations = append(batch.Mutations, putTask(plimsoll.Task{
			Job: fmt.Sprintf("job%d", i/1000), Group: "map", Index: int32(i % 1000), Attempt: 1,
			State: plimsoll.TaskRunning, Node: nodeID(i % agents), Revision: 7,
			Created: 1795188772531784241, Bound: 1795188772531784241, Started: 1795188772531784241,
		}))
		if i%1000 == 0 {
			batch.Mutations = append(batch.Mutations, putSpec(specNamed(fmt.Sprintf("job%d", i/1000))))
		}
	}
	ld.source.Publish(batch)
	ld.next = 1
	for b.Loop() {
		gateway := startRole(b, "gateway", "g", ld.address)
		copied := gateway.ask("memory")
		clients := startRole(b, "agents", gateway.first, strconv.Itoa(agents))
		peak := residentOf(b, gateway.pid)
		all := gateway.ask("memory")
		b.ReportMetric(float64(peak)/1e6, "rss-MB")
		b.ReportMetric((all[0]+all[1])/1e6, "live-MB")
		b.ReportMetric((copied[0]+copied[1])/1e6, "copy-MB")
		b.ReportMetric((all[0]+all[1]-copied[0]-copied[1])/agents/1024, "KiB/agent")
		clients.end()
		gateway.end()
	}
}

// residentOf is the memory of a process that is resident, as it is, with garbage.
func residentOf(b *testing.B, pid int) uint64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * uint64(os.Getpagesize())
}
