package placement_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

// The tests of this file are about faults of the program that RFD 60 describes. Their numbers are
// those of reference placement.md, section 1.7. Each test shows that this package does not have the
// fault.

const gibi = 1 << 30

// stand is a fleet with a chain, as the tests of faults need them.
type stand struct {
	fleet    *placement.Fleet
	settings placement.Settings
	stages   []placement.Stage
	chain    placement.Expression
}

func newStand(servers ...placement.Server) *stand {
	s := &stand{
		fleet: placement.NewFleet(placement.NewNames()), settings: placement.DefaultSettings(),
		stages: placement.Stages(),
		chain:  placement.DefaultExpression(),
	}
	for i := range servers {
		s.fleet.Add(&servers[i])
	}
	return s
}

// roomy returns n servers with room for four instances of smallRequest().
func roomy(n int) []placement.Server {
	var list []placement.Server
	for i := range n {
		list = append(
			list,
			placement.NewServer(
				fmt.Sprintf("s%03d", i), plimsoll.Resources{"cpu": 4000, "memory": 4 * gibi, "disk": 4 * gibi},
			),
		)
	}
	return list
}

func smallRequest() *placement.Request {
	return &placement.Request{Owner: "ann", Resources: plimsoll.Resources{"cpu": 1000, "memory": gibi, "disk": gibi}}
}

func (s *stand) place(t *testing.T, r *placement.Request, seed uint64) (string, placement.Choice, []placement.Step) {
	t.Helper()
	chain, err := placement.NewChain(s.chain, s.stages, nil, s.settings)
	if err != nil {
		t.Fatal(err)
	}
	p, err := chain.Prepare(s.fleet, r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	c, steps := placement.NewPlacer(s.fleet, rand.NewPCG(seed, 1)).PlaceRecorded(p, today)
	if c.Slot < 0 {
		return "", c, steps
	}
	return s.fleet.ID(c.Slot), c, steps
}

// dropped returns how many servers a stage dropped, and why.
func dropped(steps []placement.Step, stage string) (n int, why string) {
	for _, step := range steps {
		if step.Stage == stage && step.Dropped > 0 {
			return step.Dropped, step.Reasons[0].Text
		}
	}
	return 0, ""
}

// Fault 1: "vlans crash and missing-ratio crash". A request gets an answer although its first
// alternative is down and its last one exists nowhere. So does a class with ratios on a server
// without any.
func TestFault1NoCrashWithoutNetworkOrRatio(t *testing.T) {
	down := roomy(1)
	down[0].Networks = map[string]bool{"blue": false}
	r := smallRequest()
	r.Constraints.Networks = [][]string{{"blue", "green"}}
	_, _, steps := newStand(down...).place(t, r, 1)
	if n, why := dropped(steps, "networks"); n != 1 || why != "network blue is not up" {
		t.Errorf("networks: dropped %d, %q", n, why)
	}
	r = smallRequest()
	r.Constraints.Class = map[string]float64{"cpu": 4}
	_, _, steps = newStand(roomy(1)...).place(t, r, 1)
	if n, why := dropped(steps, "overprovision-ratios"); n != 1 || why != "does not over-provision cpu, asked is 4.00" {
		t.Errorf("ratios: dropped %d, %q", n, why)
	}
}

// Fault 2: "next-reboot and sick-servers sort with a boolean comparator", right for ten servers at
// most. Forty are ranked rightly whatever order they come in, and so are the outcomes of forty
// instances.
func TestFault2SortsManyServers(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		servers := roomy(40)
		for i, place := range rng.Perm(len(servers)) {
			servers[i].NextReboot = today + int64(1+place)*14*86400
		}
		s := newStand(servers...)
		s.settings.Weights, s.settings.LargeServers = placement.Weights{NextReboot: 1}, false
		chosen, _, _ := s.place(t, smallRequest(), seed)
		latest := slices.MaxFunc(servers, func(a, b placement.Server) int { return int(a.NextReboot - b.NextReboot) })
		if chosen != latest.ID {
			t.Errorf("seed %d: chosen %q, want %q, which is rebooted last", seed, chosen, latest.ID)
		}

		sick := roomy(1)
		for _, age := range rng.Perm(40) { // the newest two failed, all others run
			sick[0].Instances = append(
				sick[0].Instances,
				placement.Instance{ID: fmt.Sprint("i", age), Modified: today - int64(age) - 1, Failed: age < 2},
			)
		}
		_, _, steps := newStand(sick...).place(t, smallRequest(), seed)
		if n, _ := dropped(steps, "sick-servers"); n != 1 {
			t.Errorf("seed %d: a server with two failures in a row is not dropped", seed)
		}
	}
}

