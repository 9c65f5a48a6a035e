package calltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/watchtest"
)

// History has the answers of all clients and the records of all watchers.
type History struct {
	Answers  []Answer
	Watchers []*Watcher
	Unknown  int // changes whose outcome is not known
}

// Linearizable asks porcupine. Its search is exponential, so it may come to no end in time.
func (h *History) Linearizable(within time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(Model, Operations(h.Answers), within)
}

// Compared counts what Watched could compare.
type Compared struct {
	Watches  map[string]int // by the owner of their jobs
	Changes  int
	Reads    int
	Archived int // jobs of the archive that reads show
}

// Watched checks the watches against each other, and the answers against them: a change that was
// acknowledged is there, and a read of a version shows the state of that version.
func (h *History) Watched() (done Compared, problems []error) {
	records := make([]*watchtest.Record, len(h.Watchers))
	for i, w := range h.Watchers {
		records[i] = w.Record
	}
	joined := watchtest.Join(records...)
	done.Watches = map[string]int{}
	for i, record := range records {
		n, err := joined.Check(record)
		owner := h.Watchers[i].Owner
		if done.Watches[owner] += n; err != nil {
			problems = append(problems, fmt.Errorf("watch %d of %q: %w", i, owner, err))
		}
	}
	answers := slices.Clone(h.Answers)
	slices.SortStableFunc(answers, func(a, b Answer) int { return a.Version.Compare(b.Version) })
	for i := range answers {
		a := &answers[i]
		problems = append(problems, done.change(a, joined), done.read(a, joined))
	}
	problems = slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	return done, problems[:min(len(problems), 10)]
}

// change compares an acknowledged change with the watches.
func (c *Compared) change(a *Answer, joined *watchtest.Joined) error {
	if a.Changed == "" {
		return nil
	}
	changed, known := joined.Changed(a.Changed, a.Revision)
	if known {
		c.Changes++
	}
	if known && !changed {
		return fmt.Errorf("watches were sent no change of %s at revision %d, which was acknowledged", a.Changed, a.Revision)
	}
	return nil
}

// read compares a read with the watches. Reads come in the order of their versions.
func (c *Compared) read(a *Answer, joined *watchtest.Joined) error {
	if !a.Read {
		return nil
	}
	state, ok := joined.State(a.Version.Epoch, a.Version.Revision)
	if !ok {
		return nil
	}
	c.Reads++
	shows := map[string]string{}
	for id, status := range a.Jobs {
		shows[id] = Digest(&status)
	}
	if a.Archived {
		state = maps.Clone(state)
		c.Archived += a.leaveOutArchived(shows, state)
	}
	same := maps.Equal(shows, state)
	if !a.Whole {
		same = true
		for id, value := range shows {
			same = same && state[id] == value
		}
	}
	if same {
		return nil
	}
	return fmt.Errorf("a read of %+v shows %s", a.Version, FirstDifference(shows, state, a.Whole))
}

// leaveOutArchived takes the jobs of the archive out of a read, and returns their number. It takes
// those that have begun to leave out of the state: reads show these from the archive too.
func (a *Answer) leaveOutArchived(shows, state map[string]string) (archived int) {
	for id, status := range a.Jobs {
		if at, active := state[id]; status.State.Ended() && (!active || expired(at)) {
			delete(shows, id)
			archived++
		}
	}
	for id, value := range state {
		if expired(value) {
			delete(state, id)
		}
	}
	return archived
}

// expired reports whether the digest of a job says that it is being forgotten.
func expired(digest string) bool {
	state, _ := json.Marshal(plimsoll.JobExpired) // a number or a text
	return strings.Contains(digest, fmt.Sprintf(`"State":%s,`, state))
}

// FirstDifference says where the jobs of a read differ from those that were watched, by id; whole:
// both have all jobs.
func FirstDifference(shows, watched map[string]string, whole bool) string {
	for _, id := range slices.Sorted(maps.Keys(shows)) {
		if shows[id] != watched[id] {
			return fmt.Sprintf("%s as %q, and watches %q", id, shows[id], watched[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(watched)) {
		if _, is := shows[id]; whole && !is {
			return fmt.Sprintf("no %s, and watches %q", id, watched[id])
		}
	}
	return "nothing else"
}

// Problems returns all that is wrong with the history, the worst first. A history that porcupine
// does not decide in time is wrong too if decided is set.
func (h *History) Problems(within time.Duration, decided bool) (done Compared, problems []error) {
	switch result := h.Linearizable(within); {
	case result == porcupine.Illegal:
		problems = append(problems, errors.New("the history is not linearizable"))
	case result == porcupine.Unknown && decided:
		problems = append(problems, fmt.Errorf("porcupine did not end within %s", within))
	}
	if err := StrictByVersion(h.Answers); err != nil {
		problems = append(problems, err)
	}
	done, watched := h.Watched()
	return done, append(problems, watched...)
}

// Log writes what was compared.
func (h *History) Log(t testing.TB, c *Compared) {
	t.Helper()
	resumes, openings, takeovers := 0, 0, 0
	for _, w := range h.Watchers {
		resumes, openings = resumes+w.Resumes, openings+w.Record.Openings()
		takeovers += w.Record.Takeovers()
	}
	t.Logf("%d answers with %d operations, %d changes of unknown outcome; %d openings and %d resumes of watches, "+
		"which went on at another leader %d times",
		len(h.Answers), len(Operations(h.Answers)), h.Unknown, openings, resumes, takeovers)
	t.Logf("watches that were checked, by the owner of their jobs: %v", c.Watches)
	t.Logf("%d changes and %d reads were compared with watches; these show %d jobs of the archive",
		c.Changes, c.Reads, c.Archived)
}
