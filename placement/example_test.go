package placement_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

// Place a container on a fleet that is read from JSON.
func Example() {
	servers, err := fleetjson.ReadServers([]byte(`[
		{"id": "n1", "capacity": {"cpu": 8, "memory": "32Gi"}, 
			"instances": [{"id": "db", "resources": {"cpu": 7, "memory": "8Gi"}}]},
		{"id": "n2", "capacity": {"cpu": 8, "memory": "32Gi"}},
		{"id": "n3", "capacity": {"cpu": 8, "memory": "32Gi"}, "setup": false}
	]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fleet := placement.NewFleet(placement.NewNames())
	for i := range servers {
		fleet.Add(&servers[i])
	}
	container := &placement.Request{
		Owner: "alice", Resources: plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 4 << 30},
	}
	request, err := placement.Default().Prepare(fleet, container)
	if err != nil {
		fmt.Println(err)
		return
	}
	placer := placement.NewPlacer(fleet, rand.NewPCG(1, 2))
	fmt.Println("goes to", fleet.ID(placer.Place(request, 0).Slot))
	explanation := placer.Explain(request, 0)
	fmt.Println(explanation.Summary())
	// Output:
	// goes to n2
	// 1 of 3 nodes: not set up; 1 of 3 nodes: not enough cpu
}
