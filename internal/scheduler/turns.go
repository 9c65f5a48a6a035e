package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// QueueTurn says when the tasks of a queue have their turn, and why.
type QueueTurn struct {
	Path  string
	Share float64 // dominant share: the largest part of what it has a claim to that it uses
	// Next is its place among the queues beside it that wait and have room; 0: it is not one of
	// them, or it is root.
	Next int
	Why  string // why it has that place, or none; empty: nothing waits in it
}

// Turns returns the turns of a queue and of all below it, in the order of their paths. It costs
// O(queues × log siblings), and looks neither at jobs nor at nodes.
func (v *View) Turns(path string) ([]QueueTurn, error) {
	if v.tree.Find(path) == nil {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no queue %q", path)
	}
	list := v.tree.Turns(v.tree.Find(path))
	out := make([]QueueTurn, len(list))
	for i := range list {
		t := &list[i]
		out[i] = QueueTurn{Path: t.Queue.Path, Share: t.Share, Next: t.Next, Why: v.whyTurn(t)}
	}
	slices.SortFunc(out, func(a, b QueueTurn) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// whyTurn says why a queue has its place, or none; it is empty if nothing waits in the queue.
func (v *View) whyTurn(t *queue.Turn) string {
	q := t.Queue
	var why string
	switch {
	case q.Waiting == 0:
		return ""
	case q.HasNoRoom():
		why = whyNoRoom(v.fleet.Names, q)
	case t.Next > 0:
		why = fmt.Sprintf(
			"number %d of %d that wait in %s, with a share of %.0f %%", t.Next, t.Of, q.Parent.Path, 100*t.Share,
		)
		if q.Full() {
			why += "; " + whyParked(&q.Quota)
		}
	case q.Full():
		why = whyParked(&q.Quota)
	case !q.Waits():
		why = "its jobs wait to be admitted, or its tasks for their next attempt"
	default:
		why = "tasks wait below it: " + strconv.FormatInt(int64(q.Waiting), 10)
	}
	for i := range v.holders[q.Path] {
		h := &v.holders[q.Path][i]
		why += "; " + whyHeld(h.job, q.Path, h.Until)
	}
	return why
}

// whyNoRoom says what is left below the maximum of a queue of that which its tasks wait for.
func whyNoRoom(names *placement.Names, q *queue.Queue) string {
	var full, left []string
	for i := range names.Len() {
		if q.MaxSet&(1<<i) == 0 || q.Pending[i] == 0 {
			continue
		}
		name := names.Name(i)
		text := fmt.Sprintf("%s %s of %s", name, plimsoll.FormatQuantity(name, q.Allocated[i]),
			plimsoll.FormatQuantity(name, q.Max[i]))
		if left = append(left, text); q.Allocated[i] >= q.Max[i] {
			full = append(full, text)
		}
	}
	if len(full) > 0 {
		return fmt.Sprintf("%s is at its max: %s", q.Path, strings.Join(full, ", "))
	}
	return fmt.Sprintf("%s has too little left for what waits: it uses %s", q.Path, strings.Join(left, ", "))
}
