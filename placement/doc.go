// Package placement chooses a server for a request: the staged chain of filters and scores of
// Triton's designation API after RFD 60, over a fleet of any kind. The caller owns the fleet,
// prepares a request once, and places it as often as it likes:
//
//	fleet := placement.NewFleet(placement.NewNames())
//	server := placement.NewServer("n1", plimsoll.Resources{plimsoll.CPU: 4000})
//	fleet.Add(&server)
//	prepared, err := placement.Default().Prepare(fleet, &placement.Request{…})
//	placer := placement.NewPlacer(fleet, rand.NewPCG(seed, 0))
//	choice := placer.Place(prepared, now) // choice.Slot is -1 if no server takes it
//
// A chain is data: nested pipe and or expressions of named stages (Expression). NewChain checks
// each stage against the values that the stages before it give: filters on records come first,
// filters on instances last. A Fleet holds the servers, as classes of equal records and as sums of
// the instances booked on each. Instances are booked as they come and go, or counted as tickets
// before they exist. A Loader loads them instead when they are needed, for the servers of one batch
// that the filters on records left. A Placer draws open servers in seeded random order, in batches
// of fifty. The best server of the first batch with a survivor is the choice. The answer is none
// only after every server was looked at. Explain asks every filter about every server and tells
// closed servers, servers that are not eligible, and full ones apart.
//
// The package starts nothing and is pure: randomness and time are passed in, and the same seed
// gives the same choice. It does not book what it chooses: the caller does. A Fleet, its placers
// and its prepared requests have one owner between them.
//
// Cost: a placement looks at one batch on a fleet with room, however large, and at all servers
// before it says none. A look at a server reads one cache line and one byte of the request's
// verdicts on classes, and allocates nothing. A server takes about 300 bytes and its id, a booked
// instance 16 to 64, a class of servers about 700. The first spread by a label costs O(servers),
// every booking after it O(1).
//
// The scheduler is its caller inside Plimsoll; package remote runs it beside instance data that
// lives elsewhere. DESIGN.md says which designs were rejected.
package placement
