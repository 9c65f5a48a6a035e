// Package sim simulates failovers of whole clusters, from one seed: coordinators, gateways, a
// relay, a historian and clients, over a network, a store and clocks that it controls. It is a
// package of tests; DESIGN.md says what they prove.
package sim
