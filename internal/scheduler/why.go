package scheduler

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// nameOf names a quota: "root.batch", or "user ann in root.batch".
func nameOf(q *queue.Quota) string {
	switch {
	case q.User != "":
		return "user " + q.User + " in " + q.At().Path
	case q.Group == "*":
		return "the other groups in " + q.At().Path
	case q.Group != "":
		return "group " + q.Group + " in " + q.At().Path
	}
	return q.At().Path
}

// whyFull says with numbers why a quota has no room for one more task of such amounts: "root.batch
// is at its max: memory 64Gi of 64Gi".
func whyFull(names *placement.Names, q *queue.Quota, r *placement.Amounts) string {
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
		return fmt.Sprintf("the task asks for more than the max of %s: %s", nameOf(q), strings.Join(large, ", "))
	}
	return fmt.Sprintf("%s is at its max: %s", nameOf(q), strings.Join(full, ", "))
}

// whyNone names a requested resource that no node has; empty if there is none.
func whyNone(known state.KnownNames, asked plimsoll.Resources) string {
	name := known.Lacks(asked)
	if name == "" {
		return ""
	}
	return plimsoll.NoResource(name, known.NodeResources())
}

// whyParked says why the jobs that are parked at a quota wait.
func whyParked(q *queue.Quota) string {
	return fmt.Sprintf("%s runs as many jobs as it may: %d of %d", nameOf(q), q.Admitted, q.MaxAccounts)
}

// whyShort says which limit would hold back some of several tasks, whose amounts add up to total:
// "root.batch has cpu 2 left of its max of 8, and they ask for 10". It looks at the leaf and the
// queues above, and at the limits of the owner there. It returns an empty string if all of them
// have room.
func (v *View) whyShort(leaf *queue.Queue, owner queue.Owner, total *placement.Amounts) string {
	if full := v.tree.Full(leaf, owner); full != nil {
		return whyParked(full)
	}
	q, i := v.tree.RefusesOwner(leaf, owner, total)
	if q == nil {
		return ""
	}
	name := v.fleet.Names.Name(i)
	return fmt.Sprintf("%s has %s %s left of its max of %s, and they ask for %s", nameOf(q), name,
		plimsoll.FormatQuantity(name, max(q.Max[i]-q.Allocated[i], 0)),
		plimsoll.FormatQuantity(name, q.Max[i]), plimsoll.FormatQuantity(name, total[i]))
}
