// Package fleetjson reads and writes fleets, requests and decisions of package placement as JSON.
//
//	servers, err := fleetjson.ReadServers(data)
//	request, err := fleetjson.ReadRequest(text)
//	export, err := fleetjson.WriteDecision(decision.Record())
//
// Amounts and constraints are written as in a job file. Reading is strict: a field that is not
// known, that stands twice or has a value of the wrong type is an error that names it. Only a
// server is taken although its record cannot be used: the reason becomes its Fault, so that one bad
// record does not keep the others from being used. Whatever is written is read as it was.
//
// The package is pure and keeps nothing. Reading takes one pass for each level of nesting and keeps
// equal texts once, because a fleet may have millions of instances.
//
// The command line reads servers, requests and decisions with it, and the engine writes decisions
// that are to be exported. Package placement knows nothing of it; only a chain's Expression has a
// form in JSON of its own there.
package fleetjson
