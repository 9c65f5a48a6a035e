// Package remote places on a fleet whose instance data lives elsewhere: behind a slow function, or
// in another process (RFD 60, phases 2 and 4).
//
// A Pool bounds the calls that load instances, in number and in time, even if a call does not heed
// its context. Its Loader makes a placement.Loader of a Source. An Evaluator runs a chain over one
// batch of servers. Local is the evaluator beside the data: package placement with a Source.
// NewHandler serves an Evaluator over HTTP, and a Client calls one. A PartEvaluator also knows its
// servers. A Fleet places over several of them: it draws batches, each of servers of one evaluator,
// and sends them out one after another, until one has a survivor. Place does so with a single
// evaluator.
//
//	parts := []remote.Part{{Name: "a", Evaluator: a}, {Name: "b", Evaluator: b}}
//	fleet, err := remote.NewFleet(parts, remote.FleetOptions{})
//	result, err := fleet.Place(ctx, rand.NewPCG(1, 2), &remote.Order{Request: request})
//	left := fleet.Capacities(ctx, []string{result.Server}, nil, now)
//
// Place and placement.Placer choose the same server for the same fleet, request, time and random
// source, wherever the evaluator is: both draw with placement.Draw, and every batch brings its own
// seed. With several evaluators the next batch belongs to one of them at random, in proportion to
// the servers that it has left.
//
// A spread counts the instances of all servers, but an evaluator knows only its own. Before the
// first batch each evaluator therefore counts the group of the request, and the sum goes with the
// batches. An instance on its way to a server counts there too, as a ticket.
//
// A load that fails drops its one server, with the error as the reason. A call of an evaluator
// changes nothing there, so a call that fails, or takes too long, is tried again a few times. An
// evaluator that still does not answer is left out. If no other server takes the request, or if the
// request bounds its spread, the missing evaluator is an error, and nothing is placed. The error
// names the batch or the evaluator. An evaluator keeps nothing between calls: the loaded instances
// of a batch are gone with its answer.
//
// Bounds: MaxServers and MaxTickets in a batch, MaxListed servers of one evaluator. A request and
// an answer have at most MaxBody bytes, also after decompression. A chain has at most MaxExpression
// bytes, its settings at most MaxOwnerRules of MaxRules bytes together. The decoded size of a
// request is bounded too, by counting before decoding. How many calls a handler works on at once is
// for the server in front of it to bound; internal/evaluator does.
//
// The package owns the goroutines of a Pool, and those of a Fleet's call, for which the call waits.
// A load that outlives its time keeps its goroutine until it returns. There are at most Parallel +
// Late such goroutines, and beyond that loads fail at once. Pool.Wait waits for them.
//
// Cost: the servers that match the query of a request are listed once for equal placements. Each
// placement puts them into a fleet, about a microsecond each. A batch costs a call, and the loads
// of the servers that pass the filters on records. A count costs what the source needs to find the
// group: at worst a load of each of its servers. BenchmarkPhases measures all of them.
package remote
