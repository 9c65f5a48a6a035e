package triton_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

// Releases of Triton's records compare as numbers, and with the switch as texts, as the original
// compares them: then 10.0 is older than 7.0.
func TestTextReleasesIsTheOrderOfTheOriginal(t *testing.T) {
	for text, want := range map[bool]int32{false: 0, true: -1} {
		fleet := placement.NewFleet(placement.NewNames())
		profile, err := triton.New(fleet.Names)
		if err != nil {
			t.Fatal(err)
		}
		profile.TextReleases = text
		ten := strings.Replace(record, `"sysinfo": {`, `"sysinfo": {"SDC Version": "10.0", `, 1)
		if ten == record {
			t.Fatal("the record has no sysinfo")
		}
		server, err := profile.Server([]byte(ten))
		if err != nil {
			t.Fatal(err)
		}
		fleet.Add(&server)
		request, err := profile.Request(triton.Order{
			VM:    []byte(`{"owner_uuid": "bob"}`),
			Image: []byte(`{"requirements": {"min_platform": {"7.0": "20990101T000000Z"}}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		pipe := placement.Pipe(placement.Named("hard-filter-platform-versions"))
		chain, err := placement.NewChain(pipe, profile.Stages(), nil, placement.DefaultSettings())
		if err != nil {
			t.Fatal(err)
		}
		prepared, err := chain.Prepare(fleet, request)
		if err != nil {
			t.Fatal(err)
		}
		if got := placement.NewPlacer(fleet, rand.NewPCG(1, 2)).Place(prepared, 0).Slot; got != want {
			t.Errorf("text releases %t: slot %d, want %d", text, got, want)
		}
		prepared.Release()
	}
}
