// Package queue holds the tree of queues. It decides which task is next, and which limits hold
// tasks back. It knows no jobs, records or nodes.
//
// # Terms
//
//   - A Queue is a node of the tree, with limits and with sums over all below it. A leaf holds
//     accounts.
//   - An Account has a place in the order of its leaf; the caller makes one for each job. A queue
//     may limit how many accounts are admitted at once; the others are parked. An account has an
//     owner, and each of its lanes a priority.
//   - A Quota is what is used of a maximum. Each queue has one. A tracker is the Quota of a user or
//     group at a queue, for which the queue states a limit.
//   - A tenant is the accounts of a leaf for which the same limits of users and groups hold.
//   - A Class is a request: the amounts of one task, and the other properties that decide which
//     nodes take it. Only the caller knows those. A class is the same in all leaves.
//   - A Lane is the tasks of an account that are of one class. The lanes of a tenant that are of
//     one class form a row.
//
// # Order
//
// From the root down, the queue with the highest priority goes first; then the one with the
// smallest share, the larger pending amounts (by resource, in the order of their numbers), and the
// name (YuniKorn's fair order). Where application.sort.priority is disabled, priority comes behind
// the share.
//
// The accounts of a leaf go by priority, and then by their key, which the caller makes from the
// time of submission. In a fair leaf they go by priority, share and key. The share of an account is
// the list of its quotients, the largest first: the amounts that it uses over those guaranteed to
// the leaf, or over the whole cluster. Inside an account lanes go by priority, then position.
//
// The priority of an account is the highest of its lanes with ready tasks. That of a queue is the
// highest of the lanes in rows below it, plus its offset; behind a fence it is the offset alone.
// Lanes that cannot be placed now count too, as in YuniKorn.
//
// The share of a queue is the largest quotient over the resources that it uses. The quotient is
// used over guaranteed; over the maximum if nothing is guaranteed; and over the whole cluster if
// there is no maximum either. Shares are compared by multiplication of integers, so that equal
// input gives equal order. With fairness.halflife the amount used is the mean of two: the present
// use, and past use, which fades.
//
// # Calls
//
//	t := queue.New(names, config)
//	t.Advance(now)                        // at the beginning of a turn
//	c := t.NewClass(amounts)              // once for each request
//	t.Enter(&account, t.Find("root.batch"), queue.Owner{User: "ann"}, 1)
//	t.Add(&lane, &account, c, 0, 0)       // of priority 0
//	t.Admit(&account)
//	t.Pend(&lane, 3)                      // three tasks wait,
//	t.Ready(&lane, 3)                     // and may be placed now
//	for l := t.Next(); l != nil; l = t.Next() {
//		if place(l) { t.Charge(l) } else { t.Block(l.Class(), plimsoll.WaitNoNode) }
//	}
//	t.Settle()                            // then NextCause gives each lane its cause
//
// # Guarantees
//
// Next returns the first lane, by the order, that no maximum and no limit refuses and whose class
// is not blocked. It returns nil only if there is none. It returns the same lane until Charge,
// Block or another call changes something.
//
// After Next has returned nil, Settle finds the changed causes and NextCause returns them. Once it
// has returned all of them, each lane's code and quota are true. The same calls give the same
// answers.
//
// # Waiting
//
// A lane is examined again only after a change that may affect it. A class that no node takes is
// blocked once for all its lanes, until Open. A queue without room for any class below it is
// closed. It leaves its parent's order in one step, however many lanes are below, and a refund
// puts it back in one step. If a queue has room for some classes only, the rows that it refuses
// are set aside one by one, when Next reaches them. They come back when enough of the short
// resource is free. Rows that a limit of a user or group refuses are set aside in the same way.
//
// # Strict leaves
//
// In a leaf whose order is strict, a lane that does not fit holds back the accounts behind its own
// that compete with it: for the resources that the refusing quota limits, or for nodes, of which
// the caller knows more (SetRivals). It does so for at most the time that the leaf states. The
// caller sets the time with Advance, and HoldEnds says when the next hold ends. A lane that would
// not fit if all others ended holds nobody back. The end of a hold costs O(log rows) for each row
// that it held back.
//
// # Limits of users and groups
//
// The limit that names a user holds for that user, otherwise the wildcard, for each user by itself.
// An account is linked to one group: from the leaf upwards, at the first queue that has one, the
// first configured group that its owner is in, or else the wildcard. The wildcard of groups is one
// total for all accounts that are linked to it. Limits at all levels of the path hold together.
//
// # Costs
//
// Next costs O(depth), and O(depth × log siblings) for each row or queue that it takes out of the
// order on its way. Charge costs O(depth × log siblings), and in a fair leaf O(log
// lanes) for each waiting lane of the account. Refund costs the same, and the rows that
// come back. Block costs O(limited queues above rows of the class). Open costs the same, and the
// rows that were set aside. The first refusal after a class was blocked or left costs O(classes
// below the queue). Configure costs O(tree + accounts + lanes × depth). A new total of the cluster
// costs O(siblings) for each queue that Next passes through.
//
// A lane takes 96 bytes, an account 160, in a fair leaf 144 more, and a class 200. A tracker takes
// some 450 bytes. A row takes some 140 bytes with the lists
// that hold it, or 260 if it is the only row of its leaf. Each limited queue above adds 80. A
// queue takes 1.6 KB.
//
// The package has no locks, starts nothing and reads no clock. State owns the Tree; the scheduler
// queries it. DESIGN.md has a diagram, the invariants, the rejected alternatives and the known
// limits.
package queue
