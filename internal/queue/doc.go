// Package queue holds the tree of queues: it says which tasks are next, and which limits hold tasks
// back. It knows no jobs, records or nodes.
//
// # Terms
//
//   - A Queue is a node of the tree, with limits and with sums over all below it. A leaf holds
//     accounts.
//   - An Account has a place in the order of its leaf; the caller makes one for each job. A queue
//     may limit how many accounts are admitted at once; the others are parked.
//   - A Class is a request: the amounts that a task asks for, and whatever else decides which nodes
//     take it, which only the caller knows. A class is the same in all leaves.
//   - A Lane is the tasks of an account that are of one class. The lanes of a leaf that are of one
//     class stand together in a row.
//
// # Order
//
// From the root down, the queue with the smallest share goes first (YuniKorn's fair order), and
// among equal shares the first by name. Inside a leaf the lanes go by the key of their account, and
// inside an account by their number. The share of a queue is the largest, over the resources that
// it uses, of used over guaranteed; over the maximum where nothing is guaranteed; and over the
// whole cluster where there is no maximum either. Shares are compared by multiplication of
// integers, so that equal input gives equal order.
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
// # Guarantees
//
// Next returns only lanes that no maximum refuses and whose class is not blocked, the one that the
// order puts first, and nil only if there is none. It returns the same lane until Charge, Block or
// another call has changed something. Once Next has returned nil, Settle was called and Tell has
// nothing more to give out, the code and the queue that each lane was told are true. The same calls
// give the same answers.
//
// # Waiting
//
// Nothing is looked at again before something has changed for it. A class that no node takes is
// blocked once for all its lanes, until Open. A queue that has no room for any class below it is
// closed: it is left out of its parent's order in one step, however many lanes are below, and a
// refund puts it back in one step. Only where a queue has room for some classes and not for others
// are the rows that it refuses set aside one by one, when Next comes to them. They come back when
// the resource that was short is there.
//
// # Costs
//
// Next costs O(depth), and O(depth × log siblings) for each row or queue that it takes out of the
// order on its way. Charge costs O(depth × log siblings). So does Refund, beside the rows that come
// back. Block costs O(limited queues below which the class waits), and Open that and the rows that
// were set aside. The first refusal after a class was blocked or left costs O(classes below the
// queue). Configure costs O(tree + rows × depth), and a new total of the cluster O(siblings) for
// each queue that Next comes through.
//
// A lane takes 80 bytes, an account 56 and a class 200. A row takes some 120 bytes with the lists
// in which it stands, or 240 if it is the only one of its leaf, and 80 for each limited queue
// above. A queue takes 1.6 KB.
//
// The package has no locks, starts nothing and reads no clock. State owns the Tree; the scheduler
// asks it. DESIGN.md has the picture, the invariants, what was rejected, and the known limits.
package queue
