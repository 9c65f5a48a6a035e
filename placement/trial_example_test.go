package placement_test

import (
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// How many containers of 1.5 cores fit on two servers of 4? The fleet is afterwards as it was.
func ExamplePlacer_Try() {
	fleet := placement.NewFleet(placement.NewNames())
	for _, id := range []string{"s1", "s2"} {
		server := placement.NewServer(id, plimsoll.Resources{plimsoll.CPU: 4000})
		fleet.Add(&server)
	}
	container := placement.Request{Owner: "alice", Resources: plimsoll.Resources{plimsoll.CPU: 1500}}
	asks := []placement.Ask{{Request: container, Count: 100}}
	tried, err := placement.NewPlacer(fleet, rand.NewPCG(1, 1)).Try(placement.Default(), asks, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(tried[0].Placed), "fit; the next:", tried[0].Why.Summary())
	fmt.Println("on s1 now:", fleet.Count(fleet.Slot("s1")))
	// Output:
	// 4 fit; the next: 2 of 2 nodes: not enough cpu
	// on s1 now: 0
}
