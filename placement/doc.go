// Package placement chooses a node for a task: a staged chain of filters and a score over a fleet, after the designation API of
// Triton (RFD 60).
//
// The chain looks at servers in batches of fifty, drawn in seeded random order, cheap filters first, and stops at the first
// batch that holds a survivor; of the survivors the one with the highest score is chosen, of equals the one drawn first. Only
// when every server was looked at and none survived is the answer "none". Explain runs every filter on every server and says
// why each was left out.
//
// The package owns nothing, starts nothing and is pure: randomness is passed in, and the same seed gives the same choice. It
// does not change the fleet: the caller books what it decides.
//
// Cost: a placement on a fleet with room looks at fifty servers, however large the fleet; one on a full fleet looks at all. It
// allocates nothing per server. A server costs about 400 bytes.
//
// DESIGN.md says what was rejected. The scheduler is its caller inside Plimsoll; a Go program can use it on a fleet of its own.
package placement
