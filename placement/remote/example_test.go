package remote_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

// Serve an evaluator beside the data, and place from elsewhere: the one who places knows the
// servers, and not what runs on them.
func Example() {
	beside, err := remote.NewLocal(remote.Config{Source: remote.Source{
		Instances: func(_ context.Context, server string) ([]placement.Instance, error) {
			if server == "n1" {
				return []placement.Instance{{ID: "db", Resources: plimsoll.Resources{plimsoll.Memory: 30 << 30}}}, nil
			}
			return nil, nil
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(beside, remote.Serving{}))
	server := httptest.NewServer(mux)
	defer server.Close()

	list := func(context.Context, placement.Query) ([]placement.Server, error) {
		return fleetjson.ReadServers(
			[]byte(`[{"id": "n1", "capacity": {"memory": "32Gi"}}, {"id": "n2", "capacity": {"memory": "32Gi"}}]`),
		)
	}
	order := &remote.Order{
		Request: placement.Request{Owner: "alice", Resources: plimsoll.Resources{plimsoll.Memory: 4 << 30}},
	}
	client := remote.NewClient(server.Client(), server.URL)
	result, err := remote.Place(context.Background(), client, list, rand.NewPCG(1, 2), order)
	fmt.Println(result.Server, result.Loads, err)
	// Output: n2 2 <nil>
}
