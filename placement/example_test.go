package placement_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Choose a server, book what it gives, and ask why nothing more fits.
func ExampleChain_Place() {
	names := placement.NewNames()
	amounts := func(r plimsoll.Resources) placement.Amounts {
		a, _ := names.Amounts(r) // names.Check refuses too many names
		return a
	}
	fleet := []placement.Server{
		{ID: "small", Present: true, Ready: true, Mode: plimsoll.NodeActive, Capacity: amounts(plimsoll.Resources{"cpu": 2000})},
		{ID: "large", Present: true, Ready: true, Mode: plimsoll.NodeActive, Capacity: amounts(plimsoll.Resources{"cpu": 8000})},
	}
	request := placement.NewRequest(amounts(plimsoll.Resources{"cpu": 6000}))
	chain, draw := placement.Default(), placement.NewDraw(rand.NewPCG(1, 2))

	slot := chain.Place(request, fleet, draw)
	fmt.Println(fleet[slot].ID)
	fleet[slot].Used.Add(&request.Amounts)

	fmt.Println(chain.Place(request, fleet, draw))
	x := chain.Explain(request, fleet, names)
	fmt.Println(x.Summary())
	// Output:
	// large
	// -1
	// 2 of 2 nodes: not enough cpu
}
