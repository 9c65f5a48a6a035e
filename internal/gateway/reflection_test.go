package gateway

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	"github.com/plimsoll-dev/plimsoll/internal/apidoc"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

func TestProgramsLearnTheCallsOfUsersByReflection(t *testing.T) {
	client, url, err := transport.Client(serve(t, Config{}, cluster()).address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	stream := grpcreflect.NewClient(client, url, connect.WithGRPC()).NewStream(t.Context())
	defer func() { _, _ = stream.Close() }()
	names, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	var services []string
	for _, n := range names {
		services = append(services, string(n))
	}
	if !slices.Equal(services, apidoc.Services()) {
		t.Errorf("the services are %v, want %v", services, apidoc.Services())
	}
	for _, name := range apidoc.Services() {
		files, err := stream.FileContainingSymbol(names[slices.Index(services, name)])
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files (%v)", name, len(files), err)
		}
	}
}

// The reference and reflection tell of every service that users are served, and of no other.
func TestTheReferenceHasEveryServiceOfUsers(t *testing.T) {
	var served []string
	for path := range newGateway(t, Config{}, cluster()).methods {
		name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		if !strings.HasPrefix(path, agentPaths) && !strings.HasPrefix(name, "grpc.") && !slices.Contains(served, name) {
			served = append(served, name)
		}
	}
	want := apidoc.Services()
	slices.Sort(served)
	slices.Sort(want)
	if !slices.Equal(served, want) {
		t.Errorf("the gateway serves %v, and the reference has %v", served, want)
	}
}
