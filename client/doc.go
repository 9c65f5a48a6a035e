// Package client is the Go SDK: it submits jobs to a Plimsoll gateway and reads their results.
//
// A Client speaks Connect over HTTP/2 without TLS to one gateway, in the vocabulary of package
// plimsoll. It is safe for concurrent use, keeps a few connections and starts no goroutine of its
// own. Close drops idle connections.
//
//	c, err := client.New(client.Config{Server: "http://127.0.0.1:9080"})
//	...
//	job, err := c.SubmitJob(ctx, spec)
//	for status, err := range c.WatchJob(ctx, job.Spec.ID) { ... }
//
// Guarantees:
//
//   - A read holds every change that was acknowledged to anybody before the read was sent, unless
//     Config.Consistency or WithConsistency asks for less. WithStamp has the state that it shows.
//   - A call that fails because the server is away or overloaded is tried again with growing,
//     jittered delays (CodeUnavailable, CodeExhausted). It ends when it succeeds, when its context
//     ends or when Config.RetryBudget has passed. If a server refuses it for now, the time is that
//     of Config.LeaderBudget.
//   - A call that changes something carries a token, so that it has its effect once however often
//     it is repeated. It is repeated also when its answer was lost.
//   - An error of a call that changes something says that nothing was changed, unless its code is
//     CodeOutcomeUnknown.
//   - Every error is a *plimsoll.Error or wraps one, so that plimsoll.CodeOf tells its kind.
//   - A watch (WatchJobs, WatchTasks, WatchNodes, WatchQueues) begins with a strict read and sends
//     each later change once and in order, also across breaks. When it has to begin again, it says
//     so with ChangeReset.
//   - Lists are read page by page, so that memory is bounded by a page. Each page is consistent in
//     itself, but a list of several pages is not one instant.
//
// If Config.Server names several gateways, calls go to the one that answered last. If no connection
// to it can be made, the call goes to the next at once: such a call had no effect.
//
// The package does NOT cache, and does not spread calls over gateways. Cost is one round trip a
// call or page.
//
// The command line (cmd/plimsoll) uses only this package. The SDK's shape is that of the Connect
// services in proto/plimsoll/v1/api.proto.
package client
