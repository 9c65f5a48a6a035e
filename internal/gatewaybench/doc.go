// Package gatewaybench measures the cost of a gateway and how soon it answers, in real processes.
// The command `plimsoll bench gateway` runs it, and so does BenchmarkGateway:
//
//	report, err := gatewaybench.Run(ctx, gatewaybench.Config{
//		Server: []string{"plimsoll", "bench", "serve"}, Tell: func(text string) { ... },
//	})
//
// Three processes serve the same list of records. A leader has the records decoded, and encodes
// each of them at each request. A gateway follows that leader. A bare net/http handler has the
// encoded records ready. The clients are in the calling process. Run measures:
//
//   - the latencies of the leader and the gateway, at parts of the leader's rate and above it.
//     Requests are sent at planned instants, whether those before were answered or not. A latency
//     counts from the planned instant, so a server that falls behind does not slow its clients down
//     and look better for it (no coordinated omission);
//   - the wait of a strict read over an eventual one, without other load;
//   - the processor time of a gateway for a request over that of the bare handler.
//
// The leader's answer is compared with the gateway's before anything is measured: both hold the
// same records. The leader is served by the same listener and options of connect as a gateway. It
// marshals messages that it has ready, which is less work than a leader with a state of its own
// has.
//
// Run owns the processes that it starts and its clients' connections, and all of them have ended
// when it returns. A server process ends with its standard input, so it also ends with a caller
// that was killed. Serve is such a process.
//
// Cost: about Config.Duration for each figure, twice as long for one above the leader's rate. The
// memory is bounded by the number of planned requests, 24 bytes each, and by the connections.
package gatewaybench
