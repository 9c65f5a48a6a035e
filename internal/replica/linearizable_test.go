package replica

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// registers is the model of the active set for a client (gateways.md 3.1), a key at a time: reads
// and writes of one value.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(registerOp).key
			byKey[key] = append(byKey[key], op)
		}
		parts := [][]porcupine.Operation{}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if op := input.(registerOp); op.write {
			return true, op.value
		}
		return output == state, state
	},
}

type registerOp struct {
	key, value string
	write      bool
}

// Reads and writes through gateways, a relay and gateways behind it are linearizable while streams
// break at random, at the leader and at the relay: a write whose outcome is not known may take
// effect at any time after it began (gateways.md 3.1).
func TestReadsAndWritesAreLinearizable(t *testing.T) {
	seed := testrun.Seed(t)
	leader := startLeader(t, "unix", "", SourceConfig{
		RetainBytes: 4 << 10, Confirm: func(context.Context) error { return nil },
	})
	leader.exec = func(_ context.Context, _ string, command *pb.Command, respond func(*pb.Reply)) {
		spec := command.GetSubmitJob().GetSpec()
		revision := leader.publish(put(spec.GetId(), spec.GetToken()))
		go respond(&pb.Reply{Revision: revision})
	}
	ctx := testContext(t)
	relay := startRelay(t, "relay", "", leader.address, FollowerConfig{})
	followers := []*Follower{relay.follower}
	for i, address := range []string{leader.address, leader.address, relay.address, relay.address} {
		f, _ := startFollower(t, FollowerConfig{Leader: address, Gateway: fmt.Sprint("g", i)})
		mustReady(ctx, t, f)
		followers = append(followers, f)
	}
	var clock atomic.Int64 // orders calls and returns as they happened
	const clients = 8
	histories := make([][]porcupine.Operation, clients)
	var group sync.WaitGroup
	for id := range clients {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(id)))
			for n := range 250 {
				if n%50 == 49 && id == 0 {
					endStreams(leader.source)
				}
				if n%50 == 24 && id == 0 {
					endStreams(relay.relay.source)
				}
				f := followers[rng.IntN(len(followers))]
				if f.Ready(ctx) != nil {
					return // the test's time is up, which it fails for below
				}
				op := registerOp{
					key: fmt.Sprint("k", rng.IntN(3)), write: rng.IntN(2) == 0, value: fmt.Sprint(id, "-", n),
				}
				if done, ok := perform(ctx, f, op, &clock); ok {
					done.ClientId = id
					histories[id] = append(histories[id], done)
				}
			}
		})
	}
	group.Wait()
	var history []porcupine.Operation
	for _, h := range histories {
		history = append(history, h...)
	}
	if len(history) < clients*100 {
		t.Fatalf("only %d operations came to an end", len(history))
	}
	if !porcupine.CheckOperations(registers, history) {
		t.Errorf("the history of %d operations is not linearizable", len(history))
	}
}

// perform does one operation; ok is false for a read that failed, which says nothing.
func perform(ctx context.Context, f *Follower, op registerOp, clock *atomic.Int64) (done porcupine.Operation, ok bool) {
	done = porcupine.Operation{Input: op, Call: clock.Add(1), Return: math.MaxInt64}
	if op.write {
		command := submit(op.key)
		command.GetSubmitJob().Spec.Token = op.value
		if _, err := f.Do(ctx, command); err == nil {
			done.Return = clock.Add(1)
		}
		return done, true
	}
	s, err := f.Barrier(ctx)
	if err != nil {
		return done, false
	}
	value, _ := s.Get(wire.KindJobStatus, op.key)
	done.Output, done.Return = string(value), clock.Add(1)
	return done, true
}

func endStreams(s *Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.streams {
		st.end(errStreamEnded)
	}
}
