// Package rest answers GET /ws/v1/events/batch in the form that Apache YuniKorn gives it, so that
// programs written for YuniKorn work unchanged.
//
// It gives an http.Handler for everything under /ws/v1/:
//
//	mux.Handle("/ws/v1/", rest.New(rest.Config{}, source))
//
// It owns no goroutine and keeps no state but a pool of compressors. The events come from a
// Source, which ensures freshness: an answer holds every event that was committed when the request
// came, or it is a 503. A request may ask for less by the parameter consistency, which YuniKorn
// does not have. Headers of the answer have its epoch, its revision and its age in seconds. The
// handler answers only JSON, errors included. An error has YuniKorn's shape and names the parameter
// and the fix. It does not stream, does not filter, and sends no CORS headers.
//
// The time and memory of an answer are linear in its events, of which there are at most
// Config.ResponseSize.
//
// The form comes from the design "Historical Usage Tracking" (section REST). The names of fields,
// their order and the omission of empty ones are those of YuniKorn's code. It differs from that
// code on purpose:
//
//   - Without start, the answer begins at the lowest id. YuniKorn begins at 0, so its plain call
//     answers null for ever once the ring has wrapped.
//   - An error explains the fault and the correct form, instead of strconv's text.
//   - A malformed query is refused; YuniKorn drops the parts that it cannot read.
//
// As in YuniKorn, a record does not hold its id, which is start plus its position. Unknown query
// parameters are ignored, an empty parameter counts as missing, and cpu is called vcore and
// counted in milli-cores.
//
// The gateway mounts it.
package rest
