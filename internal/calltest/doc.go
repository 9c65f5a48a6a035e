// Package calltest makes the calls of clients of a cluster, and checks the history of their
// answers.
//
// Clients read, list, create, scale, kill and watch jobs at any gateway, and so do watchers through
// any number of cuts. Each answer is kept with its place in the order of all calls and answers:
//
//	w := &calltest.Workload{T: t, Pause: 8 * time.Millisecond, Over: make(chan struct{})}
//	u := &calltest.Client{Workload: w, Rand: rng, Gateways: gateways, Watches: watches}
//	go u.Run() // until Over is closed
//	history := calltest.History{Answers: u.Answers, Watchers: watchers}
//	_, problems := history.Problems(time.Minute, true)
//
// The checks:
//   - the history is linearizable, job by job (porcupine, Model); a change of unknown outcome may
//     have its effect at any time after it began;
//   - no read shows an older version than an answer before it began (StrictByVersion);
//   - each watch is strict, ordered, unique, reliable, bookmarkable and resumable (watchtest), and
//     each read of a version shows what the watches were sent up to that version.
//
// Its callers are tests: of processes in cmd/plimsoll, and of the simulation in internal/sim. They
// make the cluster and its faults. The check by porcupine is exponential in the calls under way
// about one job at a time; the others cost a pass over the history. A Client and a Watcher belong
// to one goroutine; the Workload is shared.
package calltest
