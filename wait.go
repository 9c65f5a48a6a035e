package plimsoll

import "fmt"

// WaitCause says why the tasks of a group wait, and holds all that its sentence needs.
type WaitCause struct {
	Code     WaitCode
	Queue    string // with WaitTurn the leaf; with WaitQueueMax the queue whose maximum holds the tasks back
	Resource string // with WaitQueueMax: the resource that is short there; empty: as many jobs run as may
	Asked    int64  // with Resource: how much of it one task asks for
}

// String returns the cause as a sentence without a full stop; empty if nothing waits. What it says stays true for as long as the code and the
// queue do, so it holds no numbers that change with the use: "plimsoll explain" has those.
func (c WaitCause) String() string {
	switch c.Code {
	case WaitNone:
		return ""
	case WaitTurn:
		return "waits for its turn in " + c.Queue
	case WaitQueueMax:
		if c.Resource == "" {
			return c.Queue + " runs as many jobs as it may"
		}
		return fmt.Sprintf("%s is at its max: a task asks for %s %s, more than is left", c.Queue, c.Resource, FormatQuantity(c.Resource, c.Asked))
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
	}
	return "waits for something that this version does not know; update it"
}
