package plimsoll

import "fmt"

// WaitCause is the reason why the tasks of a group wait. It holds all that its sentence needs.
//
// A change of cause is announced only if Code or Queue differs. Resource is the one that was short
// at that time; while the queue holds the tasks back, another one may become short instead.
type WaitCause struct {
	Code WaitCode
	// Queue is, with WaitTurn and WaitOrder, the leaf; with WaitQueueMax the queue that holds the
	// tasks back; with WaitUserMax and WaitGroupMax the queue that states the limit.
	Queue string
	// UserOrGroup is whom the limit holds for: with WaitUserMax the user, with WaitGroupMax the
	// group, or "*" for all groups that no limit names.
	UserOrGroup string
	// Resource is, with a queue's maximum or a limit, the one that was short. It is empty if as
	// many jobs run as may. With WaitNoResource it is the one that no node has.
	Resource string
	Asked    int64 // with Resource: the amount that one task requests
	// Known lists, with WaitNoResource, the names that nodes have now, as KnownResources prints
	// them. It is not recorded; a gateway adds it.
	Known string
}

// String returns the cause as a sentence without a full stop, and an empty string if nothing
// waits. The sentence holds no numbers that change with the use, so it need not be announced
// again. "plimsoll explain" shows those numbers.
func (c WaitCause) String() string {
	switch c.Code {
	case WaitNone:
		return ""
	case WaitTurn:
		return "waits for its turn in " + c.Queue
	case WaitQueueMax:
		if c.Resource == "" {
			return c.Queue + ", or a queue above it, runs as many jobs as it may"
		}
		return fmt.Sprintf(
			"%s is at its max: less %s was left than the %s that a task asks for", c.Queue, c.Resource,
			FormatQuantity(c.Resource, c.Asked),
		)
	case WaitUserMax:
		return c.limited("user " + c.UserOrGroup)
	case WaitGroupMax:
		if c.UserOrGroup == "*" {
			return c.limited("the other groups")
		}
		return c.limited("group " + c.UserOrGroup)
	case WaitOrder:
		return "a job before it in " + c.Queue + " does not fit and holds it back"
	case WaitNoNode:
		return "no node can take it now"
	case WaitNoNodes:
		return "no node takes tasks now"
	case WaitTooLarge:
		return "too large for every node, even for an empty one"
	case WaitRetry:
		return "tasks that failed wait for their next attempt"
	case WaitNotEligible:
		return "no node is for it, full or empty: its constraints leave none"
	case WaitNotUnderstood:
		return "its constraints are not understood any more; submit the job anew"
	case WaitNoResource:
		return noResource(c.Resource, c.Known)
	}
	return "waits for something that this version does not know; update it"
}

// limited returns the sentence for a limit of a user or group.
func (c WaitCause) limited(whose string) string {
	if c.Resource == "" {
		return "the limit of " + whose + " in " + c.Queue + " is reached: no more jobs may run"
	}
	return fmt.Sprintf(
		"the limit of %s in %s is reached: less %s was left than the %s that a task asks for", whose, c.Queue,
		c.Resource, FormatQuantity(c.Resource, c.Asked),
	)
}
