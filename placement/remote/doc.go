// Package remote places on a fleet whose instance data lives elsewhere: behind a function that
// takes its time, or in another process (RFD 60, phases 2 and 4).
//
// A Pool bounds calls that load instances: so many at a time, each for so long, even if it does not
// heed its context. Its Loader makes a placement.Loader of a Source. An Evaluator runs a chain over
// one batch of servers. Local is the one beside the data: package placement with a Source.
// NewHandler serves an Evaluator over HTTP, and a Client calls one. A PartEvaluator knows its
// servers too, and a Fleet places over several of them: it draws batches, each of servers of one
// evaluator, and has them evaluated one after another, until one has a survivor. Place is that for
// one evaluator.
//
//	parts := []remote.Part{{Name: "a", Evaluator: a}, {Name: "b", Evaluator: b}}
//	fleet, err := remote.NewFleet(parts, remote.FleetOptions{})
//	result, err := fleet.Place(ctx, rand.NewPCG(1, 2), &remote.Order{Request: request})
//	left := fleet.Capacities(ctx, []string{result.Server}, nil, now)
//
// Place and placement.Placer choose the same server for the same fleet, request, time and random
// source, wherever the evaluator is: both draw with placement.Draw, and every batch brings its own
// seed. With several evaluators the next batch is of one of them, each as likely as it has servers
// left.
//
// A spread counts the instances of all servers, and an evaluator has those of its own. So before
// the first batch each evaluator counts the group of the request, and the sum of all goes with the
// batches. An instance that is on its way counts there too, as a ticket.
//
// A load that fails drops the one server that it was for, with the error as the reason. A call of
// an evaluator that fails, or takes too long, is tried again a few times: it changes nothing where
// it is answered. An evaluator that does not answer then is left out. If no server of the others
// takes the request, or if it bounds its spread, that is an error that names the batch or the
// evaluator, and nothing is placed. An evaluator keeps nothing between calls: what was loaded for a
// batch is gone when it is answered.
//
// Bounds: MaxServers in a batch, MaxTickets, MaxBody bytes in a request and an answer (also after
// decompression), MaxExpression bytes of a chain, MaxOwnerRules of MaxRules bytes in its settings,
// MaxListed servers of one evaluator. What a request takes decoded is bounded too, by counting
// before it is decoded. The package owns the goroutines of a Pool, and those of a Fleet's call, for
// which it waits. A load that outlives its time keeps its goroutine until it returns; there are at
// most Parallel + Late of them, and beyond that loads fail at once. Pool.Wait waits for them. How
// many calls a handler works on at once is for the server in front of it to bound;
// internal/evaluator does.
//
// Cost: the servers that match the query of a request are listed once for placements that are
// alike, and each placement puts them into a fleet, about a microsecond each. A batch costs a call
// and the loads of the servers that pass the filters by record. A count costs what the evaluator's
// source needs to find the group, at worst a load of each of its servers. BenchmarkPhases measures
// it.
package remote
