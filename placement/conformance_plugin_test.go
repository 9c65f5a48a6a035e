package placement_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

const mebi = 1 << 20

// given is a stage that takes what is free from the records of the case.
func (r *rig) given() placement.Stage {
	fields := []struct {
		name  string
		index int
		unit  float64
	}{
		{"unreserved_cpu", placement.IndexCPU, 10},
		{"unreserved_ram", placement.IndexMemory, mebi},
		{"unreserved_disk", placement.IndexDisk, mebi},
	}
	return placement.Stage{
		Name: "given", Reads: placement.ReadsInstances, Gives: placement.ReadsFree,
		Keep: func(v *placement.View) bool {
			for _, f := range fields {
				n, _ := r.servers[v.ID()][f.name].(float64)
				v.SetFree(f.index, int64(n*f.unit))
			}
			return true
		},
	}
}

// checkPlugin runs one stage.
func checkPlugin(t *testing.T, plugin string, c *conformanceCase) []string {
	in := &c.Input
	r := newRig(t, in.Opts.Defaults)
	r.add(t, in.Servers, plugin != "hard-filter-invalid-servers")
	r.lazy(&in.External)
	r.tickets(t, in.Opts.Tickets)
	r.stages = append(r.stages, r.given())
	request := r.order(t, in.Opts.VM, in.Opts.Pkg, in.Opts.Img, true)

	e := placement.Pipe(placement.Named("load-server-vms"))
	switch plugin {
	case "load-server-vms":
	case "calculate-ticketed-vms", "calculate-server-unreserved", "hard-filter-volumes-from":
		e.List = append(e.List, placement.Named(plugin))
		if plugin == "hard-filter-volumes-from" {
			e.List = e.List[1:]
		}
	default:
		e.List = append(e.List, placement.Named("given"), placement.Named(plugin))
	}
	got := r.run(t, e, request, c.now(), in.Random)

	if r.refused != nil {
		return []string{fmt.Sprintf("refused: %s", r.refused)}
	}
	ordered := strings.HasPrefix(plugin, "score-") || plugin == "hard-filter-large-servers"
	faults := r.compareKept(t, got.Kept, c, ordered)
	switch {
	case plugin == "calculate-server-unreserved":
		faults = append(faults, compareFree(got.Free, c)...)
	case plugin == "calculate-ticketed-vms":
		faults = append(faults, r.compareBooked(got, c)...)
	case strings.HasPrefix(plugin, "score-"):
		faults = append(faults, r.compareScores(got, c)...)
	}
	return faults
}

func (r *rig) order(t *testing.T, vm, pkg, img json.RawMessage, bare bool) *placement.Request {
	t.Helper()
	request, err := r.profile.Request(tritonOrder(vm, pkg, img, bare))
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// compareKept compares what remains. A server without an id is told by its record: what stands at
// its place in the output.
func (r *rig) compareKept(t *testing.T, kept []string, c *conformanceCase, ordered bool) []string {
	if !slices.ContainsFunc(c.Expect.Remaining, func(id string) bool { return strings.HasPrefix(id, "#") }) {
		return unlike("remaining", kept, c.Expect.Remaining, ordered)
	}
	if len(kept) != len(c.Expect.Remaining) {
		return []string{fmt.Sprintf("remaining: got %v, want %d servers", kept, len(c.Expect.Remaining))}
	}
	for i, place := range c.Expect.Remaining {
		var want map[string]any
		if err := json.Unmarshal(c.Input.Servers[i], &want); err != nil {
			t.Fatal(err)
		}
		maps.Copy(want, c.Expect.ServerSets[place])
		for _, field := range []string{"memory_available_bytes", "unreserved_ram"} { // what tells such records apart
			if got, ok := r.servers[kept[i]][field]; ok && !reflect.DeepEqual(got, want[field]) {
				return []string{fmt.Sprintf("%s of remaining %s: got %v, want %v", field, place, got, want[field])}
			}
		}
	}
	return nil
}

func compareFree(free map[string]placement.Amounts, c *conformanceCase) []string {
	var faults []string
	for i, place := range c.Expect.Remaining {
		set := c.Expect.ServerSets[place]
		got, ok := free[place]
		if !ok {
			got = free[fmt.Sprintf("#%d", i)]
		}
		for _, f := range []struct {
			name  string
			index int
			unit  float64
		}{{"unreserved_cpu", 0, 10}, {"unreserved_ram", 1, mebi}, {"unreserved_disk", 2, mebi}} {
			if want, ok := set[f.name].(float64); ok && float64(got[f.index])/f.unit != want {
				faults = append(
					faults, fmt.Sprintf("%s of %s: got %v, want %v", f.name, place, float64(got[f.index])/f.unit, want),
				)
			}
		}
	}
	return faults
}

// compareBooked compares, for the servers that remain, the number of machines and their booked
// amounts. The original adds the tickets' part of the pool to the record of the server.
func (r *rig) compareBooked(got placement.Run, c *conformanceCase) []string {
	var faults []string
	for _, id := range c.Expect.Remaining {
		before, after := r.servers[id], maps.Clone(r.servers[id])
		maps.Copy(after, c.Expect.ServerSets[id])
		vms, _ := after["vms"].(map[string]any)
		grown := func(field string) float64 {
			was, _ := before[field].(float64)
			is, _ := after[field].(float64)
			return is - was
		}
		want := map[string]float64{
			plimsoll.Disk: grown("disk_zone_quota_bytes"), triton.Volumes: grown("disk_kvm_zvol_volsize_bytes"),
		}
		for _, id := range slices.Sorted(maps.Keys(vms)) {
			vm, _ := vms[id].(map[string]any)
			limit, _ := vm["cpu_cap"].(float64)
			memory, _ := vm["max_physical_memory"].(float64)
			want[plimsoll.CPU] += limit * 10
			switch vm["brand"] {
			case "kvm":
				want[triton.Volumes] += 10 * gibi
				want[triton.HVMMemory] += memory * mebi
			case "bhyve":
				want[triton.HVMMemory] += memory * mebi
			default:
				want[plimsoll.Memory] += memory * mebi
			}
		}
		for i := range r.fleet.Names.Len() {
			if name := r.fleet.Names.Name(i); float64(got.Used[id][i]) != want[name] {
				faults = append(
					faults, fmt.Sprintf("%s of %s: got %d booked, want %v", name, id, got.Used[id][i], want[name]),
				)
			}
		}
		if got.Counts[id] != len(vms) {
			faults = append(faults, fmt.Sprintf("machines of %s: got %d, want %d", id, got.Counts[id], len(vms)))
		}
	}
	return faults
}

// compareScores compares scores, which start from those of the case.
func (r *rig) compareScores(got placement.Run, c *conformanceCase) []string {
	var faults []string
	for _, id := range c.Expect.Remaining {
		start, _ := r.servers[id]["score"].(float64)
		want, set := c.Expect.ServerSets[id]["score"]
		if !set {
			want = start
		}
		if number, ok := want.(float64); !ok || !near(start+got.Scores[id], number) {
			faults = append(faults, fmt.Sprintf("score of %s: got %v, want %v", id, start+got.Scores[id], want))
		}
	}
	return faults
}
