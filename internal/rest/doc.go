// Package rest answers Apache YuniKorn's REST interface, so that programs written for YuniKorn work
// unchanged: the events by GET /ws/v1/events/batch and /ws/v1/events/stream, and the state by the
// routes of the table in cluster.go. docs/reference/yunikorn-api.md lists them with their
// differences.
//
// It gives an http.Handler for everything under /ws/v1/, and for the dump of the whole state:
//
//	for _, path := range rest.Paths() {
//		mux.Handle(path, rest.New(rest.Config{}, source))
//	}
//
// It owns no goroutine. Events and records come from a Source, which ensures freshness: an answer
// holds every change that was committed when the request came, or it is a 503. A request may ask
// for less by the parameter consistency, which YuniKorn does not have. Headers of the answer have
// its epoch, its revision and its age in seconds. The handler answers only JSON, errors included.
// An error has YuniKorn's shape and names the parameter and the fix. It does not filter, and sends
// no CORS headers.
//
// An event is rendered once for all batches and streams, as long as Config.RenderedBytes have room
// for it. Otherwise the time and memory of a batch are linear in its events, of which there are at
// most RESTResponseSize, a setting of the cluster. A stream is an id, the next one to send: it
// reads the shared lines, and looks at the ring anew for each block of them. So a slow reader keeps
// no event in memory. A reader must take each write in a time that its length bounds, or it is cut;
// one that falls behind what the ring holds is told which events it has missed.
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
// An answer about the state is made of the records of one revision. It is whole, or it is refused:
// beyond Config.AnswerBytes with 413 and the route that answers less. When the requests under way
// hold as many bytes as they may, it is a 429. Each piece is charged before it is kept, at
// chargeFor times its JSON. A job is an application, a task on a node an allocation, and a waiting
// task a request. All nodes are the partition "default". A field of which a cell knows nothing is
// left out: a made-up value would mislead.
//
// Programs of YuniKorn's fork of G-Research are answered too: objects have ids that stay, and with
// Config.ObjectStates an event has the state of its object.
//
// The gateway mounts it, at the paths of Paths.
package rest
