// Package evaluator is the process that holds the data of a part of a fleet, and evaluates batches
// of servers there (RFD 60, phase 4). The command "plimsoll evaluator" runs it, and "plimsoll
// place --evaluators" calls several.
//
//	e, err := evaluator.New(evaluator.Config{
//		Servers: "servers.json", Now: time.Now, Access: access,
//	})
//	err = e.Run(ctx)
//
// It serves plimsoll.v1.PlacementService. It lists the servers of its part that match a query,
// evaluates batches of them, and counts how a group is spread over them. It also returns three
// numbers about the room left on each. It serves /healthz, /readyz and /metrics too.
//
// The servers come from a file or URL, in the form of package fleetjson or of Triton's CNAPI. The
// instances on them are in the same document. Alternatively, each server's instances are loaded
// from a file or URL of their own, when a batch needs them. A file is read again when it has
// changed, and a URL when its content is older than Config.Refresh. A document is not changed once
// read, so calls share it.
//
// Bounds: the calls that are processed at a time (further calls are refused before their body is
// read); the loads at a time, and the time of each; and the bytes of a document. A caller can
// cause loads only of servers that the document lists.
//
// Run owns the listener and the goroutines of loads, and waits for them. Nothing is written.
package evaluator
