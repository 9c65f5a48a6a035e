package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// The load of BenchmarkLeaderBesideEventStreams, and how it is measured. Windows without streams
// and with them take turns, so that a change of the machine meets both.
const (
	benchStreams  = 1000
	benchGateways = 2
	benchWindow   = 6 * time.Second
	benchTurns    = 5
	jobsASecond   = 20
	tasksOfAJob   = 20
)

// BenchmarkLeaderBesideEventStreams measures what 1,000 streams of events on two gateways cost the
// leader, in real processes under a steady load. It prints the processor time of the leader from
// /proc/PID/stat without streams and with them, and the median of the ratios of neighbours.
func BenchmarkLeaderBesideEventStreams(b *testing.B) {
	s := newSite(b)
	leader := strings.Replace(freePorts(b, 1)[0], "localhost", "127.0.0.1", 1)
	coordinator := start(b, "coordinator", "--data", s.path("store"), "--listen", leader)
	coordinator.says("msg=leading")
	var gateways []string
	for i := range benchGateways {
		address := "unix:" + s.path(fmt.Sprintf("gateway%d.sock", i))
		start(b, "gateway", "--data", s.path(fmt.Sprintf("gateway%d", i)), "--leader", leader, "--listen", address,
			"--max-connections", "4096", "--max-event-streams", fmt.Sprint(benchStreams)).says("following the leader")
		gateways = append(gateways, address)
	}
	load := beginLoad(b, s.clientOf(gateways[0]))
	defer load.stop()
	cost := func() float64 { // of the leader, in percent of a processor
		before, began := ticks(b, coordinator.cmd.Process.Pid), time.Now()
		pause(b.Context(), benchWindow)
		return (ticks(b, coordinator.cmd.Process.Pid) - before) / time.Since(began).Seconds() * 100
	}
	for b.Loop() {
		var without, with, ratios []float64
		var delivered int64
		for turn := range benchTurns + 1 {
			alone := cost()
			streams := openStreams(b, gateways)
			before := streams.bytes.Load()
			beside := cost()
			delivered += streams.bytes.Load() - before
			streams.stop()
			if turn > 0 { // the first is to warm
				without, with, ratios = append(without, alone), append(with, beside), append(ratios, beside/alone)
			}
		}
		b.ReportMetric(median(without), "%core-without")
		b.ReportMetric(median(with), "%core-with-1000")
		b.ReportMetric(median(ratios), "x")
		b.ReportMetric(float64(delivered)/float64(benchTurns+1)/benchWindow.Seconds()/1e6, "MB/s-delivered")
	}
	b.ReportMetric(0, "ns/op") // it is left out
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// ticks returns the processor time of a process in seconds, as /proc/PID/stat counts it.
func ticks(tb testing.TB, pid int) float64 {
	tb.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, behind, _ := strings.Cut(string(data), ") ") // the name may hold spaces
	fields := strings.Fields(behind)
	user, err := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err := errors.Join(err, err2); err != nil {
		tb.Fatal(err)
	}
	return (user + system) / 100 // of Linux: USER_HZ
}

// running is work in the background of a benchmark.
type running struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	bytes  atomic.Int64 // that streams have delivered
}

func (r *running) stop() {
	r.cancel()
	r.group.Wait()
}

// beginLoad submits and kills jobs at a steady rate, until it is stopped.
func beginLoad(b *testing.B, c *client.Client) *running {
	ctx, cancel := context.WithCancel(b.Context())
	r := &running{cancel: cancel}
	r.group.Go(func() {
		tick := time.NewTicker(time.Second / jobsASecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			id := fmt.Sprintf("job%06d", i)
			_, err := c.SubmitJob(ctx, plimsoll.JobSpec{ID: id, Groups: []plimsoll.GroupSpec{{
				Name: "main", Count: tasksOfAJob, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100},
			}}})
			if err == nil {
				_, err = c.KillJob(ctx, id, "the load")
			}
			if err != nil && ctx.Err() == nil {
				b.Error(err)
				return
			}
		}
	})
	return r
}

// openStreams opens the streams, each at one of the gateways in turn, and reads what they get. It
// returns when all have begun.
func openStreams(b *testing.B, gateways []string) *running {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	r := &running{cancel: cancel}
	var begun sync.WaitGroup
	for _, address := range gateways {
		c, url, err := transport.CallClient(address)
		if err != nil {
			b.Fatal(err)
		}
		for range benchStreams / len(gateways) {
			begun.Add(1)
			r.group.Go(func() { r.follow(ctx, b, c, url, begun.Done) })
		}
		r.group.Go(func() {
			<-ctx.Done()
			c.CloseIdleConnections()
		})
	}
	begun.Wait()
	return r
}

// follow reads one stream until ctx ends. It calls begun once the stream has begun, or failed.
func (r *running) follow(ctx context.Context, b *testing.B, c *http.Client, url string, begun func()) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+rest.StreamPath, nil)
	if err != nil {
		b.Error(err)
		begun()
		return
	}
	answer, err := c.Do(req)
	begun()
	if err != nil {
		b.Error(err)
		return
	}
	defer answer.Body.Close() //nolint:errcheck // it was read to its end
	if answer.StatusCode != http.StatusOK {
		b.Errorf("a stream got status %d", answer.StatusCode)
	}
	buffer := make([]byte, 16<<10)
	for {
		n, err := answer.Body.Read(buffer)
		r.bytes.Add(int64(n))
		if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
			b.Error(err)
		}
		if err != nil {
			return
		}
	}
}
