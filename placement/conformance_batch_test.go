package placement_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// productOnly are filters of the product that are not in RFD 60, by the words with which they fail.
var productOnly = []string{"virtualization"}

// checkBatch places one machine in batches, loading instances lazily, and checks how: batches of at
// most fifty; instances are loaded only of servers that the filters before the load keep; nothing
// of them is kept; it stops at the first batch with a server; and none is the answer only after all
// servers were tried.
func (f *conformanceFile) checkBatch(t *testing.T, c *conformanceCase) []string {
	in := &c.Input
	r := batchRig(t, c)
	vm := map[string]any{}
	if err := json.Unmarshal(in.VM, &vm); err != nil {
		t.Fatal(err)
	}
	vm["nic_tags"], vm["nic_tag_requirements"] = in.NICTags, in.NICTagNeeds
	request := r.order(t, encode(t, vm), in.Pkg, in.Img, false)

	var raw []any
	if err := json.Unmarshal(f.Chains[in.Chain], &raw); err != nil {
		t.Fatal(err)
	}
	whole, before, hard := r.parts(t, raw)
	eligible := r.run(t, before, request, c.now(), nil).Kept
	able := r.run(t, hard, request, c.now(), nil).Kept

	var batches [][]string
	r.stages = append(r.stages, placement.Stage{Name: "spy", Batch: func(b *placement.Batch, set []int32) []int32 {
		var list []string
		for _, i := range set {
			list = append(list, b.At(i).ID())
		}
		batches = append(batches, list)
		return set
	}})
	plain := r.place(t, whole, request, c.now())
	r.loaded = nil
	whole.List = slices.Insert(whole.List, len(before.List), placement.Named("spy"))
	choice := r.place(t, whole, request, c.now())
	faults := r.batchFaults(c, choice, batches, eligible, able)
	if plain.Slot != choice.Slot || plain.Score != choice.Score || plain.Batches != choice.Batches ||
		plain.Loads != choice.Loads {
		faults = append(faults, fmt.Sprintf("the choice is %+v, and %+v if somebody looks on", plain, choice))
	}
	return faults
}

// batchRig is a fleet whose instances are loaded when they are needed, with the defaults of the
// product.
func batchRig(t *testing.T, c *conformanceCase) *rig {
	t.Helper()
	in := &c.Input
	defaults := map[string]any{
		"weight_current_platform": 1, "weight_next_reboot": 0.5, "weight_num_owner_zones": 0,
		"weight_uniform_random":  0.5,
		"weight_unreserved_disk": 1, "weight_unreserved_ram": 2,
	}
	changes := map[string]any{}
	if err := json.Unmarshal(in.Change, &changes); err != nil {
		t.Fatal(err)
	}
	maps.Copy(defaults, changes)
	r := newRig(t, encode(t, defaults))
	if err := r.profile.Override(encode(t, defaults)); err != nil {
		t.Fatal(err)
	}
	r.add(t, in.Servers, false)
	r.fleet.Loader.Within = time.Second
	r.fleet.Loader.Instances = func(server string) ([]placement.Instance, error) {
		r.loaded = append(r.loaded, server)
		if in.VMs[server] == nil {
			return nil, nil
		}
		return r.profile.Instances(in.VMs[server])
	}
	r.tickets(t, in.Tickets)
	return r
}

// parts makes three chains of the product's: all of it that is in RFD 60, its filters before the
// load, and its hard filters.
func (r *rig) parts(t *testing.T, raw []any) (whole, before, hard placement.Expression) {
	known := map[string]bool{}
	for _, s := range r.stages {
		for _, name := range append(s.Aliases, s.Name) {
			known[name] = true
		}
	}
	whole, before, hard = placement.Pipe(), placement.Pipe(), placement.Pipe()
	loaded := false
	for _, item := range raw[1:] {
		e, err := placement.ParseExpression(item)
		if err != nil {
			t.Fatal(err)
		}
		if e.Name != "" && !known[e.Name] {
			continue
		}
		whole.List = append(whole.List, e)
		loaded = loaded || e.Name == "load-server-vms"
		if !loaded {
			before.List = append(before.List, e)
		}
		if e.Name != "" && !strings.HasPrefix(e.Name, "soft-") && !strings.HasPrefix(e.Name, "score-") {
			hard.List = append(hard.List, e)
		}
	}
	return whole, before, hard
}

func (r *rig) batchFaults(
	c *conformanceCase, choice placement.Choice, batches [][]string, eligible, able []string,
) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	var seen []string
	for i, batch := range batches {
		seen = append(seen, batch...)
		if len(batch) > 50 || len(batch) == 0 {
			fault("batch %d has %d servers", i, len(batch))
		}
		hit := slices.ContainsFunc(batch, func(id string) bool { return slices.Contains(able, id) })
		if last := i == len(batches)-1; hit != (last && choice.Slot >= 0) {
			fault("batch %d of %d holds a server that will do: %t", i, len(batches), hit)
		}
	}
	for _, id := range r.loaded {
		if !slices.Contains(eligible, id) {
			fault("instances of %s were loaded, which the filters before had dropped", id)
		}
	}
	if choice.Loads != len(r.loaded) {
		fault("%d loads were counted, want %d", choice.Loads, len(r.loaded))
	}
	for _, id := range r.ids {
		if *r.fleet.Used(r.fleet.Slot(id)) != (placement.Amounts{}) {
			fault("what was loaded for %s is kept", id)
		}
	}
	if choice.Slot >= 0 && !slices.Contains(able, r.fleet.ID(choice.Slot)) {
		fault("%s was chosen, which will not do", r.fleet.ID(choice.Slot))
	}
	if choice.Slot < 0 {
		faults = append(faults, unlike("tried", seen, eligible, false)...)
	}
	other := slices.ContainsFunc(
		productOnly, func(words string) bool { return strings.Contains(c.Expect.Message, words) },
	)
	if found := choice.Slot >= 0; found != (c.Expect.Status == 200) && !other {
		fault("found: %t, want status %d %s", found, c.Expect.Status, c.Expect.Message)
	}
	return faults
}
