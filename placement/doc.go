// Package placement chooses a server for a request by a chain of stages: filters that drop servers,
// then scores. The chain is that of Triton's designation API after its design document RFD 60,
// "Scaling the Designation API", which comments here cite. The caller makes the fleet, prepares a
// request once, and places it as often as it likes:
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
// the instances booked on each. There are two kinds of fleet. In one the caller books instances as
// they come and go. In the other a Loader loads them when a placement needs them: for those servers
// of a batch that the filters on records left. A ticket counts for an instance that is on its way
// and does not exist yet. A Placer draws open servers in seeded random order, in batches of fifty.
// A survivor is a server that all filters left. The choice is the best server of the first batch
// with a survivor. The answer is none only after every server was looked at. Explain asks every
// filter about every server and tells closed servers, servers that are not eligible, and full ones
// apart.
//
// The package starts nothing and is pure: randomness and time are passed in, and the same seed
// gives the same choice. It does not book what it chooses: the caller does. One goroutine at a time
// uses a Fleet with its placers and prepared requests.
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
