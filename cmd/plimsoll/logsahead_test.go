package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Eight logs are read beside each other and printed in the order of the tasks. A log that is larger
// than what is kept of one is read once more in its turn, and printed once. A log that breaks off
// keeps its place too.
func TestLogsAreReadBesideEachOtherAndPrintedInOrder(t *testing.T) {
	const tasks, large, broken, missing = 40, 9, 11, 13
	address, g := serve(t)
	addTasks(g, "many", tasks, plimsoll.ResultSucceeded)
	line := func(i int) string { return fmt.Sprintf("line of %d", i) }
	block := strings.Repeat(line(large)+"\n", 60<<10/len(line(large)))
	var mu sync.Mutex
	reading, most, reads := 0, 0, map[string]int{}
	eight := make(chan struct{}) // closed when eight logs are read at once
	g.readLog = func(ctx context.Context, task string, send func(*pb.ReadLogsResponse) error) error {
		mu.Lock()
		reads[task]++
		reading++
		if most = max(most, reading); reading == logsAtOnce && most == logsAtOnce {
			select {
			case <-eight:
			default:
				close(eight)
			}
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			reading--
		}()
		select {
		case <-eight:
		case <-ctx.Done():
			return ctx.Err()
		}
		_, _, index, _ := wire.SplitTaskID(task)
		i := int(index)
		chunks := []string{line(i) + "\n"}
		if i == large {
			chunks = []string{block, block, block, block, block, block}
		}
		if i == missing {
			return wire.ConnectError(gone(task, false))
		}
		for _, text := range chunks {
			if err := send(&pb.ReadLogsResponse{Stream: "stdout", Data: []byte(text)}); err != nil {
				return err
			}
		}
		if i == broken {
			return wire.ConnectError(plimsoll.Errorf(plimsoll.CodeInternal, "the disk is gone"))
		}
		return nil
	}
	stdout, stderr, code := command(t, address, "job", "logs", "many")
	var want bytes.Buffer
	for i := range tasks {
		lines := 1
		switch i {
		case large:
			lines = 6 * strings.Count(block, "\n")
		case missing:
			lines = 0
		}
		want.WriteString(strings.Repeat(fmt.Sprintf("many.map.%d | %s\n", i, line(i)), lines))
	}
	if code != 0 || stdout != want.String() {
		t.Errorf("exit code %d, %d bytes are printed, want %d; they begin with\n%.500s", code, len(stdout), want.Len(), stdout)
	}
	for _, says := range []string{
		"logs of 1 of 40 tasks are gone", "logs of 1 of 40 tasks broke off, the first of them many.map.11",
	} {
		if !strings.Contains(stderr, says) {
			t.Errorf("stderr does not say %q:\n%s", says, stderr)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most != logsAtOnce || reads["many.map.9"] != 2 || reads["many.map.10"] != 1 {
		t.Errorf("%d logs were read at once, the large one %d times, another %d times", most, reads["many.map.9"],
			reads["many.map.10"])
	}
}
