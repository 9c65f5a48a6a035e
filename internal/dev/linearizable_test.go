package dev_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// cutting starts a link to a unix socket, and returns it with its address. It cuts each connection
// in the middle, after least to twice as many bytes of answers.
func cutting(t *testing.T, target string, least int64, seed uint64) (*faultnet.Link, string) {
	t.Helper()
	address := "unix:" + filepath.Join(shortDir(t), "cut")
	link, err := faultnet.Listen(t.Context(), address, "unix:"+target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	rng := rand.New(rand.NewPCG(seed, seed))
	link.CutAnswers(func() int64 { return least + rng.Int64N(least) })
	return link, address
}

// changeOp is a call of a client about a job: scale it, kill it or read it.
type changeOp struct {
	job    string
	scale  int32  // above 0
	reason string // of a kill
}

// jobValue is the value that a read of a job returns: how many tasks it is to have, and why it was
// killed.
type jobValue struct {
	count  int32
	reason string
}

// refused is the answer to a kill of a job that has ended.
const refused = "refused"

// jobs is the model of scaling, killing and reading jobs, each call once. An output of nil is not
// known.
var jobs = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byJob := map[string][]porcupine.Operation{}
		for _, op := range history {
			job := op.Input.(changeOp).job
			byJob[job] = append(byJob[job], op)
		}
		for _, part := range byJob {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return jobValue{count: 1} },
	Step: func(state, input, output any) (bool, any) {
		at, op := state.(jobValue), input.(changeOp)
		switch {
		case op.scale == 0 && op.reason == "":
			return output == at, at
		case at.reason != "": // it has ended
			return output == nil || output == refused, at
		case op.scale > 0:
			return output != refused, jobValue{count: op.scale}
		}
		return output != refused, jobValue{at.count, op.reason}
	},
}

// Scalings and kills through gateways, one of them behind a relay, are repeated when connections
// are cut: those to clients, to the leader, and to the relay. Each still has its effect once, at
// one instant between call and answer: nobody reads 5, 7, 5, and no kill that worked is reported as
// a conflict.
func TestRepeatedChangesAreLinearizable(t *testing.T) {
	seed := testrun.Seed(t)
	dir := shortDir(t)
	near := filepath.Join(shortDir(t), "near")
	_, stop := start(t, dev.Config{Data: dir, Listen: "unix:" + near, Store: pebble.Config{FS: vfs.NewMem()}})
	defer mustStop(t, stop)
	leader, leaderAddress := cutting(t, filepath.Join(dir, "coordinator.sock"), 50_000, seed)
	distant, replication := filepath.Join(shortDir(t), "distant"), filepath.Join(shortDir(t), "replication")
	stopDistant := follow(t, "distant", leaderAddress, "unix:"+distant, "unix:"+replication)
	defer stopDistant()
	relay, relayAddress := cutting(t, replication, 50_000, seed+9)
	behind := filepath.Join(shortDir(t), "behind")
	stopBehind := follow(t, "behind", relayAddress, "unix:"+behind, "")
	defer stopBehind()
	const workers = 4
	cuts := make([]*faultnet.Link, 0, 3)
	var clients []*client.Client
	for i, target := range []string{near, distant, behind} {
		cut, address := cutting(t, target, 1_500, seed+uint64(i)+1)
		cuts = append(cuts, cut)
		c, err := client.New(client.Config{Server: address, RetryBudget: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	rounds := testrun.Count(6, 12, 300)
	for round := range rounds {
		history := compete(t, clients, workers, seed+uint64(round), fmt.Sprint("r", round))
		if !porcupine.CheckOperations(jobs, history) {
			for _, op := range history {
				t.Logf("client %d, %d to %d: %+v, %v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
			}
			t.Fatalf("round %d: the history of %d operations is not linearizable", round, len(history))
		}
	}
	a, b, c := cuts[0].Cuts(), cuts[1].Cuts(), cuts[2].Cuts()
	up, down := leader.Cuts(), relay.Cuts()
	t.Logf("connections were cut %d, %d and %d times, those to the leader %d times and those to the relay %d times",
		a, b, c, up, down)
	if a < 10 || b < 10 || c < 10 || up == 0 || down == 0 {
		t.Error("few connections were cut: the test tests little")
	}
}

// follow runs a further gateway. With an address for replication it is a relay.
func follow(t *testing.T, id, leader, listen, replication string) (stop func()) {
	t.Helper()
	f, err := replica.NewFollower(replica.FollowerConfig{
		Gateway: id, Leader: leader, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{ID: id, Listen: listen, ListenReplication: replication}
	if replication != "" {
		if cfg.Relay, err = replica.NewRelay(f, replica.RelayConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	g, err := gateway.New(cfg, f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.Run(ctx) })
	group.Go(func() error { return g.Run(ctx) })
	return func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// compete lets workers change and read two jobs, and returns their calls and the answers.
func compete(t *testing.T, clients []*client.Client, workers int, seed uint64, name string) []porcupine.Operation {
	t.Helper()
	names := []string{name + "-a", name + "-b"}
	for _, id := range names {
		group := plimsoll.GroupSpec{
			Name: "work", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100},
		}
		spec := plimsoll.JobSpec{ID: id, Queue: "root.batch", Groups: []plimsoll.GroupSpec{group}}
		if _, err := clients[0].SubmitJob(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	var clock atomic.Int64 // orders calls and returns as they happened
	histories := make([][]porcupine.Operation, workers)
	var group sync.WaitGroup
	for id := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(id)))
			for n := range 24 {
				op := changeOp{job: names[rng.IntN(len(names))]}
				switch dice := rng.IntN(20); {
				case dice < 9:
					op.scale = int32(2 + id + n*workers) // by nobody else
				case dice == 19 && n > 8:
					op.reason = fmt.Sprintf("%d-%d", id, n)
				}
				if done, ok := perform(t, clients[rng.IntN(len(clients))], op, &clock); ok {
					done.ClientId = id
					histories[id] = append(histories[id], done)
				}
			}
		})
	}
	group.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	return all
}

// perform makes one call. ok is false if the call had no effect and its answer tells nothing.
func perform(t *testing.T, c *client.Client, op changeOp, clock *atomic.Int64) (done porcupine.Operation, ok bool) {
	done = porcupine.Operation{Input: op, Call: clock.Add(1), Return: math.MaxInt64}
	var err error
	switch {
	case op.scale > 0:
		_, err = c.ScaleJob(t.Context(), op.job, "", op.scale)
		done.Output = "done"
	case op.reason != "":
		_, err = c.KillJob(t.Context(), op.job, op.reason)
		done.Output = "done"
	default:
		var job plimsoll.Job
		if job, err = c.Job(t.Context(), op.job); err != nil {
			return done, false
		}
		done.Output = jobValue{job.Spec.Groups[0].Count, ""}
		if job.Status.Killed {
			done.Output = jobValue{job.Spec.Groups[0].Count, job.Status.Reason}
		}
	}
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeOutcomeUnknown:
		done.Output = nil
		return done, true
	case plimsoll.CodeConflict:
		done.Output = refused
	case plimsoll.CodeUnavailable, plimsoll.CodeExhausted:
		return done, false
	default:
		if err != nil {
			t.Errorf("%+v: %v", op, err)
		}
	}
	done.Return = clock.Add(1)
	return done, true
}
