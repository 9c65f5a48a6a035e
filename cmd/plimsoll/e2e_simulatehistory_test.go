package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// recordedSlots is how many of the tasks of TestASimulatedPastHasTheWaitsOfThen run at once.
const recordedSlots = 4

// TestASimulatedPastHasTheWaitsOfThen runs real tasks in two queues, more than fit at once, and
// simulates their history while the historian goes on. The median and the 95 % of the waits of each
// queue are those of then: within a quarter, or a second more than the time in which the record
// itself shows a task that waits beside room for it. A busy machine adds that time.
func TestASimulatedPastHasTheWaitsOfThen(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 15))
	s := newSite(t)
	s.dev()
	total := 0
	for i := range 10 {
		count := 5 + rng.IntN(3)
		queue := []string{plimsoll.DefaultQueue, plimsoll.BatchQueue}[i%2]
		_, err := s.client().SubmitJob(t.Context(), plimsoll.JobSpec{
			ID: fmt.Sprintf("job-%d", i), Owner: []string{"ann", "bob", "cy"}[i%3], Queue: queue,
			Groups: []plimsoll.GroupSpec{{
				Name: "main", Count: int32(count),
				Command:   []string{"sleep", fmt.Sprintf("%.2f", 0.2+0.4*rng.Float64())},
				Resources: plimsoll.Resources{plimsoll.CPU: 64_000 / recordedSlots, plimsoll.Memory: 1 << 20},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		total += count
	}
	for i := range 10 {
		s.ended(fmt.Sprintf("job-%d", i))
	}
	file := filepath.Join(s.data(), "history", "events.db")
	past := func(more ...string) (reports []simulate.Report) {
		eventually(t, "simulate the past", func() error {
			args := append([]string{"simulate", "--history", "1h", "--history-file", file, "-o", "json"}, more...)
			stdout, stderr, code := s.cli(args...)
			if code != 0 {
				return errors.New(stderr)
			}
			reports = nil
			if err := json.Unmarshal([]byte(stdout), &reports); err != nil {
				return err
			}
			then, notes := reports[0].Then, strings.Join(reports[0].Notes, "; ")
			if then.Placed != total || strings.Contains(notes, "not ended") {
				return fmt.Errorf("%d of %d tasks are recorded, with the notes %s", then.Placed, total, notes)
			}
			return nil
		})
		return reports
	}
	as := past()[0]
	idle := idleOf(t, file)
	t.Logf("the record shows %v of waits beside room; the waits differ by %+v", idle, as.Then.Difference)
	compareWaits(t, "all", as.Waits, as.Then.Waits, idle)
	for i := range as.Then.Queues {
		q := &as.Then.Queues[i]
		at := slices.IndexFunc(as.Queues, func(g simulate.Group) bool { return g.Name == q.Name })
		if at < 0 || as.Queues[at].Placed < q.Placed-recordedSlots {
			t.Fatalf("%s has %d waits, simulated: %+v", q.Name, q.Placed, as.Queues)
		}
		compareWaits(t, q.Name, as.Queues[at].Waits, q.Waits, idle)
	}
	// With another node as large, nobody waits for longer than before.
	page := s.path("page.html")
	reports := past("--node", "1:cpu=64,memory=64Gi", "--html", page)
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "Waits beside those of then") {
		t.Errorf("the page: %v, %.100s", err, text)
	}
	if len(reports) != 2 || reports[1].Policy != "the queues of then, 1 node more" ||
		reports[1].Waits.Mean > reports[0].Waits.Mean {
		t.Errorf("with more nodes: %+v", reports)
	}
}

// compareWaits compares the median and the 95 % of the waits of a queue.
func compareWaits(t *testing.T, queue string, is, was simulate.Waits, idle time.Duration) {
	t.Helper()
	for _, w := range []struct {
		name    string
		is, was float64
	}{
		{"median", is.P50, was.P50},
		{"95 %", is.P95, was.P95},
	} {
		if most := max(1+idle.Seconds(), 0.25*w.was); math.Abs(w.is-w.was) > most {
			t.Errorf("%s: the %s of the waits is %.3f s, and was %.3f s: more than %.3f s apart", queue, w.name, w.is, w.was,
				most)
		}
	}
}

// idleOf returns how long the record shows a task that waits beside room for it.
func idleOf(t *testing.T, file string) (idle time.Duration) {
	t.Helper()
	reader := sqlite.OpenReader(file)
	defer func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}()
	page, err := reader.Timeline(t.Context(), history.TimelineQuery{})
	if err != nil {
		t.Fatal(err)
	}
	waiting, running, last := 0, 0, int64(0)
	for i := range page.Rows {
		e := &page.Rows[i].Event
		if waiting > 0 && running < recordedSlots {
			idle += time.Duration(e.Time - last)
		}
		last = e.Time
		switch {
		case e.Type != plimsoll.EventApp:
		case e.Detail == plimsoll.AppRequest && e.Change == plimsoll.ChangeAdd:
			waiting++
		case e.Detail == plimsoll.AppAlloc:
			waiting--
			running++
		case e.Detail >= plimsoll.AllocCancel && e.Detail <= plimsoll.AllocNodeRemoved:
			running--
		}
	}
	return idle
}
