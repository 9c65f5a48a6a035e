package attacks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// canary submits a job each second and reads it back, and keeps how long that took.
type canary struct {
	client *client.Client
	done   sync.WaitGroup
	stop   context.CancelFunc

	mu       sync.Mutex
	took     []flight
	failures []string
	doing    func() string // the attack that goes on
}

// flight is one submit and read.
type flight struct {
	took   time.Duration
	during string
}

// fly starts the canary. It ends with the test.
func (f *fleet) fly(doing func() string) *canary {
	f.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := &canary{client: f.client(5 * time.Second), stop: stop, doing: doing}
	c.done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			err := c.sing(ctx, fmt.Sprintf("canary-%d", n))
			if ctx.Err() != nil {
				return
			}
			c.note(time.Since(began), err)
			pause(ctx, time.Until(began.Add(time.Second)))
		}
	})
	f.t.Cleanup(c.land)
	return c
}

func (c *canary) land() {
	c.stop()
	c.done.Wait()
}

// sing submits a job of one task and reads it.
func (c *canary) sing(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	spec := plimsoll.JobSpec{ID: id, Owner: "canary", Queue: "root.canary", Groups: []plimsoll.GroupSpec{{
		Name: "main", Count: 1, Command: []string{"true"},
	}}}
	if _, err := c.client.SubmitJob(ctx, spec); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	if _, err := c.client.Job(ctx, id); err != nil {
		return fmt.Errorf("read what was submitted: %w", err)
	}
	return nil
}

func (c *canary) note(took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, flight{took, c.doing()})
	if err != nil {
		c.failures = append(c.failures, fmt.Sprintf("during %s: %v", c.doing(), err))
	}
}

// judge wants the canary to have been answered each time and, if the run measures, 99 of 100 times in
// less than a second.
func (c *canary) judge(t *testing.T, measures bool) {
	t.Helper()
	c.land()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) == 0 {
		t.Fatal("the canary was never answered")
	}
	slices.SortFunc(c.took, func(a, b flight) int { return cmp.Compare(a.took, b.took) })
	p99 := c.took[(len(c.took)*99+99)/100-1].took
	t.Logf("canary: %d submits and reads, median %s, p99 %s, %d failed",
		len(c.took), c.took[len(c.took)/2].took.Round(time.Microsecond), p99.Round(time.Microsecond), len(c.failures))
	for _, slow := range c.took[max(0, len(c.took)-5):] {
		t.Logf("%s during %s", slow.took.Round(time.Microsecond), slow.during)
	}
	for _, failure := range c.failures {
		t.Errorf("the canary got an error %s", failure)
	}
	if measures && p99 > time.Second {
		t.Errorf("99 of 100 submits and reads took up to %s; less than 1s is wanted", p99)
	}
}
