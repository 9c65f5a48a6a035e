package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// listed is the number of records of an answer, and listedBytes their size: 256 KiB.
const (
	listed      = 100
	listedBytes = 256 << 10
	others      = 200 // jobs of as many tasks that the copy holds and no list shows
)

// longRecords returns the tasks of a job and then other jobs: as many of both as a list of 256 KiB
// has.
func longRecords(of string) []wire.Mutation {
	return append(longTasks(of), longJobs()...)
}

func longTasks(of string) (all []wire.Mutation) {
	for i := range listed {
		task := plimsoll.Task{
			Job: of, Group: "map", Index: int32(i), Attempt: 1, State: plimsoll.TaskRunning, Node: "n1",
			Created: 1795188772531784241, Bound: 1795188772531784241, Started: 1795188772531784241, Revision: 7,
		}
		task.Message = strings.Repeat("x", listedBytes/listed-len(wire.AppendTask(nil, &task)))
		all = append(all, putTask(task))
	}
	return all
}

func longJobs() (all []wire.Mutation) {
	for i := range listed {
		job := plimsoll.JobStatus{
			ID: fmt.Sprintf("job%d", i), Owner: "alice", Queue: "root.batch", State: plimsoll.JobRunning,
		}
		for len(wire.AppendJobStatus(nil, &job)) < listedBytes/listed {
			job.Groups = append(job.Groups, plimsoll.GroupStatus{
				Name: fmt.Sprintf("group%d", len(job.Groups)), Count: 3,
				Counts: plimsoll.TaskCounts{Pending: 1, Running: 2},
				Wait:   plimsoll.WaitCause{Code: plimsoll.WaitQueueMax, Queue: "root.batch", Resource: "memory"},
			})
		}
		all = append(all, putStatus(job))
	}
	return all
}

// servedRounds is the number of rounds of BenchmarkServedList: each measures both servers.
const servedRounds = 9

// BenchmarkServedList measures the processor time of a server process for a list of 100 records in
// 256 KiB: a gateway, beside a bare net/http handler that gets the same requests and writes as many
// bytes. The two take turns, and x-bare is the median of their ratios. The clients and the leader
// are in this process.
//
// With PLIMSOLL_BENCH_PROFILES the processor profiles of the servers are written to that directory.
func BenchmarkServedList(b *testing.B) {
	ld := startLeader(b)
	ld.source.Publish(&wire.Batch{Epoch: 1, Revision: 1, Mutations: longRecords("job")})
	for i := range uint64(others) { // a copy of a usual size, beside which an answer is small
		ld.source.Publish(&wire.Batch{Epoch: 1, Revision: 2 + i, Mutations: longTasks(fmt.Sprintf("other%d", i))})
	}
	const tasks, jobs = plimsollv1connect.JobServiceListTasksProcedure, plimsollv1connect.JobServiceListJobsProcedure
	const strict, eventual = `{"job":"job"}`, `{"job":"job","consistency":{"level":"FRESHNESS_EVENTUAL"}}`
	const ofJob, anyAge = "\x0a\x03job", "\x32\x02\x08\x02" // the same in the binary form
	for _, c := range []struct{ name, path, kind, body string }{
		{"bare", "", "application/proto", ""}, // against itself: what the comparison is good for
		{"tasks/proto/eventual", tasks, "application/proto", ofJob + anyAge},
		{"tasks/proto/strict", tasks, "application/proto", ofJob},
		{"jobs/proto/eventual", jobs, "application/proto", anyAge},
		{"jobs/proto/strict", jobs, "application/proto", ""},
		{"tasks/json/eventual", tasks, "application/json", eventual},
		{"tasks/json/strict", tasks, "application/json", strict},
	} {
		for _, connections := range []int{16, 64} {
			b.Run(fmt.Sprintf("%s/connections=%d", c.name, connections), func(b *testing.B) {
				role := "gateway"
				if c.path == "" {
					role = "bare"
				}
				l := loop{kind: c.kind, body: c.body, connections: connections}
				bare := newBeside(startRole(b, "bare"), "", l)
				compare(b, bare, newBeside(startRole(b, role, "g", ld.address), c.path, l))
			})
		}
	}
}

// compare measures two servers in turns.
func compare(b *testing.B, bare, gateway *beside) {
	b.Helper()
	bare.run(b, 200*bare.connections) // warm
	gateway.run(b, 200*gateway.connections)
	b.ResetTimer()
	each := max(b.N/servedRounds, 1)
	var ours, theirs, ratios []float64
	var bytes int64
	for range servedRounds {
		_, took := bare.run(b, each)
		received, own := gateway.run(b, each)
		bytes = received
		theirs, ours = append(theirs, took), append(ours, own)
		ratios = append(ratios, own/took)
	}
	b.ReportMetric(median(ours), "server-µs/op")
	b.ReportMetric(median(theirs), "bare-µs/op")
	b.ReportMetric(median(ratios), "x-bare")
	b.ReportMetric(float64(bytes)/float64(each), "B/answer")
}

// beside is a server process and the loop of requests to it.
type beside struct {
	pid int
	loop
}

func newBeside(server *benchRole, path string, l loop) *beside {
	l.url = "http://" + server.first + path
	return &beside{server.pid, l}
}

// run makes n requests, and returns the bytes of the answers and the processor time of the server
// for each request in microseconds.
func (s *beside) run(b *testing.B, n int) (received int64, took float64) {
	b.Helper()
	began := processTime(b, s.pid)
	received = s.loop.run(b, n)
	return received, float64((processTime(b, s.pid) - began).Nanoseconds()) / 1e3 / float64(n)
}

// loop is a closed loop of requests over some connections.
type loop struct {
	url, kind, body string
	connections     int
}

// run makes n requests, and returns the bytes of the answers.
func (l loop) run(b *testing.B, n int) (received int64) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: l.connections, ReadBufferSize: 256 << 10, DisableCompression: true,
	}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range l.connections {
		group.Go(func() {
			buffer := make([]byte, 256<<10)
			for {
				mu.Lock()
				n--
				mine := n >= 0
				mu.Unlock()
				if !mine {
					return
				}
				got, err := l.once(client, buffer)
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				received += got
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return received
}

func (l loop) once(client *http.Client, buffer []byte) (int64, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, l.url, strings.NewReader(l.body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", l.kind)
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buffer)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && (resp.StatusCode != http.StatusOK || n < listedBytes/2) {
		err = fmt.Errorf("%s: %s, %d bytes", l.url, resp.Status, n)
	}
	return n, err
}

// processTime returns the processor time that a process has taken, to the nanosecond.
func processTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	var took unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &took); err != nil { // clock_getcpuclockid(3)
		b.Fatal(err)
	}
	return time.Duration(took.Nano())
}

// bareRole serves the records of a list with nothing but net/http. It says its address.
func bareRole(t *testing.T) {
	var body []byte
	for _, task := range longTasks("job") {
		body = append(body, task.Value...)
	}
	l, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := transport.ServeBare(ctx, l, body); err != nil {
			t.Error(err)
		}
	})
	say(l.Addr())
	obey(func(string) []any { return nil })
	cancel()
	group.Wait()
}
