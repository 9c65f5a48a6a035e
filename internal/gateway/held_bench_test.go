package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	heldConnections = 32   // of the readers to each gateway
	heldChanges     = 1000 // changes a second that the leader commits meanwhile
)

// BenchmarkHeldGateways measures the strict reads of one gateway and of three, and the processor
// time of the leader meanwhile. Each gateway is a process that is held to a quarter of a core. They
// follow the leader, or a relay. Targets: three serve 2.7 times as many reads as one, and the
// leader takes at most a tenth more of a core. The medians of three alternating rounds are shown.
func BenchmarkHeldGateways(b *testing.B) {
	for _, behind := range []string{"leader", "relay"} {
		b.Run("behind="+behind, func(b *testing.B) {
			leader := startRole(b, "leader", strconv.Itoa(heldChanges))
			parent := leader.first
			if behind == "relay" {
				parent = startRole(b, "relay", "relay", leader.first).first
			}
			var addresses []string
			for i := range 3 {
				gateway := startRole(b, "gateway", fmt.Sprint("g", i), parent)
				hold(b, gateway)
				addresses = append(addresses, gateway.first)
			}
			one := startRole(b, "readers", addresses[:1]...)
			three := startRole(b, "readers", addresses...)
			for b.Loop() {
				var rates, cores [2][]float64
				for range 3 {
					for i, readers := range []*benchRole{one, three} {
						readers.ask("read 500") // warm
						began := processTime(b, leader.pid)
						rates[i] = append(rates[i], readers.ask("read 3000")[0]/3)
						cores[i] = append(cores[i], 100*(processTime(b, leader.pid)-began).Seconds()/3)
					}
				}
				b.ReportMetric(median(rates[0]), "reads/s-of-1")
				b.ReportMetric(median(rates[1]), "reads/s-of-3")
				b.ReportMetric(median(rates[1])/median(rates[0]), "times")
				b.ReportMetric(median(cores[0]), "leader-%core-of-1")
				b.ReportMetric(median(cores[1]), "leader-%core-of-3")
				b.ReportMetric(median(cores[1])-median(cores[0]), "leader-%core-more")
			}
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// hold holds a process to a quarter of a core.
func hold(b *testing.B, r *benchRole) {
	b.Helper()
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		b.Skipf("no control group can hold a process: %v", err)
	}
	if missing := h.Missing(); strings.Contains(missing, "cpu") {
		b.Skipf("no control group can hold a process: %s", missing)
	}
	tree, err := h.Subtree("plimsoll-bench-" + strconv.Itoa(r.pid))
	if err != nil {
		b.Fatal(err)
	}
	group, err := tree.Create("held", cgroup.Limits{CPUMilli: 250})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.end()
		if err := errors.Join(group.Remove(context.Background()), tree.Remove()); err != nil {
			b.Log(err)
		}
	})
	if err := group.Add(r.pid); err != nil {
		b.Fatal(err)
	}
}

// leaderRole is a leader with some jobs that commits changes of tasks. Its argument is how many a
// second. It says its address.
func leaderRole(t *testing.T, arguments []string) {
	ld := startLeader(t)
	rate, err := strconv.Atoi(arguments[0])
	if err != nil {
		t.Fatal(err)
	}
	batch := &wire.Batch{Epoch: 1, Revision: 1}
	for i := range 100 {
		id := fmt.Sprint("job", i)
		batch.Mutations = append(batch.Mutations, putSpec(specNamed(id)), putStatus(plimsoll.JobStatus{ID: id}))
	}
	ld.source.Publish(batch)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for revision := uint64(2); ; revision++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			batch := &wire.Batch{Epoch: 1, Revision: revision}
			for i := range rate / 100 {
				batch.Mutations = append(batch.Mutations, putTask(plimsoll.Task{
					Job: "job0", Group: "map", Index: int32(i), State: plimsoll.TaskRunning, Revision: revision,
				}))
			}
			ld.source.Publish(batch)
		}
	})
	say(ld.address)
	obey(func(string) []any { return []any{residentBytes()} })
	cancel()
	group.Wait()
}

// relayRole is a gateway that others follow. Its arguments are its id and the leader's address. It
// says the address at which it is followed.
func relayRole(t *testing.T, arguments []string) {
	follower, cfg := relayOf(t, arguments[0], arguments[1])
	g := newGateway(t, cfg, follower)
	listeners, err := g.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = follower.Run(ctx) }) // it ends with ctx
	group.Go(func() {
		if err := g.Serve(ctx, listeners); err != nil {
			t.Error(err)
		}
	})
	if err := follower.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	say(cfg.ListenReplication)
	obey(func(string) []any { return []any{residentBytes()} })
	cancel()
	group.Wait()
}

// readersRole reads a job, strictly, in closed loops over connections to gateways, whose addresses
// are its arguments. It answers "read" and a number of milliseconds with the number of answers.
func readersRole(t *testing.T, arguments []string) {
	var readers []*lightReader
	for _, address := range arguments {
		for range heldConnections {
			r, err := newLightReader(address)
			if err != nil {
				t.Fatal(err)
			}
			defer r.conn.Close() //nolint:errcheck // nothing is lost with it
			readers = append(readers, r)
		}
	}
	say(len(readers))
	obey(func(line string) []any {
		millis, err := strconv.Atoi(strings.TrimPrefix(line, "read "))
		if err != nil {
			t.Fatal(err)
		}
		var answers atomic.Int64
		var group sync.WaitGroup
		over := time.Now().Add(time.Duration(millis) * time.Millisecond)
		for _, r := range readers {
			group.Go(func() {
				for time.Now().Before(over) {
					if err := r.read(); err != nil {
						t.Error(err)
						return
					}
					answers.Add(1)
				}
			})
		}
		group.Wait()
		return []any{answers.Load()}
	})
}

// lightReader asks for one job over a connection of its own, and decodes nothing.
type lightReader struct {
	conn    net.Conn
	answers *bufio.Reader
	request []byte
}

func newLightReader(address string) (*lightReader, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	const body = "\x0a\x04job1"
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/proto\r\nContent-Length: %d\r\n\r\n%s",
		plimsollv1connect.JobServiceGetJobProcedure, address, len(body), body)
	return &lightReader{conn, bufio.NewReaderSize(conn, 1024), []byte(request)}, nil
}

func (r *lightReader) read() error {
	if _, err := r.conn.Write(r.request); err != nil {
		return err
	}
	length, status := -1, []byte(nil)
	for {
		line, err := r.answers.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		if status == nil {
			status = bytes.Clone(line)
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
	}
	if length < 0 || !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("the answer is %s with %d bytes", status, length)
	}
	_, err := io.CopyN(io.Discard, r.answers, int64(length))
	return err
}
