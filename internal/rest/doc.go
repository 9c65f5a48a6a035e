// Package rest answers GET /ws/v1/events/batch and GET /ws/v1/events/stream in the form that Apache
// YuniKorn gives them, so that programs written for YuniKorn work unchanged.
//
// It gives an http.Handler for everything under /ws/v1/:
//
//	mux.Handle("/ws/v1/", rest.New(rest.Config{}, source))
//
// It owns no goroutine. The events come from a Source, which ensures freshness: an answer holds
// every event that was committed when the request came, or it is a 503. A request may ask for less
// by the parameter consistency, which YuniKorn does not have. Headers of the answer have its epoch,
// its revision and its age in seconds. The handler answers only JSON, errors included. An error has
// YuniKorn's shape and names the parameter and the fix. It does not filter, and sends no CORS
// headers.
//
// An event is rendered once for all batches and streams, as long as Config.RenderedBytes have room
// for it. Otherwise the time and memory of a batch are linear in its events, of which there are at
// most Config.ResponseSize. A stream is an id, the next one to send: it reads the shared lines, and
// looks at the ring anew for each block of them. So a slow reader keeps no event in memory. A
// reader must take each write in a time that its length bounds, or it is cut; one that falls behind
// what the ring holds is told which events it has missed.
//
// The form comes from the design "Historical Usage Tracking" (sections REST and Streaming; of the
// two approaches to streaming it is the second). The names of fields, their order and the omission
// of empty ones are those of YuniKorn's code. It differs from that code on purpose:
//
//   - Without start, a batch begins at the lowest id. YuniKorn begins at 0, so its plain call
//     answers null for ever once the ring has wrapped.
//   - A stream that wants more events of before than there are gets all there are; YuniKorn sends
//     none.
//   - A stream can begin at an id (start), and its first line says which event comes first. So a
//     reader that breaks off goes on without a loss. YuniKorn's begin anew.
//   - An error explains the fault and the correct form, instead of strconv's text.
//   - A malformed query is refused; YuniKorn drops the parts that it cannot read.
//
// As in YuniKorn, a record does not hold its id, which is start plus its position. Unknown query
// parameters are ignored, an empty parameter counts as missing, and cpu is called vcore and
// counted in milli-cores. The array of the design's example has an end, so it is only given for a
// number of events: format=json&count=N.
//
// The gateway mounts it.
package rest
