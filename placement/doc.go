// Package placement chooses a server for a request: the staged chain of filters and scores of
// Triton's designation API after RFD 60, over a fleet of any kind.
//
// A chain is data: nested pipe and or expressions of named stages (Expression), checked against
// what each stage reads (NewChain), so that filters on records come first and what needs to know of
// instances comes last. A Fleet holds the servers, as classes of equal records and as sums of what
// is booked on each; instances are booked as they come and go, counted as tickets before they
// exist, or loaded for the servers of one batch that are left when they are needed (Loader). A
// Placer draws open servers in seeded random order, in batches of fifty, and takes the best of the
// first batch in which one is left; only when every server was looked at is the answer none.
// Explain asks every filter about every server and tells what is closed, not eligible, and only
// full.
//
// The package starts nothing and is pure: randomness and time are passed in, and the same seed
// gives the same choice. It does not book what it chooses: the caller does. A Fleet, its placers
// and its prepared requests have one owner between them.
//
// Cost: a placement looks at one batch on a fleet with room, however large, and at all servers
// before it says none; per server that is one cache line and one byte of the request's verdicts on
// classes, and no allocation. A server takes about 300 bytes and its id, a booked instance 16 to
// 64, a class of servers about 700. The first spread by a label costs O(servers), every booking
// after it O(1).
//
// The scheduler is its caller inside Plimsoll; package remote runs it beside instance data that
// lives elsewhere. DESIGN.md says what was rejected.
package placement
