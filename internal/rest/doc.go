// Package rest answers GET /ws/v1/events/batch in the form that Apache YuniKorn gives it, so that
// programs written for YuniKorn work unchanged.
//
// It gives an http.Handler for everything under /ws/v1/. It owns no goroutine and keeps no state
// but a pool of compressors; the events come from a Source, which answers for freshness: an answer
// holds every event that was committed when the request came, or it is a 503. The handler never
// answers anything but JSON, errors included; an error has YuniKorn's shape and names the parameter
// and the fix. It does not stream, does not filter, and sends no CORS headers.
//
// An answer costs time and memory linear in the events that are in it, at most Config.ResponseSize.
//
// It comes from the design "Historical Usage Tracking" (section REST); field names, their order and
// what is left out are those of YuniKorn's code. It differs from that code on purpose:
//
//   - without start the answer begins at the lowest id there is. YuniKorn begins at 0, so that its
//     plain call answers null for ever once the ring has wrapped;
//   - an error says in words what is wrong and what to give, instead of strconv's text;
//   - a query that cannot be taken apart is refused; YuniKorn drops what it cannot read.
//
// As in YuniKorn a record does not hold its id (it is start plus its place), unknown query
// parameters are ignored, an empty parameter counts as not given, and cpu is called vcore and
// counted in milli-cores.
//
// The gateway mounts it.
package rest
