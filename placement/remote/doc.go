// Package remote places on a fleet whose instance data lives elsewhere: behind a function that takes its time, or in another
// process (RFD 60, phases 2 and 4).
//
// A Pool bounds calls that load instances: so many at a time, each for so long, even if it does not heed its context. Its Loader
// makes a placement.Loader of a Source. An Evaluator runs a chain over one batch of servers. Local is the one beside the data: package
// placement with a Source. NewHandler serves an Evaluator over HTTP, and a Client is an Evaluator that calls one. Place draws batches
// and has them evaluated one after another, until one has a survivor.
//
// Place and placement.Placer choose the same server for the same fleet, request, time and random source, wherever the evaluator
// is: both draw with placement.Draw, and every batch brings its own seed. They differ where a choice needs the whole fleet at once:
// Constraints.Spread and Preferences.Spread count the instances of all servers, and are refused.
//
// A call that fails drops the one server that it was for, with the error as the reason. An error of a batch is an error of the placement,
// names the batch, and nothing is placed; nothing is tried again. An evaluator keeps nothing between calls: what was loaded for a
// batch is gone when it is answered.
//
// Bounds: MaxServers in a batch, MaxTickets, MaxBody bytes in a request and an answer (also after decompression), MaxExpression bytes of a chain,
// MaxOwnerRules of MaxRules bytes in its settings. What a request takes decoded is bounded too, by counting before it is decoded. The package owns the goroutines of a Pool, and no others. A call that outlives its time keeps its goroutine
// until it returns; there are at most Parallel + Late of them, and beyond that calls fail at once. Pool.Wait waits for them. How many batches a handler evaluates at once is for the server in front of it
// to bound.
//
// Cost: Place puts every server that the source lists into a fleet, about a microsecond each; a batch costs a call and the loads of the
// servers that pass the filters by record.
package remote
