package scheduler

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// whyFull says with numbers why a queue has no room for one more task of such amounts: "root.batch
// is at its max: memory 64Gi of 64Gi".
func whyFull(names *placement.Names, q *queue.Queue, r *placement.Amounts) string {
	var full, large []string
	for i := range names.Len() {
		if q.MaxSet&(1<<i) == 0 || r[i] <= q.Max[i]-q.Allocated[i] || r[i] == 0 {
			continue
		}
		name := names.Name(i)
		limit := plimsoll.FormatQuantity(name, q.Max[i])
		if r[i] > q.Max[i] {
			large = append(large, fmt.Sprintf("%s %s of %s", name, plimsoll.FormatQuantity(name, r[i]), limit))
		} else {
			full = append(full, fmt.Sprintf("%s %s of %s", name, plimsoll.FormatQuantity(name, q.Allocated[i]), limit))
		}
	}
	if len(large) > 0 {
		return fmt.Sprintf("the task asks for more than the max of %s: %s", q.Path, strings.Join(large, ", "))
	}
	return fmt.Sprintf("%s is at its max: %s", q.Path, strings.Join(full, ", "))
}

// whyNone names a requested resource that no node has; empty if there is none.
func whyNone(known state.KnownNames, asked plimsoll.Resources) string {
	name := known.Lacks(asked)
	if name == "" {
		return ""
	}
	return plimsoll.NoResource(name, known.NodeResources())
}

// whyParked says why the jobs that are parked at a queue wait.
func whyParked(q *queue.Queue) string {
	return fmt.Sprintf("%s runs as many jobs as it may: %d of %d", q.Path, q.Admitted, q.MaxAccounts)
}

// whyShort says why a queue, the leaf or one above, would hold back some of several tasks whose
// amounts add up to total: "root.batch has cpu 2 left of its max of 8, and they ask for 10". It is
// empty if none would.
func (v *View) whyShort(leaf *queue.Queue, total *placement.Amounts) string {
	if full := queue.Full(leaf); full != nil {
		return whyParked(full)
	}
	q, i := v.tree.Refuses(leaf, total)
	if q == nil {
		return ""
	}
	name := v.fleet.Names.Name(i)
	return fmt.Sprintf("%s has %s %s left of its max of %s, and they ask for %s", q.Path, name,
		plimsoll.FormatQuantity(name, max(q.Max[i]-q.Allocated[i], 0)),
		plimsoll.FormatQuantity(name, q.Max[i]), plimsoll.FormatQuantity(name, total[i]))
}
