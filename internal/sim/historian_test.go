package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/historytest"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// kept is the history that the historian writes. It outlives the historian's process.
type kept struct {
	*historytest.Memory

	mu     sync.Mutex
	chunks [][]byte
}

// Write implements history.Writer.
func (k *kept) Write(ctx context.Context, b *history.Batch) error {
	before, err := k.Position(ctx)
	if err != nil {
		return err
	}
	if err := k.Memory.Write(ctx, b); err != nil {
		return err
	}
	after, err := k.Position(ctx)
	if err == nil && after != before { // it was not repeated
		k.mu.Lock()
		defer k.mu.Unlock()
		k.chunks = append(k.chunks, b.Data)
	}
	return err
}

func (k *kept) all() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.chunks
}

// checkHistorian checks that the historian has every stored event once.
func (c *cluster) checkHistorian() (problems []error) {
	complete := func() (stored, kept uint64) {
		c.quorum.mu.Lock()
		for i := range c.quorum.events {
			stored += c.quorum.events[i].Count
		}
		c.quorum.mu.Unlock()
		status, err := c.kept.Status(c.t.Context())
		if err != nil {
			problems = append(problems, err)
		}
		if len(status.Gaps) > 0 {
			problems = append(problems, fmt.Errorf("the historian lacks events: %+v", status.Gaps))
		}
		return stored, status.Next
	}
	stored, kept := complete()
	for range 60 {
		if len(problems) > 0 || stored == kept {
			break
		}
		sleep(c.t.Context(), time.Second)
		stored, kept = complete()
	}
	if stored != kept {
		problems = append(problems, fmt.Errorf("%d events were stored, and the historian has %d", stored, kept))
	}
	if len(problems) > 0 {
		return problems
	}
	return c.sameEvents()
}

// sameEvents compares the events of the historian with those of the store, one by one.
func (c *cluster) sameEvents() (problems []error) {
	var stored, kept []string
	c.quorum.mu.Lock()
	chunks := c.quorum.events
	c.quorum.mu.Unlock()
	for i := range chunks {
		stored = append(stored, texts(chunks[i].Data)...)
	}
	for _, data := range c.kept.all() {
		kept = append(kept, texts(data)...)
	}
	if len(stored) != len(kept) {
		return []error{fmt.Errorf("%d events were stored, and the historian has %d", len(stored), len(kept))}
	}
	for i := range stored {
		if stored[i] != kept[i] {
			return []error{fmt.Errorf("event %d is %s, and the historian has %s", i, stored[i], kept[i])}
		}
	}
	return nil
}

func texts(data []byte) (all []string) {
	for event, err := range ring.Decode(data) {
		if err != nil {
			return append(all, err.Error())
		}
		all = append(all, fmt.Sprintf("%+v", event))
	}
	return all
}
