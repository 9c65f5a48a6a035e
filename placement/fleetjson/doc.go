// Package fleetjson reads and writes fleets, requests and decisions of package placement as JSON.
//
//	servers, err := fleetjson.ReadServers(data)
//	request, err := fleetjson.ReadRequest(text)
//	export, err := fleetjson.WriteDecision(decision.Record())
//
// Amounts and constraints are written as in a job file. Reading is strict: an unknown field, a
// repeated one, or a value of the wrong type is an error that names the field. Servers are the
// exception: the error becomes the Fault of its server, so that one bad record does not spoil the
// list. A written document reads back to the same values.
//
// The package is pure and keeps nothing. Reading takes one pass for each level of nesting and keeps
// equal texts once, because a fleet may have millions of instances.
//
// The command line reads servers, requests and decisions with it, and the engine writes exported
// decisions with it. Package placement does not import it; only a chain's Expression has a JSON
// form of its own there.
package fleetjson
