// Package evaluator is the process that stands beside the data of a part of a fleet and evaluates
// batches of servers there (RFD 60, phase 4). The command "plimsoll evaluator" runs it, and
// "plimsoll place --evaluators" calls several.
//
//	e, err := evaluator.New(evaluator.Config{Servers: "servers.json", Now: time.Now, Access: access})
//	err = e.Run(ctx)
//
// It serves plimsoll.v1.PlacementService: it lists the servers of its part as far as they match a
// query, evaluates batches of them, counts how a group is spread over them, and tells three numbers
// of what is left on each. Beside that there are /healthz, /readyz and /metrics.
//
// The servers come from a file or URL, as package fleetjson or as Triton's CNAPI writes them. What
// runs on them stands in the same document; or it is loaded for one server at a time, from a file
// or URL of its own, when a batch needs it. A file is read again when it has changed, and a URL
// when what was read is older than Config.Refresh. What was read is not changed any more, so calls
// share it.
//
// Bounds: calls that are worked on at a time, of which further ones are refused before their body
// is read; loads at a time, and the time of each; bytes of a document. A caller can have only those
// servers loaded that the document lists.
//
// Run owns the listener and the goroutines of loads, and waits for them. Nothing is written.
package evaluator
