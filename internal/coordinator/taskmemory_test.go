package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// heap returns the bytes of the heap in use after two collections. Objects in pools and those with
// finalizers, of earlier tests, are only gone after the second.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// loader returns a Loader with the records of tables, as in a load from the store.
func loader(t *testing.T, cfg state.Config, from *replica.Snapshot) *state.Loader {
	t.Helper()
	l := state.NewLoader(cfg, plimsoll.DefaultQueues())
	for _, kind := range []wire.Kind{
		wire.KindQueueConfig, wire.KindNode, wire.KindJobSpec, wire.KindJobStatus, wire.KindTask,
	} {
		for key, value := range from.Scan(kind, "", "") {
			if err := loadRecord(l, kind, key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// A task takes less memory than state.TaskMemory, in a process with the state, the leader's tables
// and the copy of a gateway. An idle process takes at most half of it; the rest is for the garbage
// collector. A load holds the records and the rows at once, and stays below the whole. Half of the
// tasks run, and the names have the usual length.
func TestATaskTakesLessMemoryThanItsRoom(t *testing.T) {
	const jobs, tasks = 32, 2500
	before := heap()
	s := state.New(state.Config{}, plimsoll.DefaultQueues())
	e, enc := engine.New(engine.Config{Seed: 1}, s, 0, 1e18), encoder{epoch: 1}
	leader, gateway := replica.NewTables(), replica.NewTables()
	turn := func(do ...engine.Operation) {
		var out engine.Batch
		var commands []engine.Command
		for i, d := range do {
			commands = append(commands, engine.Command{ID: uint64(i + 1), Do: d})
		}
		for more := true; more; {
			var taken int
			taken, _, more = e.Turn(1e18, commands, &out)
			commands = commands[taken:]
			if out.Revision == 0 {
				continue
			}
			batch := enc.encode(&out)
			batch.Events = wire.EventChunk{}
			if err := leader.Apply(batch); err != nil {
				t.Fatal(err)
			}
			copied := *batch
			copied.Mutations = nil
			for _, m := range batch.Mutations {
				m.Key, m.Node, m.Value = strings.Clone(m.Key), strings.Clone(m.Node), bytes.Clone(m.Value)
				copied.Mutations = append(copied.Mutations, m)
			}
			if err := gateway.Apply(&copied); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 25 {
		turn(&engine.RegisterNode{Gateway: "gw", Node: plimsoll.Node{
			ID: fmt.Sprintf("node-%05d", i), Incarnation: 1,
			Capacity: plimsoll.Resources{"cpu": jobs * tasks * 100 / 50},
		}})
	}
	for i := range jobs {
		turn(spec(fmt.Sprintf("a-usual-name-%02d", i), "root.default", tasks, plimsoll.Resources{"cpu": 100}))
	}
	live := (heap() - before) / (jobs * tasks)
	if live > state.TaskMemory*6/10 {
		t.Errorf("a task takes %d bytes; its room is for %d", live, state.TaskMemory*6/10)
	}
	runtime.KeepAlive(e)
	runtime.KeepAlive(gateway)
	before = heap() // with the state that is there already
	l := loader(t, state.Config{}, leader.Snapshot())
	st, err := l.End(1e18)
	if err != nil {
		t.Fatal(err)
	}
	records, part, peak := replica.Replace(nil), engine.Batch{}, int64(0)
	fill := func() error { // as loaded.fill does
		encoded := enc.encode(&part)
		err := records.Put(encoded.Mutations)
		peak = max(peak, (heap()-before)/(jobs*tasks))
		runtime.KeepAlive(encoded)
		return err
	}
	if err := errors.Join(st.All(&part.Changes, fill), fill()); err != nil {
		t.Fatal(err)
	}
	t.Logf("a task takes %d bytes, and %d while it is loaded", live, peak)
	if peak > state.TaskMemory {
		t.Errorf("a task takes %d bytes while it is loaded; its room is %d", peak, state.TaskMemory)
	}
	if held, _ := st.Usage(); held != jobs*tasks {
		t.Fatalf("%d tasks were loaded, want %d", held, jobs*tasks)
	}
	runtime.KeepAlive(leader)
	runtime.KeepAlive(st)
	runtime.KeepAlive(l)
	runtime.KeepAlive(records)
}
