// Package client is the Go SDK: it submits jobs to a Plimsoll gateway and reads what has become of
// them.
//
// A Client speaks Connect over HTTP/2 without TLS to one gateway, in the vocabulary of package
// plimsoll. It is safe for concurrent use, keeps a few connections and starts no goroutine of its
// own. Close drops idle connections.
//
// Guarantees:
//
//   - A read holds every change that was acknowledged to anybody before the read was sent; the gateway sees to that.
//   - A call that fails because the server is away or asks to come back later (CodeUnavailable,
//     CodeExhausted) is tried again with growing, jittered delays until it succeeds, its context ends
//     or Config.RetryBudget has passed. A call that changes something carries a token, so that it has
//     its effect once however often it is repeated. It is repeated also when its answer was lost.
//   - An error of a call that changes something says that nothing was changed, unless its code is
//     CodeOutcomeUnknown.
//   - Every error is a *plimsoll.Error or wraps one, so that plimsoll.CodeOf tells what kind it is.
//   - Lists are read in pages and handed out one by one, so that memory is bounded by a page. A list is not one instant: each page is
//     consistent in itself.
//
// Of several gateways in Config.Server it calls the one that answered last, and the next at once
// where no connection can be made: such a call had no effect.
//
// It does NOT cache, and it does not spread calls over gateways. Cost is one round trip a call or
// page.
//
// The command line (cmd/plimsoll) is written with nothing but this package. The SDK's shape is that
// of the Connect services in proto/plimsoll/v1/api.proto.
package client