// Fault 3: "batch order and the empty batch": of 51 servers the first batch had one, and of 100
// none. Here it has fifty.
func TestFault3FirstBatchIsFull(t *testing.T) {
	for _, n := range []int{50, 51, 99, 100, 120} {
		_, c, _ := newStand(roomy(n)...).place(t, smallRequest(), uint64(n))
		if c.Slot < 0 || c.Batches != 1 || c.Looked != 50 {
			t.Errorf("%d servers: %+v, want one batch of 50", n, c)
		}
	}
}

// Fault 4: "only the last batch's steps are reported on failure". Here they are added up over all
// batches.
func TestFault4StepsOfAllBatches(t *testing.T) {
	r := smallRequest()
	r.Resources[plimsoll.Memory] = 5 * gibi
	_, c, steps := newStand(roomy(120)...).place(t, r, 1)
	if n, why := dropped(steps, "min-memory"); c.Batches != 3 || n != 120 || why != "not enough memory" {
		t.Errorf("%d batches, dropped %d (%q), want 3 batches and 120 dropped", c.Batches, n, why)
	}
}

// Fault 5: "a failing allocator in a later batch would be reported as success without server".
// Failures are reasons, the search goes on, and success names a server.
func TestFault5FailuresInLaterBatches(t *testing.T) {
	for _, sound := range []string{"", "s007"} {
		for seed := range uint64(10) {
			s := newStand(roomy(120)...)
			s.fleet.Loader.Within = time.Second
			s.fleet.Loader.Instances = func(server string) ([]placement.Instance, error) {
				if server == sound {
					return nil, nil
				}
				return nil, errors.New("time is up")
			}
			chosen, c, steps := s.place(t, smallRequest(), seed)
			if chosen != sound || (c.Slot >= 0) != (sound != "") {
				t.Errorf("seed %d: chosen %q, %+v, want %q", seed, chosen, c, sound)
			}
			if n, why := dropped(steps, "load-instances"); n < 1 || !strings.Contains(why, "time is up") {
				t.Errorf("seed %d: dropped %d, %q", seed, n, why)
			}
		}
	}
}

// Fault 6: "setup, reserved, headnode, reservoir, large-servers, ticket drops give no reasons".
// Here every drop has one.
func TestFault6EveryDropHasAReason(t *testing.T) {
	servers := roomy(7)
	servers[0].Setup = false
	servers[1].Reserved = "is cordoned"
	servers[2].Headnode = true
	servers[3].Reservoir = true
	s := newStand(append(servers, roomy(20)[7:]...)...)
	if err := s.fleet.AddTicket(placement.Ticket{ID: "new", Server: "s004"}); err != nil {
		t.Fatal(err)
	}
	_, _, steps := s.place(t, smallRequest(), 1)
	for stage, want := range map[string]string{
		"setup": "not set up", "reserved": "is cordoned", "headnode": "is a head node",
		"calculate-tickets": "an instance of unknown size is on its way to it",
		"reservoir":         "is a reservoir node, and there are others",
		"large-servers":     "is among the servers with the most free memory, which are kept for large instances",
	} {
		if n, why := dropped(steps, stage); n == 0 || why != want {
			t.Errorf("%s: dropped %d, because %q, want %q", stage, n, why, want)
		}
	}
}

// Fault 7: "large-servers and scores act inside a batch only". The setting All asks for the best of
// all servers.
func TestFault7BestOfAllServers(t *testing.T) {
	for seed := range uint64(20) {
		servers := roomy(300)
		servers[123].Capacity[plimsoll.Memory] = 2 * gibi
		s := newStand(servers...)
		s.settings.All, s.settings.Weights = true, placement.Weights{UnreservedMemory: 2}
		if chosen, c, _ := s.place(t, smallRequest(), seed); chosen != "s123" || c.Batches != 1 || c.Looked != 300 {
			t.Errorf("seed %d: chosen %q, %+v, want s123, the fullest of all", seed, chosen, c)
		}
	}
}

