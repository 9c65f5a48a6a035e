// Package queue holds the tree of queues: who is next, and which limits hold tasks back. It knows no jobs, records or nodes.
//
// # Terms
//
//   - A Queue is a node of the tree with limits and sums over all below it. A leaf holds accounts.
//   - An Account is one user of a leaf with a place in its order; the caller makes one for each job. A queue may limit how many
//     accounts are admitted at once; the others are parked.
//   - A Class is a request: amounts, and whatever else decides which nodes take it, which only the caller knows. It is one for the
//     whole tree.
//   - A Lane is the tasks of an account that are of one class. The lanes of a leaf that are of one class stand together in a row.
//
// # Order
//
// From the root down, the queue with the smallest share goes first (YuniKorn's fair order), by name among equals; inside a leaf the
// lane whose account came first, and in an account the first lane. A share is the largest, over the resources in use, of used
// over guaranteed, or over the maximum where nothing is guaranteed, or over the whole cluster where there is no maximum either.
// Shares are compared by multiplication of integers, so that equal input gives equal order. Next returns only lanes that no maximum
// refuses and whose class is not blocked.
//
// # Calls
//
//	t := queue.New(names, config)
//	c := t.NewClass(amounts)              // once for each request
//	t.Enter(&account, t.Find("root.batch"), 1)
//	t.Add(&lane, &account, c, 0)
//	t.Admit(&account)
//	t.Pend(&lane, 3)                      // three tasks wait,
//	t.Ready(&lane, 3)                     // and may be placed now
//	for l := t.Next(); l != nil; l = t.Next() {
//		if place(l) { t.Charge(l) } else { t.Block(l.Class(), plimsoll.WaitNoNode) }
//	}
//	t.Settle()                            // then Tell gives each lane its cause
//
// # Waiting
//
// What waits costs nothing. A class for which there is no node is blocked once for all its lanes, until the caller calls Open. A queue
// that has no room for any class below it is closed, which takes it out of its parent's order in one step however many lanes are
// below; a refund opens it in one step. Only where a queue has room for some classes and not for others are the rows that are in the way
// set aside one by one, with the class or with the queue and class that refuse them, in heaps by the amount that is missing; a refund
// brings back those that fit. A lane is told its cause when code or queue of it changed, not when the use changed.
//
// # Costs
//
// Next is O(depth), Charge and Refund O(depth × log siblings). Block and Open are linear in the limited queues below which the class
// waits. Configure and a new total of the cluster cost O(everything) once. A lane costs 150 bytes, a row 100, a queue about 1 KB.
//
// Its only callers are state, which owns a Tree, and scheduler. It has no locks, starts nothing and reads no clock. The numbers are from
// the plan of the queues; DESIGN.md has what was rejected.
package queue