// Fault 8: "stale ratios/min-platform objects are mutated in place". Neither the request nor the
// records are changed.
func TestFault8ChangesNothing(t *testing.T) {
	fresh := func() (*placement.Request, []placement.Server) {
		r := smallRequest()
		r.Constraints.Class = map[string]float64{"cpu": 4}
		r.Platforms = []plimsoll.PlatformRange{
			{Min: map[string]string{"7.0": "20200101T000000Z", "smartos": "20990101T000000Z"}},
		}
		servers := roomy(3)
		for i := range servers {
			servers[i].Overprovision = map[string]float64{"cpu": 4}
			servers[i].Release, servers[i].Platform = "7.0", "20240101T000000Z"
		}
		return r, servers
	}
	r, servers := fresh()
	s := newStand(servers...)
	first, _, _ := s.place(t, r, 1)
	again, _, _ := s.place(t, r, 1)
	if first == "" || first != again {
		t.Errorf("chosen %q, then %q", first, again)
	}
	if r2, servers2 := fresh(); !reflect.DeepEqual(r, r2) || !reflect.DeepEqual(servers, servers2) {
		t.Errorf("the request is now %+v, and the servers %+v", r, servers)
	}
}

// Fault 9: "capless CPU arithmetic depends on VM order". Here it does not, with Triton's arithmetic
// either.
func TestFault9OrderOfInstances(t *testing.T) {
	caps := []int{300, 0, 400, 50}
	seen := map[int64]bool{}
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 9))
		rng.Shuffle(len(caps), func(i, j int) { caps[i], caps[j] = caps[j], caps[i] })
		names := placement.NewNames()
		profile, err := triton.New(names)
		if err != nil {
			t.Fatal(err)
		}
		vms := []map[string]any{}
		for i, n := range caps {
			vms = append(
				vms,
				map[string]any{
					"uuid": fmt.Sprint("vm", i), "max_physical_memory": 128, "cpu_cap": n, "state": "running",
				},
			)
		}
		data, err := json.Marshal(map[string]any{
			"uuid": "a", "setup": true, "status": "running", "sysinfo": map[string]any{"CPU Total Cores": 16},
			"vms": vms,
		})
		if err != nil {
			t.Fatal(err)
		}
		server, err := profile.Server(data)
		if err != nil {
			t.Fatal(err)
		}
		server.Fault = ""
		f := placement.NewFleet(names)
		slot := f.Add(&server)
		chain, err := placement.CapacityChain(profile.Stages())
		if err != nil {
			t.Fatal(err)
		}
		list, err := placement.NewPlacer(f, rand.NewPCG(1, 2)).Capacities(chain, []int32{slot}, today)
		if err != nil {
			t.Fatal(err)
		}
		seen[list[0].Free[plimsoll.CPU]] = true
	}
	if !seen[-1880] || len(seen) != 1 { // 750 % in all, promised four times over, rounded down to a percent
		t.Errorf("free cpu: %v, want -1880 in every order", seen)
	}
}

// Fault 10: "lazily loaded VMs are not validated". A server whose loaded instances cannot be used
// is left out, with the reason.
func TestFault10LoadedInstancesAreChecked(t *testing.T) {
	s := newStand(roomy(2)...)
	s.fleet.Loader.Within = time.Second
	s.fleet.Loader.Instances = func(server string) ([]placement.Instance, error) {
		if server == "s000" {
			return []placement.Instance{{ID: "odd", Resources: plimsoll.Resources{"memory": -8 * gibi}}}, nil
		}
		return nil, nil
	}
	chosen, _, steps := s.place(t, smallRequest(), 1)
	if n, why := dropped(steps, "load-instances"); chosen != "s001" || n != 1 ||
		!strings.Contains(why, "instances.odd.resources.memory") {
		t.Errorf("chosen %q, dropped %d, because %q", chosen, n, why)
	}
}

// Fault 11: "absent weight for disk/platform/reboot gives NaN scores". An absent weight leaves the
// score out, and a weight that is no number is refused.
func TestFault11AbsentWeights(t *testing.T) {
	servers := roomy(3)
	for i := range servers {
		servers[i].NextReboot, servers[i].Platform = today+int64(i)*30*86400, fmt.Sprintf("20240%d01T000000Z", 1+i)
	}
	s := newStand(servers...)
	s.settings.Weights = placement.Weights{}
	if chosen, c, _ := s.place(t, smallRequest(), 1); chosen == "" || c.Score != 0 {
		t.Errorf("chosen %q with score %v, want 0", chosen, c.Score)
	}
	s.settings.Weights.NextReboot = math.NaN()
	if _, err := placement.NewChain(s.chain, s.stages, nil, s.settings); err == nil {
		t.Error("a weight that is no number is taken")
	}
}
